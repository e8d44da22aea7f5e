"""What readers of data sets share whose file names tell who does what: `a01_s02_e03…` is action 1, subject 2, repetition 3."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from halp.clips.clip import Clip, Dropped, Frames
from halp.clips.readers import Info, Item
from halp.clips.readers.sources import named_files
from halp.clips.source_files import first_file
from halp.clips.splits import Rule
from halp.clips.text_files import problem, unless_empty
from halp.skeleton import KINECT_V1


@dataclass(frozen=True)
class NamedDataset:
    """A data set of Kinect-v1 clips, one per file: how its files are called, by an example, and what the numbers mean.

    A file is named like `clip + ending`; `classes` are names by the number of the action.
    """

    title: str
    clip: str
    ending: str
    classes: Mapping[int, str]
    splits: tuple[Rule, ...]
    numbers: tuple[str, ...] = ("action", "subject", "repetition")
    normalisation: tuple[str, ...] = ("drop-empty", "centre")

    @property
    def example(self) -> str:
        return self.clip + self.ending

    @property
    def pattern(self) -> re.Pattern[str]:
        """The first group is the clip's name, then come its numbers."""
        clip = re.sub(r"\d+", r"(\\d{1,3})", self.clip)
        return re.compile(f"({clip}){re.escape(self.ending)}", re.ASCII | re.IGNORECASE)

    def parse(self, path: Path) -> tuple[str, dict[str, int]]:
        """The clip's name and its numbers by their names."""
        match = self.pattern.fullmatch(path.name)
        if match is None:
            told = [number for number in self.numbers if number != "repetition"]
            what = f"the name tells no {', '.join(told[:-1])} and {told[-1]}"
            raise problem(path, "", what, f"name it like {self.example}")
        numbers = dict(zip(self.numbers, map(int, match.groups()[1:])))
        if numbers["action"] not in self.classes:
            known = ", ".join(map(str, self.classes))
            what = f"action {numbers['action']} is not a class of {self.title} ({known})"
            raise problem(path, "", what, "leave it out")
        return match[1].lower(), numbers


@dataclass
class NamedFileReader(abc.ABC):
    """Base of these readers, which only load the frames of a file."""

    name: str
    description: str
    dataset: ClassVar[NamedDataset]

    @abc.abstractmethod
    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        """Frames `(T, 20, 3)` in the joint order of the Kinect, and what was repaired."""

    def sniff(self, path: Path) -> bool:
        return first_file(path, self.dataset.ending) is not None

    def info(self, path: Path) -> Info:
        data = self.dataset
        return Info(KINECT_V1, 1, tuple(data.classes.values()), data.splits, data.normalisation)

    def items(self, path: Path) -> Iterable[Item]:
        return [Item(file) for file in named_files(path, self.dataset.pattern, self.dataset.example)]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        name, numbers = self.dataset.parse(item.path)
        frames, repairs = self.load(item.path)
        label = list(self.dataset.classes).index(numbers["action"])
        extra = {"repetition": numbers["repetition"]}
        camera = numbers.get("camera", -1)
        return [unless_empty(Clip(frames[:, None], name, label, numbers["subject"], camera, extra, repairs))]
