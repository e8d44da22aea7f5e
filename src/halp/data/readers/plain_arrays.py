"""Arrays of joints: FreeMoCap, and plain `.npy`, JSON or JSON Lines files with a named topology.

FreeMoCap writes `mediapipe_body_3d_xyz.npy` (or `.csv`) and its older names, in millimetres with z up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from halp.core.config import limited
from halp.data.clip import Clip, Dropped
from halp.data.readers import Item, register_reader
from halp.data.readers.shared import (
    MOST_PERSONS,
    PERSONS,
    Z_UP,
    ClipKey,
    PoseFileReader,
    Poses,
    key_of,
    turned,
)
from halp.data.source_files import JSON_LINES, head, load_npy, read_json_source, walk
from halp.data.text_files import as_floats, json_numbers, problem
from halp.data.text_tables import read_table
from halp.data.topology_file import find_topology
from halp.skeleton import Topology, get_topology, list_topologies

_BODY = get_topology("mediapipe-33")
_NAME = re.compile(
    r"(?:mediapipe_)?body_3d_xyz\.(?:npy|csv)|mediapipe_skeleton_3d\.npy|mediapipeskel_3d_body_hands_face\.npy",
    re.IGNORECASE,
)
#: How the names of its files end, in lower case.
FREEMOCAP = (
    "body_3d_xyz.npy",
    "body_3d_xyz.csv",
    "mediapipe_skeleton_3d.npy",
    "mediapipeskel_3d_body_hands_face.npy",
)
_MILLIMETRES = 0.001
# Folders of a recording that hold results and are not its name.
_INSIDE = {"output_data", "dataarrays", "raw_data", "saved_data", "npy", "csv"}


def is_freemocap(path: Path) -> bool:
    """Whether a file bears a name that FreeMoCap gives to its body trajectories."""
    return _NAME.fullmatch(path.name) is not None


class FreeMoCapReader(PoseFileReader):
    """One clip per recording folder: the 33 body points of MediaPipe, triangulated; metres with y up."""

    suffixes: ClassVar[tuple[str, ...]] = (".npy", ".csv")

    def looks_right(self, path: Path) -> bool:
        return is_freemocap(path)

    def files(self, path: Path) -> list[Path]:
        """One file per recording; arrays go before tables."""
        chosen: dict[Path, Path] = {}
        for file in sorted(
            (file for file in walk(path) if is_freemocap(file)), key=lambda file: file.suffix == ".csv"
        ):
            chosen.setdefault(_recording(file), file)
        if not chosen:
            raise problem(
                path, "", "there is no mediapipe_body_3d_xyz.npy in it", "name the folder of the recording"
            )
        return sorted(chosen.values())

    def items(self, path: Path) -> Iterable[Item]:
        for file in self.files(path):
            folder = _recording(file)
            inside = (
                folder.relative_to(path).as_posix() if path.is_dir() and folder.is_relative_to(path) else ""
            )
            name = inside if inside not in ("", ".") else folder.resolve().name
            yield Item(file, ClipKey(name, _BODY, place=folder.parent))

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        return super().read(Item(item.path, item.key or ClipKey(key_of(item).name, topology=_BODY)))

    def load(self, path: Path) -> Poses:
        if path.suffix.lower() == ".csv":
            table = read_table(path)
            if len(table.columns) % 3 or len(table.columns) // 3 < len(_BODY):
                fault = f"{len(table.columns)} columns are not x, y and z of at least 33 points"
                raise problem(path, "line 1", fault, "check that FreeMoCap wrote this file")
            values = np.stack([table.numbers(column) for column in table.columns], axis=1)
            values = values.reshape(len(values), -1, 3)
        else:
            values = _numbers(path)
            if values.ndim != 3 or values.shape[1] < len(_BODY) or values.shape[2] != 3 or not len(values):
                raise problem(
                    path, "", f"its shape is {values.shape}", "expected (frames, at least 33 points, 3)"
                )
            values = as_floats(values[:, : len(_BODY)])
        return Poses(
            _BODY.joints, turned(values[:, : len(_BODY)], Z_UP, _MILLIMETRES)[:, None], topology=_BODY
        )


def _numbers(path: Path) -> npt.NDArray[Any]:
    stored = load_npy(path)
    if stored.dtype.kind not in "fiu":
        raise problem(path, "", f"it holds {stored.dtype}", "expected numbers")
    return stored


def _recording(file: Path) -> Path:
    """The folder of the recording that a file belongs to."""
    folder = file.parent
    while folder.name.lower() in _INSIDE and folder.parent != folder:
        folder = folder.parent
    return folder


register_reader(
    FreeMoCapReader("freemocap", "FreeMoCap recording folders (mediapipe_body_3d_xyz.npy or .csv)")
)


_NUMPY = b"\x93NUMPY"
_NESTED = re.compile(rb"\s*\[\s*\[\s*(?:\[\s*){1,2}(?:-?\d|null|NaN)")
_LINE = re.compile(
    rb'\s*(?:\[\s*(?:\[\s*){1,2}(?:-?\d|null|NaN)|\{[^\n]*"(?:joints|keypoints|pose|skeleton)"\s*:\s*\[\s*\[)'
)
_KEYS = ("joints", "keypoints", "pose", "skeleton")


@dataclass
class ArrayReader(PoseFileReader):
    """`(frames, [persons,] joints, coordinates)`; one more number per joint is a score.

    Numbers after x and y that are no scores, below 0 or above 1, are a third coordinate of the same joints.
    `topology` names the joint layout: one that halp knows, or a TOML file. Zeros and NaN are missing joints.
    """

    topology: str = ""
    persons: int = limited(2, **PERSONS)
    min_score: float = limited(0.0, least=0)
    scale: float = limited(1.0, above=0)
    suffixes: ClassVar[tuple[str, ...]] = (".npy", ".json", *JSON_LINES)

    def looks_right(self, path: Path) -> bool:
        suffix = path.suffix.lower()
        if suffix == ".npy":
            taken = is_freemocap(path) or path.name.lower().endswith(("_data_joint.npy", "_num_frame.npy"))
            start = head(path, 128)
            return not taken and start.startswith(_NUMPY) and b"'|O'" not in start
        return (_LINE if suffix in JSON_LINES else _NESTED).match(head(path, 65536)) is not None

    def load(self, path: Path) -> Poses:
        values = _values(path)
        if values.ndim == 3:
            values = values[:, None]
        if values.ndim != 4 or not values.size or values.shape[1] > MOST_PERSONS:
            remedy = "expected (frames, joints, coordinates) or (frames, persons, joints, coordinates)"
            raise problem(path, "", f"its shape is {values.shape}", remedy)
        topology = self._layout(values.shape[2:], path)
        last = as_floats(values[..., -1])
        # a score lies between 0 and 1, another number after x and y is a third coordinate
        if values.shape[3] == 3 and topology.dimensions == 2 and ((last < 0) | (last > 1)).any():
            topology = replace(topology, name=f"{topology.name}-3d", dimensions=3)
        frames = as_floats(values[..., : topology.dimensions])
        frames[(frames == 0).all(axis=-1)] = np.nan
        frames *= self.scale
        scores = last if values.shape[3] > topology.dimensions else None
        return Poses(topology.joints, frames, scores, topology=topology)

    def _layout(self, shape: tuple[int, ...], path: Path) -> Topology:
        """The topology that was named, if it fits; an error names those that would."""
        joints, numbers = shape
        fitting = [
            name
            for name in list_topologies()
            if len(get_topology(name)) == joints and get_topology(name).dimensions in (numbers, numbers - 1)
        ]
        hint = f" (those with {joints} joints: {', '.join(fitting)})" if fitting else ""
        if not self.topology:
            fault = "an array does not state its joints"
            raise problem(
                path, "", fault, f"name the layout with --option topology=NAME or a TOML file{hint}"
            )
        topology = find_topology(self.topology)
        if len(topology) != joints or numbers not in (topology.dimensions, topology.dimensions + 1):
            fault = f"{joints} joints of {numbers} numbers do not fit topology '{topology.name}'"
            raise problem(path, "", fault, f"name another with --option topology=NAME{hint}")
        return topology


def _values(path: Path) -> npt.NDArray[Any]:
    """The numbers of a file as an array with any axes."""
    if path.suffix.lower() == ".npy":
        return _numbers(path)
    data = read_json_source(path)
    if isinstance(data, list):
        data = [
            next((frame[key] for key in _KEYS if key in frame), frame) if isinstance(frame, dict) else frame
            for frame in data
        ]
    depth, inner = 0, data
    while isinstance(inner, list) and depth < 5:
        depth, inner = depth + 1, inner[0] if inner else None
    if depth not in (3, 4):
        raise problem(
            path, "", f"its lists are nested {depth} deep", "expected frames of joints of coordinates"
        )
    return json_numbers(data, (None,) * depth, path, "")


register_reader(
    ArrayReader(
        "arrays",
        "plain arrays (.npy, .json, .jsonl): (frames, joints, coordinates), with --option topology=NAME",
    )
)
