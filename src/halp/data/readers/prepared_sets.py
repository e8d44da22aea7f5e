"""Prepared data sets: the trio of the HaLP / ISC / CMD authors, and PYSKL or MMAction2 pickles.

The trio is `*_data_joint.npy` (N, C, T, V, M), `*_label.pkl` and `*_num_frame.npy`, a part each; it is
normalised already (filled, centred, rotated), and padding after the true length is cut off. A file of PYSKL
is a dictionary of `split` (lists of names) and `annotations`, or the bare list of older files: 2D (COCO-17)
or 3D (Kinect v2) keypoints. It must be in memory whole, so one process reads it. Pickles go through the
restricted unpickler.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.data.clip import Clip, Dropped
from halp.data.normalise import AUTHORS
from halp.data.readers import Info, Item, register_reader
from halp.data.readers.ntu import SPLITS_60, SPLITS_120, class_names, parse_name, sample_facts
from halp.data.readers.shared import clip_or_dropped, only_file
from halp.data.sandbox import load_pickle
from halp.data.source_files import find_files, first_file, head, leads_out, load_npy, remembered
from halp.data.splits import Split
from halp.data.text_files import class_count, coordinates, mask_low_scores, problem, safe_name, whole_number
from halp.skeleton import KINECT_V2, Topology, get_topology, list_topologies

_DATA, _LABEL, _FRAMES = "_data_joint.npy", "_label.pkl", "_num_frame.npy"
_PARTS = {"train": 0, "val": 1, "test": 1}
_ROWS = 16


@dataclass(frozen=True)
class Trio:
    """One trio: where its joints are on disk, names, labels and true lengths, all of one size."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    names: Sequence[Any]
    labels: Sequence[Any]
    lengths: npt.NDArray[Any]

    def joints(self, row: int) -> npt.NDArray[Any]:
        """One clip `(C, T, V, M)`, read, not mapped: a file that shrinks meanwhile is an error, no crash."""
        count = math.prod(self.shape[1:])
        try:
            numbers = np.fromfile(
                self.path, self.dtype, count, offset=self.offset + row * count * self.dtype.itemsize
            )
        except OSError as error:
            raise problem(
                self.path, f"row {row}", f"it cannot be read ({error.strerror})", "fetch it again"
            ) from None
        if numbers.size != count:
            raise problem(self.path, f"row {row}", "the file ends within it", "fetch it again")
        return numbers.reshape(self.shape[1:])


def _class_names(clips: Sequence[Any], classes: int) -> tuple[str, ...] | None:
    """Names of the classes where all clips are called like samples of NTU RGB+D, of its 60 or its 120."""
    if not clips or not all(isinstance(name, str) and parse_name(name) for name in clips):
        return None
    return class_names()[: 60 if classes <= 60 else 120]


@dataclass
class AuthorsReader:
    """Folders such as `NTU-RGB-D-60-AGCN/xsub`, named by split, with a trio for `train` and one for `val`."""

    name: str = "authors"
    description: str = (
        "the HaLP / ISC / CMD authors' preprocessed trio: *_data_joint.npy, *_label.pkl, *_num_frame.npy"
    )

    def sniff(self, path: Path) -> bool:
        return first_file(path, _DATA) is not None

    def info(self, path: Path) -> Info:
        files = _files(path)
        parts = [_trio(file) for file in files]
        labels = [label for part in parts for label in part.labels]
        classes = class_count(labels, len(labels))
        names = _class_names([name for part in parts for name in part.names[:1000]], classes)
        splits = (SPLITS_60 if classes <= 60 else SPLITS_120) if names is not None else ()
        if len(files) > 1:
            folder = files[0].parent.name
            taken = any(split.name == folder for split in splits)
            splits = (Split(f"{folder}-files" if taken else folder, "part", (0,), (1,)), *splits)
        persons = max(part.shape[4] for part in parts)
        return Info(KINECT_V2, persons, names or tuple(map(str, range(classes))), splits, applied=AUTHORS)

    def items(self, path: Path) -> Iterable[Item]:
        return [
            Item(file, start) for file in _files(path) for start in range(0, len(_trio(file).names), _ROWS)
        ]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        part = _trio(item.path)
        names = enumerate(part.names[item.key : item.key + _ROWS], start=item.key)
        return [
            clip_or_dropped(name if isinstance(name, str) else f"row {row}", _row, part, row)
            for row, name in names
        ]


def _row(part: Trio, row: int) -> Clip:
    path, where = part.path, f"row {row}"
    name = safe_name(part.names[row], path, where).removesuffix(".skeleton")
    length = int(part.lengths[row])
    if not 0 < length <= part.shape[2]:
        raise problem(
            path, where, f"a true length of {length} in {part.shape[2]} frames", "leave this clip out"
        )
    frames = coordinates(part.joints(row)[:, :length].transpose(1, 3, 2, 0), path, where)
    label = whole_number(part.labels[row], path, where)
    clip = Clip(frames, name, label, **sample_facts(name))
    stem = path.name.removesuffix(_DATA)
    clip.extra = {**({"part": _PARTS[stem]} if stem in _PARTS else {}), **clip.extra}
    return clip


