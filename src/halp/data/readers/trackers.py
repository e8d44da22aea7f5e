"""Key points tracked over a video: DeepLabCut, SLEAP and the `movement` package (netCDF).

DeepLabCut writes CSV files with three or four header lines or, by pandas, HDF5 tables; SLEAP exports analysis
files with `tracks` and `node_names`, or `track, frame_idx, nose.x, …`; movement has `position` over time,
space, keypoints and individuals.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.data.readers import register_reader
from halp.data.readers.shared import MOST_PERSONS, PeopleFileReader, Poses
from halp.data.sandbox import Content, column, load_pickle, object_names, read_hdf5
from halp.data.source_files import find_files, head
from halp.data.text_files import LARGEST_COORDINATE, MOST_CELLS, Floats, as_floats, number, problem, shown
from halp.data.text_tables import Table, csv_rows, header_cells, read_table

_HEADERS = ("scorer", "individuals", "bodyparts", "coords")
_FIRST = re.compile(rb"\s*\"?(scorer|individuals|bodyparts)\"?\s*,", re.IGNORECASE)
_AXES = ("x", "y", "z")
_SCORES = ("likelihood", "score", "confidence")

#: Individual (empty if there is one), body part and coordinate of every column.
Columns = list[tuple[str, str, str]]


class DeepLabCutReader(PeopleFileReader):
    """One file per video; joints with a likelihood below `min_score` are missing.

    Where a video has an `.h5` and a `.csv` file, which hold the same, the CSV file is read.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".h5")

    def looks_right(self, path: Path) -> bool:
        if path.suffix.lower() == ".csv":
            lines = head(path, 65536).removeprefix(b"\xef\xbb\xbf").split(b"\n")[:4]
            return _FIRST.match(lines[0]) is not None and any(
                line.lower().startswith(b"coords") for line in lines
            )
        return any(name.endswith(("/table", "/block0_values")) for name in object_names(path))

    def files(self, path: Path) -> list[Path]:
        results = find_files(path, *self.suffixes)
        tables = {file.with_suffix("") for file in results if file.suffix.lower() == ".csv"}
        return [
            file for file in results if file.suffix.lower() == ".csv" or file.with_suffix("") not in tables
        ]

    def load(self, path: Path) -> Poses:
        columns, values = _from_headed_csv(path) if path.suffix.lower() == ".csv" else _from_pandas(path)
        return _by_column(columns, values, path)


def _from_headed_csv(path: Path) -> tuple[Columns, Floats]:
    """The header of every column, and the numbers `(T, columns)`."""
    rows, lines = csv_rows(path)
    top = [row for row in rows[:4] if row[0].lower() in _HEADERS]
    names = [row[0].lower() for row in top]
    if "bodyparts" not in names or "coords" not in names or len(set(names)) != len(names):
        fault = "its first lines are not scorer, bodyparts and coords"
        raise problem(path, "line 1", fault, "check that DeepLabCut wrote this file")
    body = rows[len(top) :]
    if not body:
        raise problem(path, "", "there is no frame below the header")
    # Labelled frames have two or three columns of file names before the coordinates; tracking results have
    # the frame number.
    first = next((place for place, cell in enumerate(top[-1]) if place and cell), 1)
    values = np.full((len(body), len(top[0]) - first), np.nan)
    for at, (line, row) in enumerate(zip(lines[len(top) :], body)):
        for place, cell in enumerate(row[first:]):
            if cell and cell.lower() != "nan":
                values[at, place] = number(cell, path, f"line {line}, column {place + first + 1}")
    header = dict(zip(names, (row[first:] for row in top)))
    people = header.get("individuals", [""] * values.shape[1])
    return list(zip(people, header["bodyparts"], header["coords"])), values


def _from_pandas(path: Path) -> tuple[Columns, Floats]:
    """The same from a table that pandas wrote, in its `table` or its `fixed` layout."""
    content = read_hdf5(path, ("*/table", "*/block0_values", "*/block0_items_l*"))
    name = next(
        (name for name in content.numbers if name.endswith(("/table/values_block_0", "/block0_values"))), None
    )
    if name is None:
        fault = "it holds no table that pandas wrote"
        raise problem(path, "", fault, "check that DeepLabCut wrote this file, or use its .csv file")
    group, _, kind = name.rpartition("/")
    # the names of the columns are a pickled list of tuples, of which the loader knows plain data only
    text = (
        content.attributes.get(group, {}).get("values_block_0_kind", "") if kind == "values_block_0" else ""
    )
    headers = load_pickle(path, text.encode("latin-1")) if text else _levels(content, group)
    sound = isinstance(headers, list) and headers and all(isinstance(header, tuple) for header in headers)
    if not sound or len({len(header) for header in headers}) != 1 or len(headers[0]) not in (3, 4):
        raise problem(path, "", "the names of its columns are damaged", "use the .csv file beside it")
    values = content.numbers[name]
    if values.ndim != 2 or values.shape[1] != len(headers) or not len(values):
        fault = f"its table of shape {values.shape} does not fit {len(headers)} columns"
        raise problem(path, "", fault, "write it again")
    people = [str(header[-3]) if len(header) == 4 else "" for header in headers]
    return [(person, str(header[-2]), str(header[-1])) for person, header in zip(people, headers)], as_floats(
        values
    )


