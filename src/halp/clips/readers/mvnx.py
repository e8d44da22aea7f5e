"""Xsens MVNX: XML with segment positions per frame. Read as a stream, with document types and entities refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from xml.parsers import expat

import numpy as np

from halp.clips.readers import register_reader
from halp.clips.readers.pose_files import MOST_JOINTS, Z_UP, PoseFileReader, Poses, turned
from halp.clips.source_files import head, read_bytes
from halp.clips.text_files import MOST_CELLS, number, problem
from halp.errors import InputError


class MvnxReader(PoseFileReader):
    """Origins of the 23 segments in metres, turned so that y points up. Calibration poses are left out."""

    suffixes: ClassVar[tuple[str, ...]] = (".mvnx",)

    def looks_right(self, path: Path) -> bool:
        return b"<mvnx" in head(path)

    def load(self, path: Path) -> Poses:
        found = _Document(path)
        found.parse(read_bytes(path))
        if not found.segments or not found.rows:
            raise problem(
                path, "", "it has no segments or no frames with positions", "export positions of all segments"
            )
        frames = np.array(found.rows).reshape(-1, len(found.segments), 3)
        return Poses(found.segments, turned(frames, Z_UP)[:, None], fps=found.fps)


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
            raise problem(
                self.path, f"line {error.lineno}", f"not XML ({reason})", "check that the file is whole"
            ) from None
        except (LookupError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise problem(self.path, "line 1", f"its encoding is not known ({error})", "save it as UTF-8") from None

    def _refuse(self, *_: object) -> None:
        what = "it declares a document type or entities, which pose files do not have"
        raise problem(self.path, "", what, "do not open it otherwise, it could be an attack")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        self.where = f"line {self.parser.CurrentLineNumber}"
        if name == "subject" and "frameRate" in attributes:
            fps = number(attributes["frameRate"], self.path, self.where)
            self.fps = fps if 0 < fps <= 10_000 else -1.0
        elif name == "segment":
            self.segments.append(attributes.get("label", ""))
            if len(self.segments) > MOST_JOINTS:
                raise problem(
                    self.path, self.where, f"more than {MOST_JOINTS} segments", "check that the file is whole"
                )
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
            what = f"{len(words)} numbers instead of {3 * len(self.segments)}"
            raise problem(self.path, self.where, what, "check that the file is whole")
        self.rows.append([number(word, self.path, self.where) for word in words])
        if len(self.rows) * len(words) > MOST_CELLS:
            raise problem(self.path, self.where, "too many frames", "split the recording")


register_reader(MvnxReader("mvnx", "Xsens motion capture (.mvnx)"))
