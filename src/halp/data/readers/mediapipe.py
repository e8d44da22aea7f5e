"""MediaPipe Pose: 33 landmarks per frame as JSON or CSV, in metres if available; one file per clip."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from halp.core.config import limited
from halp.core.errors import InputError
from halp.data.readers import register_reader
from halp.data.readers.csv_wide import header_for, labels_in, landmark_columns, read_landmark_table
from halp.data.readers.plain_arrays import FREEMOCAP
from halp.data.readers.shared import PERSONS, PeopleFileReader, Poses
from halp.data.source_files import JSON_LINES, first_file, head, read_json_source
from halp.data.text_files import (
    Floats,
    checked_scores,
    coordinates,
    json_numbers,
    mask_low_scores,
    problem,
    shown,
)
from halp.data.text_tables import header_cells
from halp.data.tracking import Detection, follow
from halp.skeleton import canonical_joints, get_topology

MEDIAPIPE_33, MEDIAPIPE_33_2D = get_topology("mediapipe-33"), get_topology("mediapipe-33-2d")
_WORLD = ("pose_world_landmarks", "poseWorldLandmarks", "worldLandmarks", "world_landmarks")
_IMAGE = ("pose_landmarks", "poseLandmarks", "landmarks", "normalized_landmarks", "landmark")
_SIGN = re.compile(rb'"\w*landmarks?"\s*:|"visibility"\s*:', re.IGNORECASE)
_NAMED = (b'"left_hip"', b'"right_hip"', b'"left_heel"', b'"left_pinky')
_NAMES = {name: number for number, name in enumerate(MEDIAPIPE_33.joints)}
_SCORES = ("visibility", "presence", "score", "v")


@dataclass
class MediaPipeReader(PeopleFileReader):
    """A list of frames with `pose_world_landmarks` or `pose_landmarks`, or a CSV, by frame or landmark.

    3D landmarks are turned by half a circle about the depth axis, so that y points up and the left side has
    the smaller x, as in the Kinect sets. `aspect` (width / height) evens out image landmarks. A source
    without z is two-dimensional.
    `header=false` reads tables of numbers alone: x, y, z and visibility of the 33 landmarks in order, a row
    per frame.
    """

    persons: int = limited(1, **PERSONS)
    aspect: float = limited(1.0, above=0)
    header: bool = True
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".csv", *JSON_LINES)

    def sniff(self, path: Path) -> bool:
        return super().sniff(path) and first_file(path, *FREEMOCAP) is None

    def looks_right(self, path: Path) -> bool:
        if path.suffix.lower() == ".csv":
            return landmark_columns(header_cells(path)) is not None
        start = head(path, 65536)
        if b'"keypoints"' in start or b'"skeletons"' in start:
            return False
        return _SIGN.search(start) is not None or sum(name in start.lower() for name in _NAMED) == len(_NAMED)

    def classes(self, files: Sequence[Path]) -> tuple[str, ...]:
        tables = [file for file in files if file.suffix.lower() == ".csv"]
        # a table with a row per landmark names none
        wide = [file for file in tables if b"landmark" not in head(file, 65536).split(b"\n")[0].lower()]
        return labels_in(wide, lambda path: header_for(path, self.header))

    def load(self, path: Path) -> Poses:
        table = path.suffix.lower() == ".csv"
        frames, runs = read_landmark_table(path, self.header) if table else (_landmarks(path), [])
        sizes = {person.shape[1] for frame in frames for person in frame}
        if not sizes:
            raise problem(path, "", "there is no body in any of its frames", "leave it out")
        if len(sizes) > 1:
            raise problem(path, "", "some landmarks have z and some do not", "write all of them in one way")
        topology = MEDIAPIPE_33 if sizes == {4} else MEDIAPIPE_33_2D
        tracked, repairs = follow(self._persons(frames, path), self.persons, 33, topology.dimensions)
        return Poses(topology.joints, tracked, topology=topology, runs=runs, repairs=repairs)

    def _persons(self, frames: Sequence[Sequence[Floats]], path: Path) -> list[list[Detection]]:
        bodies = np.stack([body for frame in frames for body in frame])
        of_frame = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
        # A landmark without all its coordinates (null, an empty cell) is missing.
        missing = np.isnan(bodies[..., :-1]).any(axis=-1, keepdims=True)
        places = np.where(missing, 0.0, bodies[..., :-1])
        try:
            joints, scores = coordinates(places, path), checked_scores(bodies[..., -1], path)
        except InputError:  # of which frame?
            for number, body, score in zip(of_frame, places, bodies[..., -1]):
                coordinates(body, path, f"frame {number}", axis="landmark")
                checked_scores(score, path, f"frame {number}")
            raise
        signs = [-self.aspect, -1, self.aspect] if joints.shape[-1] == 3 else [self.aspect, 1]
        joints = joints * np.array(signs, dtype=np.float32)
        people = zip(
            mask_low_scores(joints, scores, self.min_score)[0], np.clip(scores, 0, 1).mean(axis=-1).tolist()
        )
        detections = (Detection(body, score) for body, score in people)
        return [[next(detections) for _ in frame] for frame in frames]


def _landmarks(path: Path) -> list[list[Floats]]:
    """Bodies of a JSON file frame by frame, each `(33, 3 or 4)`: coordinates and score."""
    frames = read_json_source(path)
    if isinstance(frames, dict):
        frames = next((frames[key] for key in ("frames", "results", "data") if frames.get(key)), frames)
    if isinstance(frames, dict):
        frames = _numbered(frames) or [frames]
    elif (
        isinstance(frames, list)
        and frames
        and all(isinstance(value, dict) and "x" in value for value in frames)
    ):
        frames = [frames]
    if not isinstance(frames, list):
        raise problem(path, "", f"it holds {shown(frames)} instead of a list of frames", "check the format")
    # World landmarks are used for the whole clip as soon as one frame has them: the two kinds do not mix.
    world = any(isinstance(frame, dict) and any(frame.get(key) for key in _WORLD) for frame in frames)
    keys = _WORLD if world else _IMAGE
    return [_bodies(frame, keys, path, f"frame {number}") for number, frame in enumerate(frames)]


def _numbered(data: dict[str, Any]) -> list[Any] | None:
    """Frames that are keyed by their number (`"0"`, `"frame_12"`), in order; None if they are not."""
    numbers = {
        key: re.fullmatch(r"(?:frame[ _-]?)?(\d{1,15})", key, re.ASCII | re.IGNORECASE) for key in data
    }
    if not data or not all(numbers.values()):
        return None
    return [data[key] for key in sorted(data, key=lambda key: int(numbers[key][1]))]  # type: ignore[index]


def _by_name(frame: dict[str, Any], path: Path, where: str) -> list[Any] | None:
    """Landmarks of a dictionary keyed by their names (`LEFT_HIP`), in MediaPipe's order, or None."""
    places = {key: value for key, value in frame.items() if isinstance(value, (dict, list)) or value is None}
    names = dict(zip(canonical_joints(list(places)), places.values()))
    known = names.keys() & _NAMES.keys()
    if len(known) < len(_NAMES) // 2:
        return None
    if len(known) != len(_NAMES):
        missing = next(name for name in _NAMES if name not in known)
        raise problem(
            path, where, f"there is no landmark '{missing}'", "write all landmarks of MediaPipe Pose"
        )
    return [names[name] if names[name] is not None else [None, None, None] for name in _NAMES]


