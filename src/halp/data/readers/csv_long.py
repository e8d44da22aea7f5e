"""Long-form CSV: one row per joint with clip, frame, person, joint, x, y, and optionally z, score, label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.config import limited
from halp.core.errors import InputError
from halp.data.clip import Clip, Dropped
from halp.data.readers import Info, Item, register_reader
from halp.data.readers.shared import find_layout
from halp.data.source_files import any_file, find_files, remembered
from halp.data.text_files import (
    MOST_CELLS,
    are_whole,
    check_unique_names,
    drop_if_empty,
    mask_low_scores,
    places_in_time,
    problem,
    safe_name,
    shown,
)
from halp.data.text_tables import Table, header_cells, read_table
from halp.skeleton import Topology, get_topology, list_topologies, topology_for

_NEEDED = ("clip", "frame", "joint", "x", "y")
_OPTIONAL = ("person", "label", "subject", "camera")
_MOST = {"joint": 500, "person": 20, "label": 10_000}


@dataclass(frozen=True)
class Plan:
    """What holds for all files of a source; sent with every item so that each can be read on its own."""

    topology: Topology
    joints: tuple[str, ...]
    persons: int
    labels: tuple[str, ...]
    subjects: tuple[str, ...]

    def __str__(self) -> str:
        return self.topology.name


@dataclass
class CsvLongReader:
    """Any skeleton from a table. Joints by name (any spelling) or number; empty cells are missing joints.

    `min_score` makes joints of lower score missing. Labels and subjects may be numbers or names.
    """

    name: str = "csv"
    description: str = (
        "long CSV: a row per joint with clip, frame, person, joint, x, y[, z][, score][, label, subject,"
        " camera]"
    )
    min_score: float = limited(0.0, least=0)

    def sniff(self, path: Path) -> bool:
        return any_file(path, lambda file: set(_NEEDED) <= set(header_cells(file)), ".csv")

    def info(self, path: Path) -> Info:
        plan = _plan(*find_files(path, ".csv"))
        steps = ("drop-empty", "interpolate-gaps", "centre")
        return Info(plan.topology, plan.persons, _class_names(plan.labels), normalisation=steps)

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, ".csv")
        return [Item(file, _plan(*files)) for file in files]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        plan: Plan = item.key if item.key is not None else _plan(*find_files(item.path, ".csv"))
        table = _table(item.path)
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(table.columns["clip"]):
            rows.setdefault(name, []).append(row)
        check_unique_names((safe_name(name, item.path, "column 'clip'") for name in rows), item.path)
        index = {joint: place for place, joint in enumerate(plan.joints)}
        unknown = next((row for row, joint in enumerate(table.columns["joint"]) if joint not in index), None)
        if unknown is not None:
            fault = f"joint {shown(table.columns['joint'][unknown])} occurs in no other file"
            raise problem(item.path, table.where(unknown, "joint"), fault, "use the same joints in all files")
        axes = ("x", "y", "z")[: plan.topology.dimensions]
        zeros, ones = np.zeros(len(table)), np.ones(len(table))
        cells = {
            "number": table.whole_numbers("frame"),
            "joint": np.array([index[joint] for joint in table.columns["joint"]]),
            "value": np.stack(
                [table.numbers(axis) if axis in table.columns else zeros for axis in axes], axis=1
            ),
            "score": table.numbers("score") if "score" in table.columns else ones,
        }
        return [
            self._clip(table, plan, name.strip(), here, {key: column[here] for key, column in cells.items()})
            for name, here in rows.items()
        ]

    def _clip(
        self, table: Table, plan: Plan, name: str, rows: list[int], cells: dict[str, npt.NDArray[Any]]
    ) -> Clip | Dropped:
        time, length = places_in_time(cells["number"])
        names = [table.columns["person"][row] for row in rows]
        people = {cell: index for index, cell in enumerate(dict.fromkeys(names))}
        shape = (length, len(people), len(plan.topology))
        if len(people) > plan.persons or np.prod(shape, dtype=float) > MOST_CELLS:
            fault = f"clip '{name}' has {len(people)} persons in {length} frames"
            raise problem(
                table.path, "column 'person'", fault, "number the persons of a clip, not of a frame"
            )
        places = (time, np.array([people[cell] for cell in names]), cells["joint"])
        known, first = np.unique(np.ravel_multi_index(places, shape), return_index=True)
        if len(known) != len(rows):
            twice = int(np.setdiff1d(np.arange(len(rows)), first)[0])
            fault = f"clip '{name}' has this joint of this person twice in frame {cells['number'][twice]}"
            raise problem(table.path, f"line {table.lines[rows[twice]]}", fault, "remove one of the two rows")
        frames = np.zeros((*shape, plan.topology.dimensions), dtype=np.float32)
        scores = np.zeros(shape)
        frames[places] = np.where(np.isfinite(cells["value"]).all(axis=1, keepdims=True), cells["value"], 0)
        scores[places] = np.nan_to_num(cells["score"], nan=0.0)
        frames, repairs = mask_low_scores(frames, scores, self.min_score)
        label, subject, camera = (
            _one(table, column, rows, name) for column in ("label", "subject", "camera")
        )
        clip = Clip(
            frames, name, _number(label, plan.labels), _number(subject, plan.subjects), repairs=repairs
        )
        clip.camera = int(camera) if camera.lstrip("-").isdecimal() and len(camera) < 10 else -1
        return drop_if_empty(clip)


def _one(table: Table, column: str, rows: Sequence[int], name: str) -> str:
    """The one value a whole clip has in a column."""
    values = dict.fromkeys(table.columns[column][row] for row in rows)
    if len(values) > 1:
        fault = f"clip '{name}' has several values: {', '.join(map(shown, list(values)[:3]))}"
        raise problem(table.path, f"column '{column}'", fault, "give all rows of a clip the same")
    return next(iter(values))


def _class_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels themselves, or the numbers from 0 to the highest where they are numbers."""
    return (
        tuple(map(str, range(max(map(int, labels), default=-1) + 1))) if are_whole(labels) else tuple(labels)
    )


