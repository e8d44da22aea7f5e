"""UTD-MHAD: one MATLAB file per sequence, `a1_s1_t1_skeleton.mat`, with the array `d_skel` of 20 joints × 3 × frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halp.clips.clip import Frames
from halp.clips.readers import register_reader
from halp.clips.readers.matlab import load_matrix
from halp.clips.readers.named_files import NamedDataset, NamedFileReader
from halp.clips.splits import Split
from halp.clips.text_files import coordinates, problem
from halp.skeleton import KINECT_V1

CLASSES = (
    "swipe left,swipe right,wave,clap,throw,arm cross,basketball shoot,draw X,draw circle clockwise,"
    "draw circle counter clockwise,draw triangle,bowling,boxing,baseball swing,tennis swing,arm curl,tennis serve,push,"
    "knock,catch,pickup and throw,jog,walk,sit to stand,stand to sit,lunge,squat"
).split(",")
SPLITS = (Split("xsub", "subject", train=(1, 3, 5, 7), test=(2, 4, 6, 8)),)
JOINTS = (
    "head shoulder_center spine hip_center "
    "shoulder_left elbow_left wrist_left hand_left shoulder_right elbow_right wrist_right hand_right "
    "hip_left knee_left ankle_left foot_left hip_right knee_right ankle_right foot_right"
).split()
_ORDER = [JOINTS.index(joint) for joint in KINECT_V1.joints]


class UtdMhadReader(NamedFileReader):
    """The Kinect skeletons of the UTD Multimodal Human Action Dataset, metres, one person."""

    dataset = NamedDataset("UTD-MHAD", "a1_s1_t1", "_skeleton.mat", dict(enumerate(CLASSES, start=1)), SPLITS)

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        array = load_matrix(path, "d_skel")
        if array.ndim != 3 or array.shape[:2] != (20, 3) or array.shape[2] == 0:
            what = f"it holds {array.dtype} in shape {array.shape} instead of numbers in (20, 3, frames)"
            raise problem(path, "array 'd_skel'", what, "check that this is a UTD-MHAD skeleton")
        return coordinates(array.astype(np.float64).transpose(2, 0, 1)[:, _ORDER], path, "array 'd_skel'"), ()


register_reader(UtdMhadReader("utd-mhad", "UTD-MHAD: a folder of a1_s1_t1_skeleton.mat files"))
