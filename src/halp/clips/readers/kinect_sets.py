"""Small Kinect-v1 data sets whose file names tell who does what: `a01_s02_e03…` is action 1, subject 2, repetition 3.

NW-UCLA has JSON files, UTD-MHAD MATLAB files, MSR-Action3D text files; all hold one person and 20 joints in metres.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.clips.clip import Clip, Dropped, Frames
from halp.clips.readers import Info, Item, register_reader
from halp.clips.readers.shared import named_files
from halp.clips.sandbox import load_matrix
from halp.clips.source_files import first_file, read_json, read_text
from halp.clips.splits import Split, SplitRule
from halp.clips.text_files import (
    checked_scores,
    coordinates,
    forget_unsure,
    json_numbers,
    number_table,
    problem,
    unless_empty,
)
from halp.skeleton import KINECT_V1

_ODD = Split("xsub", "subject", train=(1, 3, 5, 7, 9), test=(2, 4, 6, 8, 10))


def _numbered(names: str) -> dict[int, str]:
    return dict(enumerate(names.split(","), start=1))


@dataclass
class NamedFileReader(abc.ABC):
    """Base of these readers, which say how a file is called (`clip + ending`, by an example) and load its frames.

    `numbers` are what the numbers in a name mean, `classes` the names by the number of the action.
    """

    name: str
    description: str
    title: ClassVar[str]
    clip: ClassVar[str]
    ending: ClassVar[str]
    classes: ClassVar[Mapping[int, str]]
    splits: ClassVar[tuple[SplitRule, ...]] = (_ODD,)
    numbers: ClassVar[tuple[str, ...]] = ("action", "subject", "repetition")
    steps: ClassVar[tuple[str, ...]] = ("drop-empty", "centre")

    @abc.abstractmethod
    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        """Frames `(T, 20, 3)` in the joint order of the Kinect, and what was repaired."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The first group is the clip's name, then come its numbers."""
        clip = re.sub(r"\d+", r"(\\d{1,3})", self.clip)
        return re.compile(f"({clip}){re.escape(self.ending)}", re.ASCII | re.IGNORECASE)

    def sniff(self, path: Path) -> bool:
        file = first_file(path, self.ending)
        # other formats have files that end with .json alone
        return file is not None and (self.ending != ".json" or self.pattern.fullmatch(file.name) is not None)

    def info(self, path: Path) -> Info:
        return Info(KINECT_V1, 1, tuple(self.classes.values()), self.splits, self.steps)

    def items(self, path: Path) -> Iterable[Item]:
        return [Item(file) for file in named_files(path, self.pattern, self.clip + self.ending)]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        match = self.pattern.fullmatch(item.path.name)
        if match is None:
            told = [number for number in self.numbers if number != "repetition"]
            fault = f"the name tells no {', '.join(told[:-1])} and {told[-1]}"
            raise problem(item.path, "", fault, f"name it like {self.clip + self.ending}")
        numbers = dict(zip(self.numbers, map(int, match.groups()[1:])))
        if numbers["action"] not in self.classes:
            known = ", ".join(map(str, self.classes))
            fault = f"action {numbers['action']} is not a class of {self.title} ({known})"
            raise problem(item.path, "", fault, "leave it out")
        frames, repairs = self.load(item.path)
        label, extra = list(self.classes).index(numbers["action"]), {"repetition": numbers["repetition"]}
        name, camera = match[1].lower(), numbers.get("camera", -1)
        return [unless_empty(Clip(frames[:, None], name, label, numbers["subject"], camera, extra, repairs))]


class NwUclaReader(NamedFileReader):
    """The JSON files of Northwestern-UCLA Multiview Action3D as the CTR-GCN line of work uses them."""

    title, clip, ending = "NW-UCLA", "a01_s01_e00_v01", ".json"
    classes: ClassVar[Mapping[int, str]] = {
        1: "pick up with one hand", 2: "pick up with two hands", 3: "drop trash", 4: "walk around", 5: "sit down",
        6: "stand up", 8: "donning", 9: "doffing", 11: "throw", 12: "carry",
    }  # fmt: skip
    splits = (
        Split("xview", "camera", train=(1, 2), test=(3,)),
        Split("xview-2", "camera", train=(1, 3), test=(2,)),
        Split("xview-1", "camera", train=(2, 3), test=(1,)),
        _ODD,
    )
    numbers = ("action", "subject", "repetition", "camera")
    steps = ("drop-empty", "centre", "rotate-mean")

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        data = read_json(path)
        if not isinstance(data, dict) or "skeletons" not in data:
            raise problem(path, "", "it has no key 'skeletons'", "check that this is an NW-UCLA file")
        skeletons = json_numbers(data["skeletons"], (None, 20, 3), path, "key 'skeletons'")
        return coordinates(skeletons, path, "key 'skeletons'"), ()


