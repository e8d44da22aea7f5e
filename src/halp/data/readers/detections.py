"""Key points with one file per frame: OpenPose JSON and YOLO text, and what their readers share.

OpenPose (BODY_25 or COCO-18, pixels) and YOLO (17 points, normalised) have one file per frame. Files of a
folder that differ in a frame number are a clip; persons are followed over its frames.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from halp.core.config import limited
from halp.core.errors import InputError
from halp.data.clip import Clip, Dropped, Frames
from halp.data.readers import Info, Item, register_reader
from halp.data.readers.shared import PERSONS, ClipKey, clip_name, entries, key_of
from halp.data.source_files import any_file, find_files, first_file, head, read_json_source, read_text
from halp.data.text_files import (
    checked_scores,
    coordinates,
    drop_if_empty,
    json_numbers,
    mask_low_scores,
    number,
    problem,
)
from halp.data.tracking import Detection, follow
from halp.skeleton import Topology, get_topology

#: Files of runs, by their folder and how their names begin.
Runs = dict[tuple[Path, str], list[Path]]


def runs(files: Iterable[Path], pattern: re.Pattern[str]) -> Runs:
    """Files of one folder that differ only in a frame number, in order; groups `clip` and `frame` of the
    pattern.
    """
    groups: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
    for path in files:
        if match := pattern.fullmatch(path.name):
            groups.setdefault((path.parent, match["clip"]), []).append((int(match["frame"]), path))
    return {key: [path for _, path in sorted(group)] for key, group in sorted(groups.items())}


def run_items(groups: Runs, root: Path, topology: Topology, by_folder: bool = False) -> Iterator[Item]:
    """One item per run of one-frame files, named by its folder and the common start of its file names.

    A run whose files have no beginning is called once more by its folder, or, with `by_folder`, by the folder
    alone. A folder per run is the recording itself and not a class; where folders hold several, the
    recordings lie in them.
    """
    several = len({folder for folder, _ in groups}) < len(groups)
    for (folder, prefix), files in groups.items():
        name = clip_name(folder / f"{prefix or folder.name}{files[0].suffix}", root)
        if by_folder and not prefix:
            name = "clip" if folder == root.parent else folder.relative_to(root.parent).as_posix()
        place = folder if several else folder.parent
        yield Item(folder, ClipKey(name, topology, tuple(file.name for file in files), place=place))


@dataclass
class PictureReader(abc.ABC):
    """Base of these formats: files that differ only in a frame number (`pattern`) are one clip.

    `whole` is for formats of which a file may also be a clip by itself. At most `persons` are kept, those
    seen longest; joints with a score below `min_score` are missing.
    """

    name: str
    description: str
    persons: int = limited(2, **PERSONS)
    min_score: float = limited(0.0, least=0)
    ending: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]
    example: ClassVar[str]
    by_folder: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    @abc.abstractmethod
    def detections(self, files: Sequence[Path], topology: Topology) -> list[list[Detection]]:
        """The people of every frame of a clip."""

    def topology(self, files: Sequence[Path]) -> Topology:
        """The layout of the whole source."""
        return COCO_17

    def one_frame(self, files: Sequence[Path]) -> bool:
        """Whether files that may be those of one clip hold a single frame each."""
        return True

    def info(self, path: Path) -> Info:
        topology = self.topology(find_files(path, self.ending))
        return Info(topology, self.persons, normalisation=("drop-empty", "interpolate-gaps", "centre"))

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, self.ending)
        topology, groups = self.topology(files), runs(files, self.pattern)
        if self.whole:
            groups = {key: group for key, group in groups.items() if len(group) > 1 and self.one_frame(group)}
        elif not groups:
            raise problem(path, "", "no name ends with a frame number", f"expected names like {self.example}")
        yield from run_items(groups, path if path.is_dir() else path.parent, topology, self.by_folder)
        taken = {file for group in groups.values() for file in group}
        yield from (item for item in entries(files, path, topology) if self.whole and item.path not in taken)

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = key_of(item) if self.whole or item.key else next(iter(self.items(item.path))).key
        files = [item.path / file for file in entry.files] or [item.path]
        topology = entry.topology or self.topology(files)
        frames = self.detections(files, topology)
        if not frames:
            return [Dropped(entry.name, "there is no frame in it")]
        tracked, left_out = follow(frames, self.persons, len(topology), topology.dimensions)
        return [drop_if_empty(Clip(tracked, entry.name, repairs=left_out))]

    def sure_joints(self, joints: Frames, scores: npt.NDArray[Any]) -> Frames:
        """Joints with zeros for those that are not sure enough."""
        return mask_low_scores(joints, scores, self.min_score)[0]


COCO_17 = get_topology("coco-17")
_POSE_KEYS = ("pose_keypoints_2d", "pose_keypoints")
_LAYOUTS = {75: "openpose-25", 54: "openpose-18"}


class OpenPoseReader(PictureReader):
    """Files of one folder whose names start alike are one clip; folders below the source are classes."""

    ending, example, by_folder = "_keypoints.json", "walk_000000000012_keypoints.json", True
    pattern = re.compile(r"(?P<clip>.*?)_?(?P<frame>\d{1,15})_keypoints\.json", re.ASCII | re.IGNORECASE)

    def sniff(self, path: Path) -> bool:
        return first_file(path, self.ending) is not None

    def topology(self, files: Sequence[Path]) -> Topology:
        """The layout of the first person in the first files."""
        first_error: InputError | None = None
        for path in files[:1000]:
            try:
                people = _persons(path)
            except InputError as error:  # told when the file itself is read
                first_error = first_error or error
                continue
            for index, person in enumerate(people):
                size = len(_values(person, path, f"person {index}"))
                if size not in _LAYOUTS:
                    fault = f"{size} numbers are neither BODY_25 (75) nor COCO-18 (54)"
                    raise problem(
                        path, f"person {index}", fault, "write the keypoints with one of these models"
                    )
                return get_topology(_LAYOUTS[size])
        fault = "nobody is in it, nor in the files that follow"
        raise first_error or problem(files[0], "key 'people'", fault, "leave this source out")

    def detections(self, files: Sequence[Path], topology: Topology) -> list[list[Detection]]:
        return [
            [
                self._person(person, path, f"person {index}", topology)
                for index, person in enumerate(_persons(path))
            ]
            for path in files
        ]

    def _person(self, person: dict[str, Any], path: Path, where: str, topology: Topology) -> Detection:
        values = _values(person, path, where)
        if len(values) != 3 * len(topology):
            fault = f"{len(values)} numbers instead of the {3 * len(topology)} of '{topology.name}'"
            raise problem(path, where, fault, "prepare layouts one by one")
        table = values.reshape(-1, 3)
        scores = checked_scores(table[:, 2], path, where)
        joints = self.sure_joints(coordinates(table[:, :2], path, where, axis="joint"), scores)
        identity = person.get("person_id", [-1])
        known = isinstance(identity, list) and len(identity) == 1 and type(identity[0]) is int
        return Detection(joints, float(np.clip(scores, 0, 1).mean()), identity[0] if known else -1)


def _persons(path: Path) -> list[dict[str, Any]]:
    data = read_json_source(path)
    people = data.get("people") if isinstance(data, dict) else None
    if not isinstance(people, list) or not all(isinstance(person, dict) for person in people):
        raise problem(
            path, "key 'people'", "it is not a list of persons", "check that this is an OpenPose file"
        )
    return people


def _values(person: dict[str, Any], path: Path, where: str) -> Any:
    key = next((key for key in _POSE_KEYS if person.get(key)), None)
    if key is None:
        raise problem(path, where, f"it has no '{_POSE_KEYS[0]}'", "write 2D keypoints of the body")
    return json_numbers(person[key], (None,), path, f"{where}, key '{key}'")


register_reader(OpenPoseReader("openpose", "OpenPose: folders of *_keypoints.json (BODY_25 or COCO-18)"))


# Class and box, 17 keypoints with or without visibility, and perhaps a confidence, a track, or both.
_WIDTHS = {5 + 17 * size + more: size for size in (2, 3) for more in (0, 1, 2)}


@dataclass
class YoloReader(PictureReader):
    """Files of a folder that differ only in a frame number are one clip (`walk_1.txt`, `walk_2.txt`, …).

    `aspect` (width / height) of the picture evens out the normalised coordinates.
    """

    aspect: float = limited(1.0, above=0)
    ending, example = ".txt", "walk_12.txt"
    pattern = re.compile(r"(?P<clip>.*?)[_-]?(?P<frame>\d{1,15})\.txt", re.ASCII | re.IGNORECASE)

    def sniff(self, path: Path) -> bool:
        return any_file(path, self._looks_right, self.ending)

    def _looks_right(self, file: Path) -> bool:
        if self.pattern.fullmatch(file.name) is None:
            return False
        words = head(file, 65536).split(b"\n")[0].split()
        try:
            values = [float(word) for word in words]
        except ValueError:
            return False
        return (
            len(words) in _WIDTHS and values[0].is_integer() and all(0 <= value <= 1 for value in values[1:5])
        )

    def detections(self, files: Sequence[Path], topology: Topology) -> list[list[Detection]]:
        numbers = [int(match["frame"]) for file in files if (match := self.pattern.fullmatch(file.name))]
        # A frame with nobody has no file; such gaps stay, so that time runs evenly.
        length = numbers[-1] - numbers[0] + 1
        if length > 1000 * len(numbers):
            fault = f"frames go from {numbers[0]} to {numbers[-1]}, but only {len(numbers)} are there"
            raise problem(files[0].parent, "", fault, "name the files by frame number")
        frames: list[list[Detection]] = [[] for _ in range(length)]
        for at, file in zip(numbers, files):
            frames[at - numbers[0]] = self._people(file)
        return frames

    def _people(self, path: Path) -> list[Detection]:
        people = []
        for at, line in enumerate(read_text(path).split("\n"), start=1):
            words = line.split()
            if not words:
                continue
            where = f"line {at}"
            if len(words) not in _WIDTHS:
                fault = f"{len(words)} numbers are not class, box and 17 keypoints"
                raise problem(path, where, fault, "write keypoints with a pose model")
            values = np.array([number(word, path, where) for word in words])
            size = _WIDTHS[len(words)]
            table = values[5 : 5 + 17 * size].reshape(17, size)
            more = values[5 + 17 * size :]
            places = coordinates(table[:, :2] * [self.aspect, 1.0], path, where, axis="joint")
            scores = checked_scores(table[:, 2], path, where) if size == 3 else np.ones(17)
            joints = self.sure_joints(places, scores)
            # A single further number up to 1 is a confidence; a track has a whole number.
            last = float(more[-1]) if len(more) else 0.5
            tracked = last.is_integer() and (len(more) == 2 or last > 1) and last < 2**53
            people.append(Detection(joints, float(scores.mean()), int(last) if tracked else -1))
        return people


register_reader(YoloReader("yolo", "YOLO keypoint text files, one per frame (17 COCO keypoints)"))
