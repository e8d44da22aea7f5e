"""Sets in `.npz` files: Human3.6M as VideoPose3D shares it, and AMASS with stored joints.

Human3.6M (`data_3d_h36m.npz`, `data_2d_h36m_*.npz`) is a pickled dictionary {subject: {action: positions}};
it is read by the loader that knows plain data only. From the `poses`, `trans`, `betas` of AMASS joints follow
only by way of the SMPL body model, whose licence does not let it be shipped: the user names a file of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from halp.data.clip import Clip, Dropped
from halp.data.readers import Info, Item, register_reader
from halp.data.readers.archives import load_npz, load_pickled_member, member_names
from halp.data.readers.body_model import model_joints
from halp.data.readers.shared import Z_UP, PoseFileReader, Poses, clip_or_dropped, turned
from halp.data.source_files import find_files, first_file, remembered
from halp.data.splits import Split
from halp.data.text_files import as_floats, coordinates, problem, safe_name
from halp.skeleton import get_topology

_KEYS = ("positions_3d", "positions_2d")
#: Joints of the 32 that are in use, in the order of topology `h36m-17`.
USED = (0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 15, 17, 18, 19, 25, 26, 27)
SPLITS = (Split("xsub", "subject", (1, 5, 6, 7, 8), (9, 11)),)
_FPS = 50.0

Table = dict[str, dict[str, Any]]


@dataclass
class H36mReader:
    """A clip is a subject's performance of an action (in 2D, per camera); classes are actions."""

    name: str = "h36m"
    description: str = "Human3.6M: data_3d_h36m.npz or data_2d_h36m_*.npz as VideoPose3D shares them"

    def sniff(self, path: Path) -> bool:
        file = first_file(path, ".npz")
        return file is not None and _member(file) is not None

    def info(self, path: Path) -> Info:
        file = _only(path)
        table, key = _load(file)
        topology = get_topology("h36m-17" if key == "positions_3d" else "h36m-17-2d")
        return Info(
            topology,
            1,
            tuple(_classes(table)),
            SPLITS,
            ("drop-empty", "interpolate-gaps", "centre"),
            shared=False,
        )

    def items(self, path: Path) -> Iterable[Item]:
        file = _only(path)
        table, _ = _load(file)
        return [Item(file, (subject, action)) for subject, actions in table.items() for action in actions]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        table, key = _load(item.path)
        outcomes = []
        for subject, action in [item.key] if item.key else [each.key for each in self.items(item.path)]:
            label, positions = _classes(table).index(_class(action)), table[subject][action]
            views = [positions] if isinstance(positions, np.ndarray) else positions
            for camera, view in enumerate(views if isinstance(views, list | tuple) else [None]):
                name = f"{subject}/{action}" + (f"/{camera}" if len(views) > 1 else "")
                outcomes.append(
                    clip_or_dropped(name, _clip, view, name, subject, label, camera, key, item.path)
                )
        return outcomes


def _clip(view: Any, name: str, subject: str, label: int, camera: int, key: str, path: Path) -> Clip:
    where, dimensions = f"'{name[:80]}'", 3 if key == "positions_3d" else 2
    sound = isinstance(view, np.ndarray) and view.ndim == 3 and len(view) and view.dtype.kind == "f"
    if not sound or view.shape[1] not in (17, 32) or view.shape[2] < dimensions:
        fault = f"it is of shape {np.shape(view)} instead of (frames, 17 or 32, {dimensions})"
        raise problem(path, where, fault, "leave it out")
    joints = as_floats(view[:, :, :dimensions])
    joints = joints[:, list(USED)] if joints.shape[1] == 32 else joints
    joints = turned(joints, Z_UP) if dimensions == 3 else joints
    match = re.fullmatch(r"S(\d{1,3})", subject)
    frames = coordinates(joints, path, where)[:, None]
    camera = camera if dimensions == 2 else -1
    return Clip(frames, safe_name(name, path, where), label, int(match[1]) if match else -1, camera, fps=_FPS)


def _classes(table: Table) -> list[str]:
    return sorted({_class(action) for actions in table.values() for action in actions})


