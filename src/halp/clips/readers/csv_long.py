"""Long-form CSV: one row per joint with clip, frame, person, joint, x, y and, where known, z, score, label, subject, camera."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.source_files import find_files, first_file, head
from halp.clips.text_files import (
    MOST_CELLS,
    Table,
    forget_unsure,
    places_in_time,
    problem,
    read_table,
    refuse_twins,
    safe_name,
    shown,
    unless_empty,
)
from halp.errors import InputError
from halp.skeleton import Topology, canonical_joints, get_topology, list_topologies, topology_for

_NEEDED = ("clip", "frame", "joint", "x", "y")
_MOST_PERSONS, _MOST_JOINTS, _MOST_CLASSES = 20, 500, 10_000


@dataclass(frozen=True)
class Plan:
    """What holds for all files of a source; goes along with every item so that each can be read on its own."""

    topology: Topology
    joints: tuple[str, ...]
    persons: int
    labels: tuple[str, ...]
    subjects: tuple[str, ...]

    def __str__(self) -> str:
        return self.topology.name


@dataclass
class CsvLongReader:
    """Any skeleton from a table. Joints go by name (any spelling) or by number; an empty cell is a missing joint.

    `min_score` makes joints of lower score missing. Labels and subjects may be numbers or names.
    """

    name: str = "csv"
    description: str = (
        "long CSV: a row per joint with clip, frame, person, joint, x, y[, z][, score][, label, subject, camera]"
    )
    min_score: float = 0.0

    def sniff(self, path: Path) -> bool:
        file = first_file(path, ".csv")
        if file is None:
            return False
        header = head(file).lstrip(b"\xef\xbb\xbf").split(b"\n")[0].lower().replace(b";", b",").replace(b"\t", b",")
        return set(_NEEDED) <= {cell.strip(b' "\r').decode("latin-1") for cell in header.split(b",")}

    def info(self, path: Path) -> Info:
        plan = _plan(path)
        steps = ("drop-empty", "interpolate-gaps", "centre")
        return Info(plan.topology, plan.persons, _class_names(plan.labels), normalisation=steps)

    def items(self, path: Path) -> Iterable[Item]:
        plan = _plan(path)
        return [Item(file, plan) for file in find_files(path, ".csv")]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        plan: Plan = item.key if item.key is not None else _plan(item.path)
        table = _table(item.path)
        names = table.columns["clip"]
        order: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            order.setdefault(name, []).append(row)
        refuse_twins((safe_name(name, item.path, "column 'clip'") for name in order), item.path)
        joint_index = {joint: index for index, joint in enumerate(plan.joints)}
        unknown = next((row for row, joint in enumerate(table.columns["joint"]) if joint not in joint_index), None)
        if unknown is not None:
            fault = f"joint {shown(table.columns['joint'][unknown])} is in no other file"
            raise problem(item.path, table.where(unknown, "joint"), fault, "use the same joints in all files")
        joints = np.array([joint_index[joint] for joint in table.columns["joint"]])
        axes = ("x", "y", "z")[: plan.topology.dimensions]
        values = np.stack(
            [table.numbers(axis) if axis in table.columns else np.zeros(len(table)) for axis in axes], axis=1
        )
        scores = table.numbers("score") if "score" in table.columns else np.ones(len(table))
        numbers = table.whole_numbers("frame")
        clips: list[Clip | Dropped] = []
        for name, row_list in order.items():
            rows = np.array(row_list)
            clips.append(
                self._clip(table, plan, name.strip(), rows, numbers[rows], joints[rows], values[rows], scores[rows])
            )
        return clips

    def _clip(
        self,
        table: Table,
        plan: Plan,
        name: str,
        rows: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.int64],
        joints: npt.NDArray[np.int64],
        values: npt.NDArray[np.float64],
        scores: npt.NDArray[np.float64],
    ) -> Clip | Dropped:
        time, length = places_in_time(numbers)
        people = {cell: index for index, cell in enumerate(dict.fromkeys(_cells(table, "person", rows)))}
        person = np.array([people[cell] for cell in _cells(table, "person", rows)])
        shape = (length, max(people.values()) + 1, len(plan.topology))
        if len(people) > plan.persons or np.prod(shape, dtype=float) > MOST_CELLS:
            fault = f"clip '{name}' has {len(people)} persons in {length} frames"
            raise problem(table.path, "column 'person'", fault, "number the persons of a clip, not of a frame")
        places = np.ravel_multi_index((time, person, joints), shape)
        if len(np.unique(places)) != len(places):
            twice = int(np.sort(np.argsort(places, kind="stable")[1:][np.diff(np.sort(places)) == 0])[0])
            fault = f"clip '{name}' has this joint of this person twice in frame {numbers[twice]}"
            raise problem(table.path, f"line {table.lines[rows[twice]]}", fault, "remove one of the two rows")
        frames = np.zeros((*shape, plan.topology.dimensions), dtype=np.float32)
        sure = np.zeros(shape)
        seen = np.isfinite(values).all(axis=1)
        frames[time[seen], person[seen], joints[seen]] = values[seen]
        sure[time, person, joints] = np.nan_to_num(scores, nan=0.0)
        frames, repairs = forget_unsure(frames, sure, self.min_score)
        label, subject, camera = (_one(table, column, rows, name) for column in ("label", "subject", "camera"))
        clip = Clip(frames, name, _number(label, plan.labels), _number(subject, plan.subjects), repairs=repairs)
        clip.camera = int(camera) if camera.lstrip("-").isdecimal() and len(camera) < 10 else -1
        return unless_empty(clip)


def _cells(table: Table, column: str, rows: Iterable[int]) -> list[str]:
    cells = table.columns.get(column)
    return ["" if cells is None else cells[row] for row in rows]


def _one(table: Table, column: str, rows: npt.NDArray[np.int64], name: str) -> str:
    """The one value a whole clip has in a column."""
    values = dict.fromkeys(_cells(table, column, rows))
    if len(values) > 1:
        fault = f"clip '{name}' has several values: {', '.join(map(shown, list(values)[:3]))}"
        raise problem(table.path, f"column '{column}'", fault, "give all rows of a clip the same")
    return next(iter(values))


def _are_numbers(values: Sequence[str]) -> bool:
    return all(value.isdecimal() and value.isascii() and len(value) < 10 for value in values)


def _class_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels themselves, or the numbers from 0 to the highest where they are numbers."""
    return tuple(map(str, range(max(map(int, labels), default=-1) + 1))) if _are_numbers(labels) else tuple(labels)


