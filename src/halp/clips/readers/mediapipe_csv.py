"""MediaPipe landmarks in CSV: a row per frame with columns such as `left_hip_x` or `x23`, or a row per landmark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from halp.clips.readers.shared import label_column, label_runs
from halp.clips.text_files import Floats, Table, header_cells, places_in_time, problem, read_table, shown
from halp.skeleton import canonical_joints, get_topology

_JOINTS = get_topology("mediapipe-33").joints
_NAMED = re.compile(r"(?P<joint>.+?)[ _.-]?(?P<axis>x|y|z|v|visibility|presence|score)", re.ASCII)
_NUMBERED = re.compile(r"(?P<axis>x|y|z|v|visibility|presence|score)[ _.-]?(?P<joint>\d{1,3})", re.ASCII)
_LANDMARK = ("landmark", "landmark_id", "landmark_index", "landmark_name", "landmark_idx")
_SCORES = ("visibility", "v", "presence", "score")

Columns = dict[tuple[int, str], str]


def landmark_columns(header: Sequence[str]) -> Columns | str | None:
    """What the header holds: columns by (joint, axis) of a wide table, the landmark column of a long one, or nothing."""
    long = next((column for column in _LANDMARK if column in header), None)
    if long is not None and {"x", "y"} <= set(header):
        return long
    columns: dict[bool, dict[tuple[str, str], str]] = {False: {}, True: {}}
    for column in header:
        match = _NUMBERED.fullmatch(column) or _NAMED.fullmatch(column)
        if match:
            joint = re.sub("world|pose|landmark", " ", match["joint"])
            axis = "score" if match["axis"] in _SCORES else match["axis"]
            columns["world" in column][joint.strip(" _.-"), axis] = column
    # World landmarks go first; a table that has only some of them is not a MediaPipe table.
    return next((wide for kind in (True, False) if (wide := _all_joints(columns[kind]))), None)


def _all_joints(names: dict[tuple[str, str], str]) -> Columns | None:
    index = _indices(sorted({joint for joint, _ in names}))
    columns = {(index[joint], axis): column for (joint, axis), column in names.items() if joint in index}
    whole = all((joint, axis) in columns for joint in range(33) for axis in ("x", "y"))
    return columns if whole else None


def _indices(names: Sequence[str]) -> dict[str, int]:
    """Landmark positions of names or numbers; numbers from 1 to 33 count from one."""
    numbers = {name: int(name) for name in names if name.isdecimal() and name.isascii() and len(name) < 4}
    first = 1 if set(numbers.values()) == set(range(1, 34)) else 0
    indices = {name: value - first for name, value in numbers.items() if 0 <= value - first < 33}
    words = [name for name in names if name not in numbers]
    indices |= {name: _JOINTS.index(joint) for name, joint in zip(words, canonical_joints(words)) if joint in _JOINTS}
    return indices


def header_for(path: Path, header: bool) -> tuple[str, ...]:
    """Names of the columns of a table without a header line: 33 landmarks in order, perhaps after a number or a class."""
    if header:
        return ()
    cells = header_cells(path)
    for axes in ("xyzv", "xyz", "xy"):
        more = len(cells) - 33 * len(axes)
        if more in (0, 1):
            named = ["frame" if re.fullmatch(r"\s*[-+\d.]+\s*", cells[0]) else "class"] * more
            return (*named, *(f"{axis}{joint}" for joint in range(33) for axis in axes))
    fault = f"{len(cells)} columns are not 33 landmarks of 2, 3 or 4 numbers"
    raise problem(path, "line 1", fault, "leave the option header out, or check the file")


def row_labels(path: Path, header: bool = True) -> list[tuple[str, int, int]]:
    """Runs of rows of one class in a table with a row per frame; empty where it names no classes."""
    table = read_table(path, header_for(path, header))
    wide = isinstance(landmark_columns(list(table.columns)), dict)
    return label_runs(table) if wide and label_column(table.columns) else []


def read_landmark_table(path: Path, header: bool = True) -> list[list[Floats]]:
    """Bodies frame by frame, each `(33, 3 or 4)`: coordinates, NaN where a cell is empty, and the score."""
    table = read_table(path, header_for(path, header))
    columns = landmark_columns(list(table.columns))
    if columns is None:
        remedy = "name them like left_hip_x or x23, or use frame, landmark, x, y, z, visibility"
        raise problem(path, "line 1", "the columns are not those of 33 landmarks", remedy)
    values = _long(table, columns) if isinstance(columns, str) else _wide(table, columns)
    there = np.any(np.isfinite(values[..., :-1]).all(axis=-1), axis=-1).tolist()
    return [[body for body, seen in zip(*pair) if seen] for pair in zip(values, there)]


def _wide(table: Table, columns: Columns) -> Floats:
    """`(rows, 1 person, 33, 3 or 4)`."""
    axes = ["x", "y", "z"] if all((joint, "z") in columns for joint in range(33)) else ["x", "y"]
    values = np.full((len(table), 1, 33, len(axes) + 1), 1.0)
    for (joint, axis), column in columns.items():
        if axis in (*axes, "score"):
            values[:, 0, joint, (*axes, "score").index(axis)] = table.numbers(column)
    return values


def _long(table: Table, column: str) -> Floats:
    """`(frames, persons, 33, 3 or 4)` of a table with a row a landmark."""
    if "frame" not in table.columns:
        raise problem(table.path, "line 1", "there is no column 'frame'", "add one, or one row per frame")
    index = _indices(sorted(set(table.columns[column])))
    for row, name in enumerate(table.columns[column]):
        if name not in index:
            fault = f"{shown(name)} is not a landmark of MediaPipe Pose"
            raise problem(table.path, table.where(row, column), fault, "use its names or 0 to 32")
    joints = np.array([index[name] for name in table.columns[column]])
    world = {"world_x", "world_y", "world_z"} <= set(table.columns)
    names = ["world_x", "world_y", "world_z"] if world else ["x", "y", "z"] if "z" in table.columns else ["x", "y"]
    score = next((name for name in _SCORES if name in table.columns), None)
    time, length = places_in_time(table.whole_numbers("frame"))
    cells = table.columns.get("person", ("",) * len(table))
    people = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
    if len(people) > 20:
        raise problem(table.path, "column 'person'", f"there are {len(people)} persons", "number the persons of a clip")
    person = np.array([people[cell] for cell in cells])
    values = np.full((length, len(people), 33, len(names) + 1), np.nan)
    for place, name in enumerate(names):
        values[time, person, joints, place] = table.numbers(name)
    values[time, person, joints, -1] = table.numbers(score) if score else 1.0
    return values
