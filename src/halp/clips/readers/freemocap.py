"""FreeMoCap recordings: `mediapipe_body_3d_xyz.npy` (or `.csv`) and its older names, in millimetres with z up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Item, register_reader
from halp.clips.readers.pose_files import Z_UP, PoseFileReader, Poses, turned
from halp.clips.readers.shared import Entry, entry_of
from halp.clips.source_files import load_npy, walk
from halp.clips.text_files import as_floats, problem, read_table
from halp.skeleton import get_topology

_BODY = get_topology("mediapipe-33")
_NAME = re.compile(
    r"(?:mediapipe_)?body_3d_xyz\.(?:npy|csv)|mediapipe_skeleton_3d\.npy|mediapipeskel_3d_body_hands_face\.npy",
    re.IGNORECASE,
)
#: How the names of its files end, in lower case.
FREEMOCAP = ("body_3d_xyz.npy", "body_3d_xyz.csv", "mediapipe_skeleton_3d.npy", "mediapipeskel_3d_body_hands_face.npy")
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
        for file in sorted((file for file in walk(path) if is_freemocap(file)), key=lambda file: file.suffix == ".csv"):
            chosen.setdefault(_recording(file), file)
        if not chosen:
            raise problem(path, "", "there is no mediapipe_body_3d_xyz.npy in it", "name the folder of the recording")
        return sorted(chosen.values())

    def items(self, path: Path) -> Iterable[Item]:
        for file in self.files(path):
            folder = _recording(file)
            inside = folder.relative_to(path).as_posix() if path.is_dir() and folder.is_relative_to(path) else ""
            name = inside if inside not in ("", ".") else folder.resolve().name
            yield Item(file, Entry(name, _BODY, place=folder.parent))

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        return super().read(Item(item.path, item.key or Entry(entry_of(item).name, topology=_BODY)))

    def load(self, path: Path) -> Poses:
        if path.suffix.lower() == ".csv":
            table = read_table(path)
            if len(table.columns) % 3 or len(table.columns) // 3 < len(_BODY):
                fault = f"{len(table.columns)} columns are not x, y and z of at least 33 points"
                raise problem(path, "line 1", fault, "check that FreeMoCap wrote this file")
            values = np.stack([table.numbers(column) for column in table.columns], axis=1)
            values = values.reshape(len(values), -1, 3)
        else:
            stored = load_npy(path)
            if stored.ndim != 3 or stored.shape[1] < len(_BODY) or stored.shape[2] != 3 or not len(stored):
                raise problem(path, "", f"its shape is {stored.shape}", "expected (frames, at least 33 points, 3)")
            if stored.dtype.kind not in "fiu":
                raise problem(path, "", f"it holds {stored.dtype}", "expected numbers")
            values = as_floats(stored[:, : len(_BODY)])
        return Poses(_BODY.joints, turned(values[:, : len(_BODY)], Z_UP, _MILLIMETRES)[:, None], topology=_BODY)


def _recording(file: Path) -> Path:
    """The folder of the recording that a file belongs to."""
    folder = file.parent
    while folder.name.lower() in _INSIDE and folder.parent != folder:
        folder = folder.parent
    return folder


register_reader(FreeMoCapReader("freemocap", "FreeMoCap recording folders (mediapipe_body_3d_xyz.npy or .csv)"))
