"""Open untrusted files safely: walks without loops, sizes checked before reading, one-sentence errors."""

from __future__ import annotations

import json
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError

T = TypeVar("T")
MIB = 2**20
TEXT_LIMIT = 256 * MIB
#: What zip files and headers of arrays raise when they are broken.
BROKEN = (
    zipfile.BadZipFile, ValueError, EOFError, SyntaxError, MemoryError, ArithmeticError, TypeError, LookupError,
    RuntimeError, zlib.error, struct.error, AttributeError, tokenize.TokenError,
)  # fmt: skip
#: Endings of files with one JSON value per line.
JSON_LINES = (".jsonl", ".ndjson")


# Files among the recordings that are not recordings, such as a table of labels.
_left_out: ContextVar[frozenset[Path]] = ContextVar("files that are not recordings", default=frozenset())


@contextmanager
def excluding_files(*paths: Path | None) -> Iterator[None]:
    """In this context, `walk` skips these files."""
    token = _left_out.set(_left_out.get() | {path.resolve() for path in paths if path is not None})
    try:
        yield
    finally:
        _left_out.reset(token)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder; a link that leads to itself is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


_walked: ContextVar[dict[tuple[Path, frozenset[Path]], list[Path]] | None] = ContextVar("walks", default=None)


@contextmanager
def walking_once() -> Iterator[None]:
    """In this context, `walk` lists a folder only once, so that many readers can inspect one source."""
    token = _walked.set({})
    try:
        yield
    finally:
        _walked.reset(token)


def walk(root: Path) -> Iterator[Path]:
    """All regular files of a folder in a fixed order, see `_walk`."""
    known, key = _walked.get(), (root, _left_out.get())
    if known is None:
        yield from _walk(root)
    else:
        if key not in known:
            known[key] = list(_walk(root))
        yield from known[key]


def _walk(root: Path) -> Iterator[Path]:
    """All regular files below `root` (or `root` itself), sorted in each folder.

    A link inside the source is followed where it leads to something inside the source, each folder once; a
    link that leads out of it is passed over: what it points to was not named by the user.
    """
    if not root.is_dir():
        if not root.exists():
            raise InputError(f"there is nothing at '{root}'; check the path of the source")
        yield root
        return
    seen: set[tuple[int, int]] = set()
    inside = Path(os.path.realpath(root))

    def entries(folder: str) -> Iterator[Path]:
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                return
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as listed:
                here = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            raise InputError(f"folder '{error.filename}' cannot be listed ({error.strerror})") from error
        here = [entry for entry in here if not (entry.is_symlink() and leads_out(Path(entry.path), inside))]
        folders = [entry.path for entry in here if _is_folder(entry)]
        paths = (
            Path(entry.path) for entry in here if not entry.name.startswith(".") and not _is_folder(entry)
        )
        yield from (path for path in paths if not (skipped and path.resolve() in skipped))
        for inner in folders:
            yield from entries(inner)

    skipped = _left_out.get()
    yield from entries(str(root))


def place_below(path: str | Path, root: Path) -> str | None:
    """Where a file lies below a folder, with slashes; None if it does not. Faster than `relative_to`."""
    text, above = str(path), "" if str(root) == "." else os.path.join(root, "")
    return text[len(above) :].replace(os.sep, "/") if text.startswith(above) and text != above else None


def leads_out(path: Path, folder: Path) -> bool:
    """Whether `path` is a link that points outside `folder` (a path without links)."""
    return path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(folder)


def count_links_out(root: Path) -> int:
    """The number of links below `root` that point outside it; they are not followed."""
    inside = Path(os.path.realpath(root))
    entries = (Path(folder, name) for folder, folders, files in os.walk(root) for name in (*folders, *files))
    return sum(leads_out(path, inside) for path in entries)


def find_files(root: Path, *suffixes: str) -> list[Path]:
    """Files below `root` whose name ends with one of the suffixes (any case); none at all is an error."""
    files = list(_ending_in(walk(root), suffixes))
    if not files:
        links = count_links_out(root)
        note = f" ({links} links point outside it and are not followed)" if links else ""
        raise InputError(
            f"'{root}' holds no file that ends with {' or '.join(suffixes)}{note}; check the path and the"
            " format"
        )
    return files


def first_file(root: Path, *suffixes: str, limit: int = 1000) -> Path | None:
    """The first file that fits among the first `limit` ones, for sniffing; None if there is none."""
    try:
        return next(_ending_in(islice(walk(root), limit + 1), suffixes), None)
    except (InputError, OSError):
        return None


