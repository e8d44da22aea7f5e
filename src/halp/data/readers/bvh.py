"""BVH motion capture: the hierarchy evaluated to joint positions, block by block; one file per clip."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.core.config import limited
from halp.data.readers import register_reader
from halp.data.readers.shared import PoseFileReader, Poses
from halp.data.source_files import head, read_text
from halp.data.text_files import Floats, coordinates, number, number_table, problem, shown, whole_number
from halp.skeleton import Topology, canonical_joints, topology_for


@dataclass
class Bone:
    """A joint or end site of the hierarchy; `channels` index (x, y, z position, x, y, z rotation)."""

    name: str
    parent: int
    offset: tuple[float, ...] = ()
    channels: tuple[int, ...] | None = None


def positions(bones: Sequence[Bone], motion: Floats, wanted: Sequence[int] | None = None) -> Floats:
    """Positions `(T, V, 3)` of the wanted bones (all unless given) from channel values `(T, channels)`.

    Rotations apply in the order of the channels. Position channels take the place of the offset, as the root
    has them and as some programs write them for every joint. Bones that no wanted bone hangs on are not
    evaluated.
    """
    wanted = range(len(bones)) if wanted is None else wanted
    needed, turning = _needed(bones, wanted)
    values = np.ascontiguousarray(motion.T)
    angles = np.deg2rad(values)
    sines, cosines = np.sin(angles), np.cos(angles)
    places: dict[int, Floats] = {}
    rotations: dict[int, Floats] = {}
    column = 0
    for index, bone in enumerate(bones):
        channels = [(channel, column + place) for place, channel in enumerate(bone.channels or ())]
        column += len(channels)
        if index not in needed:
            continue
        local: list[float | Floats] = list(bone.offset)
        for channel, row in channels:
            if channel < 3:
                local[channel] = values[row]
        if bone.parent == index:
            turn = np.zeros((3, 3, len(motion)))
            turn[0, 0] = turn[1, 1] = turn[2, 2] = 1
            places[index] = np.stack([np.broadcast_to(value, len(motion)) for value in local])
        else:
            turn = rotations[bone.parent]
            across, up, ahead = (turn[:, axis] * local[axis] for axis in range(3))
            places[index] = places[bone.parent] + (across + up + ahead)
        if index in turning:
            turn = turn.copy()
            for channel, row in channels:
                if channel >= 3:
                    _turn(turn, sines[row], cosines[row], channel - 3)
            rotations[index] = turn
    return np.stack([places[index].T for index in wanted], axis=1)


def _turn(rotation: Floats, sine: Floats, cosine: Floats, axis: int) -> None:
    """Multiply rotations `(3, 3, T)` from the right by a rotation about one axis, in place."""
    after, last = (axis + 1) % 3, (axis + 2) % 3
    first, second = rotation[:, after], rotation[:, last]
    turned = first * cosine + second * sine
    rotation[:, last] = second * cosine - first * sine
    rotation[:, after] = turned


def _needed(bones: Sequence[Bone], wanted: Sequence[int]) -> tuple[set[int], set[int]]:
    """The wanted bones with their ancestors, and those of them whose rotation moves a needed bone."""
    needed: set[int] = set()
    for index in wanted:
        while index not in needed:
            needed.add(index)
            index = bones[index].parent
    return needed, {bones[index].parent for index in needed if bones[index].parent != index}


def sample_places(frames: int, recorded: float, wanted: float) -> Floats:
    """Positions of resampled frames among `frames` recorded ones; `wanted` = 0 keeps every frame.

    >>> sample_places(9, 120.0, 30.0).tolist(), sample_places(3, 20.0, 30.0).round(2).tolist()
    ([0.0, 4.0, 8.0], [0.0, 0.67, 1.33, 2.0])
    """
    if not wanted:
        return np.arange(frames, dtype=np.float64)
    count = int((frames - 1) * wanted / recorded * (1 + 1e-3) + 1e-9) + 1
    places = np.minimum(np.arange(count) * (recorded / wanted), frames - 1)
    # frame times are written with few digits: what is nearly a recorded frame is that frame
    return np.where(np.abs(places - np.rint(places)) < 0.05, np.rint(places), places)


_MOST_JOINTS = 500
# Forward kinematics of this many frames at a time stays in the cache.
_FRAMES = 2048
_HEAD = re.compile(r"\s*frames:[ \t]*(\S*)[ \t]*\n\s*frame[ \t]*time:[ \t]*([^\n]*)(?:\n|$)", re.IGNORECASE)
_CHANNELS = ("Xposition", "Yposition", "Zposition", "Xrotation", "Yrotation", "Zrotation")


@dataclass
class BvhReader(PoseFileReader):
    """Positions in units of the file times `scale`; end sites are joints (`head_end`). One person per file.

    `fps` resamples every recording to that many frames per second (0: as recorded). `joints` keeps only
    those, by their names in halp's vocabulary. All files of a source need the joints of the first one, in any
    order. Folders below the source are taken as classes.
    """

    name: str = "bvh"
    description: str = "BVH motion capture: one file, or a folder of .bvh files"
    scale: float = limited(1.0, above=0)
    fps: float = limited(0.0, least=0, most=1000)
    joints: tuple[str, ...] = ()
    suffixes: ClassVar[tuple[str, ...]] = (".bvh",)
    steps: ClassVar[tuple[str, ...]] = ("centre",)

    def looks_right(self, path: Path) -> bool:
        return head(path).lstrip(b"\xef\xbb\xbf \t\r\n").upper().startswith(b"HIERARCHY")

    def load(self, path: Path) -> Poses:
        recording = open_bvh(path)
        topology = self._topology(recording)
        places, fps = recording.positions(
            [recording.topology.index(joint) for joint in topology.joints], self.fps
        )
        return Poses(topology.joints, places[:, None] * self.scale, fps=fps, topology=topology)

    def layout_of(self, path: Path) -> tuple[Topology, int]:
        return self._topology(open_bvh(path)), 1  # the motion of a long recording takes longer to read

    def _topology(self, recording: Recording) -> Topology:
        """The joints that are kept of a recording."""
        if not self.joints:
            return recording.topology
        for joint in self.joints:
            recording.topology.index(joint)
        return topology_for(self.joints, 3)


@dataclass(frozen=True)
class Recording:
    """An opened file: its hierarchy, and the text of its MOTION part, which begins after this many lines."""

    path: Path
    bones: Sequence[Bone]
    topology: Topology
    motion: str
    line: int

    def positions(self, wanted: Sequence[int], fps: float = 0.0) -> tuple[Floats, float]:
        """Positions `(T, V, 3)` of the wanted joints, and frames per second: `fps`, or as recorded if 0.

        The rate is -1 where the frame time is not a usual number.
        """
        values, time, where = self._values()
        recorded = 1 / time if 1e-6 <= time <= 1e3 else -1.0
        if fps and recorded < 0:
            fault = f"a frame time of {time:g} gives no frame rate"
            raise problem(self.path, where, fault, "correct it, or prepare without fps")
        places = sample_places(len(values), recorded, fps)
        below, above = np.floor(places).astype(np.int64), np.ceil(places).astype(np.int64)
        needed = np.unique([below, above])
        values = values[needed]
        parts = [
            positions(self.bones, values[at : at + _FRAMES], wanted) for at in range(0, len(values), _FRAMES)
        ]
        low, high = (np.concatenate(parts)[np.searchsorted(needed, side)] for side in (below, above))
        share = (places - below)[:, None, None]
        return np.where(share > 0, (1 - share) * low + share * high, low), fps or recorded

    def _values(self) -> tuple[Floats, float, str]:
        """Channel values `(T, channels)`, the frame time and its line."""
        head = _HEAD.match(self.motion)
        if head is None:
            raise problem(
                self.path, "MOTION", "there is no 'Frames:' with a number and 'Frame Time:' after it"
            )
        if not self.motion[head.end() :].strip():
            raise problem(self.path, "MOTION", "there are no frames")
        first, second, before = (
            self.line + self.motion.count("\n", 0, at) for at in (head.start(1), head.start(2), head.end())
        )
        declared = whole_number(head[1], self.path, f"line {first}")
        channels = sum(len(bone.channels or ()) for bone in self.bones)
        rows = "\n" * (before - 1) + self.motion[head.end() :]
        values = number_table(self.path, rows, channels, "channels of all joints")
        if len(values) != declared:
            fault = (
                f"{declared} frames with {channels} channels are declared, {len(values)} lines of numbers are"
                " there"
            )
            raise problem(self.path, f"line {first}", fault)
        coordinates(values, self.path, "MOTION")
        try:
            time = float(head[2])
        except ValueError:
            time = math.nan
        return values, time, f"line {second}"


def open_bvh(path: Path) -> Recording:
    """Read a file and parse its hierarchy."""
    text = read_text(path)
    heading = re.search(r"^[ \t]*MOTION\b.*$", text, re.MULTILINE | re.IGNORECASE)
    end = heading.end() if heading else len(text)
    return Recording(path, *_skeleton(_Heading(path, text[:end])), text[end:], text.count("\n", 0, end) + 1)


@dataclass(frozen=True)
class _Heading:
    """The text of a hierarchy, which is compared, and the file it comes from, which is not."""

    path: Path = field(compare=False)
    text: str


@lru_cache(maxsize=128)  # recordings of one person have the same hierarchy
def _skeleton(heading: _Heading) -> tuple[tuple[Bone, ...], Topology]:
    path = heading.path
    bones = _hierarchy(path, heading.text.split("\n"))
    names = canonical_joints([bone.name for bone in bones])
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise problem(path, "HIERARCHY", f"joint {shown(twice)} occurs twice", "rename one of the two")
    name = f"bvh-{len(names)}-{zlib.crc32(' '.join(names).encode()):08x}"
    topology = replace(topology_for(names, 3), name=name, parents=tuple(bone.parent for bone in bones))
    return tuple(bones), topology


def _hierarchy(path: Path, lines: Sequence[str]) -> list[Bone]:
    """The bones, parents first."""
    bones: list[Bone] = []
    open_bones: list[int] = []
    started = False
    for index, line in enumerate(lines):
        words, where = line.split(), f"line {index + 1}"
        if not words:
            continue
        word = words[0].upper()
        if not started:
            if word != "HIERARCHY":
                raise problem(
                    path, where, f"{shown(words[0])} instead of HIERARCHY", "check that this is a BVH file"
                )
            started = True
        elif word in ("ROOT", "JOINT", "END"):
            if (
                (word == "ROOT") == bool(open_bones)
                or (word == "ROOT" and bones)
                or len(bones) >= _MOST_JOINTS
            ):
                fault = "a second ROOT, a joint outside it, or too many joints"
                raise problem(path, where, fault, "keep one skeleton in a file")
            parent = open_bones[-1] if open_bones else 0
            name = f"{bones[parent].name}_end" if word == "END" else " ".join(words[1:])
            if not name.isprintable() or not name.strip() or len(name) > 100:
                raise problem(path, where, "the joint has no usable name", "name every joint")
            bones.append(Bone(name, parent))
            open_bones.append(len(bones) - 1)
        elif word == "{":
            continue
        elif word == "}" and open_bones:
            if not bones[open_bones[-1]].offset:
                raise problem(path, where, f"joint '{bones[open_bones[-1]].name}' has no OFFSET", "add one")
            open_bones.pop()
        elif word == "OFFSET" and open_bones and len(words) == 4:
            bones[open_bones[-1]].offset = tuple(number(value, path, where) for value in words[1:])
        elif word == "CHANNELS" and open_bones and len(words) > 1:
            bones[open_bones[-1]].channels = _channels(path, where, words[1:])
        elif word == "MOTION" and bones and not open_bones:
            return bones
        else:
            raise problem(path, where, f"{shown(line.strip())} is not expected here")
    message = "there is no MOTION part after the hierarchy" if started else "the file is empty"
    raise problem(path, "", message)


def _channels(path: Path, where: str, words: Sequence[str]) -> tuple[int, ...]:
    lower = [channel.lower() for channel in _CHANNELS]
    count = whole_number(words[0], path, where)
    if (
        count != len(words) - 1
        or len(set(words[1:])) != count
        or any(word.lower() not in lower for word in words[1:])
    ):
        fault = f"{shown(' '.join(words))} is not a list of channels"
        raise problem(path, where, fault, f"use a count and {', '.join(_CHANNELS)}")
    return tuple(lower.index(word.lower()) for word in words[1:])


register_reader(BvhReader())
