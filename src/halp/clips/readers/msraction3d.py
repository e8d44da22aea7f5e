"""MSR-Action3D: one text file a sequence, `a01_s01_e01_skeleton3D.txt`, twenty lines `x y z confidence` a frame."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.sources import named_files
from halp.clips.source_files import first_file, read_text
from halp.clips.splits import Split
from halp.clips.text_files import checked_scores, coordinates, forget_unsure, number_table, problem, unless_empty
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
_NAME = re.compile(r"(a(\d{1,3})_s(\d{1,3})_e(\d{1,3}))_skeleton3D\.txt", re.ASCII | re.IGNORECASE)


@dataclass
class MsrAction3DReader:
    """The real-world skeletons of MSR Action3D. `min_score` makes joints of lower tracking confidence missing."""

    name: str = "msr-action3d"
    description: str = "MSR-Action3D: a folder of a01_s01_e01_skeleton3D.txt files"
    min_score: float = -1.0

    def sniff(self, path: Path) -> bool:
        return first_file(path, "_skeleton3d.txt") is not None

    def info(self, path: Path) -> Info:
        return Info(KINECT_V1, class_names=tuple(CLASSES), splits=SPLITS, normalisation=("drop-empty", "centre"))

    def items(self, path: Path) -> Iterable[Item]:
        return [Item(file) for file in named_files(path, _NAME, "a01_s01_e01_skeleton3D.txt")]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        match = _NAME.fullmatch(item.path.name)
        if match is None:
            raise problem(
                item.path, "", "the name tells no action and subject", "name it like a01_s01_e01_skeleton3D.txt"
            )
        action, subject, repetition = map(int, match.groups()[1:])
        if not 1 <= action <= len(CLASSES):
            raise problem(item.path, "", f"action {action} is not a class of MSR-Action3D (1 to 20)", "leave it out")
        table = number_table(item.path, read_text(item.path), 4, "x y z confidence")
        if len(table) % 20:
            raise problem(
                item.path, "", f"{len(table)} lines are not whole frames of 20 joints", "check that the file is whole"
            )
        values = table.reshape(-1, 20, 4)[:, _ORDER]
        frames = coordinates(values[..., :3], item.path)[:, None]
        repairs: tuple[str, ...] = ()
        if self.min_score >= 0:
            scores = checked_scores(values[:, None, :, 3], item.path)
            frames, repairs = forget_unsure(frames, scores, self.min_score)
        clip = Clip(frames, match[1].lower(), action - 1, subject, extra={"repetition": repetition}, repairs=repairs)
        return [unless_empty(clip)]


register_reader(MsrAction3DReader())