def any_file(root: Path, fits: Callable[[Path], bool], *suffixes: str, most: int = 20) -> bool:
    """Whether one of the first files with these endings fits, for sniffing: the first one may be damaged."""
    try:
        files = _ending_in(islice(walk(root), 1000), suffixes)
        return any(fits(path) for path in islice(files, most))
    except (InputError, OSError):
        return False


def _ending_in(files: Iterable[Path], suffixes: Sequence[str]) -> Iterator[Path]:
    """The files whose name ends with one of these, in any case."""
    wanted = tuple(suffix.lower() for suffix in suffixes)
    return (
        path for path in files if str(path).lower().endswith(wanted)
    )  # `path.name` takes ten times as long


def head(path: Path, size: int = 4096) -> bytes:
    """The first bytes of a file, for sniffing; empty if it cannot be read."""
    try:
        if not path.is_file():
            return b""
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def unreadable(path: object, error: OSError) -> InputError:
    """The error for a file that cannot be read."""
    return InputError(
        f"'{path}' cannot be read ({error.strerror or error}); check that it exists and its permissions"
    )


def read_bytes(path: Path, limit: int = TEXT_LIMIT) -> bytes:
    """The whole file, refused when it is not a regular file or larger than `limit`."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"'{path}' is not a regular file; remove it from the source")
        if status.st_size > limit:
            raise InputError(f"'{path}' has {status.st_size} bytes; a clip may have {limit}; split it")
        with open(path, "rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from error


_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path, limit: int = TEXT_LIMIT) -> str:
    """The whole file as text: UTF-8, with or without byte-order mark, or UTF-16 with one; LF line ends."""
    content = read_bytes(path, limit)
    try:
        text = content.decode("utf-16" if content.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{path}' is not text: byte {error.start} is not {error.encoding.upper()}; check that the file"
            " is whole"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json_source(path: Path, limit: int = TEXT_LIMIT) -> Any:
    """The content of a JSON file, or the values of all lines of a JSON Lines file as a list.

    NaN, as Python writes it, is null, and infinities are refused.
    """

    def refuse(constant: str) -> Any:
        if constant == "NaN":
            return None
        raise InputError(f"'{path}': {constant} is not JSON; write null for what is missing")

    by_line = path.suffix.lower() in JSON_LINES
    text = read_text(path, limit)
    values, before = [], 0
    try:
        for before, part in enumerate(text.split("\n") if by_line else [text]):  # noqa: B007  read in the error below
            if part.strip() or not by_line:
                values.append(json.loads(part, parse_constant=refuse))
    except json.JSONDecodeError as error:
        place = f"line {before + error.lineno}, column {error.colno}"
        raise InputError(f"'{path}', {place}: not JSON ({error.msg}); check that the file is whole") from None
    except RecursionError:
        raise InputError(f"'{path}' is nested too deeply to be a pose file; check the format") from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"'{path}' holds a number that cannot be read ({error}); correct it") from None
    if not values:
        raise InputError(f"'{path}': the file is empty; check that it is complete")
    return values if by_line else values[0]


def remembered(
    most: int = 1, largest: float = float("inf")
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Cache a function of files until a file changes, except for files of `largest` bytes or more."""

    def add(load: Callable[..., T]) -> Callable[..., T]:
        cached = lru_cache(most)(lambda states, *arguments: load(*arguments))

        @wraps(load)
        def current(*arguments: Any) -> T:
            try:
                states = [os.stat(argument) for argument in arguments if isinstance(argument, Path)]
            except OSError as error:
                raise unreadable(error.filename, error) from None
            if sum(state.st_size for state in states) >= largest:
                return load(*arguments)
            return cached(
                tuple((state.st_mtime_ns, state.st_size, state.st_ino) for state in states), *arguments
            )

        vars(current)["cache_clear"] = cached.cache_clear
        return current

    return add


def load_npy(path: Path) -> npt.NDArray[Any]:
    """A `.npy` file as a read-only memory map; nothing is unpickled."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from error
    except BROKEN as error:
        raise InputError(
            f"'{path}' is not a whole NumPy array ({short_reason(error)}); fetch or write it again"
        ) from error


def short_reason(error: BaseException) -> str:
    """A library's reason in a few words: some quote the bytes they failed on."""
    # NumPy's advice would not apply here
    reason = " ".join(str(error).split()).partition(" If you trust")[0] or type(error).__name__
    return reason if len(reason) <= 150 else reason[:147] + "..."