def _class(action: str) -> str:
    """`Walking 1` is a performance of `Walking`."""
    return re.sub(r"[ _]\d+$", "", action.strip()) or action


def _member(path: Path) -> str | None:
    """Which of the two arrays a file has; None if neither."""
    names = member_names(path)
    return next((key for key in _KEYS if key in names), None)


def _only(path: Path) -> Path:
    files = [file for file in find_files(path, ".npz") if _member(file) or file == path]
    if len(files) != 1:
        fault = f"it holds {len(files)} .npz files with {' or '.join(_KEYS)}"
        raise problem(path, "", fault, "name one file, such as data_3d_h36m.npz")
    return files[0]


@remembered()
def _load(path: Path) -> tuple[Table, str]:
    key = _member(path)
    if key is None:
        fault = f"it is not a whole .npz file with {' or '.join(_KEYS)}"
        raise problem(path, "", fault, "check that this is data_3d_h36m.npz, and whole")
    where = f"array '{key}'"
    content = load_pickled_member(path, key)
    sound = (
        isinstance(content, dict)
        and content
        and all(isinstance(actions, dict) for actions in content.values())
    )
    if not sound or not any(content.values()):
        raise problem(path, where, "it is not {subject: {action: positions}}", "fetch it again")
    return {
        str(subject)[:100]: {str(a)[:100]: p for a, p in parts.items()} for subject, parts in content.items()
    }, key


register_reader(H36mReader())


SMPL = get_topology("smpl-22")
_JOINTS = ("joints", "Jtr", "jtr", "joints3d", "joints_3d", "j3d")
_RATES = ("mocap_framerate", "mocap_frame_rate", "fps")


@dataclass
class AmassReader(PoseFileReader):
    """The first 22 joints of SMPL, metres, turned from z up to y up. The frame rate is the file's.

    Joints are those stored in the file, otherwise those of `body_model`, an `.npz` file of SMPL, SMPL-H or
    SMPL-X.
    """

    body_model: str = ""
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)
    steps: ClassVar[tuple[str, ...]] = ("drop-empty", "interpolate-gaps", "centre")

    def looks_right(self, path: Path) -> bool:
        names = member_names(path)
        return bool(names & {"poses", "pose_body", "root_orient"}) and bool(names & {"trans", "betas"})

    def files(self, path: Path) -> list[Path]:
        archives = find_files(path, *self.suffixes)
        # Every subject's folder of AMASS has its shape in a file without motion.
        return [file for file in archives if file.stem not in ("shape", "neutral_stagei")] or archives

    def load(self, path: Path) -> Poses:
        arrays = load_npz(path)
        name = next((name for name in _JOINTS if name in arrays), None)
        if name is None and not self.body_model:
            fault = "it stores parameters of a body model (poses, trans, betas) and no joints"
            remedy = "give your .npz file of SMPL, SMPL-H or SMPL-X with --option body_model=FILE"
            raise problem(path, "", fault, remedy)
        joints = arrays[name] if name else model_joints(Path(self.body_model), arrays, path)
        if joints.ndim != 3 or joints.shape[1] < len(SMPL) or joints.shape[2] != 3 or not len(joints):
            raise problem(
                path, f"array '{name}'", f"its shape is {joints.shape}", "expected (frames, 22 or more, 3)"
            )
        if joints.dtype.kind not in "fiu":
            raise problem(path, f"array '{name}'", f"it holds {joints.dtype}", "expected numbers")
        rate = next((arrays[key] for key in _RATES if key in arrays), None)
        fps = (
            float(as_floats(rate).item())
            if rate is not None and rate.size == 1 and rate.dtype.kind in "fiu"
            else -1.0
        )
        return Poses(
            SMPL.joints, turned(as_floats(joints[:, : len(SMPL)]), Z_UP)[:, None], fps=fps, topology=SMPL
        )


register_reader(
    AmassReader(
        "amass", "AMASS .npz files: stored joints ('joints', 'Jtr'), or parameters with body_model=FILE"
    )
)
