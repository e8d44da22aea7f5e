"""PKU-MMD II: long recordings as text, cut into clips by label files `label,start,end,confidence`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from halp.core.config import limited
from halp.core.errors import InputError
from halp.data.clip import Clip, Dropped, Frames
from halp.data.normalise import AUTHORS
from halp.data.readers import Info, Item, register_reader
from halp.data.readers.ntu import resource_lines
from halp.data.readers.shared import clip_or_dropped
from halp.data.source_files import MIB, head, read_text, walk
from halp.data.splits import Split
from halp.data.text_files import coordinates, number_table, problem, shown, whole_number
from halp.skeleton import KINECT_V2

_NAME = re.compile(r"A(\d{2})N(\d{2})-([LMR])\.txt", re.ASCII | re.IGNORECASE)
_CAMERAS = {"L": 1, "M": 2, "R": 3}
_NUMBERS = 2 * 25 * 3
_FPS = 30.0
_LARGEST_FILE = 128 * MIB
# The published lists hold all recordings but these; they follow the performer (N) and the camera (L, M, R).
UNLISTED = frozenset({"A05N04-M", "A07N12-M", "A08N12-M", "A14N12-M", "A20N01-M"})
SPLITS = (
    Split("xsub", "subject", train=(1, 4, 5, 6, 8, 9, 10, 11, 12, 13), test=(2, 3, 7)),
    Split("xview", "camera", train=(2, 3), test=(1,)),
)


def class_names() -> tuple[str, ...]:
    """Names of the 51 actions of PKU-MMD; phase II has no clip of ten of them."""
    return resource_lines("pku_classes.txt")


# the authors' script puts every recording that is not in the training list into the test part
SCRIPT_SPLITS = tuple(Split(rule.name, f"{rule.name}_train", train=(1,), test=(0,)) for rule in SPLITS)
CUTS = ("published", "script")
LONGEST = 300  # frames of a clip that the authors' script keeps


@dataclass
class PkuReader:
    """A folder with skeleton files `A01N01-L.txt` and equally named label files in another folder below it.

    `cut = "published"`: frames as the label files count them, from 1 and with the last; recordings in no
    published list are left out. `cut = "script"`: as the authors' script does, rows start to end of an array
    (one frame later, without the last), 300 at most, and recordings that are in no list go to the test part.
    """

    name: str = "pku-mmd"
    description: str = "PKU-MMD II: folders of skeleton and of label files, both named like A01N01-L.txt"
    cut: str = limited("published", among=CUTS)

    def sniff(self, path: Path) -> bool:
        try:
            return any(_NAME.fullmatch(file.name) for file in islice(walk(path), 1002))
        except InputError:
            return False

    def info(self, path: Path) -> Info:
        splits = SPLITS if self.cut == "published" else SCRIPT_SPLITS
        origin = {"data set": "PKU-MMD II", "cut": self.cut}
        return Info(KINECT_V2, 2, class_names(), splits, AUTHORS, origin=origin)

    def items(self, path: Path) -> Iterable[Item]:
        skeletons: dict[str, Path] = {}
        labels: dict[str, Path] = {}
        for file in walk(path):
            if _NAME.fullmatch(file.name):
                name = file.stem.upper()
                where = labels if _is_label(file) else skeletons
                if name in where:
                    raise problem(file, "", f"'{where[name]}' has the same name", "keep one of the two")
                where[name] = file
        if not skeletons or not labels:
            wanted = (
                "skeleton file named like 'A01N01-L.txt'"
                if not skeletons
                else "label file beside the skeletons"
            )
            remedy = "name the folder that holds the skeleton and the label folder"
            raise problem(path, "", f"there is no {wanted}", remedy)
        return [Item(file, labels.get(name)) for name, file in sorted(skeletons.items())]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        name = item.path.stem.upper()
        match = _NAME.fullmatch(item.path.name)
        if match is None:
            raise problem(item.path, "", "its name does not state a recording", "name it like A01N01-L.txt")
        script, listed = self.cut == "script", name not in UNLISTED
        if not listed and not script:
            return [Dropped(name, "not in any published list", expected=True)]
        if item.key is None:
            raise problem(item.path, "", "it has no label file", "fetch the label file of the same name")
        recording = read_recording(item.path)
        facts: dict[str, Any] = {"subject": int(match[2]), "camera": _CAMERAS[match[3].upper()]}
        parts = {f"{rule.name}_train": int(listed and facts[rule.column] in rule.train) for rule in SPLITS}
        facts["extra"] = {"sequence": int(match[1]), **(parts if script else {})}

        def segment(clip: str, number: int, line: str) -> Clip:
            label, start, end, repairs = _segment(line, len(recording), item.key, f"line {number}")
            if script:
                start, end = _as_script(line, start, end, len(recording))
            times: dict[str, Any] = {"fps": _FPS, "recording": name, "start": start / _FPS}
            return Clip(recording[start:end], clip, label, repairs=repairs, **facts, **times)

        lines = enumerate(read_text(item.key).split("\n"), start=1)
        names = ((f"{name}-{number:03}", number, line) for number, line in lines if line.strip())
        outcomes = [clip_or_dropped(row[0], segment, *row) for row in names]
        return outcomes or [Dropped(name, "its label file names no action")]


def _as_script(line: str, start: int, end: int, length: int) -> tuple[int, int]:
    """The rows `start:end`, sliced as arrays are, 300 at most; an empty clip keeps its one frame."""
    first, last = (int(word) for word in line.split(",")[1:3])
    first, last = min(max(first, 0), length), min(last, length)
    return (first, min(last, first + LONGEST)) if first < last else (start, end)


def _is_label(path: Path) -> bool:
    """Label lines have commas and four numbers, skeleton lines blanks and 150."""
    return b"," in head(path, 200) or "label" in path.parent.name.lower()


def read_recording(path: Path) -> Frames:
    """A whole recording `(T, 2, 25, 3)`; a person who is absent is all zeros."""
    text = read_text(path, _LARGEST_FILE)
    table = number_table(path, text, _NUMBERS, "2 persons x 25 joints x 3 coordinates")
    return coordinates(table.reshape(-1, 2, 25, 3), path)


def _segment(line: str, length: int, path: Path, where: str) -> tuple[int, int, int, tuple[str, ...]]:
    """Class from 0, first frame, end frame, repairs; the file counts frames from 1 and includes the end."""
    words = line.strip().split(",")
    if len(words) not in (3, 4):
        fault = f"{shown(line)} is not 'label,start,end,confidence'"
        raise problem(path, where, fault, "correct it or leave this clip out")
    label, start, end = (whole_number(word.strip(), path, where) for word in words[:3])
    if not 1 <= label <= len(class_names()):
        raise problem(
            path, where, f"there is no class {label}, only 1 to 51", "correct it or leave this clip out"
        )
    first, last = max(start, 1), min(end, length)
    if start < 0 or first > last:
        fault = f"frames {start} to {end} are not within the {length} of the recording"
        raise problem(path, where, fault, "correct it or leave this clip out")
    cut = (
        (f"frames {start} to {end} cut to the {length} of the recording",)
        if (first, last) != (start, end)
        else ()
    )
    return label - 1, first - 1, last, cut


register_reader(PkuReader())