def _files(path: Path) -> list[Path]:
    files = find_files(path, _DATA)
    folders = sorted({str(file.parent.name) for file in files})
    if len({file.parent for file in files}) > 1:
        raise problem(
            path, "", f"several preparations are in it ({', '.join(folders)})", "name one of these folders"
        )
    return files


def _trio(path: Path) -> Trio:
    """The trio of a data file."""
    stem = path.name.removesuffix(_DATA)
    beside = [path.with_name(stem + suffix) for suffix in (_LABEL, _FRAMES)]
    for needed in beside:
        if not needed.is_file() or leads_out(needed, Path(os.path.realpath(path.parent))):
            remedy = "put the three files of a part into one folder"
            raise problem(path, "", f"'{needed.name}' is not beside it", remedy)
    return _checked_trio(path, *beside)


@remembered(4)
def _checked_trio(path: Path, label_path: Path, frames_path: Path) -> Trio:
    joints, lengths = load_npy(path), load_npy(frames_path)
    sound = (
        joints.ndim == 5
        and joints.shape[1] == 3
        and joints.shape[3] == len(KINECT_V2)
        and joints.shape[4] > 0
    )
    if (
        not sound
        or joints.dtype.kind != "f"
        or not joints.flags.c_contiguous
        or not isinstance(joints, np.memmap)
    ):
        fault = f"it is {joints.dtype} in shape {joints.shape}"
        raise problem(path, "", fault, "it must be (clips, 3, frames, 25, persons)")
    content = load_pickle(label_path)
    pair = (
        [part.tolist() if isinstance(part, np.ndarray) else part for part in content]
        if _is_list(content)
        else []
    )
    if len(pair) != 2 or not all(map(_is_list, pair)):
        raise problem(label_path, "", "it is not a pair of names and labels", "fetch or write it again")
    names, labels = pair
    sizes = {"joints": len(joints), "names": len(names), "labels": len(labels), "lengths": lengths.size}
    if (
        len(set(sizes.values())) != 1
        or lengths.ndim != 1
        or lengths.dtype.kind not in "iuf"
        or not len(joints)
    ):
        fault = ", ".join(f"{count} {kind}" for kind, count in sizes.items())
        remedy = "take all three files from one preparation"
        raise problem(path, "", f"its trio does not fit together ({fault})", remedy)
    true_lengths = np.nan_to_num(np.array(lengths, dtype=np.float64))
    return Trio(path, joints.shape, joints.dtype, joints.offset, names, labels, true_lengths)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


register_reader(AuthorsReader())


_SUFFIXES = (".pkl", ".pickle")
_PART = re.compile(r"(?P<before>.*?)[_-]?(?P<part>train|val|test)[_-]?(?P<after>.*)", re.IGNORECASE)
_ANNOTATIONS = 256
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
        return (
            b"frame_dir" in start or b"annotations" in start or (b"split" in start and start[:1] == b"\x80")
        )

    def info(self, path: Path) -> Info:
        data = _load(only_file(path, *_SUFFIXES))
        labels = [clip.get("label", -1) for clip in data.clips if isinstance(clip, dict)]
        classes = class_count(labels, len(data.clips))
        first = [clip.get("frame_dir") for clip in data.clips[:10] if isinstance(clip, dict)]
        return Info(
            data.topology,
            persons=data.persons,
            class_names=_class_names(first, classes) or tuple(map(str, range(classes))),
            splits=tuple(Split(name, f"split {name}", (0,), (1,)) for name in data.parts),
            normalisation=AUTHORS if data.topology.dimensions == 3 else ("centre", "scale"),
            shared=False,
        )

    def items(self, path: Path) -> Iterable[Item]:
        file = only_file(path, *_SUFFIXES)
        return [Item(file, start) for start in range(0, len(_load(file).clips), _ANNOTATIONS)]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        data = _load(item.path)
        outcomes = []
        for row, entry in enumerate(data.clips[item.key : item.key + _ANNOTATIONS], start=item.key):
            where, name = f"annotation {row}", entry.get("frame_dir") if isinstance(entry, dict) else None
            known = isinstance(name, str) and name
            outcomes.append(clip_or_dropped(str(name) if known else where, _annotation, data, entry, where))
        return outcomes


def _annotation(data: Annotations, entry: Any, where: str) -> Clip:
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
        frames, repairs = mask_low_scores(frames, np.asarray(scores).transpose(1, 0, 2), 0.0)
    label = whole_number(entry.get("label", -1), path, f"{where}, key 'label'")
    clip = Clip(frames, name, label, repairs=repairs, **sample_facts(name))
    clip.extra = {
        **{f"split {split}": parts.get(name, -1) for split, parts in data.parts.items()},
        **clip.extra,
    }
    return clip


@remembered()
def _load(path: Path) -> Annotations:
    content = load_pickle(path)
    split = content.get("split", {}) if isinstance(content, dict) else {}
    clips = content.get("annotations") if isinstance(content, dict) else content
    if not isinstance(clips, list) or not clips or not isinstance(split, dict):
        raise problem(
            path, "", "it has no list of annotations", "check that this is a PYSKL or MMAction2 file"
        )
    shapes = [
        clip["keypoint"].shape
        for clip in clips
        if isinstance(clip, dict) and hasattr(clip.get("keypoint"), "shape")
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
        raise problem(
            path, "key 'keypoint'", fault, f"known layouts have {known} joints; read it as arrays instead"
        )
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
