"""Motion-capture suits: Xsens MVNX, XML read as a stream with document types and entities refused, and Rokoko Studio JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from xml.parsers import expat

import numpy as np

from halp.clips.readers import register_reader
from halp.clips.readers.pose_files import MOST_JOINTS, MOST_PERSONS, Z_UP, PoseFileReader, Poses, turned
from halp.clips.source_files import JSON_LINES, head, read_bytes, read_json
from halp.clips.text_files import MOST_CELLS, json_numbers, number, problem
from halp.errors import InputError


class MvnxReader(PoseFileReader):
    """Origins of the 23 segments in metres, turned so that y points up. Calibration poses are left out."""

    suffixes: ClassVar[tuple[str, ...]] = (".mvnx",)

    def looks_right(self, path: Path) -> bool:
        return b"<mvnx" in head(path)

    def load(self, path: Path) -> Poses:
        document = _Document(path)
        document.parse(read_bytes(path))
        if not document.segments or not document.rows:
            raise problem(
                path, "", "it has no segments or no frames with positions", "export positions of all segments"
            )
        frames = np.array(document.rows).reshape(-1, len(document.segments), 3)
        return Poses(document.segments, turned(frames, Z_UP)[:, None], fps=document.fps)


@dataclass
class _Document:
    """What is kept of a file while it streams by."""

    path: Path
    segments: list[str] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    fps: float = -1.0
    moving: bool = False
    text: list[str] | None = None
    where: str = ""

    def parse(self, data: bytes) -> None:
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        self.parser = parser
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            reason = expat.errors.messages.get(error.code, "damaged")
            raise problem(self.path, f"line {error.lineno}", f"not XML ({reason})") from None
        except (LookupError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise problem(self.path, "line 1", f"its encoding is not known ({error})", "save it as UTF-8") from None

    def _refuse(self, *_: object) -> None:
        fault = "it declares a document type or entities, which pose files do not have"
        raise problem(self.path, "", fault, "do not open it otherwise, it could be an attack")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        self.where = f"line {self.parser.CurrentLineNumber}"
        if name == "subject" and "frameRate" in attributes:
            fps = number(attributes["frameRate"], self.path, self.where)
            self.fps = fps if 0 < fps <= 10_000 else -1.0
        elif name == "segment":
            self.segments.append(attributes.get("label", ""))
            if len(self.segments) > MOST_JOINTS:
                raise problem(self.path, self.where, f"more than {MOST_JOINTS} segments")
        elif name == "frame":
            self.moving = attributes.get("type", "normal") == "normal"
        elif name == "position" and self.moving:
            self.text = []

    def _characters(self, text: str) -> None:
        if self.text is not None:
            self.text.append(text)

    def _end(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        if name == "frame":
            self.moving = False
        if name != "position" or self.text is None:
            return
        words, self.text = "".join(self.text).split(), None
        if len(words) != 3 * len(self.segments):
            raise problem(self.path, self.where, f"{len(words)} numbers instead of {3 * len(self.segments)}")
        self.rows.append([number(word, self.path, self.where) for word in words])
        if len(self.rows) * len(words) > MOST_CELLS:
            raise problem(self.path, self.where, "too many frames", "split the recording")


register_reader(MvnxReader("mvnx", "Xsens motion capture (.mvnx)"))


_SIGN = re.compile(rb'"actors"\s*:\s*\[')
_LISTS = ("frames", "data", "clip")
_AXES = ("x", "y", "z")


@dataclass
class RokokoReader(PoseFileReader):
    """A list of frames, frames under `frames`, or a frame per line; persons go by the names of the actors."""

    persons: int = 2
    suffixes: ClassVar[tuple[str, ...]] = (".json", *JSON_LINES)

    def looks_right(self, path: Path) -> bool:
        start = head(path, 65536)
        return _SIGN.search(start) is not None and b'"position"' in start

    def load(self, path: Path) -> Poses:
        data = read_json(path)
        facts = data if isinstance(data, dict) else {}
        frames = next((facts[key] for key in _LISTS if isinstance(facts.get(key), list)), data)
        scenes = [
            _actors(frame, path, number) for number, frame in enumerate(frames if isinstance(frames, list) else [data])
        ]
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
        first = frames[0] if isinstance(frames, list) and isinstance(frames[0], dict) else {}
        rate = facts.get("fps", first.get("fps"))
        fps = float(rate) if isinstance(rate, int | float) and 0 < rate <= 1000 else -1.0
        return Poses(joints, places, fps=fps)


def _actors(frame: Any, path: Path, number: int) -> dict[str, dict[str, list[Any]]]:
    """For every actor of a frame the positions of the joints that have one."""
    scene = frame.get("scene", frame) if isinstance(frame, dict) else {}
    actors = scene.get("actors") if isinstance(scene, dict) else None
    if not isinstance(actors, list) or not all(isinstance(actor, dict) for actor in actors):
        raise problem(path, f"frame {number}", "it has no list of actors", "check that Rokoko Studio wrote this file")
    bodies = {}
    for place, actor in enumerate(actors):
        body = actor.get("body")
        parts = body.items() if isinstance(body, dict) else ()
        joints = {joint: value["position"] for joint, value in parts if isinstance(value, dict) and "position" in value}
        bodies[str(actor.get("name", place))] = {
            joint: [position.get(axis) for axis in _AXES]
            for joint, position in joints.items()
            if isinstance(position, dict)
        }
    return bodies


register_reader(RokokoReader("rokoko", "Rokoko Studio JSON: frames with actors and the positions of their joints"))
