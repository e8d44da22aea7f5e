"""UTD-MHAD: one MATLAB file per sequence, `a1_s1_t1_skeleton.mat`, with the array `d_skel` of 20 joints × 3 × frames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.matlab import load_matrix
from halp.clips.readers.sources import named_files
from halp.clips.source_files import first_file
from halp.clips.splits import Split
from halp.clips.text_files import coordinates, problem, unless_empty
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
_NAME = re.compile(r"(a(\d{1,3})_s(\d{1,3})_t(\d{1,3}))_skeleton\.mat", re.ASCII | re.IGNORECASE)


@dataclass
class UtdMhadReader:
    """The Kinect skeletons of the UTD Multimodal Human Action Dataset, metres, one person."""

    name: str = "utd-mhad"
    description: str = "UTD-MHAD: a folder of a1_s1_t1_skeleton.mat files"

    def sniff(self, path: Path) -> bool:
        return first_file(path, "_skeleton.mat") is not None

    def info(self, path: Path) -> Info:
        return Info(KINECT_V1, class_names=tuple(CLASSES), splits=SPLITS, normalisation=("drop-empty", "centre"))

    def items(self, path: Path) -> Iterable[Item]:
        return [Item(file) for file in named_files(path, _NAME, "a1_s1_t1_skeleton.mat")]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        match = _NAME.fullmatch(item.path.name)
        if match is None:
            raise problem(item.path, "", "the name tells no action and subject", "name it like a1_s1_t1_skeleton.mat")
        action, subject, repetition = map(int, match.groups()[1:])
        if not 1 <= action <= len(CLASSES):
            raise problem(item.path, "", f"action {action} is not a class of UTD-MHAD (1 to 27)", "leave it out")
        array = load_matrix(item.path, "d_skel")
        if array.ndim != 3 or array.shape[:2] != (20, 3) or array.shape[2] == 0:
            raise problem(
                item.path,
                "array 'd_skel'",
                f"it holds {array.dtype} in shape {array.shape} instead of numbers in (20, 3, frames)",
                "check that this is a UTD-MHAD skeleton",
            )
        values = array.astype(np.float64).transpose(2, 0, 1)[:, _ORDER]
        frames = coordinates(values, item.path, "array 'd_skel'")[:, None]
        return [unless_empty(Clip(frames, match[1].lower(), action - 1, subject, extra={"repetition": repetition}))]


register_reader(UtdMhadReader())
