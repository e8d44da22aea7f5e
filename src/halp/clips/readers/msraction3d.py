"""MSR-Action3D: one text file per sequence, `a01_s01_e01_skeleton3D.txt`, twenty lines `x y z confidence` per frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from halp.clips.clip import Frames
from halp.clips.readers import register_reader
from halp.clips.readers.named_files import NamedDataset, NamedFileReader
from halp.clips.source_files import read_text
from halp.clips.splits import Split
from halp.clips.text_files import checked_scores, coordinates, forget_unsure, number_table, problem
from halp.skeleton import KINECT_V1

CLASSES = (
    "high arm wave,horizontal arm wave,hammer,hand catch,forward punch,high throw,draw X,draw tick,draw circle,hand clap,"
    "two hand wave,side boxing,bend,forward kick,side kick,jogging,tennis swing,tennis serve,golf swing,pickup and throw"
).split(",")
SPLITS = (Split("xsub", "subject", train=(1, 3, 5, 7, 9), test=(2, 4, 6, 8, 10)),)
# The order of the files; left and right follow the right-handed actors of the one-armed classes.
JOINTS = (
    "shoulder_left shoulder_right shoulder_center spine hip_left hip_right hip_center elbow_left elbow_right "
    "wrist_left wrist_right hand_left hand_right knee_left knee_right ankle_left ankle_right foot_left foot_right head"
).split()
_ORDER = [JOINTS.index(joint) for joint in KINECT_V1.joints]


@dataclass
class MsrAction3DReader(NamedFileReader):
    """The real-world skeletons of MSR Action3D. `min_score` makes joints of lower tracking confidence missing."""

    min_score: float = -1.0
    dataset = NamedDataset("MSR-Action3D", "a01_s01_e01", "_skeleton3D.txt", dict(enumerate(CLASSES, start=1)), SPLITS)

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        table = number_table(path, read_text(path), 4, "x y z confidence")
        if len(table) % 20:
            what = f"{len(table)} lines are not whole frames of 20 joints"
            raise problem(path, "", what, "check that the file is whole")
        values = table.reshape(-1, 20, 4)[:, _ORDER]
        frames = coordinates(values[..., :3], path)
        if self.min_score < 0:
            return frames, ()
        return forget_unsure(frames, checked_scores(values[..., 3], path), self.min_score)


register_reader(MsrAction3DReader("msr-action3d", "MSR-Action3D: a folder of a01_s01_e01_skeleton3D.txt files"))
