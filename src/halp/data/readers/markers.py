"""Markers of motion capture: C3D, read by our own parser that checks every size, and OpenSim TRC.

C3D follows the published description of the format (c3d.org): a header block, a parameter section of groups
and parameters, and frames of points (x, y, z, residual) followed by analogue samples, as int16 or float32.
TRC is a tab-separated table with frame rate and unit in the header; y points up.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from halp.data.readers import register_reader
from halp.data.readers.shared import MOST_JOINTS, Z_UP, PoseFileReader, Poses, turned
from halp.data.source_files import MIB, head, read_bytes, read_text
from halp.data.text_files import as_floats, number, problem, shown, whole_number

#: Metres in a unit.
UNITS = {"m": 1.0, "meters": 1.0, "cm": 0.01, "mm": 0.001, "in": 0.0254, "inches": 0.0254}


class TrcReader(PoseFileReader):
    """Marker trajectories in metres; an empty cell is a missing marker."""

    suffixes: ClassVar[tuple[str, ...]] = (".trc",)

    def looks_right(self, path: Path) -> bool:
        return head(path).removeprefix(b"\xef\xbb\xbf").lower().startswith(b"pathfiletype")

    def load(self, path: Path) -> Poses:
        lines = read_text(path).split("\n")
        if len(lines) < 6 or not lines[0].lower().startswith("pathfiletype"):
            raise problem(
                path, "line 1", "it does not begin with PathFileType", "check that this is a whole TRC file"
            )
        settings = dict(zip(lines[1].lower().split(), lines[2].split()))
        first, _, *names = (cell.strip() for cell in f"{lines[3]}\t".split("\t"))
        joints = [name for name in names if name]
        if not first.lower().startswith("frame") or not 0 < len(joints) <= MOST_JOINTS:
            raise problem(
                path, "line 4", "it does not name frame, time and markers", "check that this is a TRC file"
            )
        unit = settings.get("units", "m").lower()
        if unit not in UNITS:
            raise problem(
                path, "line 3, Units", f"{shown(unit)} is not a known unit", f"use {', '.join(UNITS)}"
            )
        _check_count(settings, "NumMarkers", len(joints), path)
        table = ((at, line.split("\t")) for at, line in enumerate(lines[5:], start=6) if line.strip())
        rows = [_row(cells, 3 * len(joints), path, at) for at, cells in table]
        if not rows:
            raise problem(path, "", "there is no frame below the header")
        _check_count(settings, "NumFrames", len(rows), path)
        fps = number(settings.get("datarate", "-1"), path, "line 3, DataRate")
        frames = np.array(rows).reshape(-1, 1, len(joints), 3) * UNITS[unit]
        return Poses(joints, frames, fps=fps)


def _check_count(settings: dict[str, str], name: str, count: int, path: Path) -> None:
    declared = whole_number(settings.get(name.lower(), str(count)), path, f"line 3, {name}")
    if declared != count:
        raise problem(path, f"line 3, {name}", f"{declared} are declared, {count} are there")


def _row(cells: list[str], count: int, path: Path, at: int) -> list[float]:
    """The numbers of a line after frame and time, NaN if a cell is empty."""
    cells = [cell.strip() for cell in cells]
    values = cells[2 : 2 + count]
    if any(cells[2 + count :]) or not cells[0]:
        raise problem(path, f"line {at}", f"{len(cells) - 2} numbers instead of {count}")
    values += [""] * (count - len(values))
    return [np.nan if cell.lower() in ("", "nan") else number(cell, path, f"line {at}") for cell in values]


register_reader(TrcReader("trc", "OpenSim marker trajectories (.trc), also of OpenCap and Pose2Sim"))


_BLOCK = 512
_KEY = 0x50
_LARGEST_FILE = 1024 * MIB
_DEC, _SGI = 85, 86
_TYPES = {-1: "S1", 1: "i1", 2: "i2", 4: "f4"}


class C3dReader(PoseFileReader):
    """Markers by their labels, in metres; turned to y up if the file says that z points up (Y_SCREEN)."""

    suffixes: ClassVar[tuple[str, ...]] = (".c3d",)

    def looks_right(self, path: Path) -> bool:
        start = head(path, 2)
        return len(start) == 2 and start[1] == _KEY and start[0] > 0

    def load(self, path: Path) -> Poses:
        data = read_bytes(path, _LARGEST_FILE)
        if len(data) < _BLOCK or data[1] != _KEY:
            raise problem(path, "", "it does not begin like a C3D file")
        place = (data[0] - 1) * _BLOCK
        if place < _BLOCK or place + 4 > len(data):
            raise problem(path, "", "its parameters lie outside of the file")
        order = {_SGI: ">", _DEC: "dec"}.get(data[place + 3], "<")
        parameters = Parameters(_parameters(data, place, order, path))
        if not parameters.number("USED", 1) and parameters.of("ROTATION", "USED", 0) > 0:
            return _segments(data, order, parameters, path)
        return _points(data, order, parameters, path)


def _numbers(data: bytes, kind: str, count: int, start: int, order: str) -> npt.NDArray[Any]:
    """Numbers in a processor's format; DEC floats have swapped halves and an exponent larger by two."""
    if order != "dec":
        return np.frombuffer(data, np.dtype(order + kind), count, start)
    if kind != "f4":
        return np.frombuffer(data, np.dtype("<" + kind), count, start)
    halves = np.frombuffer(data, "<u2", 2 * count, start).reshape(-1, 2)[:, ::-1]
    return np.ascontiguousarray(halves).view("<f4").ravel() / np.float32(4)


