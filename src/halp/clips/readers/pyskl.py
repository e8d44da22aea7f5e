"""PYSKL and MMAction2 annotation pickles: 2D (COCO-17) and 3D (Kinect v2) keypoints, read by the restricted unpickler.

The file is a dictionary of `split` (lists of names) and `annotations`, or the bare list of older files. It has to be in
memory whole, so one process reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from halp.clips.clip import Clip
from halp.clips.normalise import AUTHORS
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.ntu import class_names, parse_name, sample_facts
from halp.clips.readers.shared import attempt, only_file
from halp.clips.sandbox import load_pickle
from halp.clips.source_files import first_file, head, remembered
from halp.clips.splits import Split
from halp.clips.text_files import class_count, coordinates, forget_unsure, problem, safe_name, whole_number
from halp.skeleton import Topology, get_topology, list_topologies

_SUFFIXES = (".pkl", ".pickle")
_PART = re.compile(r"(?P<before>.*?)[_-]?(?P<part>train|val|test)[_-]?(?P<after>.*)", re.IGNORECASE)
_CHUNK = 256
_MOST_PERSONS = 10
_LAYOUTS = {
    **{(25, 3): "kinect-v2", (20, 3): "kinect-v1"},
    **{(17, 2): "coco-17", (18, 2): "openpose-18", (25, 2): "openpose-25"},
}


@dataclass(frozen=True)
class Annotations:
    """One file's content, checked as far as all clips share it."""

    path: Path
    clips: Sequence[Mapping[str, Any]]
    parts: Mapping[str, Mapping[str, int]]
    topology: Topology
    persons: int


@dataclass
class PysklReader:
    """Keypoints `(M, T, V, C)` of every annotation; joints of score 0 become missing."""

    name: str = "pyskl"
    description: str = "PYSKL / MMAction2: one annotation pickle (.pkl) with 2D or 3D keypoints"

    def sniff(self, path: Path) -> bool:
        file = first_file(path, *_SUFFIXES)
        start = head(file) if file is not None else b""
        return b"frame_dir" in start or b"annotations" in start or (b"split" in start and start[:1] == b"\x80")

    def info(self, path: Path) -> Info:
        data = _load(only_file(path, *_SUFFIXES))
        labels = [clip.get("label", -1) for clip in data.clips if isinstance(clip, dict)]
        classes = class_count(labels, len(data.clips))
        first = [clip.get("frame_dir") for clip in data.clips[:10] if isinstance(clip, dict)]
        of_ntu = all(isinstance(name, str) and parse_name(name) for name in first)
        names = class_names()[: 60 if classes <= 60 else 120] if of_ntu else tuple(map(str, range(classes)))
        return Info(
            data.topology,
            persons=data.persons,
            class_names=names,
            splits=tuple(Split(name, f"split {name}", (0,), (1,)) for name in data.parts),
            normalisation=AUTHORS if data.topology.dimensions == 3 else ("centre", "scale"),
            shared=False,
        )

    def items(self, path: Path) -> Iterable[Item]:
        file = only_file(path, *_SUFFIXES)
        return [Item(file, start) for start in range(0, len(_load(file).clips), _CHUNK)]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        data = _load(item.path)
        outcomes = []
        for row, entry in enumerate(data.clips[item.key : item.key + _CHUNK], start=item.key):
            where, name = f"annotation {row}", entry.get("frame_dir") if isinstance(entry, dict) else None
            make = partial(_clip, data, entry, where)
            outcomes.append(attempt(name if isinstance(name, str) and name else where, make))
        return outcomes


