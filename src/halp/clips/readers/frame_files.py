"""Key points in one file per frame: OpenPose JSON (BODY_25 or COCO-18, pixels) and YOLO text (17 points, normalised).

A folder of files that differ in a frame number is a clip; persons are followed over its frames.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.shared import DetectionReader, Entry, run_items, runs
from halp.clips.source_files import find_files, first_file, head, read_json, read_text
from halp.clips.text_files import checked_scores, coordinates, json_numbers, number, problem
from halp.clips.tracking import Detection
from halp.skeleton import Topology, get_topology

_SUFFIX = "_keypoints.json"
_NAME = re.compile(r"(?P<clip>.*?)_?(?P<frame>\d{1,15})_keypoints\.json", re.ASCII | re.IGNORECASE)
_KEYS = ("pose_keypoints_2d", "pose_keypoints")
_SIZES = {75: "openpose-25", 54: "openpose-18"}


class OpenPoseReader(DetectionReader):
    """Files of one folder with the same beginning are one clip; folders below the source are taken as classes."""

    def sniff(self, path: Path) -> bool:
        return first_file(path, _SUFFIX) is not None

    def info(self, path: Path) -> Info:
        return self.source_info(_topology(find_files(path, _SUFFIX)))

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, _SUFFIX)
        topology, groups = _topology(files), runs(files, _NAME)
        if not groups:
            remedy = "expected names like walk_000000000012_keypoints.json"
            raise problem(path, "", "no name ends with a frame number", remedy)
        return run_items(groups, path if path.is_dir() else path.parent, topology, by_folder=True)

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = item.key if isinstance(item.key, Entry) else next(iter(self.items(item.path))).key
        topology = entry.topology or _topology([item.path / file for file in entry.files])
        frames = [self._people(item.path / file, topology) for file in entry.files]
        return [self.clip(frames, entry, topology)]

    def _people(self, path: Path, topology: Topology) -> list[Detection]:
        people = []
        for index, person in enumerate(_persons(path)):
            where = f"person {index}"
            values = _values(person, path, where)
            if len(values) != 3 * len(topology):
                fault = f"{len(values)} numbers instead of the {3 * len(topology)} of '{topology.name}'"
                raise problem(path, where, fault, "prepare layouts one by one")
            table = values.reshape(-1, 3)
            scores = checked_scores(table[:, 2], path, where)
            joints = self.sure_joints(coordinates(table[:, :2], path, where, axis="joint"), scores)
            identity = person.get("person_id", [-1])
            known = isinstance(identity, list) and len(identity) == 1 and type(identity[0]) is int
            score = float(np.clip(scores, 0, 1).mean())
            people.append(Detection(joints, score, identity[0] if known else -1))
        return people


def _topology(files: Sequence[Path]) -> Topology:
    """The layout of the first person in the first files."""
    for path in files[:1000]:
        for index, person in enumerate(_persons(path)):
            size = len(_values(person, path, f"person {index}"))
            if size not in _SIZES:
                fault = f"{size} numbers are neither BODY_25 (75) nor COCO-18 (54)"
                raise problem(path, f"person {index}", fault, "write the keypoints with one of these models")
            return get_topology(_SIZES[size])
    raise problem(files[0], "key 'people'", "nobody is in it, nor in the files that follow", "leave this source out")


def _persons(path: Path) -> list[dict[str, Any]]:
    data = read_json(path)
    people = data.get("people") if isinstance(data, dict) else None
    if not isinstance(people, list) or not all(isinstance(person, dict) for person in people):
        raise problem(path, "key 'people'", "it is not a list of persons", "check that this is an OpenPose file")
    return people


def _values(person: dict[str, Any], path: Path, where: str) -> Any:
    key = next((key for key in _KEYS if person.get(key)), None)
    if key is None:
        raise problem(path, where, f"it has no '{_KEYS[0]}'", "write 2D keypoints of the body")
    return json_numbers(person[key], (None,), path, f"{where}, key '{key}'")


register_reader(OpenPoseReader("openpose", "OpenPose: folders of *_keypoints.json (BODY_25 or COCO-18)"))


COCO_17 = get_topology("coco-17")
_FRAME = re.compile(r"(?P<clip>.*?)[_-]?(?P<frame>\d{1,15})\.txt", re.ASCII | re.IGNORECASE)
# Class and box, 17 keypoints with or without visibility, and perhaps a confidence, a track, or both.
_WIDTHS = {5 + 17 * size + more: size for size in (2, 3) for more in (0, 1, 2)}


@dataclass
class YoloReader(DetectionReader):
    """Files of a folder that differ only in a frame number are one clip (`walk_1.txt`, `walk_2.txt`, …).

    `aspect` (width / height) of the picture evens out the normalised coordinates.
    """

    aspect: float = 1.0

    def sniff(self, path: Path) -> bool:
        file = first_file(path, ".txt")
        if file is None or _FRAME.fullmatch(file.name) is None:
            return False
        words = head(file, 65536).split(b"\n")[0].split()
        try:
            values = [float(word) for word in words]
        except ValueError:
            return False
        return len(words) in _WIDTHS and values[0].is_integer() and all(0 <= value <= 1 for value in values[1:5])

    def info(self, path: Path) -> Info:
        return self.source_info(COCO_17)

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, ".txt")
        groups = runs(files, _FRAME)
        if not groups:
            raise problem(path, "", "no name ends with a frame number", "expected names like walk_12.txt")
        return run_items(groups, path if path.is_dir() else path.parent, COCO_17)

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = item.key if isinstance(item.key, Entry) else next(iter(self.items(item.path))).key
        numbers = [int(match["frame"]) for file in entry.files if (match := _FRAME.fullmatch(file))]
        # A frame with nobody has no file; such gaps stay, so that time runs evenly.
        length = numbers[-1] - numbers[0] + 1
        if length > 1000 * len(numbers):
            fault = f"frames go from {numbers[0]} to {numbers[-1]}"
            remedy = "name the files by frame number"
            raise problem(item.path, "", f"{fault}, but only {len(numbers)} are there", remedy)
        frames: list[list[Detection]] = [[] for _ in range(length)]
        for at, file in zip(numbers, entry.files):
            frames[at - numbers[0]] = self._people(item.path / file)
        return [self.clip(frames, entry, COCO_17)]

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
