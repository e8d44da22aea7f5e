"""NTU RGB+D 60 and 120: raw `.skeleton` files or their `.npy` form; metadata comes from file names.

The `.npy` form is what the data set's own conversion script writes: a pickled dictionary with `skel_body0`,
`skel_body1` …
`(T, 25, 3)` each, zeros where the body is absent. It goes through the restricted loader of pickles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from halp.core.config import limited
from halp.data.clip import Clip, Dropped, Frames
from halp.data.normalise import AUTHORS
from halp.data.persons import keep_most_moving
from halp.data.readers import Info, Item, register_reader
from halp.data.readers.archives import load_pickle_in_npy
from halp.data.readers.shared import PERSONS, PoseFileReader, Poses
from halp.data.source_files import MIB, first_file, head, read_bytes, walk
from halp.data.splits import Split
from halp.data.text_files import LARGEST_COORDINATE, Floats, problem, shown
from halp.skeleton import KINECT_V2

_NAME = re.compile(r"S(\d{3})C(\d{3})P(\d{3})R(\d{3})A(\d{3})", re.ASCII)
_SUFFIX, _CONVERTED = ".skeleton", ".npy"
_JOINTS, _NUMBERS, _PERSONS = 25, 12, 2
_AGAIN = "fetch the file again"
# Files of the data set stay below 10 MB, 300 frames and 6 bodies; far more is not a recording and would only
# cost memory.
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
    """The parts of a sample's name."""

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
    match = _NAME.fullmatch(_stem(name))
    return Sample(*map(int, match.groups())) if match else None


def sample_facts(name: str) -> dict[str, Any]:
    """The metadata in the name of a sample, except its class; empty for other names."""
    if (sample := parse_name(name)) is None:
        return {}
    extra = {"setup": sample.setup, "repetition": sample.repetition}
    return {"subject": sample.performer, "camera": sample.camera, "extra": extra}


def _stem(name: str) -> str:
    return name.removesuffix(_CONVERTED).removesuffix(_SUFFIX)


