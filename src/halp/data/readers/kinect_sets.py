"""Small Kinect-v1 data sets, in metres: NW-UCLA, UTD-MHAD, MSR-Action3D and UTKinect-Action3D.

The names of the first three tell who does what: `a01_s02_e03…` is action 1, subject 2, repetition 3; they
hold JSON, MATLAB matrices and text. UTKinect has `joints_s01_e01.txt` (a line per frame: number, then 20 ×
3), cut by `actionLabel.txt`.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.core.config import limited
from halp.data.clip import Clip, Dropped, Frames
from halp.data.readers import Info, Item, register_reader
from halp.data.sandbox import load_matrix
from halp.data.source_files import find_files, first_file, leads_out, read_json_source, read_text, walk
from halp.data.splits import Split, SplitRule
from halp.data.text_files import (
    checked_scores,
    coordinates,
    drop_if_empty,
    json_numbers,
    mask_low_scores,
    number_table,
    problem,
    shown,
    whole_number,
)
from halp.skeleton import KINECT_V1

_ODD = Split("xsub", "subject", train=(1, 3, 5, 7, 9), test=(2, 4, 6, 8, 10))


def _numbered(names: str) -> dict[int, str]:
    return dict(enumerate(names.split(","), start=1))


def named_files(root: Path, pattern: re.Pattern[str], example: str) -> list[Path]:
    """Files named as in a data set; finding none is an error that shows an example of a name."""
    suffix = example[example.rindex(".") :]
    files = [path for path in find_files(root, suffix) if pattern.fullmatch(path.name)]
    if not files:
        raise problem(root, "", f"no file is named like '{example}'", "check the path and the format")
    return files


@dataclass
class NamedFileReader(abc.ABC):
    """Base of these readers, which define the file names (`clip + ending`) and load the frames.

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
    steps: ClassVar[tuple[str, ...]] = ("drop-empty", "interpolate-gaps", "centre")

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
            fault = f"the name has no {', '.join(told[:-1])} and {told[-1]}"
            raise problem(item.path, "", fault, f"name it like {self.clip + self.ending}")
        numbers = dict(zip(self.numbers, map(int, match.groups()[1:])))
        if numbers["action"] not in self.classes:
            known = ", ".join(map(str, self.classes))
            fault = f"action {numbers['action']} is not a class of {self.title} ({known})"
            raise problem(item.path, "", fault, "leave it out")
        frames, repairs = self.load(item.path)
        label, extra = list(self.classes).index(numbers["action"]), {"repetition": numbers["repetition"]}
        name, camera = match[1].lower(), numbers.get("camera", -1)
        return [drop_if_empty(Clip(frames[:, None], name, label, numbers["subject"], camera, extra, repairs))]


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
    steps = ("drop-empty", "interpolate-gaps", "centre", "rotate-mean")

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        data = read_json_source(path)
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
        "swipe left,swipe right,wave,clap,throw,arm cross,basketball shoot,draw X,draw circle clockwise,draw"
        " circle counter clockwise,draw triangle,bowling,boxing,baseball swing,tennis swing,arm curl,tennis"
        " serve,push,knock,catch,pickup and throw,jog,walk,sit to stand,stand to sit,lunge,squat"
    )
    splits = (Split("xsub", "subject", train=(1, 3, 5, 7), test=(2, 4, 6, 8)),)

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        array = load_matrix(path, "d_skel")
        if array.ndim != 3 or array.shape[:2] != (20, 3) or array.shape[2] == 0:
            fault = f"it holds {array.dtype} in shape {array.shape} instead of numbers in (20, 3, frames)"
            raise problem(path, "array 'd_skel'", fault, "check that this is a UTD-MHAD skeleton")
        return (
            coordinates(array.astype(np.float64).transpose(2, 0, 1)[:, _UTD_ORDER], path, "array 'd_skel'"),
            (),
        )


# The order of the files; left and right follow the right-handed actors of the one-armed classes.
MSR_JOINTS = (
    "shoulder_left shoulder_right shoulder_center spine hip_left hip_right hip_center elbow_left elbow_right"
    " wrist_left wrist_right hand_left hand_right knee_left knee_right ankle_left ankle_right foot_left"
    " foot_right head"
).split()
_MSR_ORDER = [MSR_JOINTS.index(joint) for joint in KINECT_V1.joints]


@dataclass
class MsrAction3DReader(NamedFileReader):
    """The real-world skeletons of MSR Action3D; joints with a confidence below `min_score` become missing."""

    min_score: float = limited(-1.0, least=0)
    title, clip, ending = "MSR-Action3D", "a01_s01_e01", "_skeleton3D.txt"
    classes = _numbered(
        "high arm wave,horizontal arm wave,hammer,hand catch,forward punch,high throw,draw X,draw tick,draw"
        " circle,hand clap,two hand wave,side boxing,bend,forward kick,side kick,jogging,tennis swing,tennis"
        " serve,golf swing,pickup and throw"
    )

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        table = number_table(path, read_text(path), 4, "x y z confidence")
        if len(table) % 20:
            raise problem(path, "", f"{len(table)} lines are not whole frames of 20 joints")
        values = table.reshape(-1, 20, 4)[:, _MSR_ORDER]
        frames = coordinates(values[..., :3], path)
        if self.min_score < 0:
            return frames, ()
        return mask_low_scores(frames, checked_scores(values[..., 3], path), self.min_score)


register_reader(NwUclaReader("nw-ucla", "NW-UCLA: a folder of a01_s01_e00_v01.json files"))
register_reader(UtdMhadReader("utd-mhad", "UTD-MHAD: a folder of a1_s1_t1_skeleton.mat files"))
register_reader(
    MsrAction3DReader("msr-action3d", "MSR-Action3D: a folder of a01_s01_e01_skeleton3D.txt files")
)


