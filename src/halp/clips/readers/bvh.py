"""BVH motion capture: the hierarchy of a file evaluated to joint positions, block by block; one file per clip."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.bvh_motion import Motion
from halp.clips.readers.kinematics import Bone, Sampling, positions, used_channels
from halp.clips.readers.sources import class_folders, entries, entry_of
from halp.clips.source_files import find_files, first_file, head, read_bytes
from halp.clips.text_files import Floats, coordinates, number, problem, shown, unless_empty, whole_number
from halp.skeleton import Topology, canonical_joints, topology_for

_MOST_JOINTS = 500
# Forward kinematics of this many frames at a time stays in the cache.
_FRAMES = 2048
_CHANNELS = ("Xposition", "Yposition", "Zposition", "Xrotation", "Yrotation", "Zrotation")


@dataclass
class BvhReader:
    """Positions in the units of the file times `scale`; end sites are joints, too (`head_end`). One person per file.

    `fps` resamples every recording to that many frames per second (0: as recorded). `joints` keeps only those, by their
    names in halp's vocabulary. All files of a source need the joints of the first one, in any order. Folders below the
    source are taken as classes. Only what the kept frames and joints depend on is parsed.
    """

    name: str = "bvh"
    description: str = "BVH motion capture: one file, or a folder of .bvh files"
    scale: float = 1.0
    fps: float = 0.0
    joints: tuple[str, ...] = ()

    def sniff(self, path: Path) -> bool:
        found = first_file(path, ".bvh")
        return found is not None and head(found).lstrip(b"\xef\xbb\xbf \t\r\n").upper().startswith(b"HIERARCHY")

    def info(self, path: Path) -> Info:
        files = find_files(path, ".bvh")
        topology = self._topology(open_bvh(files[0]))
        return Info(topology, class_names=class_folders(files, path), normalisation=("centre",))

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, ".bvh")
        return entries(files, path, self._topology(open_bvh(files[0])))

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = entry_of(item)
        recording = open_bvh(item.path)
        wanted = entry.topology or self._topology(recording)
        missing = sorted(set(wanted.joints) - set(recording.topology.joints))
        if missing:
            what = f"it has no joint {', '.join(missing[:5])}, which the first file has"
            raise problem(item.path, "HIERARCHY", what, "prepare files of another skeleton on their own")
        places = recording.positions([recording.topology.index(joint) for joint in wanted.joints], self.fps)
        frames = coordinates(places * self.scale, item.path, "MOTION")
        fps = self.fps or recording.motion.known_rate
        return [unless_empty(Clip(frames[:, None], entry.name, entry.label, fps=fps))]

    def _topology(self, recording: Recording) -> Topology:
        """The joints that are kept of a recording."""
        if not self.joints:
            return recording.topology
        for joint in self.joints:
            recording.topology.index(joint)
        return topology_for(self.joints, 3)


@dataclass(frozen=True)
class Recording:
    """An opened file: its hierarchy and the head of its MOTION part are parsed, the numbers are not yet."""

    bones: list[Bone]
    topology: Topology
    motion: Motion

    def positions(self, wanted: Sequence[int], fps: float = 0.0) -> Floats:
        """Positions `(T, V, 3)` of the wanted joints, at `fps` frames per second where that is not 0."""
        sampling = Sampling.at(self.motion.frames, self.motion.rate(fps), fps)
        values = self.motion.values(sampling.needed, used_channels(self.bones, wanted))
        parts = [positions(self.bones, values[at : at + _FRAMES], wanted) for at in range(0, len(values), _FRAMES)]
        return sampling.mix(np.concatenate(parts))


def open_bvh(path: Path) -> Recording:
    """Read a file and parse its hierarchy."""
    data = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found = re.search(rb"^[ \t]*MOTION\b.*$", data, re.MULTILINE | re.IGNORECASE)
    end = found.end() if found else len(data)
    try:
        text = data[:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise problem(path, f"byte {error.start}", "this is not UTF-8 text", "check that the file is whole") from None
    lines = text.replace("\r", "").split("\n")
    bones, line = _hierarchy(path, lines)
    names = canonical_joints([bone.name for bone in bones])
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise problem(path, "HIERARCHY", f"joint {shown(twice)} comes twice", "rename one of the two")
    name = f"bvh-{len(names)}-{zlib.crc32(' '.join(names).encode()):08x}"
    topology = replace(topology_for(names, 3), name=name, parents=tuple(bone.parent for bone in bones))
    channels = sum(len(bone.channels or ()) for bone in bones)
    return Recording(bones, topology, Motion(path, data, end + 1, line, channels))


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
            path,
            where,
            f"{shown(' '.join(words))} is not a list of channels",
            f"use a count and {', '.join(_CHANNELS)}",
        )
    return tuple(lower.index(word.lower()) for word in words[1:])


register_reader(BvhReader())