@cache
def resource_lines(name: str) -> tuple[str, ...]:
    """Lines of a text file that is shipped beside the readers, comments left out."""
    text = (resources.files("halp.data.readers") / "data" / name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def class_names() -> tuple[str, ...]:
    """Names of the 120 actions; the first 60 are those of NTU-60."""
    return resource_lines("ntu_classes.txt")


@cache
def missing_samples() -> frozenset[Sample]:
    """The 535 samples listed by the data set's authors as missing or incomplete (302 of NTU-60)."""
    missing = set()
    for line in resource_lines("ntu_missing.txt"):
        setup, *samples = line.split()
        missing |= {Sample(int(setup), *map(int, sample.split("."))) for sample in samples}
    return frozenset(missing)


@dataclass
class NtuReader:
    """Raw or converted files; the two bodies of largest motion energy are kept. `only` selects NTU-60."""

    name: str = "ntu"
    description: str = "NTU RGB+D: a folder of raw .skeleton files or their .npy form; 60 or 120 by file name"
    only: int = 0

    def sniff(self, path: Path) -> bool:
        file = first_file(path, _SUFFIX, _CONVERTED)
        if self.only or file is None or parse_name(file.name) is None:
            return False
        return file.suffix != _CONVERTED or b"'|O'" in head(file, 128)  # an array of Python objects

    def info(self, path: Path) -> Info:
        small = self.only == 60 or (
            not self.only and all(_sample(item.path).of_60 for item in self.items(path))
        )
        return Info(
            KINECT_V2,
            persons=_PERSONS,
            class_names=class_names()[: 60 if small else 120],
            splits=SPLITS_60 if small else SPLITS_120,
            normalisation=AUTHORS,
            origin={"data set": "NTU RGB+D 60" if small else "NTU RGB+D 120"},
        )

    def items(self, path: Path) -> Iterable[Item]:
        named = (
            (file, parse_name(file.name)) for file in walk(path) if file.name.endswith((_SUFFIX, _CONVERTED))
        )
        items = [Item(file) for file, sample in named if sample and (self.only != 60 or sample.of_60)]
        if not items:
            fault = "no file is named like 'S001C001P001R001A001.skeleton'"
            raise problem(path, "", fault, "check the path, and unpack the archives of the data set")
        return items

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        sample, name = _sample(item.path), _stem(item.path.name)
        if sample in missing_samples():
            return [Dropped(name, "listed as missing or incomplete by the data set's authors", expected=True)]
        if not 1 <= sample.action <= len(class_names()):
            raise problem(
                item.path, "", f"there is no action {sample.action}, only 1 to 120", "correct its name"
            )
        parse = parse_converted if item.path.suffix == _CONVERTED else parse_skeleton
        bodies = parse(read_bytes(item.path, _LARGEST_FILE), item.path)
        frames, repairs = keep_most_moving(bodies, _PERSONS)
        return [Clip(frames, name, sample.action - 1, repairs=repairs, **sample_facts(name))]


def _sample(path: Path) -> Sample:
    sample = parse_name(path.name)
    if sample is None:
        raise problem(path, "", "its name names no sample", "name it like S001C001P001R001A001.skeleton")
    return sample


def parse_converted(data: bytes, path: Path) -> Frames:
    """All bodies of a converted file: `(T, bodies, 25, 3)` float32, zeros if none is."""
    content = load_pickle_in_npy(path, data)
    known = content if isinstance(content, dict) else {}
    bodies = {
        name: known[name] for name in (f"skel_body{body}" for body in range(_MOST_BODIES)) if name in known
    }
    if not bodies:
        raise problem(
            path, "", "it has no 'skel_body0'", "leave this clip out, or convert its .skeleton file again"
        )
    frames = np.shape(next(iter(bodies.values())))[:1]
    for name, body in bodies.items():
        if not isinstance(body, np.ndarray) or body.dtype.kind != "f" or body.shape != (*frames, _JOINTS, 3):
            raise problem(
                path, f"'{name}'", "it is not (frames, 25, 3) numbers, as many as the first body", _AGAIN
            )
        if not (np.abs(body) <= LARGEST_COORDINATE).all():
            raise problem(path, f"'{name}'", "a joint position is invalid", "leave this clip out")
    if not any(body.any() for body in bodies.values()):
        raise problem(path, "", "none of its frames has a body", "leave this clip out")
    return np.stack(list(bodies.values()), axis=1).astype(np.float32)


def parse_skeleton(data: bytes, path: Path) -> Frames:
    """All bodies of a `.skeleton` file by index in each frame: `(T, bodies, 25, 3)` float32."""
    if not data.isascii():
        raise problem(
            path, f"byte {next(at for at, byte in enumerate(data) if byte > 127)}", "it is not text", _AGAIN
        )
    lines = data.rstrip().split(b"\n")
    rows, slots, length = _layout(lines, path)
    if not rows:
        raise problem(path, "", f"none of its {length} frames has a body", "leave this clip out")
    places = _coordinates(lines, rows, path)
    times, persons = np.array(slots).T
    bodies = np.zeros((length, int(persons.max()) + 1, _JOINTS, 3), dtype=np.float32)
    bodies[times, persons] = places.reshape(-1, _JOINTS, 3)
    return bodies


def _layout(lines: list[bytes], path: Path) -> tuple[list[int], list[tuple[int, int]], int]:
    """Where every body's joints start, its (frame, index), and the number of frames; checks all counts."""
    position, total = 0, len(lines)

    def count(quantity: str, most: int) -> int:
        nonlocal position
        if position >= total:
            raise problem(path, f"line {position + 1}", f"the file ends where {quantity} is due", _AGAIN)
        try:
            value = int(lines[position])
        except ValueError:
            fault = f"{shown(lines[position].decode().strip())} is no {quantity}"
            raise problem(path, f"line {position + 1}", fault, _AGAIN) from None
        if not 0 <= value <= most:
            raise problem(path, f"line {position + 1}", f"{value} is not a possible {quantity}", _AGAIN)
        position += 1
        return value

    length = count("number of frames", 10**12)
    rows: list[int] = []
    slots: list[tuple[int, int]] = []
    if length > min(_MOST_FRAMES, total - 1):
        raise problem(path, "line 1", f"{length} frames are declared in a file of {total} lines", _AGAIN)
    for frame in range(length):
        for body in range(count("number of bodies", _MOST_BODIES)):
            position += 1  # the body's own numbers
            joints = count("number of joints", 10**6)
            if joints != _JOINTS:
                raise problem(path, f"line {position}", f"a body has {joints} joints", "it must be 25")
            rows.append(position)
            slots.append((frame, body))
            position += _JOINTS
            if position > total:
                raise problem(path, f"line {total}", f"the file ends within frame {frame}", _AGAIN)
    if length == 0 or position != total:
        fault = f"the {length} declared frames end here, the file does not" if length else "it has no frame"
        raise problem(path, f"line {position}", fault, _AGAIN)
    return rows, slots, length


def _coordinates(lines: list[bytes], rows: list[int], path: Path) -> Floats:
    """The first three of the twelve numbers of every joint line `(joints, 3)`."""
    numbers: list[float] = []
    for row in rows:
        for line in range(row, row + _JOINTS):
            words = lines[line].split()
            if len(words) != _NUMBERS:
                raise problem(path, f"line {line + 1}", f"{len(words)} numbers instead of {_NUMBERS}", _AGAIN)
            try:
                numbers += (float(words[0]), float(words[1]), float(words[2]))
            except ValueError:
                fault = f"{shown(lines[line].decode().strip())} are not numbers"
                raise problem(path, f"line {line + 1}", fault, _AGAIN) from None
    result = np.array(numbers).reshape(-1, 3)
    # NaN fails every comparison, so this finds it too.
    if not (np.abs(result) <= LARGEST_COORDINATE).all():
        body, joint = divmod(int(np.argmin((np.abs(result) <= LARGEST_COORDINATE).all(axis=1))), _JOINTS)
        line = rows[body] + joint
        fault = f"{shown(lines[line].decode().strip())} is not a place of a joint"
        raise problem(path, f"line {line + 1}", fault, "leave this clip out")
    return result


register_reader(NtuReader())
register_reader(NtuReader("ntu-60", "NTU RGB+D 60: the same, only the samples of the smaller set", only=60))
register_reader(
    NtuReader("ntu-120", "NTU RGB+D 120: the same, always with the splits of the larger set", only=120)
)


_START = re.compile(rb"\s*\d{1,9}\s*\n\s*\d{1,2}\s*\n")
_RATE = 30.0


@dataclass
class SkeletonFileReader(PoseFileReader):
    """One recording per file, 25 joints, 30 fps; file names carry no metadata, folders may be classes."""

    persons: int = limited(2, **PERSONS)
    suffixes: ClassVar[tuple[str, ...]] = (".skeleton",)

    def looks_right(self, path: Path) -> bool:
        return parse_name(path.name) is None and _START.match(head(path, 64)) is not None

    def load(self, path: Path) -> Poses:
        bodies = parse_skeleton(read_bytes(path), path).astype(np.float64)
        frames = np.where((bodies == 0).all(axis=-1, keepdims=True), np.nan, bodies)
        return Poses(KINECT_V2.joints, frames, fps=_RATE, topology=KINECT_V2)


register_reader(
    SkeletonFileReader("skeleton", "Kinect v2 .skeleton files (as of NTU RGB+D) under names of your own")
)
