"""Markers of motion capture: C3D, read by a parser of our own that checks every size before it believes it, and OpenSim TRC.

C3D follows the published description of the format (c3d.org): a header block, a parameter section of groups and parameters, and
frames of points (x, y, z, residual) followed by analogue samples, as int16 or float32. TRC is a tab-separated table with frame
rate and unit in the header; y points up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from halp.clips.readers import register_reader
from halp.clips.readers.shared import MOST_JOINTS, Z_UP, PoseFileReader, Poses, turned
from halp.clips.source_files import MIB, head, read_bytes, read_text
from halp.clips.text_files import Floats, as_floats, number, problem, shown, whole_number

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
            raise problem(path, "line 4", f"{count} markers are declared, {len(joints)} are named")
        unit = settings.get("units", "m").lower()
        if unit not in UNITS:
            raise problem(path, "line 3, Units", f"{shown(unit)} is not a known unit", f"use {', '.join(UNITS)}")
        fps = number(settings.get("datarate", "-1"), path, "line 3, DataRate")
        frames = _rows(lines, len(joints), path) * UNITS[unit]
        declared = whole_number(settings.get("numframes", str(len(frames))), path, "line 3, NumFrames")
        if declared != len(frames):
            raise problem(path, "line 3, NumFrames", f"{declared} frames are declared, {len(frames)} are there")
        return Poses(joints, frames[:, None], fps=fps)


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
            raise problem(path, f"line {at}", f"{len(cells) - 2} numbers instead of {3 * joints}")
        row = []
        for cell in cells[2 : 2 + 3 * joints]:
            empty = not cell or cell.lower() == "nan"
            row.append(np.nan if empty else number(cell, path, f"line {at}"))
        rows.append(row)
    if not rows:
        raise problem(path, "", "there is no frame below the header")
    return np.array(rows).reshape(-1, joints, 3)


register_reader(TrcReader("trc", "OpenSim marker trajectories (.trc), also of OpenCap and Pose2Sim"))


_BLOCK = 512
_KEY = 0x50
_LARGEST = 1024 * MIB
_INTEL, _DEC, _SGI = 84, 85, 86
_TYPES = {-1: "S1", 1: "i1", 2: "i2", 4: "f4"}

Parameters = dict[tuple[str, str], npt.NDArray[Any]]


class C3dReader(PoseFileReader):
    """Markers by their labels, in metres. Where the file says that z points up (Y_SCREEN), it is turned to y up."""

    suffixes: ClassVar[tuple[str, ...]] = (".c3d",)

    def looks_right(self, path: Path) -> bool:
        start = head(path, 2)
        return len(start) == 2 and start[1] == _KEY and start[0] > 0

    def load(self, path: Path) -> Poses:
        data = read_bytes(path, _LARGEST)
        if len(data) < _BLOCK or data[1] != _KEY:
            raise problem(path, "", "it does not begin like a C3D file")
        place = (data[0] - 1) * _BLOCK
        if place < _BLOCK or place + 4 > len(data):
            raise problem(path, "", "its parameters lie outside of the file")
        processor = data[place + 3]
        if processor == _DEC:
            raise problem(path, "", "it is written with DEC numbers", "convert it to the Intel format")
        order = ">" if processor == _SGI else "<"
        parameters = _parameters(data, place, order, path)
        return _points(data, order, parameters, path)


def _parameters(data: bytes, place: int, order: str, path: Path) -> Parameters:
    """All parameters by (group, name), in capitals."""
    end = min(len(data), place + max(1, data[place + 2]) * _BLOCK)
    at = place + 4
    groups: dict[int, str] = {}
    values: list[tuple[int, str, npt.NDArray[Any]]] = []
    while at + 2 <= end:
        length, number = (int.from_bytes(data[place : place + 1], "little", signed=True) for place in (at, at + 1))
        length = abs(length)
        if length == 0 or number == 0:
            break
        name = data[at + 2 : at + 2 + length].decode("latin-1").strip().upper()
        link = at + 2 + length
        if link + 2 > end:
            raise problem(path, f"byte {at}", "a parameter is cut off")
        step = int.from_bytes(data[link : link + 2], "big" if order == ">" else "little", signed=True)
        if number < 0:
            groups[-number] = name
        else:
            values.append((number, name, _value(data, link + 2, end, order, path)))
        if step <= 0:
            break
        at = link + step
    return {(groups.get(number, ""), name): value for number, name, value in values}


def _value(data: bytes, at: int, end: int, order: str, path: Path) -> npt.NDArray[Any]:
    """One parameter: its type, its axes (first one fastest) and its values."""
    if at + 2 > end:
        raise problem(path, f"byte {at}", "a parameter is cut off")
    kind, axes = int.from_bytes(data[at : at + 1], "little", signed=True), data[at + 1]
    shape = tuple(data[at + 2 : at + 2 + axes])
    if kind not in _TYPES or axes > 7 or len(shape) != axes:
        raise problem(path, f"byte {at}", f"a parameter is of unknown type {kind}")
    dtype = np.dtype(order + _TYPES[kind])
    count = int(np.prod(shape, dtype=np.int64)) if shape else 1
    start = at + 2 + axes
    if start + count * dtype.itemsize > end:
        raise problem(path, f"byte {at}", "a parameter is longer than the file")
    values: npt.NDArray[Any] = np.frombuffer(data, dtype, count, start).reshape(shape[::-1])
    return values


def _points(data: bytes, order: str, parameters: Parameters, path: Path) -> Poses:
    """The labelled points of all frames."""
    words = np.frombuffer(data, np.dtype(order + "u2"), _BLOCK // 2)
    used = _number(parameters, ("POINT", "USED"), float(words[1]))
    scale = _number(parameters, ("POINT", "SCALE"), _header_float(data, 12, order))
    count, analog = int(used), int(words[2])
    if not 0 < count <= 10_000 or not np.isfinite(scale) or scale == 0:
        raise problem(path, "", f"it holds {count} points at scale {scale:g}", "export 3D points")
    frames = _frame_count(parameters, int(words[3]), int(words[4]))
    dtype = np.dtype(order + ("f4" if scale < 0 else "i2"))
    start = (int(_number(parameters, ("POINT", "DATA_START"), float(words[8]))) - 1) * _BLOCK
    width = 4 * count + analog
    if start < _BLOCK or frames < 1 or start + frames * width * dtype.itemsize > len(data):
        raise problem(path, "", f"{frames} frames with {width} numbers each are declared, more than the file holds")
    table = np.frombuffer(data, dtype, frames * width, start).reshape(frames, width)[:, : 4 * count]
    values = as_floats(table.reshape(frames, count, 4))
    labels = _labels(parameters, count)
    kept = [number for number, label in enumerate(labels) if label and not label.startswith("*")][:MOST_JOINTS]
    if not kept:
        kept = list(range(min(count, MOST_JOINTS)))
        labels = [f"point_{number + 1}" for number in range(count)]
    missing = (values[:, kept, 3] < 0) | ~np.isfinite(values[:, kept, :3]).all(axis=2)
    factor = UNITS.get(_text(parameters, "UNITS").lower(), 1.0) * (scale if scale > 0 else 1.0)
    places = np.where(missing[..., None], np.nan, values[:, kept, :3] * factor)
    places = turned(places, Z_UP) if _text(parameters, "Y_SCREEN").upper() == "+Z" else places
    rate = _number(parameters, ("POINT", "RATE"), _header_float(data, 20, order))
    return Poses([labels[number] for number in kept], places[:, None], fps=rate)


def _frame_count(parameters: Parameters, first: int, last: int) -> int:
    """Frames of the recording; the header counts to 65535 only, longer ones say so in the parameters."""
    ends = [parameters.get(("TRIAL", f"ACTUAL_{which}_FIELD")) for which in ("START", "END")]
    if all(end is not None and end.size == 2 and end.dtype.kind == "i" for end in ends):
        start, end = (int(e.ravel()[0]) % 65536 + (int(e.ravel()[1]) % 65536) * 65536 for e in ends if e is not None)
        if end >= start:
            return end - start + 1
    counted = last - first + 1
    longer = _number(parameters, ("POINT", "FRAMES"), float(counted))
    longer = longer + 65536 if longer < 0 else longer
    return max(counted, int(longer)) if last == 65535 else counted


def _labels(parameters: Parameters, count: int) -> list[str]:
    """Labels of the points; sets of more than 255 continue in LABELS2 and so on. Empty where there is none."""
    labels: list[str] = []
    for suffix in ("", *map(str, range(2, 50))):
        value = parameters.get(("POINT", f"LABELS{suffix}"))
        if value is None or value.dtype.kind != "S" or value.ndim != 2:
            break
        labels += [row.tobytes().decode("latin-1").strip(" \0") for row in value]
    labels += [""] * (count - len(labels))
    names: list[str] = []
    for label in labels[:count]:
        # A label that comes again is another marker all the same.
        again = sum(label == other for other in labels[: len(names)]) if label else 0
        names.append(f"{label}_{again + 1}" if again else label)
    return names


def _number(parameters: Parameters, key: tuple[str, str], default: float) -> float:
    value = parameters.get(key)
    if value is None or not value.size or value.dtype.kind not in "if":
        return default
    first = float(value.ravel()[0])
    # Counts are unsigned in the files, whatever the type says.
    return first + 65536 if key[1] in ("USED", "DATA_START") and first < 0 else first


def _text(parameters: Parameters, name: str) -> str:
    value = parameters.get(("POINT", name))
    return value.tobytes().decode("latin-1").strip(" \0") if value is not None and value.dtype.kind == "S" else ""


def _header_float(data: bytes, at: int, order: str) -> float:
    return float(np.frombuffer(data, np.dtype(order + "f4"), 1, at)[0])


register_reader(C3dReader("c3d", "C3D motion capture (.c3d): labelled 3D points"))
