"""Tables with a row per frame: any skeleton (`csv-wide`), or MediaPipe's 33 landmarks with classes.

Columns are such as `Hips_position_x` or `Pelvis x`, as Rokoko, Xsens and many tools export, or `left_hip_x`
and `x23`; MediaPipe tables may also have a row per landmark. A column `class` or `label` cuts a file into
clips where its value changes; a column with times gives the frame rate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.core.config import limited
from halp.core.errors import InputError
from halp.data.readers import register_reader
from halp.data.readers.shared import PoseFileReader, Poses
from halp.data.text_files import Floats, places_in_time, problem, shown
from halp.data.text_tables import Table, header_cells, read_table
from halp.skeleton import canonical_joints, get_topology

_COLUMNS = ("class", "label", "action", "activity")
_MOST_CLASSES = 1000
# Where classes change more often than this on average, the rows are not in the order of time.
_SHORTEST = 3


def label_column(columns: Iterable[str]) -> str | None:
    """The column that holds a class, or None."""
    names = set(columns)
    return next((column for column in _COLUMNS if column in names), None)


def labels_in(
    files: Sequence[Path], header: Callable[[Path], tuple[str, ...]] = lambda path: ()
) -> tuple[str, ...]:
    """All classes that the tables name, in order; empty if no table has such a column.

    `header` gives the names of the columns of a table that has none.
    """
    classes: set[str] = set()
    for path in files:
        try:
            table = read_table(path, header(path))
        except InputError:
            continue  # reading it gives the same error, with the name of the clip
        column = label_column(table.columns)
        classes |= set(table.columns[column]) - {""} if column else set()
        if len(classes) > _MOST_CLASSES:
            raise problem(
                path, f"column '{column}'", "it holds more than a thousand different values", "rename it"
            )
    return tuple(sorted(classes))


def label_runs(table: Table) -> list[tuple[str, int, int]]:
    """Class, first row and the row after the last of every run, none if there are no classes.

    Classes that alternate row by row are an error.
    """
    column = label_column(table.columns)
    if column is None:
        return []
    cells = table.columns[column]
    starts = [row for row in range(len(cells)) if not row or cells[row] != cells[row - 1]]
    spans = [(cells[start], start, end) for start, end in zip(starts, [*starts[1:], len(cells)])]
    if len(spans) > 10 and len(cells) < _SHORTEST * len(spans):
        fault = f"the class changes {len(spans) - 1} times in {len(cells)} rows"
        raise problem(
            table.path, f"column '{column}'", fault, "keep the rows of a recording in the order of time"
        )
    return spans


_JOINTS = get_topology("mediapipe-33").joints
_NAMED = re.compile(r"(?P<joint>.+?)[ _.-]?(?P<axis>x|y|z|v|visibility|presence|score)", re.ASCII)
_NUMBERED = re.compile(r"(?P<axis>x|y|z|v|visibility|presence|score)[ _.-]?(?P<joint>\d{1,3})", re.ASCII)
_LANDMARK = ("landmark", "landmark_id", "landmark_index", "landmark_name", "landmark_idx")
_LANDMARK_SCORES = ("visibility", "v", "presence", "score")

Columns = dict[tuple[int, str], str]


def landmark_columns(header: Sequence[str]) -> Columns | str | None:
    """The parsed header: columns by (joint, axis) of a wide table, or the landmark column of a long one."""
    long = next((column for column in _LANDMARK if column in header), None)
    if long is not None and {"x", "y"} <= set(header):
        return long
    columns: dict[bool, dict[tuple[str, str], str]] = {False: {}, True: {}}
    for column in header:
        match = _NUMBERED.fullmatch(column) or _NAMED.fullmatch(column)
        if match:
            joint = re.sub("world|pose|landmark", " ", match["joint"])
            axis = "score" if match["axis"] in _LANDMARK_SCORES else match["axis"]
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
    indices |= {
        name: _JOINTS.index(joint) for name, joint in zip(words, canonical_joints(words)) if joint in _JOINTS
    }
    return indices


def header_for(path: Path, header: bool) -> tuple[str, ...]:
    """Names of the columns of a table without a header: 33 landmarks, perhaps after a number or a class."""
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


def read_landmark_table(
    path: Path, header: bool = True
) -> tuple[list[list[Floats]], list[tuple[str, int, int]]]:
    """Bodies per frame, `(33, 3 or 4)`: coordinates (NaN for empty cells) and score; and runs of classes."""
    table = read_table(path, header_for(path, header))
    columns = landmark_columns(list(table.columns))
    if columns is None:
        remedy = "name them like left_hip_x or x23, or use frame, landmark, x, y, z, visibility"
        raise problem(path, "line 1", "the columns are not those of 33 landmarks", remedy)
    values = (
        _rows_of_landmarks(table, columns) if isinstance(columns, str) else _landmark_rows(table, columns)
    )
    there = np.any(np.isfinite(values[..., :-1]).all(axis=-1), axis=-1).tolist()
    bodies = [[body for body, seen in zip(*pair) if seen] for pair in zip(values, there)]
    return bodies, [] if isinstance(columns, str) else label_runs(table)


def _landmark_rows(table: Table, columns: Columns) -> Floats:
    """`(rows, 1 person, 33, 3 or 4)`."""
    axes = ["x", "y", "z"] if all((joint, "z") in columns for joint in range(33)) else ["x", "y"]
    values = np.full((len(table), 1, 33, len(axes) + 1), 1.0)
    for (joint, axis), column in columns.items():
        if axis in (*axes, "score"):
            values[:, 0, joint, (*axes, "score").index(axis)] = table.numbers(column)
    return values


def _rows_of_landmarks(table: Table, column: str) -> Floats:
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
    names = (
        ["world_x", "world_y", "world_z"]
        if world
        else ["x", "y", "z"]
        if "z" in table.columns
        else ["x", "y"]
    )
    score = next((name for name in _LANDMARK_SCORES if name in table.columns), None)
    time, length = places_in_time(table.whole_numbers("frame"))
    cells = table.columns.get("person", ("",) * len(table))
    people = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
    if len(people) > 20:
        raise problem(
            table.path, "column 'person'", f"there are {len(people)} persons", "number the persons of a clip"
        )
    person = np.array([people[cell] for cell in cells])
    values = np.full((length, len(people), 33, len(names) + 1), np.nan)
    for place, name in enumerate(names):
        values[time, person, joints, place] = table.numbers(name)
    values[time, person, joints, -1] = table.numbers(score) if score else 1.0
    return values


_PLACE = re.compile(
    r"(?P<joint>.+?)[ _.:-]*(?:world[ _]?)?(?:position|pos|translation|location)?["
    r" _.:-]*(?P<axis>[xyz])(?:\s*[\[(].*)?"
)
_SCORE = re.compile(r"(?P<joint>.+?)[ _.:-]+(?:score|conf|confidence|visibility|likelihood|v)")
_NOT_PLACES = re.compile(
    r"rot|quat|orient|angle|veloc|accel|euler|gyro|magn|(?:^|[ _.:-])(?:vel|acc|ang|force|moment)(?:["
    r" _.:-]|$)"
)
_TIMES = {
    **dict.fromkeys(("time", "timestamp", "seconds", "time (s)", "time_s", "t"), 1.0),
    **dict.fromkeys(("time_ms", "ms"), 1e-3),
}
_FEWEST = 3


@dataclass
class CsvWideReader(PoseFileReader):
    """Any skeleton from a table with a row per frame; columns name the joints. One person per file."""

    min_score: float = limited(0.0, least=0)
    scale: float = limited(1.0, above=0)
    suffixes: ClassVar[tuple[str, ...]] = (".csv",)

    def looks_right(self, path: Path) -> bool:
        header = header_cells(path)
        others = {"frame_idx", "joint", "landmark", "scorer", "bodyparts"} & set(header)
        return not others and landmark_columns(header) is None and len(_joints(header)) >= _FEWEST

    def classes(self, files: Sequence[Path]) -> tuple[str, ...]:
        return labels_in(files)

    def load(self, path: Path) -> Poses:
        table = read_table(path)
        columns = _joints(list(table.columns))
        axes = ("x", "y", "z") if all("z" in axes for axes in columns.values()) else ("x", "y")
        if len(columns) < _FEWEST:
            fault = f"only {len(columns)} joints have columns for x and y"
            raise problem(
                table.path, "line 1", fault, "name the columns like left_knee_x, left_knee_y, left_knee_z"
            )
        frames = np.stack([[table.numbers(place[axis]) for axis in axes] for place in columns.values()])
        frames = frames.transpose(2, 0, 1)[:, None] * self.scale
        # Capitals tell the words of a name apart.
        joints = [table.spelling[axes["x"]][: len(joint)] for joint, axes in columns.items()]
        return Poses(joints, frames, _scores(table, list(columns)), _rate(table), runs=label_runs(table))


def _joints(header: Sequence[str]) -> dict[str, dict[str, str]]:
    """{joint: {axis: column}} of the joints that have at least x and y."""
    joints: dict[str, dict[str, str]] = {}
    for column in header:
        match = _PLACE.fullmatch(column)
        if match and not _NOT_PLACES.search(column) and match["joint"].strip():
            joints.setdefault(match["joint"].strip(), {}).setdefault(match["axis"], column)
    return {joint: axes for joint, axes in joints.items() if {"x", "y"} <= axes.keys()}


def _scores(table: Table, joints: Sequence[str]) -> Floats | None:
    """Scores `(T, 1, V)` if the table has them; joints without a column count as sure."""
    columns = {match["joint"]: name for name in table.columns if (match := _SCORE.fullmatch(name))}
    if not columns.keys() & set(joints):
        return None
    ones = np.ones(len(table))
    return np.stack(
        [table.numbers(columns[joint]) if joint in columns else ones for joint in joints], axis=1
    )[:, None]


def _rate(table: Table) -> float:
    """Frames per second from a column with times in seconds or milliseconds; -1 if there is none."""
    name = next((column for column in _TIMES if column in table.columns), None)
    if name is None or len(table) < 3:
        return -1.0
    try:
        times = table.numbers(name) * _TIMES[name]
    except ValueError:  # time stamps such as 12:30:01
        return -1.0
    gaps = np.diff(times[np.isfinite(times)])
    gap = float(np.median(gaps)) if len(gaps) else 0.0
    return round(1 / gap, 3) if 1e-4 < gap < 10 else -1.0


register_reader(
    CsvWideReader(
        "csv-wide",
        "wide CSV: a row per frame, columns like Hips_position_x or left_knee_y (Rokoko, Xsens and others)",
    )
)