def _levels(content: Content, group: str) -> list[tuple[str, ...]]:
    """Header of pandas' fixed layout: names of each level and their codes per column; empty if damaged."""
    parts: list[list[str]] = []
    for level in range(4):
        names = content.texts.get(f"{group}/block0_items_level{level}")
        codes = content.numbers.get(f"{group}/block0_items_label{level}")
        if names is None or codes is None:
            break
        if codes.ndim != 1 or codes.dtype.kind not in "iu" or not ((codes >= 0) & (codes < len(names))).all():
            return []
        parts.append([names[code] for code in codes.tolist()])
    return list(zip(*parts)) if len({len(part) for part in parts}) == 1 else []


def _by_column(columns: Columns, values: Floats, path: Path) -> Poses:
    """Columns sorted by individual, joint and axis."""
    people = list(dict.fromkeys(person for person, _, _ in columns))
    # Parts of the arena that multi-animal projects label once ("single") are not a body.
    if len(people) > 1 and "single" in people:
        people.remove("single")
    joints = list(dict.fromkeys(joint for person, joint, _ in columns if person in people))
    axes = [axis for axis in _AXES if any(name.lower() == axis for _, _, name in columns)]
    if axes not in (["x", "y"], ["x", "y", "z"]) or len(people) > MOST_PERSONS:
        fault = f"its coordinates are {', '.join(axes) or 'missing'}, of {len(people)} individuals"
        raise problem(path, "line of 'coords'", fault, "expected x, y and likelihood, or x, y, z")
    if len(set(columns)) != len(columns):
        twice = next(" ".join(column[1:]) for column in columns if columns.count(column) > 1)
        raise problem(path, "", f"{shown(twice)} occurs twice", "keep one column for each joint and axis")
    found = np.full((len(values), len(people), len(joints), len(axes) + 1), np.nan)
    places = {axis: place for place, axis in enumerate(axes)} | dict.fromkeys(_SCORES, -1)
    for at, (person, joint, name) in enumerate(columns):
        if person in people and name.lower() in places:
            found[:, people.index(person), joints.index(joint), places[name.lower()]] = values[:, at]
    frames, scores = found[..., :-1], found[..., -1]
    if not (np.abs(frames[~np.isnan(frames)]) <= LARGEST_COORDINATE).all():
        raise problem(path, "", "a coordinate is invalid", "correct it or leave this file out")
    return Poses(joints, frames, scores if np.isfinite(scores).any() else None)


register_reader(
    DeepLabCutReader("deeplabcut", "DeepLabCut tracking results: .csv or .h5 (also of Lightning Pose)")
)


_CELL = re.compile(r"(?P<joint>.+)\.(?P<axis>x|y|score)")


class SleapReader(PeopleFileReader):
    """One analysis file per video; at most `persons` tracks are kept, those seen longest."""

    suffixes: ClassVar[tuple[str, ...]] = (".h5", ".csv")

    def looks_right(self, path: Path) -> bool:
        if path.suffix.lower() == ".csv":
            cells = header_cells(path)
            return "frame_idx" in cells and any(cell.endswith(".x") for cell in cells)
        return {"tracks", "node_names"} <= object_names(path)

    def load(self, path: Path) -> Poses:
        return _from_instances(read_table(path)) if path.suffix.lower() == ".csv" else _from_analysis(path)


def _from_analysis(path: Path) -> Poses:
    content = read_hdf5(path, ("tracks", "node_names", "point_scores", "edge_inds"))
    joints = content.texts.get("node_names")
    if not joints:
        raise problem(path, "", "it has no 'node_names'", "export it from SLEAP as an analysis file")
    tracks = column(content, "tracks", path, axes=4)
    # (tracks, coordinates, nodes, frames), or the other way round if it was not written for MATLAB.
    if tracks.shape[1:3] == (len(joints), 2):
        tracks = tracks.transpose(3, 2, 1, 0)
    persons, axes, nodes, _ = tracks.shape
    if axes != 2 or nodes != len(joints) or persons > MOST_PERSONS:
        fault = f"its shape {tracks.shape} does not fit {len(joints)} nodes"
        raise problem(path, "array 'tracks'", fault, "export it from SLEAP as an analysis file")
    scores = content.numbers.get("point_scores")
    if scores is not None:
        scores = (
            as_floats(scores).transpose(2, 0, 1)
            if scores.shape == (persons, nodes, tracks.shape[3])
            else None
        )
    edges = content.numbers.get("edge_inds")
    sound = edges is not None and edges.ndim == 2 and edges.shape[1] == 2 and edges.dtype.kind in "iu"
    bones = edges.tolist() if edges is not None and sound else ()
    return Poses(joints, tracks.transpose(3, 0, 2, 1), scores, bones=bones)