class Parameters(dict[tuple[str, str], npt.NDArray[Any]]):
    """Parameters by (group, name), in capitals."""

    def number(self, name: str, default: float) -> float:
        """The first number of a parameter of the points; the default if it has none."""
        return self.of("POINT", name, default)

    def of(self, group: str, name: str, default: float) -> float:
        """The first number of a parameter of a group."""
        value = self.get((group, name))
        if value is None or not value.size or value.dtype.kind not in "if":
            return default
        first = float(value.ravel()[0])
        # Counts are unsigned in the files, whatever the type says.
        return first + 65536 if name in ("USED", "DATA_START") and first < 0 else first

    def texts(self, name: str, group: str = "POINT") -> list[str]:
        """The texts of a parameter; none where it is something else."""
        value = self.get((group, name))
        if value is None or value.dtype.kind != "S" or not value.ndim:
            return []
        return [row.tobytes().decode("latin-1").strip(" \0") for row in np.atleast_2d(value)]


def _parameters(
    data: bytes, place: int, order: str, path: Path
) -> Iterator[tuple[tuple[str, str], npt.NDArray[Any]]]:
    """All parameters with their group and name."""
    end = min(len(data), place + max(1, data[place + 2]) * _BLOCK)
    groups: dict[int, str] = {}
    values: list[tuple[int, str, npt.NDArray[Any]]] = []
    at, step = place + 2, 2
    while step > 0 and (at := at + step) + 2 <= end:
        length, group = struct.unpack_from("bb", data, at)
        if not length or not group:
            break
        link = at + 2 + abs(length)
        if link + 2 > end:
            raise problem(path, f"byte {at}", "a parameter is cut off")
        name = data[at + 2 : link].decode("latin-1").strip().upper()
        step = int(_numbers(data, "i2", 1, link, order)[0])
        if group < 0:
            groups[-group] = name
        else:
            value = _value(data, link + 2, order, path)
            values.append((group, name, value))
            if link + 2 + value.nbytes > end:  # the file has more parameters than the blocks it declares
                end = len(data)
        at = link
    return (((groups.get(group, ""), name), value) for group, name, value in values)


def _value(data: bytes, at: int, order: str, path: Path) -> npt.NDArray[Any]:
    """One parameter: its type, its axes (first one fastest) and its values."""
    end = len(data)
    if at + 2 > end:
        raise problem(path, f"byte {at}", "a parameter is cut off")
    kind, axes = struct.unpack_from("bB", data, at)
    start = at + 2 + axes
    shape = tuple(data[at + 2 : start])
    if kind not in _TYPES or axes > 7 or len(shape) != axes:
        raise problem(path, f"byte {at}", f"a parameter is of unknown type {kind}")
    if start + math.prod(shape) * abs(kind) > end:
        raise problem(path, f"byte {at}", "a parameter is longer than the file")
    return _numbers(data, _TYPES[kind], math.prod(shape), start, order).reshape(shape[::-1])


