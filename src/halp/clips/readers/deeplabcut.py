"""DeepLabCut: CSV files with three or four header lines, or the HDF5 tables that pandas writes; 2D or 3D, many individuals."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from halp.clips.readers import register_reader
from halp.clips.readers.pose_files import MOST_PERSONS, PeopleFileReader, Poses
from halp.clips.sandbox import Content, load_pickle, object_names, read_hdf5
from halp.clips.source_files import find_files, head, read_text
from halp.clips.text_files import LARGEST, Floats, as_floats, number, problem, shown

_HEADERS = ("scorer", "individuals", "bodyparts", "coords")
_FIRST = re.compile(rb"\s*\"?(scorer|individuals|bodyparts)\"?\s*,", re.IGNORECASE)
_AXES = ("x", "y", "z")
_SCORES = ("likelihood", "score", "confidence")

Columns = Sequence[tuple[str, ...]]


class DeepLabCutReader(PeopleFileReader):
    """One file per video; joints with a likelihood below `min_score` are missing, at most `persons` individuals are kept.

    Where a video has an `.h5` and a `.csv` file, which hold the same, the CSV file is read.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".h5")

    def looks_right(self, path: Path) -> bool:
        if path.suffix.lower() == ".csv":
            lines = head(path, 65536).removeprefix(b"\xef\xbb\xbf").split(b"\n")[:4]
            return _FIRST.match(lines[0]) is not None and any(line.lower().startswith(b"coords") for line in lines)
        return any(name.endswith(("/table", "/block0_values")) for name in object_names(path))

    def files(self, path: Path) -> list[Path]:
        results = find_files(path, *self.suffixes)
        tables = {file.with_suffix("") for file in results if file.suffix.lower() == ".csv"}
        return [file for file in results if file.suffix.lower() == ".csv" or file.with_suffix("") not in tables]

    def load(self, path: Path) -> Poses:
        if path.suffix.lower() == ".csv":
            names, columns, values = _from_csv(path)
        else:
            names, columns, values = _from_hdf5(path)
        return _poses(names, columns, values, path)


