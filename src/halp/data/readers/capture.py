"""Recordings of devices: Azure Kinect JSON, and motion-capture suits, Xsens MVNX and Rokoko Studio JSON.

Azure Kinect has 32 joints per body in millimetres, as Microsoft's offline processor writes them. MVNX is XML,
of which document types and entities are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from halp.core.config import limited
from halp.core.errors import InputError
from halp.data.clip import Frames
from halp.data.readers import register_reader
from halp.data.readers.shared import (
    CAMERA,
    MOST_JOINTS,
    MOST_PERSONS,
    PERSONS,
    Z_UP,
    PoseFileReader,
    Poses,
    turned,
)
from halp.data.source_files import JSON_LINES, head, read_bytes, read_json_source
from halp.data.text_files import Floats, coordinates, json_numbers, number, problem
from halp.data.tracking import Detection, follow
from halp.skeleton import get_topology

AZURE = get_topology("azure-kinect-32")
_AZURE = re.compile(rb'"joint_positions"\s*:|"body_id"\s*:')
_MILLIMETRES = 0.001


@dataclass
class AzureReader(PoseFileReader):
    """One file per recording; bodies are identified by `body_id`. Metres, y up, as the other Kinect sets."""

    persons: int = limited(2, **PERSONS)
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    def looks_right(self, path: Path) -> bool:
        return _AZURE.search(head(path, 65536)) is not None

    def load(self, path: Path) -> Poses:
        data = read_json_source(path)
        frames = data.get("frames") if isinstance(data, dict) else data
        if not isinstance(frames, list) or not frames:
            raise problem(
                path, "key 'frames'", "it is not a list of frames", "check that this is an Azure Kinect file"
            )
        people = [_bodies(frame, path, f"frame {number}") for number, frame in enumerate(frames)]
        if not any(people):
            raise problem(path, "", "there is no body in any of its frames", "leave it out")
        tracked, repairs = follow(people, self.persons if max(map(len, people)) > 1 else 1, len(AZURE), 3)
        missing = (tracked == 0).all(axis=-1, keepdims=True)
        places = turned(np.where(missing, np.nan, tracked.astype(np.float64)), CAMERA, _MILLIMETRES)
        return Poses(AZURE.joints, places, fps=_rate(frames), topology=AZURE, repairs=repairs)


def _bodies(frame: Any, path: Path, where: str) -> list[Detection]:
    bodies = frame.get("bodies") if isinstance(frame, dict) else None
    if bodies is None and isinstance(frame, dict) and not frame.get("num_bodies"):
        return []
    if not isinstance(bodies, list) or not all(isinstance(body, dict) for body in bodies):
        raise problem(path, where, "it has no list of bodies", "check that this is an Azure Kinect file")
    detections = []
    for place, body in enumerate(bodies):
        identity = body.get("body_id", body.get("id", -1))
        usable = type(identity) is int and 0 <= identity < 2**53
        detections.append(
            Detection(_joints(body, path, f"{where}, body {place}"), 1.0, identity if usable else -1)
        )
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
    """Frames per second from time stamps in microseconds, rounded to common camera rates; -1 if unknown."""
    times = [frame.get("timestamp_usec") for frame in frames if isinstance(frame, dict)]
    numbers = np.array(
        [time for time in times if isinstance(time, int) and abs(time) < 2**53], dtype=np.float64
    )
    if len(numbers) < 2:
        return -1.0
    gap = float(np.median(np.diff(numbers)))
    return next((rate for rate in (5.0, 15.0, 30.0) if gap > 0 and abs(1e6 / gap - rate) < 0.2 * rate), -1.0)


register_reader(AzureReader("azure-kinect", "Azure Kinect body tracking JSON (32 joints)"))


class MvnxReader(PoseFileReader):
    """Origins of the 23 segments in metres, turned so that y points up. Calibration poses are left out."""

    suffixes: ClassVar[tuple[str, ...]] = (".mvnx",)

    def looks_right(self, path: Path) -> bool:
        return b"<mvnx" in head(path)

    def load(self, path: Path) -> Poses:
        root = _parse(path)
        segments = [segment.get("label", "") for segment in root.iterfind(".//{*}segment")]
        rows = [
            _positions(frame, 3 * len(segments), path, f"frame {number}")
            for number, frame in enumerate(root.iterfind(".//{*}frame"))
            if frame.get("type", "normal") == "normal" and frame.find("{*}position") is not None
        ]
        if not 0 < len(segments) <= MOST_JOINTS or not rows:
            fault = f"it has {len(segments)} segments and {len(rows)} frames with positions"
            raise problem(path, "", fault, "export positions of all segments")
        rates = [
            subject.attrib["frameRate"]
            for subject in root.iterfind(".//{*}subject")
            if "frameRate" in subject.attrib
        ]
        fps = number(rates[-1], path, "frameRate") if rates else -1.0
        frames = np.array(rows).reshape(-1, len(segments), 3)
        return Poses(segments, turned(frames, Z_UP)[:, None], fps=fps)


def _positions(frame: ElementTree.Element, count: int, path: Path, where: str) -> list[float]:
    words = frame.findtext("{*}position", "").split()
    if len(words) != count:
        raise problem(path, where, f"{len(words)} numbers instead of {count}")
    return [number(word, path, where) for word in words]


def _parse(path: Path) -> ElementTree.Element:
    """The parsed document; one with a document type, which could declare entities, is refused at once."""

    class Builder(ElementTree.TreeBuilder):
        def doctype(self, *_: object) -> None:
            fault = "it declares a document type or entities, which pose files do not have"
            raise problem(path, "", fault, "do not open it with other programs; it may be malicious")

    parser = ElementTree.XMLParser(target=Builder())  # noqa: S314  what could do harm is refused above
    try:
        parser.feed(read_bytes(path))
        return parser.close()
    except ElementTree.ParseError as error:
        reason = expat.errors.messages.get(error.code, "damaged")
        raise problem(path, f"line {error.position[0]}", f"not XML ({reason})") from None
    except InputError:
        raise
    except (LookupError, ValueError) as error:
        raise problem(path, "line 1", f"its encoding is not known ({error})", "save it as UTF-8") from None


register_reader(MvnxReader("mvnx", "Xsens motion capture (.mvnx)"))


_ROKOKO = re.compile(rb'"actors"\s*:\s*\[')
_LISTS = ("frames", "data", "clip")
_AXES = ("x", "y", "z")


@dataclass
class RokokoReader(PoseFileReader):
    """A list of frames, frames under `frames`, or a frame per line; persons go by the names of the actors."""

    persons: int = limited(2, **PERSONS)
    suffixes: ClassVar[tuple[str, ...]] = (".json", *JSON_LINES)

    def looks_right(self, path: Path) -> bool:
        start = head(path, 65536)
        return _ROKOKO.search(start) is not None and b'"position"' in start

    def load(self, path: Path) -> Poses:
        data = read_json_source(path)
        facts = data if isinstance(data, dict) else {}
        frames = next((facts[key] for key in _LISTS if isinstance(facts.get(key), list)), data)
        frames = frames if isinstance(frames, list) else [data]
        scenes = [_actors(frame, path, number) for number, frame in enumerate(frames)]
        joints = list(dict.fromkeys(joint for scene in scenes for body in scene.values() for joint in body))
        people = list(dict.fromkeys(name for scene in scenes for name in scene))
        if not joints or len(joints) > MOST_JOINTS or len(people) > MOST_PERSONS:
            fault = f"it has {len(people)} actors with {len(joints)} joints"
            raise problem(path, "", fault, "export actors with the positions of their joints")
        places = np.full((len(scenes), len(people), len(joints), 3), np.nan)
        for time, scene in enumerate(scenes):
            for name, body in scene.items():
                at = [joints.index(joint) for joint in body]
                values = list(body.values())
                places[time, people.index(name), at] = json_numbers(values, (None, 3), path, f"frame {time}")
        rate = facts.get("fps", frames[0].get("fps"))
        fps = float(rate) if isinstance(rate, int | float) and 0 < rate <= 1000 else -1.0
        return Poses(joints, places, fps=fps)


def _actors(frame: Any, path: Path, number: int) -> dict[str, dict[str, list[Any]]]:
    """For every actor of a frame the positions of the joints that have one."""
    scene = frame.get("scene", frame) if isinstance(frame, dict) else {}
    actors = scene.get("actors") if isinstance(scene, dict) else None
    if not isinstance(actors, list) or not all(isinstance(actor, dict) for actor in actors):
        raise problem(
            path, f"frame {number}", "it has no list of actors", "check that Rokoko Studio wrote this file"
        )
    bodies = {}
    for place, actor in enumerate(actors):
        body = actor.get("body")
        parts = body.items() if isinstance(body, dict) else ()
        joints = {
            joint: value["position"]
            for joint, value in parts
            if isinstance(value, dict) and "position" in value
        }
        bodies[str(actor.get("name", place))] = {
            joint: [position.get(axis) for axis in _AXES]
            for joint, position in joints.items()
            if isinstance(position, dict)
        }
    return bodies


register_reader(
    RokokoReader("rokoko", "Rokoko Studio JSON: frames with actors and the positions of their joints")
)
