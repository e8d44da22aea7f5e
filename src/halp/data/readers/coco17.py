"""COCO-17 key points as JSON, from MMPose, RTMPose, Ultralytics, AlphaPose and others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from halp.core.errors import InputError
from halp.data.readers import register_reader
from halp.data.readers.detections import PictureReader
from halp.data.source_files import any_file, head, read_json_source
from halp.data.text_files import checked_scores, coordinates, json_numbers, problem, shown
from halp.data.tracking import Detection
from halp.skeleton import Topology

# Whole-body and Halpe layouts begin with the same 17 joints.
_SIZES = (17, 26, 133, 136)
_KEYPOINTS = re.compile(rb'"keypoints"\s*:')
_FRAME_LISTS = ("instance_info", "frames", "results")
_PEOPLE = ("instances", "people", "predictions", "persons")


class Coco17Reader(PictureReader):
    """One file per video, or one file per frame in a folder (`walk_0001.json`, `walk_0002.json`, …).

    A tracker's number is used if there is one. Folders below the source are taken as classes.
    """

    ending, example, whole = ".json", "walk_0001.json", True
    pattern = re.compile(r"(?P<clip>.*?)[_-]?(?P<frame>\d{1,15})\.json", re.ASCII | re.IGNORECASE)

    def sniff(self, path: Path) -> bool:
        return any_file(path, lambda file: _KEYPOINTS.search(head(file, 65536)) is not None, self.ending)

    def one_frame(self, files: Sequence[Path]) -> bool:
        """Whether the first readable file is a list of persons without the name of their picture."""
        for path in files:
            with suppress(InputError):  # told when the file itself is read
                data = read_json_source(path)
                people: Any = data.get("instance_info") if isinstance(data, dict) else data
                return _are_people(people) and not any("image_id" in person for person in people)
        return False

    def detections(self, files: Sequence[Path], topology: Topology) -> list[list[Detection]]:
        return [
            [self._person(person, file, f"frame {at}, person {place}") for place, person in enumerate(people)]
            for file in files
            for at, people in enumerate(_frames(read_json_source(file), file))
        ]

    def _person(self, one: dict[str, Any], path: Path, where: str) -> Detection:
        joints, scores = _keypoints(one, path, where)
        score = one.get("score", one.get("confidence", one.get("bbox_score", 1.0)))
        identity = one.get("track_id", one.get("idx", -1))
        identity = identity[0] if isinstance(identity, list) and len(identity) == 1 else identity
        usable = isinstance(identity, (int, float)) and 0 <= identity < 2**53
        kept = self.sure_joints(coordinates(joints, path, where, axis="joint"), scores)
        sure = float(score) if isinstance(score, (int, float)) and abs(score) < 2**53 else 0.0
        return Detection(kept, sure, int(identity) if usable else -1)


def _keypoints(
    one: dict[str, Any], path: Path, where: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Joints `(17, 2)` and scores `(17,)` from {x, y, visible}, [[x, y], …] or [x, y, score, …]."""
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
        raise problem(
            path, where, fault, "COCO has 17 with x, y and perhaps a score; convert other layouts to CSV"
        )
    scores = table[:, 2] if table.shape[1] == 3 else np.ones(len(table))
    if one.get("keypoint_scores") is not None:
        place = where.replace("keypoints", "keypoint_scores")
        scores = json_numbers(one["keypoint_scores"], (len(table),), path, place)
    return table[:17, :2], checked_scores(scores[:17], path, where)


def _are_people(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(person, dict) and "keypoints" in person for person in value
    )


def _frames(data: Any, path: Path) -> list[list[dict[str, Any]]]:
    """Persons of every frame, from any program."""
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
    for at, frame in enumerate(data):
        key = next((key for key in _PEOPLE if isinstance(frame, dict) and key in frame), None)
        people = frame[key] if key else [] if frame is None else frame
        if not _are_people(people):
            raise problem(
                path, f"frame {at}", "it is not a list of persons with 'keypoints'", "check the format"
            )
        frames.append(people)
    return frames


def _by_picture(people: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Persons by `image_id`, ordered by the numbers in it; all in one frame if there is none."""
    pictures: dict[str, list[dict[str, Any]]] = {}
    for person in people:
        pictures.setdefault(str(person.get("image_id", "")), []).append(person)

    def order(name: str) -> list[tuple[int, int, str]]:
        parts = re.findall(r"\d{1,15}|\D+", name, re.ASCII)
        return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts]

    return {name: pictures[name] for name in sorted(pictures, key=order)}


register_reader(Coco17Reader("coco17", "COCO-17 keypoint JSON of MMPose, RTMPose, Ultralytics or AlphaPose"))