# Names in the label file and the classes they stand for.
ACTIONS = {
    name: re.sub("([A-Z])", r" \1", name).lower()
    for name in "walk sitDown standUp pickUp carry throw push pull waveHands clapHands".split()
}
_NAME = re.compile(r"joints_(s(\d{1,3})_e(\d{1,3}))\.txt", re.ASCII | re.IGNORECASE)
_RECORDING = re.compile(r"s(\d{1,3})[ _]+e(\d{1,3})", re.ASCII | re.IGNORECASE)
_SEGMENT = re.compile(r"(\w+)\s*:\s*(\S+)\s+(\S+)", re.ASCII)

Segments = tuple[tuple[str, int, int], ...]


@dataclass
class UtKinectReader:
    """UTKinect-Action3D in metres, one person; a corrected `actionLabel_modified.txt` takes precedence."""

    name: str = "utkinect"
    description: str = "UTKinect-Action3D: joints_s01_e01.txt files and actionLabel.txt"

    def sniff(self, path: Path) -> bool:
        file = first_file(path, ".txt") if path.is_file() else first_file(path, "_e01.txt", "_e02.txt")
        return file is not None and _NAME.fullmatch(file.name) is not None

    def info(self, path: Path) -> Info:
        return Info(
            KINECT_V1, 1, tuple(ACTIONS.values()), (_ODD,), ("drop-empty", "interpolate-gaps", "centre")
        )

    def items(self, path: Path) -> Iterable[Item]:
        files = named_files(path, _NAME, "joints_s01_e01.txt")
        labels = _label_file(path)
        segments = read_segments(labels)
        if missing := [file for file in files if _recording(file) not in segments]:
            fault = f"it has no segments for '{missing[0].name}'"
            raise problem(labels, "", fault, "use the label file of this data set")
        return [Item(file, segments[_recording(file)]) for file in files]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        subject, repetition = _recording(item.path)
        segments: Segments | None = item.key
        if segments is None:
            segments = read_segments(_label_file(item.path)).get((subject, repetition), ())
        table = number_table(item.path, read_text(item.path), 61, "frame number and 20 joints")
        numbers, first = np.unique(table[:, 0], return_index=True)
        repeated = len(table) - len(first)
        repairs = (f"{repeated} repeated frame numbers in the recording left out",) if repeated else ()
        values = table[first, 1:].reshape(-1, 1, 20, 3)
        clips: list[Clip | Dropped] = []
        for action, start, end in segments:
            name = f"s{subject:02}_e{repetition:02}_{action}"
            chosen = (numbers >= start) & (numbers <= end)
            if start < 0:
                clips.append(Dropped(name, "the label file gives no frames for it", expected=True))
            elif not chosen.any():
                clips.append(Dropped(name, f"the recording has no frame from {start} to {end}"))
            else:
                frames = coordinates(values[chosen], item.path, f"segment '{action}'")
                label = list(ACTIONS).index(action)
                extra = {"repetition": repetition}
                clips.append(drop_if_empty(Clip(frames, name, label, subject, extra=extra, repairs=repairs)))
        return clips


def read_segments(path: Path) -> dict[tuple[int, int], Segments]:
    """{(subject, repetition): ((action, first frame, last frame), …)}; -1 for a segment of `NaN NaN`."""
    recordings: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}
    current: dict[str, tuple[int, int]] | None = None
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        where = f"line {number}"
        if not line.strip():
            continue
        if recording := _RECORDING.fullmatch(line.strip()):
            key = (int(recording[1]), int(recording[2]))
            if key in recordings:
                raise problem(
                    path, where, f"recording '{line.strip()}' occurs twice", "remove one of the two"
                )
            current = recordings[key] = {}
            continue
        match = _SEGMENT.fullmatch(line.strip())
        if match is None or current is None:
            fault = f"{shown(line.strip())} is not a segment"
            raise problem(path, where, fault, "expected 's01 e01', then 'walk: 252 390'")
        action, *ends = match.groups()
        if action not in ACTIONS:
            raise problem(path, where, f"unknown class '{action}'", f"known are {', '.join(ACTIONS)}")
        if action in current:
            raise problem(path, where, f"'{action}' occurs twice in one recording", "remove one of the two")
        known = [end.lower() for end in ends] != ["nan", "nan"]
        start, end = (whole_number(end, path, where) if known else -1 for end in ends)
        if known and not 0 <= start <= end:
            raise problem(
                path, where, f"the segment runs from {start} to {end}", "give the first and the last frame"
            )
        current[action] = start, end
    if not recordings:
        raise problem(path, "", "it holds no segments", "use the actionLabel.txt of the data set")
    return {
        key: tuple((action, *ends) for action, ends in parts.items()) for key, parts in recordings.items()
    }


def _recording(path: Path) -> tuple[int, int]:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise problem(
            path, "", "the name does not state subject and repetition", "name it like joints_s01_e01.txt"
        )
    return int(match[2]), int(match[3])


def _label_file(path: Path) -> Path:
    """The label file below the source or, for the folder `joints` or one of its files, beside it."""
    folder = path if path.is_dir() else path.parent
    above = folder.resolve().parent
    try:
        beside = [file for file in sorted(above.iterdir()) if file.is_file() and not leads_out(file, above)]
    except OSError:
        beside = []
    files = [file for file in (*walk(folder), *beside) if file.name.lower().startswith("actionlabel")]
    if not files:
        fault = "there is no actionLabel.txt in it or beside it"
        raise problem(path, "", fault, "put the label file of the data set there")
    return next((file for file in files if "modified" in file.name.lower()), files[0])


register_reader(UtKinectReader())
