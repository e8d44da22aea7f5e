"""NTU RGB+D 60 and 120: folders of raw `.skeleton` files, everything but the joints told by the file's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip, Frames
from halp.clips.normalise import AUTHORS, keep_most_moving
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.decimals import Bytes, Places, decimals, leading_words, line_ends
from halp.clips.source_files import MIB, first_file, read_bytes, walk
from halp.clips.splits import Split
from halp.clips.text_files import LARGEST, problem, shown
from halp.skeleton import KINECT_V2

_NAME = re.compile(r"S(\d{3})C(\d{3})P(\d{3})R(\d{3})A(\d{3})", re.ASCII)
_SUFFIX = ".skeleton"
_JOINTS, _NUMBERS, _BODY_NUMBERS, _PERSONS = 25, 12, 10, 2
_AGAIN = "fetch the file again"
# Files of the data set stay below 10 MB, 300 frames and 6 bodies; far more is not a recording and would only cost memory.
_LARGEST_FILE, _MOST_FRAMES, _MOST_BODIES = 64 * MIB, 20_000, 32

_TRAIN_60 = (1, 2, 4, 5, 8, 9, 13, 14, 15, 16, 17, 18, 19, 25, 27, 28, 31, 34, 35, 38)
_TRAIN_120 = (
    *_TRAIN_60,
    *(45, 46, 47, 49, 50, 52, 53, 54, 55, 56, 57, 58, 59, 70, 74, 78, 80, 81, 82, 83, 84, 85, 86, 89),
    *(91, 92, 93, 94, 95, 97, 98, 100, 103),
)
SPLITS_60 = (Split("xsub", "subject", _TRAIN_60), Split("xview", "camera", (2, 3), (1,)))
SPLITS_120 = (Split("xsub", "subject", _TRAIN_120), Split("xset", "setup", tuple(range(2, 33, 2))))


@dataclass(frozen=True)
class Sample:
    """What a sample's name says."""

    setup: int
    camera: int
    performer: int
    repetition: int
    action: int

    @property
    def of_60(self) -> bool:
        return self.action <= 60 and self.setup <= 17


def parse_name(name: str) -> Sample | None:
    """The numbers in a name such as `S001C002P003R002A013`, with or without suffix; None for other names.

    >>> parse_name("S001C002P003R002A013.skeleton")
    Sample(setup=1, camera=2, performer=3, repetition=2, action=13)
    """
    match = _NAME.fullmatch(name.removesuffix(_SUFFIX))
    return Sample(*map(int, match.groups())) if match else None


