"""DeepLabCut: CSV files with three or four header lines, or the HDF5 tables that pandas writes; 2D or 3D, many individuals."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from halp.clips.readers import register_reader
from halp.clips.readers.pose_files import MOST_PERSONS, PeopleFileReader, Poses
from halp.clips.sandbox import Content, load_pickle, object_names, read_hdf5
from halp.clips.source_files import find_files, head, read_text
from halp.clips.text_files import LARGEST, Floats, as_floats, number, problem, shown

_HEADERS = ("scorer", "individuals", "bodyparts", "coords")
_FIRST = re.compile(rb"\s*\"?(scorer|individuals|bodyparts)\"?\s*,", re.IGNORECASE)
_AXES = ("x", "y", "z")
_SCORES = ("likelihood", "score", "confidence")

#: Individual (empty where there is one), body part and coordinate of every column.
Columns = list[tuple[str, str, str]]


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
        columns, values = _from_csv(path) if path.suffix.lower() == ".csv" else _from_hdf5(path)
        return _poses(columns, values, path)


def _from_csv(path: Path) -> tuple[Columns, Floats]:
    """The header of every column, and the numbers `(T, columns)`."""
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
    header = dict(zip(names, (row[first:] for row in top)))
    people = header.get("individuals", [""] * (width - first))
    return list(zip(people, header["bodyparts"], header["coords"])), values


def _from_hdf5(path: Path) -> tuple[Columns, Floats]:
    """The same from a table that pandas wrote, in its `table` or its `fixed` layout."""
    content = read_hdf5(path, ("*/table", "*/block0_values", "*/block0_items_l*"))
    name = next((name for name in content.numbers if name.endswith(("/table/values_block_0", "/block0_values"))), None)
    if name is None:
        fault = "it holds no table that pandas wrote"
        raise problem(path, "", fault, "check that DeepLabCut wrote this file, or use its .csv file")
    group, _, kind = name.rpartition("/")
    headers = _pickled(content, group, path) if kind == "values_block_0" else _levels(content, group)
    sound = isinstance(headers, list) and headers and all(isinstance(header, tuple) for header in headers)
    if not sound or len({len(header) for header in headers}) != 1 or len(headers[0]) not in (3, 4):
        raise problem(path, "", "the names of its columns are damaged", "use the .csv file beside it")
    values = content.numbers[name]
    if values.ndim != 2 or values.shape[1] != len(headers) or not len(values):
        fault = f"its table of shape {values.shape} does not fit {len(headers)} columns"
        raise problem(path, "", fault, "write it again")
    people = [str(header[-3]) if len(header) == 4 else "" for header in headers]
    return [(person, str(header[-2]), str(header[-1])) for person, header in zip(people, headers)], as_floats(values)


def _pickled(content: Content, group: str, path: Path) -> Any:
    """Column headers that pandas keeps as a pickled list of tuples; the loader knows plain data only."""
    text = content.attributes.get(group, {}).get("values_block_0_kind")
    return load_pickle(path, text.encode("latin-1")) if text else None


def _levels(content: Content, group: str) -> list[tuple[str, ...]]:
    """Column headers of pandas' fixed layout: names of each level, and which of them a column has; empty where damaged."""
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


def _poses(columns: Columns, values: Floats, path: Path) -> Poses:
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
        raise problem(path, "", f"{shown(twice)} comes twice", "keep one column for each joint and axis")
    frames = np.full((len(values), len(people), len(joints), len(axes)), np.nan)
    scores = np.full(frames.shape[:3], np.nan)
    for place, (person, joint, name) in enumerate(columns):
        if person not in people:
            continue
        at, axis = (people.index(person), joints.index(joint)), name.lower()
        if axis in axes:
            frames[:, at[0], at[1], axes.index(axis)] = values[:, place]
        elif axis in _SCORES:
            scores[:, at[0], at[1]] = values[:, place]
    if not (np.abs(frames[~np.isnan(frames)]) <= LARGEST).all():
        raise problem(path, "", "a coordinate is not a place", "correct it or leave this file out")
    return Poses(joints, frames, scores if np.isfinite(scores).any() else None)


register_reader(DeepLabCutReader("deeplabcut", "DeepLabCut tracking results: .csv or .h5 (also of Lightning Pose)"))