def _from_csv(path: Path) -> tuple[list[str], Columns, Floats]:
    """Names of the header lines, the header of every column, and the numbers `(T, columns)`."""
    reader = csv.reader(read_text(path).split("\n"), strict=True)
    try:
        rows = [
            (reader.line_num, [cell.strip() for cell in row]) for row in reader if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise problem(path, f"line {reader.line_num}", f"not CSV ({error})") from None
    top = [row for _, row in rows[:4] if row[0].lower() in _HEADERS]
    names = [row[0].lower() for row in top]
    if "bodyparts" not in names or "coords" not in names or len(set(names)) != len(names):
        fault = "its first lines are not scorer, bodyparts and coords"
        raise problem(path, "line 1", fault, "check that DeepLabCut wrote this file")
    body = rows[len(top) :]
    if not body:
        raise problem(path, "", "there is no frame below the header")
    # Labelled frames have two or three columns of file names before the coordinates; tracking results have the frame number.
    first = next((place for place, cell in enumerate(top[-1]) if place and cell), 1)
    width = len(top[0])
    values = np.full((len(body), width - first), np.nan)
    for at, (line, row) in enumerate(body):
        if len(row) != width:
            raise problem(path, f"line {line}", f"{len(row)} cells instead of {width}")
        for place, cell in enumerate(row[first:]):
            if cell and cell.lower() != "nan":
                values[at, place] = number(cell, path, f"line {line}, column {place + first + 1}")
    if any(len(row) != width for row in top):
        raise problem(path, "line 1", "the header lines differ in length")
    return names, list(zip(*(row[first:] for row in top))), values


def _from_hdf5(path: Path) -> tuple[list[str], Columns, Floats]:
    """The same from a table that pandas wrote, in its `table` or its `fixed` layout."""
    patterns = ("*/table", "*/block0_values", "*/block0_items_l*", "*/axis0_l*")
    content = read_hdf5(path, patterns)
    values = next((name for name in content.numbers if name.endswith("/table/values_block_0")), None)
    if values is not None:
        group = values.removesuffix("/values_block_0")
        columns = _pickled(content.attributes.get(group, {}).get("values_block_0_kind"), path)
        return _header_names(len(columns[0])), columns, _two_axes(content.numbers[values], len(columns), path)
    values = next((name for name in content.numbers if name.endswith("/block0_values")), None)
    if values is None:
        fault = "it holds no table that pandas wrote"
        raise problem(path, "", fault, "check that DeepLabCut wrote this file, or use its .csv file")
    columns = _levels(content, values.removesuffix("block0_values"), path)
    return _header_names(len(columns[0])), columns, _two_axes(content.numbers[values], len(columns), path)


def _header_names(levels: int) -> list[str]:
    return ["scorer", "individuals", "bodyparts", "coords"] if levels == 4 else ["scorer", "bodyparts", "coords"]


def _two_axes(values: npt.NDArray[Any], columns: int, path: Path) -> Floats:
    if values.ndim != 2 or values.shape[1] != columns or not len(values):
        raise problem(path, "", f"its table of shape {values.shape} does not fit {columns} columns", "write it again")
    return as_floats(values)


def _pickled(text: str | None, path: Path) -> Columns:
    """Column headers that pandas keeps as a pickled list of tuples; the loader knows plain data only."""
    headers = load_pickle(path, text.encode("latin-1")) if text else None
    columns = (
        [tuple(map(str, column)) for column in headers if isinstance(column, tuple)]
        if isinstance(headers, list)
        else []
    )
    if not columns or len(columns) != len(headers or ()) or len({len(column) for column in columns} & {3, 4}) != 1:
        raise problem(
            path, "", "the names of its columns are damaged", "use the .csv file that DeepLabCut writes beside it"
        )
    if len({len(column) for column in columns}) != 1:
        raise problem(path, "", "the names of its columns differ in depth", "use the .csv file beside it")
    return columns


def _levels(content: Content, group: str, path: Path) -> Columns:
    """Column headers of pandas' fixed layout: names of each level, and which of them a column has."""
    parts = []
    for level in range(4):
        names = content.texts.get(f"{group}block0_items_level{level}")
        codes = content.numbers.get(f"{group}block0_items_label{level}")
        if names is None or codes is None:
            break
        if codes.ndim != 1 or codes.dtype.kind not in "iu" or not ((codes >= 0) & (codes < len(names))).all():
            raise problem(path, "", "the names of its columns are damaged", "use the .csv file beside it")
        parts.append([names[code] for code in codes.tolist()])
    if len(parts) not in (3, 4) or len({len(part) for part in parts}) != 1 or not parts[0]:
        raise problem(path, "", "the names of its columns are damaged", "use the .csv file beside it")
    return list(zip(*parts))


def _poses(names: Sequence[str], columns: Columns, values: Floats, path: Path) -> Poses:
    """Columns sorted by individual, joint and axis."""
    joint_at, axis_at = names.index("bodyparts"), names.index("coords")
    person_at = names.index("individuals") if "individuals" in names else None
    joints = list(dict.fromkeys(column[joint_at] for column in columns))
    people = list(dict.fromkeys(column[person_at] for column in columns)) if person_at is not None else [""]
    # Parts of the arena that multi-animal projects label once ("single") are not a body.
    if len(people) > 1 and "single" in people:
        people.remove("single")
        animal_joints = {
            column[joint_at] for column in columns if person_at is not None and column[person_at] != "single"
        }
        joints = [joint for joint in joints if joint in animal_joints]
    axes = [axis for axis in _AXES if any(column[axis_at].lower() == axis for column in columns)]
    if axes not in (["x", "y"], ["x", "y", "z"]) or len(people) > MOST_PERSONS:
        fault = f"its coordinates are {', '.join(axes) or 'missing'}, of {len(people)} individuals"
        raise problem(path, "line of 'coords'", fault, "expected x, y and likelihood, or x, y, z")
    frames = np.full((len(values), len(people), len(joints), len(axes)), np.nan)
    scores = np.full(frames.shape[:3], np.nan)
    seen: set[tuple[str, ...]] = set()
    for place, column in enumerate(columns):
        key = tuple(column[at] for at in (joint_at, axis_at)) + ((column[person_at],) if person_at is not None else ())
        if key in seen:
            raise problem(path, "", f"{shown(' '.join(key))} comes twice", "keep one column for each joint and axis")
        seen.add(key)
        person = people.index(column[person_at]) if person_at is not None and column[person_at] in people else 0
        axis = column[axis_at].lower()
        if column[joint_at] not in joints or (person_at is not None and column[person_at] not in people):
            continue
        if axis in axes:
            frames[:, person, joints.index(column[joint_at]), axes.index(axis)] = values[:, place]
        elif axis in _SCORES:
            scores[:, person, joints.index(column[joint_at])] = values[:, place]
    if not (np.abs(frames[np.isfinite(frames)]) <= LARGEST).all() or np.isinf(frames).any():
        raise problem(path, "", "a coordinate is not a place", "correct it or leave this file out")
    has_scores = bool(np.isfinite(scores).any())
    return Poses(joints, frames, scores if has_scores else None)


register_reader(DeepLabCutReader("deeplabcut", "DeepLabCut tracking results: .csv or .h5 (also of Lightning Pose)"))