def _from_instances(table: Table) -> Poses:
    """A row per instance and frame; the words of a track are its name, or empty without tracking."""
    path = table.path
    cells = {name: match for name in table.columns if (match := _CELL.fullmatch(name))}
    joints = list(dict.fromkeys(match["joint"] for match in cells.values() if match["joint"] != "instance"))
    if "frame_idx" not in table.columns or not joints:
        raise problem(
            path, "line 1", "there is no frame_idx or no joint", "export it from SLEAP as an analysis CSV"
        )
    for joint in joints:
        if f"{joint}.x" not in cells or f"{joint}.y" not in cells:
            raise problem(path, "line 1", f"joint {shown(joint)} has no x or no y", "export all coordinates")
    numbers = table.whole_numbers("frame_idx")
    persons = _places(table, numbers.tolist())
    first, last = int(numbers.min()), int(numbers.max())
    shape = (last - first + 1, max(persons) + 1, len(joints))
    if np.prod(shape, dtype=float) > MOST_CELLS or last - first >= 1000 * len(table):
        raise problem(
            path, "column 'frame_idx'", f"frames go from {first} to {last}", "correct the frame numbers"
        )
    values = np.full((*shape, 3), np.nan)
    for at, joint in enumerate(joints):
        for axis, name in enumerate((f"{joint}.x", f"{joint}.y", f"{joint}.score")):
            if name in cells:
                values[numbers - first, persons, at, axis] = table.numbers(name)
    spelled = [table.spelling[f"{joint}.x"].removesuffix(".x") for joint in joints]
    return Poses(spelled, values[..., :2], values[..., 2] if np.isfinite(values[..., 2]).any() else None)


def _places(table: Table, frames: Sequence[int]) -> list[int]:
    """The person of a row; without tracking, instances of a frame fill the slots in order."""
    people: dict[str, int] = {}
    taken: dict[tuple[int, int], None] = {}
    for row, (name, frame) in enumerate(zip(table.columns.get("track", ("",) * len(table)), frames)):
        place = people.setdefault(name, len(people)) if name else 0
        while not name and (frame, place) in taken:
            place += 1
        if (frame, place) in taken or place >= MOST_PERSONS:
            fault = (
                f"track {shown(name)} occurs twice in frame {frame}"
                if name
                else "a frame has too many instances"
            )
            raise problem(
                table.path, f"line {table.lines[row]}", fault, "keep one row for each track and frame"
            )
        taken[frame, place] = None
    return [place for _, place in taken]


register_reader(SleapReader("sleap", "SLEAP analysis files: .h5 or .csv"))


# In which order the axes stand, today's first: t time, c space, v keypoints, p individuals.
_ORDERS = ("tcvp", "tpvc", *("".join(order) for order in itertools.permutations("tcvp")))


class MovementReader(PeopleFileReader):
    """One file per recording, in the netCDF-4 layout (which is HDF5)."""

    suffixes: ClassVar[tuple[str, ...]] = (".nc",)

    def looks_right(self, path: Path) -> bool:
        return {"position", "keypoints"} <= object_names(path)

    def load(self, path: Path) -> Poses:
        content = read_hdf5(
            path, ("position", "confidence", "keypoints", "keypoint", "space", "individuals", "individual")
        )
        joints = content.texts.get("keypoints", content.texts.get("keypoint"))
        space = content.texts.get("space", ["x", "y"])
        people = content.texts.get("individuals", content.texts.get("individual", [""]))
        position = column(content, "position", path, axes=4)
        sizes = {"c": len(space), "v": len(joints or ()), "p": len(people)}
        if not joints or len(space) not in (2, 3) or len(people) > MOST_PERSONS:
            fault = "keypoints, space or individuals are missing"
            raise problem(path, "", fault, "save it with movement's save_dataset")
        fitting = (
            axes
            for axes in _ORDERS
            if all(sizes.get(axis, size) == size for axis, size in zip(axes, position.shape))
        )
        order = next(fitting, None)
        if order is None:
            fault = (
                f"its shape {position.shape} does not fit {len(joints)} keypoints of {len(people)}"
                " individuals"
            )
            raise problem(path, "array 'position'", fault, "save it with movement's save_dataset")
        frames = position.transpose([order.index(axis) for axis in "tpvc"])
        scores = content.numbers.get("confidence")
        if scores is not None and scores.ndim == 3:
            scores = scores.transpose([order.replace("c", "").index(axis) for axis in "tpv"])
            scores = as_floats(scores) if scores.shape == frames.shape[:3] else None
        return Poses(joints, frames, scores, float(content.attributes.get("", {}).get("fps", "-1") or -1))


register_reader(MovementReader("movement", "netCDF files of the movement package (.nc)"))