def _bodies(frame: Any, keys: Sequence[str], path: Path, where: str) -> list[Floats]:
    """The bodies of one frame: landmarks of one person, a list of persons, or nothing."""
    if isinstance(frame, dict) and (named := _by_name(frame, path, where)) is not None:
        frame = named
    if isinstance(frame, dict):
        if frame and not any(key in frame for key in _WORLD + _IMAGE):
            what = f"it has none of the keys {_WORLD[0]}, {_IMAGE[0]} or names of landmarks"
            raise problem(path, where, what, "check the format")
        frame = next((frame[key] for key in keys if frame.get(key)), None)
    if isinstance(frame, dict):
        frame = _by_name(frame, path, where) or frame.get("landmark", frame.get("landmarks"))
    if frame is None or frame == []:
        return []
    if not isinstance(frame, list):
        raise problem(path, where, f"it holds {shown(frame)} instead of landmarks", "check the format")
    nested = isinstance(frame[0], (list, dict)) and not _is_landmark(frame[0])
    people = frame if nested else [frame]
    return [_body(person, path, f"{where}, person {index}") for index, person in enumerate(people)]


def _is_landmark(value: Any) -> bool:
    if isinstance(value, dict):
        return "x" in value
    return bool(value) and not isinstance(value[0], (list, dict))


def _body(person: Any, path: Path, where: str) -> Floats:
    if isinstance(person, dict):
        person = person.get("landmark", person.get("landmarks"))
    if not isinstance(person, list) or len(person) != 33:
        count = len(person) if isinstance(person, list) else "no"
        raise problem(
            path, where, f"{count} landmarks instead of 33", "write all landmarks of MediaPipe Pose"
        )
    rows = []
    for landmark in person:
        if isinstance(landmark, dict):
            axes = ("x", "y", "z") if "z" in landmark else ("x", "y")
            score = next((landmark[key] for key in _SCORES if landmark.get(key) is not None), 1.0)
            landmark = [landmark.get(axis) for axis in axes] + [score]
        elif isinstance(landmark, list) and len(landmark) in (2, 3):
            landmark = [*landmark, 1.0]
        rows.append(landmark)
    table = json_numbers(rows, (33, None), path, where)
    if table.shape[1] not in (3, 4):
        raise problem(
            path, where, f"a landmark has {table.shape[1]} numbers", "expected x, y, z and visibility"
        )
    return table


register_reader(MediaPipeReader("mediapipe", "MediaPipe Pose landmarks (33 points) as JSON or CSV"))