def _number(value: str, values: Sequence[str]) -> int:
    if not value:
        return -1
    return int(value) if _are_numbers(values) else values.index(value)


def _table(path: Path) -> Table:
    table = read_table(path)
    missing = [column for column in _NEEDED if column not in table.columns]
    if missing:
        fault = f"there is no column {', '.join(missing)}"
        raise problem(path, "line 1", fault, "the header needs clip, frame, person, joint, x, y[, z][, score]")
    return table


def _plan(path: Path) -> Plan:
    files = find_files(path, ".csv")
    try:
        stamp = tuple((file, os.stat(file).st_mtime_ns, os.stat(file).st_size) for file in files)
    except OSError as error:
        raise InputError(f"'{error.filename}' cannot be read ({error.strerror}); check its permissions") from error
    return _plan_of(stamp)


@lru_cache(maxsize=2)
def _plan_of(stamp: tuple[tuple[Path, int, int], ...]) -> Plan:
    """Joints, persons, labels and subjects over all files; the stamp makes a changed file be read again."""
    joints: dict[str, None] = {}
    labels: set[str] = set()
    subjects: set[str] = set()
    clips: dict[tuple[Path, str], set[str]] = {}
    flat = True
    for path, _, _ in stamp:
        table = _table(path)
        joints.update(dict.fromkeys(table.columns["joint"]))
        labels.update(table.columns.get("label", ()))
        subjects.update(table.columns.get("subject", ()))
        flat = flat and not any(table.columns.get("z", ()))
        people = table.columns.get("person", ("",) * len(table))
        for name, person in zip(table.columns["clip"], people):
            clips.setdefault((path, name), set()).add(person)
        persons = max(map(len, clips.values()))
        counts = {
            "joint": (len(joints), _MOST_JOINTS),
            "person": (persons, _MOST_PERSONS),
            "label": (len(labels), _MOST_CLASSES),
        }
        for column, (count, most) in counts.items():
            if count > most:
                raise problem(
                    path, f"column '{column}'", f"{count} different values", f"no more than {most} make sense"
                )
        if not all(joint and joint.isprintable() for joint in joints):
            raise problem(path, "column 'joint'", "a joint has no usable name", "name or number every joint")
    refuse_twins((name for _, name in clips), stamp[0][0].parent if len(stamp) > 1 else stamp[0][0])
    labels.discard("")
    subjects.discard("")
    if _are_numbers(list(labels)) and max(map(int, labels), default=0) > _MOST_CLASSES:
        raise problem(stamp[0][0], "column 'label'", f"class {max(labels, key=int)}", "number the classes from 0")
    topology, order = _topology(list(joints), 2 if flat else 3)
    return Plan(topology, tuple(order), persons, tuple(sorted(labels)), tuple(sorted(subjects)))


def _topology(joints: list[str], dimensions: int) -> tuple[Topology, list[str]]:
    """The topology and the file's names in its order: a known one by names or by number of joints, or an ad-hoc one."""
    known = [topology for topology in map(get_topology, list_topologies()) if topology.dimensions == dimensions]
    if {*joints} == {str(number) for number in range(len(joints))}:
        numbered = [topology for topology in known if len(topology) == len(joints)]
        joints = sorted(joints, key=int)
        names = [f"joint_{number}" for number in joints]
        return (numbered[0] if len(numbered) == 1 else topology_for(names, dimensions)), joints
    names = canonical_joints(joints)
    for topology in known:
        if set(topology.joints) == set(names):
            return topology, [joints[names.index(joint)] for joint in topology.joints]
    return topology_for(names, dimensions), joints


register_reader(CsvLongReader())