def resource_lines(name: str) -> list[str]:
    """Lines of a text file that is shipped beside the readers, comments left out."""
    text = (resources.files("halp.clips.readers") / "data" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def class_names() -> tuple[str, ...]:
    """Names of the 120 actions; the first 60 are those of NTU-60."""
    return tuple(resource_lines("ntu_classes.txt"))


@cache
def missing_samples() -> frozenset[Sample]:
    """The 535 samples that the data set's authors list as having missing or incomplete skeletons (302 of NTU-60)."""
    found = set()
    for line in resource_lines("ntu_missing.txt"):
        setup, *samples = line.split()
        found |= {Sample(int(setup), *map(int, sample.split("."))) for sample in samples}
    return frozenset(found)


@dataclass
class NtuReader:
    """Raw `.skeleton` files; the two bodies of largest motion energy are kept. `only` restricts a tree to NTU-60."""

    name: str = "ntu"
    description: str = "NTU RGB+D: a folder of raw .skeleton files; 60 or 120 is told by their names"
    only: int = 0

    def sniff(self, path: Path) -> bool:
        found = first_file(path, _SUFFIX)
        return not self.only and found is not None and parse_name(found.name) is not None

    def info(self, path: Path) -> Info:
        small = self.only == 60 or (not self.only and all(_sample(item.path).of_60 for item in self.items(path)))
        return Info(
            KINECT_V2,
            persons=_PERSONS,
            class_names=class_names()[: 60 if small else 120],
            splits=SPLITS_60 if small else SPLITS_120,
            normalisation=AUTHORS,
            origin={"data set": "NTU RGB+D 60" if small else "NTU RGB+D 120"},
        )

    def items(self, path: Path) -> Iterable[Item]:
        found = []
        for file in walk(path):
            sample = parse_name(file.name) if file.name.endswith(_SUFFIX) else None
            if sample is not None and (self.only != 60 or sample.of_60):
                found.append(Item(file))
        if not found:
            what = "no file is named like 'S001C001P001R001A001.skeleton'"
            raise problem(path, "", what, "check the path, and unpack the archives of the data set")
        return found

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        sample, name = _sample(item.path), item.path.name.removesuffix(_SUFFIX)
        if sample in missing_samples():
            return [Dropped(name, "listed as missing or incomplete by the data set's authors", expected=True)]
        if not 1 <= sample.action <= len(class_names()):
            raise problem(item.path, "", f"there is no action {sample.action}, only 1 to 120", "correct its name")
        bodies = parse_skeleton(read_bytes(item.path, _LARGEST_FILE), item.path)
        frames, repairs = keep_most_moving(bodies, _PERSONS)
        return [
            Clip(
                frames,
                name,
                label=sample.action - 1,
                subject=sample.performer,
                camera=sample.camera,
                extra={"setup": sample.setup, "repetition": sample.repetition},
                repairs=repairs,
            )
        ]


def _sample(path: Path) -> Sample:
    sample = parse_name(path.name)
    if sample is None:
        raise problem(path, "", "its name tells no sample", "name it like S001C001P001R001A001.skeleton")
    return sample


def parse_skeleton(data: bytes, path: Path) -> Frames:
    """All bodies of a `.skeleton` file by their place in each frame: `(T, bodies, 25, 3)` float32, zeros where none is.

    Words and lines are found for the whole file at once; only the counts are looked at one by one.
    """
    if not data.isascii():
        raise problem(path, f"byte {next(at for at, byte in enumerate(data) if byte > 127)}", "it is not text", _AGAIN)
    data = data.rstrip()
    buffer, line_end = line_ends(data)
    rows, slots, length = _layout(data, line_end.tolist(), path)
    if not rows:
        raise problem(path, "", f"none of its {length} frames has a body", "leave this clip out")
    lines = (np.array(rows)[:, None] + np.arange(_JOINTS)).ravel()
    places = _coordinates(data, buffer, line_end, lines, path)
    times, persons = np.array(slots).T
    bodies = np.zeros((length, int(persons.max()) + 1, _JOINTS, 3), dtype=np.float32)
    bodies[times, persons] = places.reshape(-1, _JOINTS, 3)
    return bodies


def _layout(data: bytes, line_end: list[int], path: Path) -> tuple[list[int], list[tuple[int, int]], int]:
    """The line where every body's joints start, which (frame, place) it has, the number of frames; checks all counts."""
    position, total = 0, len(line_end)

    def count(what: str, most: int) -> int:
        nonlocal position
        if position >= total:
            raise problem(path, f"line {position + 1}", f"the file ends where {what} is due", _AGAIN)
        line = data[line_end[position - 1] + 1 if position else 0 : line_end[position]]
        try:
            value = int(line)
        except ValueError:
            what = f"{shown(line.decode().strip())} is no {what}"
            raise problem(path, f"line {position + 1}", what, _AGAIN) from None
        if not 0 <= value <= most:
            raise problem(path, f"line {position + 1}", f"{value} is not a possible {what}", _AGAIN)
        position += 1
        return value

    length = count("number of frames", 10**12)
    rows: list[int] = []
    slots: list[tuple[int, int]] = []
    if length > min(_MOST_FRAMES, total - 1):
        raise problem(path, "line 1", f"{length} frames are declared in a file of {total} lines", _AGAIN)
    for frame in range(length):
        for body in range(count("number of bodies", _MOST_BODIES)):
            position += 2
            # The usual case without a call; a line end of two letters or an error takes the other way.
            if position > total or data[line_end[position - 2] + 1 : line_end[position - 1]] != b"25":
                position -= 1
                joints = count("number of joints", 10**6)
                if joints != _JOINTS:
                    raise problem(path, f"line {position}", f"a body has {joints} joints", "it has to be 25")
            rows.append(position)
            slots.append((frame, body))
            position += _JOINTS
            if position > total:
                raise problem(path, f"line {total}", f"the file ends within frame {frame}", _AGAIN)
    if length == 0 or position != total:
        what = f"the {length} declared frames end here, the file does not" if length else "it has no frame"
        raise problem(path, f"line {position}", what, _AGAIN)
    return rows, slots, length


def _coordinates(data: bytes, buffer: Bytes, line_end: Places, lines: Places, path: Path) -> npt.NDArray[np.floating]:
    """The first three of the twelve numbers of every joint line `(joints, 3)`."""
    try:
        # The number of blanks says at next to no cost that no line is short; where it does not fit, each line is looked at.
        bodies = len(lines) // _JOINTS
        if np.count_nonzero(buffer == 32) != (_NUMBERS - 1) * len(lines) + (_BODY_NUMBERS - 1) * bodies:
            raise ValueError
        starts, ends = leading_words(buffer, line_end[lines - 1] + 1, 3)
        result = decimals(buffer, starts.ravel(), ends.ravel())
        # NaN fails every comparison, so this one line finds it too.
        if not np.abs(result).max() <= LARGEST:
            raise ValueError
        return result
    except ValueError:
        return _coordinates_line_by_line(data.decode().split("\n"), lines.tolist(), path)


def _coordinates_line_by_line(text: list[str], lines: list[int], path: Path) -> npt.NDArray[np.floating]:
    """The same for files with odd spacing, and to say which line is wrong."""
    result = np.empty((len(lines), 3))
    for number, line in enumerate(lines):
        where, words = f"line {line + 1}", text[line].split()
        if len(words) != _NUMBERS:
            raise problem(path, where, f"{len(words)} numbers instead of {_NUMBERS}", _AGAIN)
        try:
            result[number] = [float(word) for word in words[:3]]
        except ValueError:
            raise problem(path, where, f"{shown(' '.join(words))} are not numbers", _AGAIN) from None
        if not np.abs(result[number]).max() <= LARGEST:
            raise problem(path, where, f"{shown(' '.join(words))} is not a place of a joint", "leave this clip out")
    return result


register_reader(NtuReader())
register_reader(NtuReader("ntu-60", "NTU RGB+D 60: the same, only the samples of the smaller set", only=60))
register_reader(NtuReader("ntu-120", "NTU RGB+D 120: the same, always with the splits of the larger set", only=120))
