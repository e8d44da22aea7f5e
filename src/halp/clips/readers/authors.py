"""The authors' preprocessed trio: `*_data_joint.npy` (N, C, T, V, M), `*_label.pkl` and `*_num_frame.npy`, a part each.

What they hold is normalised already (filled, centred, rotated); padding after the true length is cut off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip
from halp.clips.normalise import AUTHORS
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.ntu import SPLITS_60, SPLITS_120, class_names, parse_name, sample_facts
from halp.clips.readers.shared import attempt
from halp.clips.sandbox import load_pickle
from halp.clips.source_files import find_files, first_file, leads_out, load_npy, remembered
from halp.clips.splits import Split, SplitRule
from halp.clips.text_files import class_count, coordinates, problem, safe_name, whole_number
from halp.skeleton import KINECT_V2

_DATA, _LABEL, _FRAMES = "_data_joint.npy", "_label.pkl", "_num_frame.npy"
_PARTS = {"train": 0, "val": 1, "test": 1}
_CHUNK = 16


@dataclass(frozen=True)
class Part:
    """One trio: where its joints are on disk, names, labels and true lengths, all of one size."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    names: Sequence[Any]
    labels: Sequence[Any]
    lengths: npt.NDArray[Any]

    def joints(self, row: int) -> npt.NDArray[Any]:
        """One clip `(C, T, V, M)`, read and not mapped: a file that shrinks meanwhile is an error and no crash."""
        count = math.prod(self.shape[1:])
        try:
            numbers = np.fromfile(self.path, self.dtype, count, offset=self.offset + row * count * self.dtype.itemsize)
        except OSError as error:
            raise problem(self.path, f"row {row}", f"it cannot be read ({error.strerror})", "fetch it again") from None
        if numbers.size != count:
            raise problem(self.path, f"row {row}", "the file ends within it", "fetch it again")
        return numbers.reshape(self.shape[1:])


@dataclass
class AuthorsReader:
    """Folders such as `NTU-RGB-D-60-AGCN/xsub` with a trio for `train` and one for `val`; the folder names the split."""

    name: str = "authors"
    description: str = "the HaLP / ISC / CMD authors' preprocessed trio: *_data_joint.npy, *_label.pkl, *_num_frame.npy"

    def sniff(self, path: Path) -> bool:
        return first_file(path, _DATA) is not None

    def info(self, path: Path) -> Info:
        files = _files(path)
        parts = [_load(file) for file in files]
        labels = [label for part in parts for label in part.labels]
        classes = class_count(labels, len(labels))
        samples = [isinstance(name, str) and parse_name(name) for part in parts for name in part.names[:1000]]
        splits: list[SplitRule] = []
        names: tuple[str, ...] = tuple(map(str, range(classes)))
        if samples and all(samples):
            small = classes <= 60
            splits += SPLITS_60 if small else SPLITS_120
            names = class_names()[: 60 if small else 120]
        if len(files) > 1:
            name = files[0].parent.name
            splits.insert(
                0, Split(f"{name}-files" if name in {split.name for split in splits} else name, "part", (0,), (1,))
            )
        persons = max(part.shape[4] for part in parts)
        return Info(KINECT_V2, persons, names, tuple(splits), applied=AUTHORS)

    def items(self, path: Path) -> Iterable[Item]:
        return [Item(file, start) for file in _files(path) for start in range(0, len(_load(file).names), _CHUNK)]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        part = _load(item.path)
        outcomes = []
        for row in range(item.key, min(item.key + _CHUNK, len(part.names))):
            name = part.names[row] if isinstance(part.names[row], str) else f"row {row}"
            outcomes.append(attempt(name, partial(_clip, item.path, part, row)))
        return outcomes


def _clip(path: Path, part: Part, row: int) -> Clip:
    where = f"row {row}"
    name = safe_name(part.names[row], path, where).removesuffix(".skeleton")
    length = int(part.lengths[row])
    if not 0 < length <= part.shape[2]:
        raise problem(path, where, f"a true length of {length} in {part.shape[2]} frames", "leave this clip out")
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
        raise problem(path, "", f"several preparations are in it ({', '.join(folders)})", "name one of these folders")
    return files


def _load(path: Path) -> Part:
    """The trio of a data file."""
    stem = path.name.removesuffix(_DATA)
    beside = [path.with_name(stem + suffix) for suffix in (_LABEL, _FRAMES)]
    for needed in beside:
        if not needed.is_file() or leads_out(needed, Path(os.path.realpath(path.parent))):
            remedy = "put the three files of a part into one folder"
            raise problem(path, "", f"'{needed.name}' is not beside it", remedy)
    return _load_trio(path, *beside)


@remembered(4)
def _load_trio(path: Path, label_path: Path, frames_path: Path) -> Part:
    joints, lengths = load_npy(path), load_npy(frames_path)
    sound = joints.ndim == 5 and joints.shape[1] == 3 and joints.shape[3] == len(KINECT_V2) and joints.shape[4] > 0
    if not sound or joints.dtype.kind != "f" or not joints.flags.c_contiguous or not isinstance(joints, np.memmap):
        fault = f"it is {joints.dtype} in shape {joints.shape}"
        raise problem(path, "", fault, "it has to be (clips, 3, frames, 25, persons)")
    content = load_pickle(label_path)
    pair = [part.tolist() if isinstance(part, np.ndarray) else part for part in content] if _is_list(content) else []
    if len(pair) != 2 or not all(map(_is_list, pair)):
        raise problem(label_path, "", "it is not a pair of names and labels", "fetch or write it again")
    names, labels = pair
    sizes = {"joints": len(joints), "names": len(names), "labels": len(labels), "lengths": lengths.size}
    if len(set(sizes.values())) != 1 or lengths.ndim != 1 or lengths.dtype.kind not in "iuf" or not len(joints):
        fault = ", ".join(f"{count} {kind}" for kind, count in sizes.items())
        remedy = "take all three files from one preparation"
        raise problem(path, "", f"its trio does not fit together ({fault})", remedy)
    true_lengths = np.nan_to_num(np.array(lengths, dtype=np.float64))
    return Part(path, joints.shape, joints.dtype, joints.offset, names, labels, true_lengths)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


register_reader(AuthorsReader())
