"""Fuzzing of all readers within a time budget: `make fuzz MINUTES=10`.

Samples of every format are changed (bits, bytes, blocks, numbers, cuts, joins), read in a child process under a limit of its
address space, and anything but clips, dropped clips or an `InputError` is kept in `tests/regressions`, where the tests read it
from then on. What finds a sentence that was not heard before joins the corpus of its format.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from clip_samples import NAME, annotation, write_pku, write_pyskl, write_skeleton, write_trio
from reader_samples import OPTIONS, SAMPLES

from halp.clips.readers import get_reader, list_readers, with_options
from halp.errors import InputError

TESTS = Path(__file__).parents[1]
REGRESSIONS = TESTS / "regressions"
MEMORY = 3 * 2**30
SECONDS = 60
WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    **SAMPLES,
    "ntu": ("ntu", write_skeleton),
    "pku-mmd": ("pku-mmd", write_pku),
    "pyskl": ("pyskl", lambda folder: write_pyskl(folder / "set.pkl", [annotation("a"), annotation("b")])),
    "authors": ("authors", lambda folder: write_trio(folder, "train", [NAME, NAME.replace("A013", "A014")], [3, 4])),
}
NUMBERS = (
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


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A few changes of a file at random places."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        at = chance.randrange(len(changed) + 1)
        kind = chance.choice((0, 0, 0, 1, 1, 2, 3, 4, 5, 6))
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = chance.randrange(256)
        elif kind == 2:
            del changed[at : at + chance.choice((1, 4, 16, 1000))]
        elif kind == 3:
            changed[at:at] = changed[at : at + chance.choice((1, 8, 200))]
        elif kind == 4:
            changed[at:at] = chance.choice(NUMBERS)
        elif kind == 5:
            changed[at : at + 4] = chance.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1)).to_bytes(4, "little")
        else:
            del changed[at:]
    return bytes(changed)


def read_in_child(reader: str, source: Path) -> tuple[str, str]:
    """What reading a source comes to: `clips`, `refused` with the sentence, or `bad` with what happened."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(SECONDS)
        try:
            answer = ["clips", _read(reader, source)]
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


def _read(reader: str, source: Path) -> str:
    found = with_options(get_reader(reader), OPTIONS.get(reader, {}))
    found.info(source)
    return str(sum(len(found.read(item)) for item in found.items(source)))


def samples() -> dict[str, tuple[str, Path]]:
    """A small source of every format by name, with its reader."""
    made = {}
    for name, (reader, write) in WRITERS.items():
        folder = Path(tempfile.mkdtemp(prefix="halp-fuzz-"))
        write(folder)
        made[name] = (reader, folder)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    list_readers()  # loaded once here, or every child would load them anew
    sources, found_bad = samples(), 0
    counts: Counter[tuple[str, str]] = Counter()
    heard: set[tuple[str, str]] = set()
    corpus = {
        name: [(file, file.read_bytes()) for file in sorted(folder.rglob("*")) if file.is_file()]
        for name, (_, folder) in sources.items()
    }
    end = time.monotonic() + 60 * chosen.minutes
    while time.monotonic() < end:
        for name, (reader, folder) in sources.items():
            file, data = chance.choice(corpus[name])
            original = file.read_bytes()
            if chance.random() < 0.5:
                data = original  # what was refused once is mostly refused again
            changed = mutated(data, chance)
            file.write_bytes(changed)
            kind, text = read_in_child(reader, folder)
            counts[name, kind] += 1
            if kind == "bad":
                found_bad += 1
                keep(name, reader, folder, text)
            elif (said := (name, re.sub(r"'[^']*'|\d+", "", text))) not in heard and len(corpus[name]) < 300:
                heard.add(said)
                corpus[name].append((file, changed))
            file.write_bytes(original)
    for _, folder in sources.values():
        shutil.rmtree(folder, ignore_errors=True)
    for name in sorted(sources):
        row = {kind: counts[name, kind] for kind in ("clips", "refused", "bad")}
        sys.stdout.write(f"{name}: {sum(row.values())} files, {row}\n")
    sys.stdout.write(f"{sum(counts.values())} files, {found_bad} bad\n")
    return int(found_bad > 0)


def keep(sample: str, reader: str, folder: Path, text: str) -> None:
    """Keep a source that was not read as it should be, for the tests."""
    target = REGRESSIONS / reader / f"{sample}-{time.time_ns():x}"
    shutil.copytree(folder, target)
    sys.stderr.write(f"{target}: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