def _points(data: bytes, order: str, parameters: Parameters, path: Path) -> Poses:
    """The labelled points of all frames."""
    # words of the header: points, analogue samples, first and last frame, scale, where the frames are, and
    # their rate
    used, analog, first, last = _numbers(data, "u2", 4, 2, order).tolist()
    scale, place, rate = (
        _numbers(data, kind, 1, at, order)[0].item() for kind, at in (("f4", 12), ("u2", 16), ("f4", 20))
    )
    count, scale = int(parameters.number("USED", used)), parameters.number("SCALE", scale)
    if not 0 < count <= 10_000 or not np.isfinite(scale) or scale == 0:
        raise problem(path, "", f"it holds {count} points at scale {scale:g}", "export 3D points")
    frames = _frame_count(parameters, first, last)
    kind = "f4" if scale < 0 else "i2"
    start = (int(parameters.number("DATA_START", place)) - 1) * _BLOCK
    width = 4 * count + analog
    if start < _BLOCK or frames < 1 or start + frames * width * int(kind[1]) > len(data):
        raise problem(
            path, "", f"{frames} frames with {width} numbers each are declared, more than the file holds"
        )
    table = _numbers(data, kind, frames * width, start, order).reshape(frames, width)[:, : 4 * count]
    labels = _labels(parameters, count)
    kept = [number for number, label in enumerate(labels) if label and not label.startswith("*")][
        :MOST_JOINTS
    ]
    if not kept:
        kept = list(range(min(count, MOST_JOINTS)))
        labels = [f"point_{number + 1}" for number in range(count)]
    values = as_floats(table.reshape(frames, count, 4)[:, kept])
    missing = (values[..., 3] < 0) | ~np.isfinite(values[..., :3]).all(axis=2)
    unit, up = ("".join(parameters.texts(name)) for name in ("UNITS", "Y_SCREEN"))
    places = values[..., :3] * UNITS.get(unit.lower(), 1.0) * (scale if scale > 0 else 1.0)
    places = np.where(missing[..., None], np.nan, places)
    places = turned(places, Z_UP) if up.upper() == "+Z" else places
    return Poses([labels[number] for number in kept], places[:, None], fps=parameters.number("RATE", rate))


def _segments(data: bytes, order: str, parameters: Parameters, path: Path) -> Poses:
    """Origins of body segments, whose 4 × 4 matrices markerless systems such as Theia3D write."""
    labels = [label.removesuffix("_4X4") for label in parameters.texts("LABELS", "ROTATION")]
    count = int(parameters.of("ROTATION", "USED", 0))
    start = (int(parameters.of("ROTATION", "DATA_START", 0)) - 1) * _BLOCK
    first, last = _numbers(data, "u2", 2, 6, order).tolist()
    ratio = max(1, int(parameters.of("ROTATION", "RATIO", 1)))
    frames = _frame_count(parameters, first, last) * ratio
    if len(labels) < count or count > MOST_JOINTS or len({*labels[:count]}) < count:
        raise problem(path, "ROTATION", f"{count} segments do not have a label each")
    if start < _BLOCK or frames < 1 or start + frames * count * 17 * 4 > len(data):
        raise problem(path, "ROTATION", f"{frames} frames of {count} segments are more than the file holds")
    # 16 numbers column by column, of which the last four begin with the origin, and a residual
    table = as_floats(_numbers(data, "f4", frames * count * 17, start, order).reshape(frames, count, 17))
    kept = [place for place, label in enumerate(labels[:count]) if label != "worldbody"]
    values = table[:, kept]
    missing = (values[..., 16] < 0) | ~np.isfinite(values[..., 12:15]).all(axis=2)
    unit = "".join(parameters.texts("UNITS")).lower()
    places = np.where(missing[..., None], np.nan, values[..., 12:15] * UNITS.get(unit, 1.0))
    names = [labels[place] for place in kept]
    fps = parameters.of("ROTATION", "RATE", parameters.number("RATE", -1.0) * ratio)
    return Poses(names, turned(places, Z_UP)[:, None], fps=fps)


def _frame_count(parameters: Parameters, first: int, last: int) -> int:
    """Frames of the recording; the header counts to 65535 only, longer ones say so in the parameters."""
    ends = [parameters.get(("TRIAL", f"ACTUAL_{which}_FIELD")) for which in ("START", "END")]
    if all(end is not None and end.size == 2 and end.dtype.kind == "i" for end in ends):
        start, end = (
            int(e.ravel()[0]) % 65536 + (int(e.ravel()[1]) % 65536) * 65536 for e in ends if e is not None
        )
        if end >= start:
            return end - start + 1
    counted = last - first + 1
    longer = int(parameters.number("FRAMES", counted))
    return max(counted, longer + 65536 if longer < 0 else longer) if last == 65535 else counted


def _labels(parameters: Parameters, count: int) -> list[str]:
    """Labels of the points; sets of more than 255 continue in LABELS2 and so on. Empty if there is none."""
    parts = (parameters.texts(f"LABELS{suffix}") for suffix in ("", *range(2, 50)))
    labels = [*itertools.chain.from_iterable(itertools.takewhile(bool, parts)), *[""] * count][:count]
    # A label that comes again is another marker all the same.
    again = [labels[:place].count(label) if label else 0 for place, label in enumerate(labels)]
    return [f"{label}_{number + 1}" if number else label for label, number in zip(labels, again)]


register_reader(C3dReader("c3d", "C3D motion capture (.c3d): labelled 3D points"))
