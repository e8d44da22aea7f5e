"""AMASS-style `.npz`: body-model parameters (`poses`, `trans`, `betas`); read where joints are stored beside them.

Joints follow from the parameters only by way of the SMPL body model, whose licence does not let it be shipped; a file
without stored joints is refused with the way to get them.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from halp.clips.readers import register_reader
from halp.clips.readers.archives import load_npz, member_names
from halp.clips.readers.pose_files import Z_UP, PoseFileReader, Poses, turned
from halp.clips.source_files import find_files
from halp.clips.text_files import as_floats, problem
from halp.skeleton import get_topology

SMPL = get_topology("smpl-22")
_JOINTS = ("joints", "Jtr", "jtr", "joints3d", "joints_3d", "j3d")
_RATES = ("mocap_framerate", "mocap_frame_rate", "fps")


class AmassReader(PoseFileReader):
    """The first 22 joints of SMPL, metres, turned from z up to y up. The frame rate is the file's."""

    suffixes: ClassVar[tuple[str, ...]] = (".npz",)
    steps: ClassVar[tuple[str, ...]] = ("drop-empty", "centre")

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
        if name is None:
            fault = "it stores parameters of a body model (poses, trans, betas) and no joints"
            remedy = (
                "compute joints with the SMPL body model (package smplx) and save them as array 'joints' "
                "(frames, 22 or more, 3) in the same file"
            )
            raise problem(path, "", fault, remedy)
        joints = arrays[name]
        if joints.ndim != 3 or joints.shape[1] < len(SMPL) or joints.shape[2] != 3 or not len(joints):
            raise problem(path, f"array '{name}'", f"its shape is {joints.shape}", "expected (frames, 22 or more, 3)")
        if joints.dtype.kind not in "fiu":
            raise problem(path, f"array '{name}'", f"it holds {joints.dtype}", "expected numbers")
        rate = next((arrays[key] for key in _RATES if key in arrays), None)
        fps = (
            float(as_floats(rate).item()) if rate is not None and rate.size == 1 and rate.dtype.kind in "fiu" else -1.0
        )
        return Poses(SMPL.joints, turned(as_floats(joints[:, : len(SMPL)]), Z_UP)[:, None], fps=fps, topology=SMPL)


register_reader(AmassReader("amass", "AMASS .npz files with stored joints (arrays 'joints' or 'Jtr')"))
