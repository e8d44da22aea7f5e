"""BVH motion capture: the hierarchy of a file evaluated to joint positions, all frames at once; one file a clip."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.files import find_files, first_file, head, read_text
from halp.clips.readers.sources import class_folders, entries, entry_of
from halp.clips.readers.text import (
    Floats,
    coordinates,
    number,
    number_table,
    problem,
    shown,
    unless_empty,
    whole_number,
)
from halp.skeleton import Topology, canonical_joints, joint_map, topology_for

_MOST_JOINTS = 500
_CHANNELS = ("Xposition", "Yposition", "Zposition", "Xrotation", "Yrotation", "Zrotation")


@dataclass
class Bone:
    """A joint or an end site of the hierarchy; `channels` are indices into (x, y, z position, x, y, z rotation)."""

    name: str
    parent: int
    offset: tuple[float, ...] = ()
    channels: tuple[int, ...] | None = None


@dataclass
class BvhReader:
    """Positions in the units of the file times `scale`; end sites are joints, too (`head_end`). One person a file.

    All files of a source need the joints of the first one, in any order. Folders below the source are taken as classes.
    """

    name: str = "bvh"
    description: str = "BVH motion capture: one file, or a folder of .bvh files"
    scale: float = 1.0

    def sniff(self, path: Path) -> bool:
        found = first_file(path, ".bvh")
        return found is not None and head(found).lstrip(b"\xef\xbb\xbf \t\r\n").upper().startswith(b"HIERARCHY")

    def info(self, path: Path) -> Info:
        files = find_files(path, ".bvh")
        return Info(_parse(files[0])[0], class_names=class_folders(files, path), normalisation=("centre",))

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, ".bvh")
        return entries(files, path, _parse(files[0])[0])

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = entry_of(item)
        topology, bones, motion = _parse(item.path)
        frames = coordinates(positions(bones, motion) * self.scale, item.path, "MOTION")
        if entry.topology is not None and entry.topology != topology:
            missing = sorted(set(entry.topology.joints) - set(topology.joints))
            if missing:
                what = f"it has no joint {', '.join(missing[:5])}, which the first file has"
                raise problem(item.path, "HIERARCHY", what, "prepare files of another skeleton on their own")
            frames = frames[:, joint_map(topology, entry.topology)]
        return [unless_empty(Clip(frames[:, None], entry.name, entry.label))]


def positions(bones: Sequence[Bone], motion: Floats) -> Floats:
    """Joint positions `(T, V, 3)` from channel values `(T, channels)`; rotations apply in the order of the channels.

    Position channels take the place of the offset, as the root has them and as some programs write them for every joint.
    """
    frames = len(motion)
    places = np.empty((frames, len(bones), 3))
    rotations: list[Floats] = []
    column = 0
    for index, bone in enumerate(bones):
        local = np.tile(np.array(bone.offset), (frames, 1))
        turn = np.broadcast_to(np.eye(3), (frames, 3, 3))
        for channel in bone.channels or ():
            if channel < 3:
                local[:, channel] = motion[:, column]
            else:
                turn = turn @ _rotation(motion[:, column], channel - 3)
            column += 1
        if bone.parent == index:
            places[:, index], turned = local, turn
        else:
            places[:, index] = places[:, bone.parent] + np.einsum("tij,tj->ti", rotations[bone.parent], local)
            turned = rotations[bone.parent] @ turn
        rotations.append(turned)
    return places


def _rotation(degrees: npt.NDArray[np.float64], axis: int) -> Floats:
    """Rotations `(T, 3, 3)` about one axis."""
    angle = np.deg2rad(degrees)
    sine, cosine = np.sin(angle), np.cos(angle)
    after, last = (axis + 1) % 3, (axis + 2) % 3
    result = np.zeros((len(angle), 3, 3))
    result[:, axis, axis] = 1
    result[:, after, after] = result[:, last, last] = cosine
    result[:, last, after], result[:, after, last] = sine, -sine
    return result


def _parse(path: Path) -> tuple[Topology, list[Bone], Floats]:
    """Topology, bones and channel values of a file."""
    text = read_text(path)
    lines = text.split("\n")
    bones, line = _hierarchy(path, lines)
    motion = _motion(path, lines, line, sum(len(bone.channels or ()) for bone in bones))
    names = canonical_joints([bone.name for bone in bones])
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise problem(path, "HIERARCHY", f"joint {shown(twice)} comes twice", "rename one of the two")
    name = f"bvh-{len(names)}-{zlib.crc32(' '.join(names).encode()):08x}"
    topology = replace(topology_for(names, 3), name=name, parents=tuple(bone.parent for bone in bones))
    return topology, bones, motion


def _hierarchy(path: Path, lines: Sequence[str]) -> tuple[list[Bone], int]:
    """The bones, parents first, and the index of the line after MOTION."""
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
                raise problem(path, where, f"{shown(words[0])} instead of HIERARCHY", "check that this is a BVH file")
            started = True
        elif word in ("ROOT", "JOINT", "END"):
            if (word == "ROOT") == bool(open_bones) or (word == "ROOT" and bones) or len(bones) >= _MOST_JOINTS:
                what = "a second ROOT, a joint outside it, or too many joints"
                raise problem(path, where, what, "keep one skeleton in a file")
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
            return bones, index + 1
        else:
            raise problem(path, where, f"{shown(line.strip())} is not expected here", "check that the file is whole")
    raise problem(path, "", "there is no MOTION part after the hierarchy", "check that the file is whole")


def _channels(path: Path, where: str, words: Sequence[str]) -> tuple[int, ...]:
    lower = [channel.lower() for channel in _CHANNELS]
    count = whole_number(words[0], path, where)
    if count != len(words) - 1 or len(set(words[1:])) != count or any(word.lower() not in lower for word in words[1:]):
        raise problem(
            path, where, f"{shown(' '.join(words))} are no channels", f"use a count and {', '.join(_CHANNELS)}"
        )
    return tuple(lower.index(word.lower()) for word in words[1:])


def _motion(path: Path, lines: Sequence[str], start: int, channels: int) -> Floats:
    """Channel values `(T, channels)`; the declared number of frames has to be the number of lines."""
    filled = [(number_, line) for number_, line in enumerate(lines[start:], start=start + 1) if line.strip()]
    if len(filled) < 3:
        raise problem(path, "MOTION", "there are no frames", "check that the file is whole")
    declared = filled[0][1].split()
    if len(declared) != 2 or declared[0].lower() != "frames:":
        raise problem(
            path, f"line {filled[0][0]}", "there is no 'Frames:' with a number", "check that the file is whole"
        )
    count = whole_number(declared[1], path, f"line {filled[0][0]}")
    if not filled[1][1].lower().replace(" ", "").startswith("frametime:"):
        raise problem(path, f"line {filled[1][0]}", "there is no 'Frame Time:'", "check that the file is whole")
    if count != len(filled) - 2 or not channels:
        what = f"{count} frames with {channels} channels are declared, {len(filled) - 2} lines of numbers are there"
        raise problem(path, f"line {filled[0][0]}", what, "check that the file is whole")
    first = filled[2][0]
    motion = number_table(path, "\n" * (first - 1) + "\n".join(lines[first - 1 :]), channels, "channels of all joints")
    coordinates(motion, path, "MOTION")
    return motion


register_reader(BvhReader())