def _clip(data: Annotations, entry: Any, where: str) -> Clip:
    path = data.path
    if not isinstance(entry, dict):
        raise problem(path, where, f"it is a {type(entry).__name__}, not a dictionary", "leave it out")
    name = safe_name(entry.get("frame_dir", ""), path, f"{where}, key 'frame_dir'")
    keypoints = entry.get("keypoint")
    wanted = (len(data.topology), data.topology.dimensions)
    if not isinstance(keypoints, np.ndarray) or keypoints.ndim != 4 or keypoints.dtype.kind not in "fiu":
        raise problem(path, f"{where}, key 'keypoint'", "it is not an array of four axes", "leave it out")
    if keypoints.shape[2:] != wanted or 0 in keypoints.shape:
        fault = f"its shape {keypoints.shape} is not (persons, frames, {wanted[0]}, {wanted[1]})"
        raise problem(path, f"{where}, key 'keypoint'", fault, "leave it out")
    total = whole_number(entry.get("total_frames", keypoints.shape[1]), path, f"{where}, key 'total_frames'")
    if total != keypoints.shape[1]:
        fault = f"{total} frames are declared, the keypoints have {keypoints.shape[1]}"
        raise problem(path, where, fault, "leave it out")
    frames = coordinates(np.asarray(keypoints, dtype=np.float64).transpose(1, 0, 2, 3), path, where)
    scores = entry.get("keypoint_score")
    repairs: tuple[str, ...] = ()
    if isinstance(scores, np.ndarray) and scores.dtype.kind == "f" and scores.shape == keypoints.shape[:3]:
        frames, repairs = forget_unsure(frames, np.asarray(scores).transpose(1, 0, 2), 0.0)
    label = whole_number(entry.get("label", -1), path, f"{where}, key 'label'")
    clip = Clip(frames, name, label, repairs=repairs, **sample_facts(name))
    clip.extra = {**{f"split {split}": parts.get(name, -1) for split, parts in data.parts.items()}, **clip.extra}
    return clip


@remembered()
def _load(path: Path) -> Annotations:
    content = load_pickle(path)
    split = content.get("split", {}) if isinstance(content, dict) else {}
    clips = content.get("annotations") if isinstance(content, dict) else content
    if not isinstance(clips, list) or not clips or not isinstance(split, dict):
        raise problem(path, "", "it has no list of annotations", "check that this is a PYSKL or MMAction2 file")
    shapes = [
        clip["keypoint"].shape for clip in clips if isinstance(clip, dict) and hasattr(clip.get("keypoint"), "shape")
    ]
    shapes = [shape for shape in shapes if len(shape) == 4 and 0 not in shape]
    if not shapes:
        raise problem(path, "key 'annotations'", "none has keypoints of four axes")
    joints, dimensions = shapes[0][2:]
    persons = min(max(shape[0] for shape in shapes), _MOST_PERSONS)
    return Annotations(path, clips, _parts(split), _topology(path, joints, dimensions), persons)


def _topology(path: Path, joints: int, dimensions: int) -> Topology:
    if (joints, dimensions) not in _LAYOUTS:
        known = ", ".join(sorted({f"{len(get_topology(name))}" for name in list_topologies()}, key=int))
        fault = f"{joints} joints with {dimensions} coordinates are not a known layout"
        raise problem(path, "key 'keypoint'", fault, f"known layouts have {known} joints; read it as arrays instead")
    return get_topology(_LAYOUTS[joints, dimensions])


def _parts(split: Mapping[Any, Any]) -> dict[str, dict[str, int]]:
    """{split: {clip name: 0 for training, 1 for testing}} from lists such as `xsub_train` and `xsub_val`."""
    lists: dict[str, dict[str, Any]] = {}
    for key, names in split.items():
        match = _PART.fullmatch(key) if isinstance(key, str) else None
        if match and isinstance(names, list | tuple | set):
            name = f"{match['before']}{match['after']}" or "default"
            lists.setdefault(name, {})[match["part"].lower()] = names
    result = {}
    for name, parts in lists.items():
        test = parts.get("test", parts.get("val"))
        if "train" in parts and test is not None:
            result[name] = {
                **{str(clip): 1 for clip in test if isinstance(clip, str | int)},
                **{str(clip): 0 for clip in parts["train"] if isinstance(clip, str | int)},
            }
    return result


register_reader(PysklReader())
