"""The interchange `.npz`: all clips of a set joined along time, with names, labels and bones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.clip import Clip, Dropped
from halp.data.readers import Info, Item, register_reader
from halp.data.readers.archives import load_npz, member_names
from halp.data.readers.shared import clip_or_dropped, find_layout, only_file
from halp.data.source_files import first_file
from halp.data.splits import Split, SplitRule, rule_from_json
from halp.data.store_check import check_absent, topology_from_json
from halp.data.text_files import check_unique_names, coordinates, problem, safe_name
from halp.skeleton import Topology, get_topology, list_topologies

Arrays = dict[str, npt.NDArray[Any]]
_COLUMNS = ("labels", "subjects", "views")
_ONE_BY_ONE = "prepare them one by one and merge the stores; for other .npz files use the format auto"
_KNOWN = {"joints", "offsets", "names", "class_names", "joint_names", "bones", "halp", *_COLUMNS}


@dataclass
class InterchangeReader:
    """`joints` (sum T, P, V, C), `offsets`, `labels`, `subjects`, `views`, `names`, `joint_names`, `bones`, …

    Joints of a known topology in another order are put into its order. Further whole numbers, one per clip,
    become columns.
    """

    name: str = "interchange"
    description: str = "interchange .npz, all clips of a set: joints, offsets, labels, names, joint_names"

    def sniff(self, path: Path) -> bool:
        file = first_file(path, ".npz")
        return file is not None and {"joints", "offsets"} <= member_names(file)

    def info(self, path: Path) -> Info:
        file = only_file(path, ".npz", remedy=_ONE_BY_ONE)
        arrays = _load(file)
        note = _note(arrays, file)
        splits = (
            _splits(arrays) if note is None else [rule_from_json(*rule) for rule in note["splits"].items()]
        )
        return Info(
            _topology(arrays, file)[0],
            persons=int(arrays["joints"].shape[1]),
            class_names=tuple(map(str, arrays["class_names"])),
            splits=tuple(splits),
            # What has been normalised already stays as it is.
            normalisation=(
                () if note and note["normalisation"] else ("drop-empty", "interpolate-gaps", "centre")
            ),
            shared=False,
            applied=tuple(note["normalisation"]) if note else (),
        )

    def items(self, path: Path) -> Iterable[Item]:
        return [Item(only_file(path, ".npz", remedy=_ONE_BY_ONE))]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        arrays = _load(item.path)
        _, order = _topology(arrays, item.path)
        names = [safe_name(name, item.path, "array 'names'") for name in arrays["names"]]
        note = _note(arrays, item.path) or {}
        absent = check_absent(item.path, note.get("absent", {}), np.diff(arrays["offsets"]))
        check_unique_names(names, item.path)
        extra = {
            key: column
            for key, column in arrays.items()
            if key not in _KNOWN and column.shape == (len(names),) and column.dtype.kind in "iub"
        }
        classes = len(arrays["class_names"])

        def clip(row: int, name: str) -> Clip:
            start, end = arrays["offsets"][row : row + 2]
            label, subject, camera = (int(arrays[column][row]) for column in _COLUMNS)
            if start == end:
                raise InputError("it has no frame")
            if not -1 <= label < max(classes, 1):
                raise InputError(f"there is no class {label}, only {classes} classes")
            frames = coordinates(arrays["joints"][start:end][:, :, order], item.path, f"clip '{name}'")
            numbers = {key: int(column[row]) for key, column in extra.items()}
            facts: dict[str, Any] = {"absent": absent.get(row, ()), **_clock(arrays, row)}
            return Clip(frames, name, label, subject, camera, numbers, **facts)

        return [clip_or_dropped(name, clip, row, name) for row, name in enumerate(names)]


def _clock(arrays: Arrays, row: int) -> dict[str, Any]:
    """Frame rate, recording and start of a clip, if they are given."""
    kinds = {"fps": "f", "start": "f", "recording": "U"}
    count = len(arrays["names"])
    fits = all(
        key in arrays and arrays[key].dtype.kind == kind and arrays[key].shape == (count,)
        for key, kind in kinds.items()
    )
    if not fits or not np.isfinite([arrays["fps"][row], arrays["start"][row]]).all():
        return {}
    return {key: arrays[key][row].item() for key in kinds}


def _load(path: Path) -> Arrays:
    """All arrays, checked against each other; labels, subjects, views and names may be left out."""
    arrays = load_npz(path)

    def array(key: str, kinds: str, shape: tuple[int | None, ...], default: Any = None) -> npt.NDArray[Any]:
        values = arrays.get(key, default)
        if values is None:
            raise problem(path, "", f"it has no array '{key}'", "it needs joints, offsets and joint_names")
        fits = values.ndim == len(shape) and all(
            want in (None, size) for want, size in zip(shape, values.shape)
        )
        if not fits or values.dtype.kind not in kinds:
            wanted = " x ".join("any" if size is None else str(size) for size in shape)
            fault = f"it is {values.dtype} in shape {values.shape}"
            raise problem(path, f"array '{key}'", fault, f"it must be {wanted}")
        return values

    joints = array("joints", "fiu", (None, None, None, None))
    offsets = array("offsets", "iu", (None,)).astype(np.int64)
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(joints) or (np.diff(offsets) < 0).any():
        raise problem(
            path, "array 'offsets'", f"it does not cut the {len(joints)} frames into clips", "write it again"
        )
    if 0 in joints.shape or joints.shape[3] not in (2, 3):
        remedy = "expected (frames, persons, joints, 2 or 3)"
        raise problem(path, "array 'joints'", f"its shape is {joints.shape}", remedy)
    count = len(offsets) - 1
    checked = {"joints": joints, "offsets": offsets}
    for key in _COLUMNS:
        checked[key] = array(key, "iu", (count,), np.full(count, -1))
    checked["names"] = array(
        "names", "U", (count,), np.array([f"{path.stem}_{row:06}" for row in range(count)])
    )
    checked["class_names"] = array("class_names", "UfS", (None,), np.array([], dtype=np.str_))
    checked["joint_names"] = array("joint_names", "U", (joints.shape[2],))
    if "bones" in arrays:
        checked["bones"] = array("bones", "iu", (None, 2))
    return arrays | checked


def _topology(arrays: Arrays, path: Path) -> tuple[Topology, list[int]]:
    """The topology of the clips and the positions of its joints in the file."""
    names = [str(name) for name in arrays["joint_names"]]
    count, dimensions = len(names), int(arrays["joints"].shape[3])
    if len(set(names)) != count or not all(name and name.isprintable() for name in names):
        raise problem(
            path, "array 'joint_names'", "a name is empty or occurs twice", "give every joint its own name"
        )
    note = _note(arrays, path)
    if note is not None and note["topology"].get("joints") == names:
        try:
            return topology_from_json(note["topology"]), list(range(count))
        except InputError as error:
            raise problem(
                path, "array 'halp'", f"its topology is damaged ({error})", "write the file again"
            ) from None
    topology, order = find_layout(names, dimensions, name=path.stem)
    if "bones" in arrays and topology not in map(get_topology, list_topologies()):
        parents = list(range(count))
        for child, parent in arrays["bones"].tolist():
            if not (0 <= child < count and 0 <= parent < count):
                fault = f"there is no bone {child}, {parent}"
                raise problem(path, "array 'bones'", fault, f"use joints 0 to {count - 1}")
            parents[child] = parent
        try:
            topology = replace(topology, parents=tuple(parents))
        except InputError as error:
            raise problem(path, "array 'bones'", str(error), "give every joint one parent") from None
    return topology, order


def _note(arrays: Arrays, path: Path) -> dict[str, Any] | None:
    """What array `halp` says about topology, splits and normalisation; None in files without it."""
    if "halp" not in arrays:
        return None
    try:
        note = json.loads(str(arrays["halp"][()]))
        for name, rule in note["splits"].items():
            rule_from_json(name, rule).hash  # noqa: B018  a rule that cannot be hashed is damaged
        if not isinstance(note["topology"], Mapping) or not isinstance(note["normalisation"], list):
            raise TypeError("no topology or normalisation")
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise problem(path, "array 'halp'", f"it is damaged ({error})", "write the file again") from None
    return dict(note)


def _splits(arrays: Arrays) -> list[SplitRule]:
    """Odd against even subjects, the last camera against the others, stored lists of training subjects."""
    splits: list[SplitRule] = []
    subjects, cameras = (
        sorted({int(value) for value in arrays[key] if value >= 0}) for key in ("subjects", "views")
    )
    odd = tuple(subject for subject in subjects if subject % 2)
    if odd and len(odd) < len(subjects):
        splits.append(
            Split("xsub", "subject", odd, tuple(subject for subject in subjects if subject % 2 == 0))
        )
    if len(cameras) > 1:
        splits.append(Split("xview", "camera", tuple(cameras[:-1]), (cameras[-1],)))
    train, test = arrays.get("split_train_subjects"), arrays.get("split_test_subjects")
    if train is not None and test is not None and train.dtype.kind in "iu" and test.dtype.kind in "iu":
        for number, (left, right) in enumerate(zip(np.atleast_2d(train), np.atleast_2d(test)), start=1):
            splits.append(
                Split(f"half-{number}", "subject", tuple(map(int, left.flat)), tuple(map(int, right.flat)))
            )
    return splits


register_reader(InterchangeReader())