UTD_JOINTS = (
    "head shoulder_center spine hip_center "
    "shoulder_left elbow_left wrist_left hand_left shoulder_right elbow_right wrist_right hand_right "
    "hip_left knee_left ankle_left foot_left hip_right knee_right ankle_right foot_right"
).split()
_UTD_ORDER = [UTD_JOINTS.index(joint) for joint in KINECT_V1.joints]


class UtdMhadReader(NamedFileReader):
    """The Kinect skeletons of the UTD Multimodal Human Action Dataset, metres, one person."""

    title, clip, ending = "UTD-MHAD", "a1_s1_t1", "_skeleton.mat"
    classes = _numbered(
        "swipe left,swipe right,wave,clap,throw,arm cross,basketball shoot,draw X,draw circle clockwise,"
        "draw circle counter clockwise,draw triangle,bowling,boxing,baseball swing,tennis swing,arm curl,tennis serve,"
        "push,knock,catch,pickup and throw,jog,walk,sit to stand,stand to sit,lunge,squat"
    )
    splits = (Split("xsub", "subject", train=(1, 3, 5, 7), test=(2, 4, 6, 8)),)

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        array = load_matrix(path, "d_skel")
        if array.ndim != 3 or array.shape[:2] != (20, 3) or array.shape[2] == 0:
            fault = f"it holds {array.dtype} in shape {array.shape} instead of numbers in (20, 3, frames)"
            raise problem(path, "array 'd_skel'", fault, "check that this is a UTD-MHAD skeleton")
        return coordinates(array.astype(np.float64).transpose(2, 0, 1)[:, _UTD_ORDER], path, "array 'd_skel'"), ()


# The order of the files; left and right follow the right-handed actors of the one-armed classes.
MSR_JOINTS = (
    "shoulder_left shoulder_right shoulder_center spine hip_left hip_right hip_center elbow_left elbow_right "
    "wrist_left wrist_right hand_left hand_right knee_left knee_right ankle_left ankle_right foot_left foot_right head"
).split()
_MSR_ORDER = [MSR_JOINTS.index(joint) for joint in KINECT_V1.joints]


@dataclass
class MsrAction3DReader(NamedFileReader):
    """The real-world skeletons of MSR Action3D. `min_score` makes joints of lower tracking confidence missing."""

    min_score: float = -1.0
    title, clip, ending = "MSR-Action3D", "a01_s01_e01", "_skeleton3D.txt"
    classes = _numbered(
        "high arm wave,horizontal arm wave,hammer,hand catch,forward punch,high throw,draw X,draw tick,draw circle,"
        "hand clap,two hand wave,side boxing,bend,forward kick,side kick,jogging,tennis swing,tennis serve,golf swing,"
        "pickup and throw"
    )

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        table = number_table(path, read_text(path), 4, "x y z confidence")
        if len(table) % 20:
            raise problem(path, "", f"{len(table)} lines are not whole frames of 20 joints")
        values = table.reshape(-1, 20, 4)[:, _MSR_ORDER]
        frames = coordinates(values[..., :3], path)
        if self.min_score < 0:
            return frames, ()
        return forget_unsure(frames, checked_scores(values[..., 3], path), self.min_score)


register_reader(NwUclaReader("nw-ucla", "NW-UCLA: a folder of a01_s01_e00_v01.json files"))
register_reader(UtdMhadReader("utd-mhad", "UTD-MHAD: a folder of a1_s1_t1_skeleton.mat files"))
register_reader(MsrAction3DReader("msr-action3d", "MSR-Action3D: a folder of a01_s01_e01_skeleton3D.txt files"))
