"""SLEAP: the analysis files that it exports, `.h5` (`tracks`, `node_names`) or `.csv` (`track, frame_idx, nose.x, …`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.clips.readers import register_reader
from halp.clips.readers.pose_files import MOST_PERSONS, PeopleFileReader, Poses
from halp.clips.sandbox import column, object_names, read_hdf5
from halp.clips.text_files import MOST_CELLS, Table, as_floats, header_cells, problem, read_table, shown

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
        return _from_table(read_table(path)) if path.suffix.lower() == ".csv" else _from_hdf5(path)


def _from_hdf5(path: Path) -> Poses:
    content = read_hdf5(path, ("tracks", "node_names", "point_scores", "edge_inds"))
    joints = content.texts.get("node_names")
    if not joints:
        raise problem(path, "", "it has no 'node_names'", "export it from SLEAP as an analysis file")
    tracks = column(content, "tracks", path, axes=4)
    # (tracks, coordinates, nodes, frames), or the other way round where it was not written for MATLAB.
    if tracks.shape[1:3] == (len(joints), 2):
        tracks = tracks.transpose(3, 2, 1, 0)
    persons, axes, nodes, _ = tracks.shape
    if axes != 2 or nodes != len(joints) or persons > MOST_PERSONS:
        fault = f"its shape {tracks.shape} does not fit {len(joints)} nodes"
        raise problem(path, "array 'tracks'", fault, "export it from SLEAP as an analysis file")
    scores = content.numbers.get("point_scores")
    if scores is not None:
        scores = as_floats(scores).transpose(2, 0, 1) if scores.shape == (persons, nodes, tracks.shape[3]) else None
    edges = content.numbers.get("edge_inds")
    bones = edges is not None and edges.ndim == 2 and edges.shape[1] == 2 and edges.dtype.kind in "iu"
    return Poses(
        joints, tracks.transpose(3, 0, 2, 1), scores, bones=edges.tolist() if bones and edges is not None else ()
    )


def _from_table(table: Table) -> Poses:
    """A row per instance and frame; the words of a track are its name, or empty without tracking."""
    cells = {name: match for name in table.columns if (match := _CELL.fullmatch(name))}
    joints = list(dict.fromkeys(match["joint"] for match in cells.values() if match["joint"] != "instance"))
    path = table.path
    if "frame_idx" not in table.columns or not joints:
        raise problem(path, "line 1", "there is no frame_idx or no joint", "export it from SLEAP as an analysis CSV")
    for joint in joints:
        if f"{joint}.x" not in cells or f"{joint}.y" not in cells:
            raise problem(path, "line 1", f"joint {shown(joint)} has no x or no y", "export all coordinates")
    numbers = table.whole_numbers("frame_idx")
    first, last = int(numbers.min()), int(numbers.max())
    names = table.columns.get("track", ("",) * len(table))
    # Without tracking the instances of a frame take the places one after the other.
    people: dict[str, int] = {}
    persons = []
    taken: set[tuple[int, int]] = set()
    for row, (name, frame) in enumerate(zip(names, numbers.tolist())):
        place = people.setdefault(name, len(people)) if name else 0
        while not name and (frame, place) in taken:
            place += 1
        if (frame, place) in taken or place >= MOST_PERSONS:
            fault = f"track {shown(name)} comes twice in frame {frame}" if name else "a frame has too many instances"
            raise problem(path, f"line {table.lines[row]}", fault, "keep one row for each track and frame")
        taken.add((frame, place))
        persons.append(place)
    shape = (last - first + 1, max(persons) + 1, len(joints))
    if np.prod(shape, dtype=float) > MOST_CELLS or last - first >= 1000 * len(table):
        raise problem(path, "column 'frame_idx'", f"frames go from {first} to {last}", "correct the frame numbers")
    frames, scores = np.full((*shape, 2), np.nan), np.full(shape, np.nan)
    time, person = numbers - first, np.array(persons)
    for at, joint in enumerate(joints):
        for axis, name in enumerate((f"{joint}.x", f"{joint}.y")):
            frames[time, person, at, axis] = table.numbers(name)
        if f"{joint}.score" in cells:
            scores[time, person, at] = table.numbers(f"{joint}.score")
    spelled = [table.spelling[f"{joint}.x"].removesuffix(".x") for joint in joints]
    return Poses(spelled, frames, scores if np.isfinite(scores).any() else None)


register_reader(SleapReader("sleap", "SLEAP analysis files: .h5 or .csv"))
