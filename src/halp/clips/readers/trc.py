"""OpenSim TRC: tab-separated marker positions, with frame rate and unit in the header; y points up."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.clips.readers import register_reader
from halp.clips.readers.pose_files import MOST_JOINTS, PoseFileReader, Poses
from halp.clips.source_files import head, read_text
from halp.clips.text_files import Floats, number, problem, shown, whole_number

#: Metres in a unit.
UNITS = {"m": 1.0, "meters": 1.0, "cm": 0.01, "mm": 0.001, "in": 0.0254, "inches": 0.0254}


class TrcReader(PoseFileReader):
    """Marker trajectories in metres; an empty cell is a missing marker."""

    suffixes: ClassVar[tuple[str, ...]] = (".trc",)

    def looks_right(self, path: Path) -> bool:
        return head(path).removeprefix(b"\xef\xbb\xbf").lower().startswith(b"pathfiletype")

    def load(self, path: Path) -> Poses:
        lines = read_text(path).split("\n")
        settings = _settings(lines, path)
        joints = _markers(lines, path)
        count = whole_number(settings.get("nummarkers", str(len(joints))), path, "line 3, NumMarkers")
        if count != len(joints):
            what = f"{count} markers are declared, {len(joints)} are named"
            raise problem(path, "line 4", what, "check that the file is whole")
        unit = settings.get("units", "m").lower()
        if unit not in UNITS:
            raise problem(path, "line 3, Units", f"{shown(unit)} is not a known unit", f"use {', '.join(UNITS)}")
        fps = number(settings.get("datarate", "-1"), path, "line 3, DataRate")
        frames = _rows(lines, len(joints), path) * UNITS[unit]
        declared = whole_number(settings.get("numframes", str(len(frames))), path, "line 3, NumFrames")
        if declared != len(frames):
            what = f"{declared} frames are declared, {len(frames)} are there"
            raise problem(path, "line 3, NumFrames", what, "check that the file is whole")
        return Poses(joints, frames[:, None], fps=fps if 0 < fps <= 10_000 else -1.0)


def _settings(lines: list[str], path: Path) -> dict[str, str]:
    if len(lines) < 6 or not lines[0].lower().startswith("pathfiletype"):
        raise problem(path, "line 1", "it does not begin with PathFileType", "check that this is a whole TRC file")
    return dict(zip((word.lower() for word in lines[1].split()), lines[2].split()))


def _markers(lines: list[str], path: Path) -> list[str]:
    cells = [cell.strip() for cell in lines[3].split("\t")]
    joints = [cell for cell in cells[2:] if cell]
    if not cells[0].lower().startswith("frame") or not 0 < len(joints) <= MOST_JOINTS:
        raise problem(path, "line 4", "it does not name frame, time and markers", "check that this is a TRC file")
    return joints


def _rows(lines: list[str], joints: int, path: Path) -> Floats:
    """Positions `(T, V, 3)`."""
    rows = []
    for at, line in enumerate(lines[5:], start=6):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        cells += [""] * (2 + 3 * joints - len(cells))
        if any(cells[2 + 3 * joints :]) or not cells[0]:
            what = f"{len(cells) - 2} numbers instead of {3 * joints}"
            raise problem(path, f"line {at}", what, "check that the file is whole")
        row = []
        for cell in cells[2 : 2 + 3 * joints]:
            empty = not cell or cell.lower() == "nan"
            row.append(np.nan if empty else number(cell, path, f"line {at}"))
        rows.append(row)
    if not rows:
        raise problem(path, "", "there is no frame below the header", "check that the file is whole")
    return np.array(rows).reshape(-1, joints, 3)


register_reader(TrcReader("trc", "OpenSim marker trajectories (.trc), also of OpenCap and Pose2Sim"))
