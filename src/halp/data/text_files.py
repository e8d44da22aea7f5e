"""Shared by readers of text and JSON: tables of numbers, checked coordinates, uniform error messages."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.clip import Clip, Dropped, Frames

Floats = npt.NDArray[np.float64]

# Metres, millimetres and pixels all stay far below; what is larger would only overflow later, where nobody
# sees why.
LARGEST_COORDINATE = 1e7
LONGEST_NAME = 200
MOST_CELLS = 2**28
# Labels beyond this number and beyond the number of clips are not class numbers.
MOST_CLASSES = 10_000


def utf8(text: str) -> str:
    r"""A text that can be written as UTF-8: bytes of a file name that are not UTF-8 are spelled out.

    >>> utf8(b"caf\xe9.bvh".decode("utf-8", "surrogateescape"))
    'caf\\xe9.bvh'
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def problem(path: Path, where: str, what: str, remedy: str = "check that the file is whole") -> InputError:
    """The error of all readers: file, line or key, problem, remedy."""
    return InputError(f"'{path}'{', ' + where if where else ''}: {what}; {remedy}")


def shown(value: object) -> str:
    """A value for a message: shortened and on one line."""
    text = repr(value) if isinstance(value, str | bytes | int | float | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


def number(text: str, path: Path, where: str) -> float:
    """One finite number from text."""
    try:
        value = float("nothing" if "_" in text else text)  # Python takes 1_0 for 10, nobody else does
    except ValueError:
        raise problem(
            path, where, f"{shown(text)} is not a number", "correct it or leave this clip out"
        ) from None
    if not math.isfinite(value):
        raise problem(
            path, where, f"{shown(text)} is not a finite number", "fill the gap or leave this clip out"
        )
    return value


def point_number(text: str) -> str:
    """A number with a decimal comma as it is written with a point; anything else as it is.

    >>> point_number("-1,25"), point_number("1.234,5")
    ('-1.25', '1.234,5')
    """
    return text.replace(",", ".") if re.fullmatch(r"[-+]?\d*,\d+([eE][-+]?\d+)?", text) else text


def whole_number(value: object, path: Path, where: str) -> int:
    """One whole number, from text or from JSON."""
    try:
        if isinstance(value, float) and not value.is_integer():
            raise ValueError
        result = int(value)  # type: ignore[call-overload]
    except (ValueError, TypeError, OverflowError):
        raise problem(
            path, where, f"{shown(value)} is not a whole number", "correct it or leave this clip out"
        ) from None
    if abs(result) >= 2**53:
        raise problem(path, where, f"{shown(value)} is too large", "correct it or leave this clip out")
    return int(result)


def are_whole(values: Iterable[str]) -> bool:
    """Whether texts, such as labels or subjects, are all whole numbers from 0."""
    return all(re.fullmatch(r"[0-9]{1,9}", value) for value in values)


def class_count(labels: Iterable[object], clips: int) -> int:
    """How many classes the labels of `clips` clips imply; labels too large for a class number do not count.

    >>> class_count([0, 4, "walk", 2_000_000_000], clips=4)
    5
    """
    limit = max(clips, MOST_CLASSES)
    whole = (int(label) for label in labels if isinstance(label, int | np.integer))
    return 1 + max((label for label in whole if 0 <= label < limit), default=-1)


def number_table(path: Path, text: str, columns: int, meaning: str) -> Floats:
    """Numbers separated by spaces or tabs, `columns` per line: `(lines, columns)`; skips empty lines."""
    lines = text.split("\n")
    rows = [(at, words) for at, words in enumerate(map(str.split, lines), start=1) if words]
    if not rows:
        raise problem(path, "", "there is not one line of numbers in it", "fetch it again or leave it out")
    for at, words in rows:
        if len(words) != columns:
            raise problem(path, f"line {at}", f"{len(words)} numbers instead of {columns} ({meaning})")
    try:
        return np.loadtxt(lines, comments=None, dtype=np.float64, ndmin=2)
    except ValueError:  # the slow way knows the line
        return np.array([[number(word, path, f"line {at}") for word in words] for at, words in rows])


def json_numbers(value: Any, shape: Sequence[int | None], path: Path, where: str) -> Floats:
    """Nested JSON lists as an array of this shape (None: any length); `null` becomes NaN."""
    try:
        array = np.array(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise problem(
            path, where, "it does not hold evenly nested lists of numbers", "correct it or leave it out"
        ) from None
    if array.ndim != len(shape) or any(want not in (None, size) for want, size in zip(shape, array.shape)):
        wanted = " x ".join("any" if size is None else str(size) for size in shape)
        got = " x ".join(map(str, array.shape)) or "a single number"
        raise problem(path, where, f"the numbers form {got} instead of {wanted}")
    return array


def as_floats(array: npt.NDArray[Any]) -> Floats:
    """Numbers of any kind as float64; invalid bytes become NaN or infinite without a warning."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(array, dtype=np.float64)


def coordinates(array: npt.NDArray[Any], path: Path, where: str = "", *, axis: str = "frame") -> Frames:
    """Coordinates as float32; an error names the index of the first that is not finite or too large."""
    if array.dtype not in (np.float32, np.float64):
        # The bound does not fit into half floats, and whole numbers have no absolute value of their lowest
        # one.
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    wrong = ~((array >= -LARGEST_COORDINATE) & (array <= LARGEST_COORDINATE))
    if wrong.any():
        at = np.argwhere(wrong)[0]
        place = f"{axis} {at[0]}" if array.ndim > 1 else ""
        raise problem(
            path,
            ", ".join(part for part in (where, place) if part),
            f"a coordinate is {array[tuple(at)]:g}",
            "fill the gap or leave this clip out",
        )
    return array.astype(np.float32)


def places_in_time(numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """The place of every frame number and how many places there are.

    Where numbers follow a fixed step with some left out, as of frames with nobody, those keep their place;
    numbers without such a step, as of clocks, only tell the order.

    >>> places_in_time(np.array([10, 12, 18]))
    (array([0, 1, 4]), 5)
    >>> places_in_time(np.array([0, 33, 67]))
    (array([0, 1, 2]), 3)
    """
    times, index = np.unique(numbers, return_inverse=True)
    steps, counts = np.unique(np.diff(times), return_counts=True)
    if len(steps) and not (steps % steps[counts.argmax()]).any():
        places = (times - times[0]) // steps[counts.argmax()]
        if places[-1] < 1000 * len(times):
            return places[index], int(places[-1]) + 1
    return index, len(times)


def checked_scores(array: npt.NDArray[Any], path: Path, where: str = "") -> Floats:
    """Scores of joints; a missing one (NaN) counts as 0, an infinite one is an error."""
    if np.isinf(array).any():
        raise problem(path, where, "a score is infinite", "correct it or leave this clip out")
    return np.where(np.isnan(array), 0.0, array)


def safe_name(name: object, path: Path, where: str) -> str:
    """A clip name found inside a file; raises if it could escape a folder or corrupt a table."""
    text = str(name).strip() if isinstance(name, str | int) else ""
    parts = text.replace("\\", "/").split("/")
    if not text or len(text) > LONGEST_NAME or not text.isprintable() or parts[0] == "" or ".." in parts:
        raise problem(
            path, where, f"{shown(text or name)} cannot name a clip", "use a short plain name without '..'"
        )
    return text


def mask_low_scores(
    frames: Frames, scores: npt.NDArray[Any], min_score: float
) -> tuple[Frames, tuple[str, ...]]:
    """Joints scored 0 or below the threshold become zeros, that is, missing: `(…, V, C)`, `(…, V)`."""
    unsure = (scores <= 0) | (scores < min_score)
    lost = int((unsure & (frames != 0).any(axis=-1)).sum())
    kept = np.where(unsure[..., None], np.float32(0), frames)
    return kept, (f"{lost} joints with a score below {min_score:g} made missing",) if lost else ()


def drop_if_empty(clip: Clip) -> Clip | Dropped:
    """The clip, or a note that nobody is in it."""
    return clip if clip.frames.any() else Dropped(clip.name, "there is no body in any of its frames")


def check_unique_names(names: Iterable[str], path: Path) -> None:
    """Raise if two clips of one source have the same name."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise problem(path, "", f"two clips are called '{twice}'", "give every clip a name of its own")
