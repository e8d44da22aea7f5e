"""Wide CSV: one row per frame, columns such as `Hips_position_x` or `Pelvis x`; what Rokoko, Xsens and many tools export.

A column `class` or `label` cuts a file into clips where its value changes; a column with times gives the frame rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.mediapipe_csv import landmark_columns
from halp.clips.readers.pose_files import PoseFileReader, Poses
from halp.clips.readers.shared import entries, entry_of, label_column, label_runs, labelled_clips, labels_in
from halp.clips.text_files import Floats, Table, header_cells, problem, read_table

_PLACE = re.compile(
    r"(?P<joint>.+?)[ _.:-]*(?:world[ _]?)?(?:position|pos|translation|location)?[ _.:-]*(?P<axis>[xyz])(?:\s*[\[(].*)?"
)
_SCORE = re.compile(r"(?P<joint>.+?)[ _.:-]+(?:score|conf|confidence|visibility|likelihood|v)")
_NOT_PLACES = re.compile(
    r"rot|quat|orient|angle|veloc|accel|euler|gyro|magn|(?:^|[ _.:-])(?:vel|acc|ang|force|moment)(?:[ _.:-]|$)"
)
_TIMES = {
    **dict.fromkeys(("time", "timestamp", "seconds", "time (s)", "time_s", "t"), 1.0),
    **dict.fromkeys(("time_ms", "ms"), 1e-3),
}
_FEWEST = 3


@dataclass
class CsvWideReader(PoseFileReader):
    """Any skeleton from a table with a row per frame; joints go by the names of the columns. One person per file."""

    min_score: float = 0.0
    scale: float = 1.0
    suffixes: ClassVar[tuple[str, ...]] = (".csv",)

    def looks_right(self, path: Path) -> bool:
        header = header_cells(path)
        others = {"frame_idx", "joint", "landmark", "scorer", "bodyparts"} & set(header)
        return not others and landmark_columns(header) is None and len(_joints(header)) >= _FEWEST

    def info(self, path: Path) -> Info:
        return replace(super().info(path), class_names=labels_in(self.files(path)))

    def items(self, path: Path) -> Iterable[Item]:
        files = self.files(path)
        return entries(files, path, self._first(files)[0], labels_in(files))

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        table = read_table(item.path)
        (whole,) = super().read(item)
        if isinstance(whole, Dropped) or label_column(table.columns) is None:
            return [whole]
        return labelled_clips(whole, label_runs(table), entry_of(item))

    def load(self, path: Path) -> Poses:
        table = read_table(path)
        columns = _joints(list(table.columns))
        axes = ("x", "y", "z") if all("z" in axes for axes in columns.values()) else ("x", "y")
        if len(columns) < _FEWEST:
            fault = f"only {len(columns)} joints have columns for x and y"
            raise problem(table.path, "line 1", fault, "name the columns like left_knee_x, left_knee_y, left_knee_z")
        frames = np.stack([[table.numbers(place[axis]) for axis in axes] for place in columns.values()])
        frames = frames.transpose(2, 0, 1)[:, None] * self.scale
        # Capitals tell the words of a name apart.
        joints = [table.spelling[axes["x"]][: len(joint)] for joint, axes in columns.items()]
        return Poses(joints, frames, _scores(table, list(columns)), _rate(table))


def _joints(header: Sequence[str]) -> dict[str, dict[str, str]]:
    """{joint: {axis: column}} of the joints that have at least x and y."""
    joints: dict[str, dict[str, str]] = {}
    for column in header:
        match = _PLACE.fullmatch(column)
        if match and not _NOT_PLACES.search(column) and match["joint"].strip():
            joints.setdefault(match["joint"].strip(), {}).setdefault(match["axis"], column)
    return {joint: axes for joint, axes in joints.items() if {"x", "y"} <= axes.keys()}


def _scores(table: Table, joints: Sequence[str]) -> Floats | None:
    """Scores `(T, 1, V)` where the table has them; joints without a column count as sure."""
    columns = {match["joint"]: name for name in table.columns if (match := _SCORE.fullmatch(name))}
    if not columns.keys() & set(joints):
        return None
    ones = np.ones(len(table))
    return np.stack([table.numbers(columns[joint]) if joint in columns else ones for joint in joints], axis=1)[:, None]


def _rate(table: Table) -> float:
    """Frames per second from a column with times in seconds or milliseconds; -1 where there is none."""
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
        "csv-wide", "wide CSV: a row per frame, columns like Hips_position_x or left_knee_y (Rokoko, Xsens and others)"
    )
)
