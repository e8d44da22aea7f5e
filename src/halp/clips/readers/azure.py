"""Azure Kinect body tracking as JSON: 32 joints per body in millimetres, as Microsoft's offline processor writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from halp.clips.clip import Frames
from halp.clips.readers import register_reader
from halp.clips.readers.pose_files import CAMERA, PoseFileReader, Poses, turned
from halp.clips.source_files import head, read_json
from halp.clips.text_files import Floats, coordinates, json_numbers, problem
from halp.clips.tracking import Detection, follow
from halp.skeleton import get_topology

AZURE = get_topology("azure-kinect-32")
_SIGN = re.compile(rb'"joint_positions"\s*:|"body_id"\s*:')
_MILLIMETRES = 0.001


@dataclass
class AzureReader(PoseFileReader):
    """One file per recording; bodies are told apart by `body_id`. Metres, y up, as the other Kinect sets."""

    persons: int = 2
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    def looks_right(self, path: Path) -> bool:
        return _SIGN.search(head(path, 65536)) is not None

    def load(self, path: Path) -> Poses:
        data = read_json(path)
        frames = data.get("frames") if isinstance(data, dict) else data
        if not isinstance(frames, list) or not frames:
            raise problem(path, "key 'frames'", "it is not a list of frames", "check that this is an Azure Kinect file")
        people = [_bodies(frame, path, f"frame {number}") for number, frame in enumerate(frames)]
        if not any(people):
            raise problem(path, "", "there is no body in any of its frames", "leave it out")
        tracked, _ = follow(people, self.persons if max(map(len, people)) > 1 else 1, len(AZURE), 3)
        missing = (tracked == 0).all(axis=-1, keepdims=True)
        places = turned(np.where(missing, np.nan, tracked.astype(np.float64)), CAMERA, _MILLIMETRES)
        return Poses(AZURE.joints, places, fps=_rate(frames), topology=AZURE)


def _bodies(frame: Any, path: Path, where: str) -> list[Detection]:
    bodies = frame.get("bodies") if isinstance(frame, dict) else None
    if bodies is None and isinstance(frame, dict) and not frame.get("num_bodies"):
        return []
    if not isinstance(bodies, list) or not all(isinstance(body, dict) for body in bodies):
        raise problem(path, where, "it has no list of bodies", "check that this is an Azure Kinect file")
    detections = []
    for number, body in enumerate(bodies):
        identity = body.get("body_id", body.get("id", -1))
        usable = type(identity) is int and 0 <= identity < 2**53
        detections.append(Detection(_joints(body, path, f"{where}, body {number}"), 1.0, identity if usable else -1))
    return detections


def _joints(body: dict[str, Any], path: Path, where: str) -> Frames:
    positions = body.get("joint_positions")
    if positions is None and isinstance(body.get("joints"), list):
        positions = [joint.get("position") if isinstance(joint, dict) else joint for joint in body["joints"]]
        if all(isinstance(place, dict) for place in positions):
            positions = [[place.get(axis) for axis in "xyz"] for place in positions]
    table: Floats = json_numbers(positions, (len(AZURE), 3), path, f"{where}, joint_positions")
    return coordinates(np.nan_to_num(table, nan=0.0), path, where, axis="joint")


def _rate(frames: list[Any]) -> float:
    """Frames per second from the time stamps in microseconds, rounded to what cameras have; -1 where they tell nothing."""
    times = [frame.get("timestamp_usec") for frame in frames if isinstance(frame, dict)]
    numbers = np.array([time for time in times if isinstance(time, int) and abs(time) < 2**53], dtype=np.float64)
    if len(numbers) < 2:
        return -1.0
    gap = float(np.median(np.diff(numbers)))
    return next((rate for rate in (5.0, 15.0, 30.0) if gap > 0 and abs(1e6 / gap - rate) < 0.2 * rate), -1.0)


register_reader(AzureReader("azure-kinect", "Azure Kinect body tracking JSON (32 joints)"))
