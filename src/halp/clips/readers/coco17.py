"""COCO-17 keypoints as JSON: what MMPose, RTMPose, Ultralytics, AlphaPose and COCO result files hold, in pixels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.shared import DetectionReader, entries, entry_of, run_items, runs
from halp.clips.source_files import find_files, first_file, head, read_json
from halp.clips.text_files import checked_scores, coordinates, json_numbers, problem, shown
from halp.clips.tracking import Detection
from halp.skeleton import get_topology

COCO_17 = get_topology("coco-17")
# Whole-body and Halpe layouts begin with the same 17 joints.
_SIZES = (17, 26, 133, 136)
_KEYPOINTS = re.compile(rb'"keypoints"\s*:')
_FRAME_FILE = re.compile(r"(?P<clip>.*?)[_-]?(?P<frame>\d{1,15})\.json", re.ASCII | re.IGNORECASE)
_FRAME_LISTS = ("instance_info", "frames", "results")
_PEOPLE = ("instances", "people", "predictions", "persons")


class Coco17Reader(DetectionReader):
    """One file per video, or one file per frame in a folder (`walk_0001.json`, `walk_0002.json`, …).

    A tracker's number is used where there is one. Folders below the source are taken as classes.
    """

    def sniff(self, path: Path) -> bool:
        file = first_file(path, ".json")
        return file is not None and _KEYPOINTS.search(head(file, 65536)) is not None

    def info(self, path: Path) -> Info:
        return self.source_info(COCO_17)

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, ".json")
        groups = runs(files, _FRAME_FILE).items()
        joined = {key: group for key, group in groups if len(group) > 1 and _one_frame(group[0])}
        yield from run_items(joined, path, COCO_17)
        taken = {file for group in joined.values() for file in group}
        yield from (item for item in entries(files, path, COCO_17) if item.path not in taken)

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = entry_of(item)
        frames = [
            [self._person(person, file, f"frame {number}, person {place}") for place, person in enumerate(people)]
            for file in [item.path / file for file in entry.files] or [item.path]
            for number, people in enumerate(_frames(read_json(file), file))
        ]
        if not frames:
            return [Dropped(entry.name, "there is no frame in it")]
        return [self.clip(frames, entry, COCO_17)]

    def _person(self, one: dict[str, Any], path: Path, where: str) -> Detection:
        joints, scores = _keypoints(one, path, where)
        score = one.get("score", one.get("confidence", one.get("bbox_score", 1.0)))
        identity = one.get("track_id", one.get("idx", -1))
        identity = identity[0] if isinstance(identity, list) and len(identity) == 1 else identity
        usable = isinstance(identity, (int, float)) and 0 <= identity < 2**53
        kept = self.sure_joints(coordinates(joints, path, where, axis="joint"), scores)
        sure = float(score) if isinstance(score, (int, float)) and abs(score) < 2**53 else 0.0
        return Detection(kept, sure, int(identity) if usable else -1)


def _keypoints(one: dict[str, Any], path: Path, where: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Joints `(17, 2)` and scores `(17,)` of any of the shapes: {x, y, visible}, [[x, y], …] or [x, y, score, …]."""
    value = one.get("keypoints")
    where += ", key 'keypoints'"
    if isinstance(value, dict):
        parts = [json_numbers(value.get(axis), (None,), path, f"{where}, '{axis}'") for axis in ("x", "y")]
        if value.get("visible") is not None:
            parts.append(json_numbers(value["visible"], (None,), path, f"{where}, 'visible'"))
        if len({len(part) for part in parts}) != 1:
            raise problem(path, where, "x, y and visible differ in length")
        table = np.stack(parts, axis=1)
    elif isinstance(value, list) and value and isinstance(value[0], list):
        table = json_numbers(value, (None, None), path, where)
    else:
        flat = json_numbers(value, (None,), path, where)
        if len(flat) % 3:
            raise problem(path, where, f"{len(flat)} numbers are not triples x, y, score")
        table = flat.reshape(-1, 3)
    if len(table) not in _SIZES or table.shape[1] not in (2, 3):
        fault = f"{len(table)} keypoints of {table.shape[1]} numbers"
        raise problem(path, where, fault, "COCO has 17 with x, y and perhaps a score; convert other layouts to CSV")
    scores = table[:, 2] if table.shape[1] == 3 else np.ones(len(table))
    if one.get("keypoint_scores") is not None:
        place = where.replace("keypoints", "keypoint_scores")
        scores = json_numbers(one["keypoint_scores"], (len(table),), path, place)
    return table[:17, :2], checked_scores(scores[:17], path, where)


def _one_frame(path: Path) -> bool:
    """Whether a file holds a single picture: a list of persons that name no picture they belong to."""
    data = read_json(path)
    people: Any = data.get("instance_info") if isinstance(data, dict) else data
    return _are_people(people) and not any("image_id" in person for person in people)


def _are_people(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(person, dict) and "keypoints" in person for person in value)


def _frames(data: Any, path: Path) -> list[list[dict[str, Any]]]:
    """Persons frame by frame, whatever program wrote them."""
    if isinstance(data, dict) and isinstance(data.get("annotations"), list):
        data = data["annotations"]
    elif isinstance(data, dict):
        key = next((key for key in _FRAME_LISTS if isinstance(data.get(key), list)), None)
        data = data[key] if key else [data]
    if not isinstance(data, list):
        raise problem(path, "", f"it holds {shown(data)} instead of a list", "check the format")
    if data and _are_people(data):
        return list(_by_picture(data).values())
    frames = []
    for number, frame in enumerate(data):
        key = next((key for key in _PEOPLE if isinstance(frame, dict) and key in frame), None)
        people = frame[key] if key else [] if frame is None else frame
        if not _are_people(people):
            raise problem(path, f"frame {number}", "it is not a list of persons with 'keypoints'", "check the format")
        frames.append(people)
    return frames


def _by_picture(people: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Persons by `image_id`, in the order of the numbers in it; all in one frame where there is none."""
    pictures: dict[str, list[dict[str, Any]]] = {}
    for person in people:
        pictures.setdefault(str(person.get("image_id", "")), []).append(person)

    def order(name: str) -> list[tuple[int, int, str]]:
        parts = re.findall(r"\d{1,15}|\D+", name, re.ASCII)
        return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts]

    return {name: pictures[name] for name in sorted(pictures, key=order)}


register_reader(Coco17Reader("coco17", "COCO-17 keypoint JSON of MMPose, RTMPose, Ultralytics or AlphaPose"))
