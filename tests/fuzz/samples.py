"""A small source of every format, how one is read under limits, and where what did harm is kept for the
tests.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from clip_samples import NAME, annotation, write_pku, write_pyskl, write_skeleton, write_trio
from reader_samples import OPTIONS, SAMPLES

from halp.core.errors import InputError
from halp.data.readers import Reader, get_reader, with_options

TESTS = Path(__file__).parents[1]
REGRESSIONS = TESTS / "regressions"
MEMORY = 3 * 2**30
SECONDS = 60
WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    **SAMPLES,
    "ntu": ("ntu", write_skeleton),
    "pku-mmd": ("pku-mmd", write_pku),
    "pyskl": ("pyskl", lambda folder: write_pyskl(folder / "set.pkl", [annotation("a"), annotation("b")])),
    "authors": (
        "authors",
        lambda folder: write_trio(folder, "train", [NAME, NAME.replace("A013", "A014")], [3, 4]),
    ),
}
#: Words that parsers stumble over.
TOKENS = (
    b"0",
    b"-1",
    b"1e308",
    b"nan",
    b"99999999999",
    b"2147483648",
    b"[",
    b"}",
    b'"',
    b",",
    b"\n",
    b"\x00",
    b"\xff",
)


def samples() -> dict[str, tuple[str, Path]]:
    """A small source of every format by name, with its reader."""
    return {name: (reader, sample(name)) for name, (reader, _) in WRITERS.items()}


def sample(name: str, place: str | None = None) -> Path:
    """A small source of one format in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="halp-fuzz-", dir=place))
    WRITERS[name][1](folder)
    return folder


def files_of(folder: Path) -> list[Path]:
    """The files of a source in order."""
    return [file for file in sorted(folder.rglob("*")) if file.is_file()]


@cache
def reader_of(name: str) -> Reader:
    """A reader with the options that its sample needs."""
    return with_options(get_reader(name), OPTIONS.get(name, {}))


def read(reader: str, source: Path) -> str:
    """Read everything of a source as `prepare` does; the number of clips."""
    found = reader_of(reader)
    found.info(source)
    return str(sum(len(found.read(item)) for item in found.items(source)))


def read_in_child(reader: str, source: Path) -> tuple[str, str]:
    """What reading a source comes to: `clips`, `refused` with the sentence, or `bad` with what happened."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        # what the parent has mapped already is not the reader's
        limit = MEMORY + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        signal.alarm(SECONDS)
        try:
            answer = ["clips", read(reader, source)]
        except InputError as error:
            answer = ["refused", str(error)]
        except BaseException as error:
            answer = ["bad", f"{type(error).__name__}: {error}"]
        os.write(sender, json.dumps(answer).encode()[:60_000])
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as file:
        said = file.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return "bad", f"ended by signal {os.WTERMSIG(status)}"
    kind, text = json.loads(said)
    return kind, text


def keep(sample: str, reader: str, folder: Path) -> Path:
    """Keep a source that was not read as it should be, for the tests."""
    target = REGRESSIONS / reader / f"{sample.replace(' ', '-')}-{time.time_ns():x}"
    shutil.copytree(folder, target)
    return target