def _number(value: str, values: Sequence[str]) -> int:
    if not value:
        return -1
    return int(value) if are_whole(values) else values.index(value)


def _table(path: Path) -> Table:
    """The table with empty cells in the columns that it may have and does not."""
    table = read_table(path)
    missing = [column for column in _NEEDED if column not in table.columns]
    if missing:
        fault = f"there is no column {', '.join(missing)}"
        raise problem(
            path, "line 1", fault, "the header needs clip, frame, person, joint, x, y[, z][, score]"
        )
    return replace(table, columns={**dict.fromkeys(_OPTIONAL, ("",) * len(table)), **table.columns})


def _tables(files: Sequence[Path]) -> Iterator[tuple[Path, Table]]:
    """The readable files; the error of the first one if none can be read."""
    errors = []
    for path in files:
        try:
            yield path, _table(path)
        except InputError as error:  # told when the file itself is read
            errors.append(error)
    if errors and len(errors) == len(files):
        raise errors[0]


@remembered(2)
def _plan(*files: Path) -> Plan:
    """Joints, persons, labels and subjects over all files that can be read."""
    joints: dict[str, None] = {}
    labels: set[str] = set()
    subjects: set[str] = set()
    clips: dict[tuple[Path, str], set[str]] = {}
    flat = True
    for path, table in _tables(files):
        joints.update(dict.fromkeys(table.columns["joint"]))
        labels.update(table.columns["label"])
        subjects.update(table.columns["subject"])
        flat = flat and not any(table.columns.get("z", ()))
        for name, person in zip(table.columns["clip"], table.columns["person"]):
            clips.setdefault((path, name), set()).add(person)
        persons = max(map(len, clips.values()))
        counts = {"joint": len(joints), "person": persons, "label": len(labels - {""})}
        for column, count in counts.items():
            if count > _MOST[column]:
                fault = f"{count} different values"
                raise problem(path, f"column '{column}'", fault, f"at most {_MOST[column]} are possible")
        if not all(joint and joint.isprintable() for joint in joints):
            raise problem(path, "column 'joint'", "a joint has no usable name", "name or number every joint")
    check_unique_names((name for _, name in clips), files[0].parent if len(files) > 1 else files[0])
    labels.discard("")
    subjects.discard("")
    if are_whole(labels) and max(map(int, labels), default=0) > _MOST["label"]:
        raise problem(
            files[0], "column 'label'", f"class {max(labels, key=int)}", "number the classes from 0"
        )
    topology, order = _topology(list(joints), 2 if flat else 3)
    return Plan(topology, tuple(order), persons, tuple(sorted(labels)), tuple(sorted(subjects)))


def _topology(joints: list[str], dimensions: int) -> tuple[Topology, list[str]]:
    """The topology and its names as in the file: a known one by names or number of joints, else a new one."""
    if {*joints} == {str(number) for number in range(len(joints))}:
        known = [
            topology for topology in map(get_topology, list_topologies()) if topology.dimensions == dimensions
        ]
        numbered = [topology for topology in known if len(topology) == len(joints)]
        joints = sorted(joints, key=int)
        names = [f"joint_{number}" for number in joints]
        return (numbered[0] if len(numbered) == 1 else topology_for(names, dimensions)), joints
    topology, order = find_layout(joints, dimensions)
    return topology, [joints[place] for place in order]


register_reader(CsvLongReader())
