"""What is in a store: counts by class, subject, camera and split, lengths, missing joints, and what should be mended."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from halp.clips.findings import Finding, find_problems
from halp.clips.splits import split_sizes
from halp.clips.store import Store, open_store

_BLOCK = 20_000
_LONGEST_TABLE = 20
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Inspection:
    """Counts of a store. Shares are between 0 and 1; `splits` holds None for the parts where a rule finds no clip.

    `columns` counts the values of every column that is known for some clip, under `unknown` the clips without a value.
    `findings` names what is wrong with the poses and which step mends it.
    """

    path: str
    clips: int
    frames: int
    topology: str
    joints: int
    dimensions: int
    persons: int
    normalisation: list[str]
    hash: str
    lengths: dict[str, float]
    classes: dict[str, int]
    columns: dict[str, dict[int | str, int]]
    splits: dict[str, dict[str, Any]]
    missing_joints: dict[str, float]
    empty_frames: int
    clips_with_persons: dict[int, int]
    dropped: int
    dropped_reasons: dict[str, int]
    repaired: int
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        """Plain data for machines."""
        return asdict(self)

    def table(self) -> RenderableType:
        """Rich tables for people."""
        head = Table("store", self.path, title_justify="left")
        lengths = ", ".join(f"{name} {value:g}" for name, value in self.lengths.items())
        for name, value in {
            "clips": f"{self.clips} ({self.frames} frames)",
            "lengths": lengths,
            "topology": f"{self.topology}: {self.joints} joints, {self.dimensions}D, up to {self.persons} persons",
            "persons": ", ".join(f"{clips} clips with {count}" for count, clips in self.clips_with_persons.items()),
            "normalisation": ", ".join(self.normalisation) or "none",
            "empty frames": str(self.empty_frames),
            "missing joints": _few({k: f"{v:.2%}" for k, v in self.missing_joints.items() if v}) or "none",
            "dropped": f"{self.dropped} {_few(self.dropped_reasons)}".strip(),
            "repaired": str(self.repaired),
            "fingerprint": self.hash[:16],
        }.items():
            head.add_row(name, value)
        parts: list[RenderableType] = [head]
        if self.splits:
            splits = Table("split", "train", "test", "fingerprint")
            for name, sizes in self.splits.items():
                splits.add_row(
                    name, *("–" if sizes[key] is None else str(sizes[key]) for key in ("train", "test", "hash"))
                )
            parts.append(splits)
        if self.findings:
            wrong = Table("what to look at", "remedy")
            for finding in self.findings:
                wrong.add_row(escape(finding.problem), escape(finding.remedy))
            parts.append(wrong)
        counts = Table("column", "values", "clips of each")
        counts.add_row("class", str(len(self.classes.keys() - {UNKNOWN})), escape(_few(self.classes)))
        for name, values in self.columns.items():
            counts.add_row(escape(name), str(len(values.keys() - {UNKNOWN})), escape(_few(values)))
        return Group(*parts, counts)


def _few(counts: Mapping[Any, Any]) -> str:
    """The first entries of a count table on one line."""
    shown = ", ".join(f"{name}: {count}" for name, count in list(counts.items())[:_LONGEST_TABLE])
    return shown + (f", … ({len(counts)} in all)" if len(counts) > _LONGEST_TABLE else "")


def inspect(store: Store | str | os.PathLike[str]) -> Inspection:
    """Count what is in a store; frames are read block by block, so that memory stays small."""
    opened = store if isinstance(store, Store) else open_store(store)
    missing, empty, persons = _scan(opened)
    manifest = opened.manifest()
    dropped = manifest.get("dropped", [])
    names = opened.class_names
    return Inspection(
        path=str(opened.path),
        clips=len(opened),
        frames=len(opened.frames),
        topology=opened.topology.name,
        joints=len(opened.topology),
        dimensions=opened.topology.dimensions,
        persons=opened.persons,
        normalisation=opened.normalisation,
        hash=opened.hash,
        lengths={
            "shortest": float(opened.lengths.min()),
            "median": float(np.median(opened.lengths)),
            "mean": round(float(opened.lengths.mean()), 2),
            "longest": float(opened.lengths.max()),
        },
        classes={
            UNKNOWN if label < 0 else names[label] if label < len(names) else str(label): count
            for label, count in _counts(opened.labels).items()
        },
        columns=_columns(opened),
        splits=_split_sizes(opened),
        missing_joints=missing,
        empty_frames=empty,
        clips_with_persons=persons,
        dropped=len(dropped),
        dropped_reasons=_reasons(dropped),
        repaired=len(manifest.get("repaired", [])),
        findings=find_problems(opened, missing, empty),
    )


def _counts(values: Any) -> dict[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return {int(value): int(count) for value, count in zip(found, counts)}


def _columns(store: Store) -> dict[str, dict[int | str, int]]:
    """Counts of all columns that tell clips apart; columns that are unknown throughout, and times, are left out."""
    found: dict[str, dict[int | str, int]] = {}
    for name, values in store.columns.items():
        if name in ("name", "length", "label", "start", "end", "recording") or len(values) != len(store):
            continue
        known, counts = np.unique(values, return_counts=True)
        table = {UNKNOWN if one in (-1, "") else one: int(count) for one, count in zip(known.tolist(), counts)}
        if set(table) != {UNKNOWN}:
            found[name] = dict(sorted(table.items(), key=lambda pair: pair[0] == UNKNOWN))
    return found


def _reasons(dropped: list[dict[str, Any]]) -> dict[str, int]:
    """How often each reason occurs; what differs from clip to clip, the file and the line, is left out."""
    reasons: dict[str, int] = {}
    for one in dropped:
        reason = re.sub(r"^'[^']*'(, [^:]*)?: ", "", str(one.get("reason", "")).partition("; ")[0])
        reasons[reason] = reasons.get(reason, 0) + 1
    return dict(sorted(reasons.items(), key=lambda pair: -pair[1]))


def _split_sizes(store: Store) -> dict[str, dict[str, Any]]:
    sizes = split_sizes(store.splits.values(), store.columns)
    return {
        name: {**(sizes[name] or {"train": None, "test": None}), "hash": rule.hash}
        for name, rule in store.splits.items()
    }


def _scan(store: Store) -> tuple[dict[str, float], int, dict[int, int]]:
    """Share of missing (zero) joints among persons who are there, empty frames, clips by number of persons."""
    absent = np.zeros(len(store.topology), dtype=np.int64)
    origin = np.zeros_like(absent)
    bodies, firsts, empty = 0, 0, 0
    there = np.zeros((len(store.frames), store.persons), dtype=bool)
    for start in range(0, len(store.frames), _BLOCK):
        seen = (store.frames[start : start + _BLOCK] != 0).any(axis=3)
        person = seen.any(axis=2)
        there[start : start + _BLOCK] = person
        absent += (~seen & person[..., None]).sum(axis=(0, 1))
        origin += (~seen & person[..., None])[:, 0].sum(axis=0)
        firsts += int(person[:, 0].sum())
        bodies += int(person.sum())
        empty += int((~person.any(axis=1)).sum())
    # A clip that is centred has a joint at the origin: there, not missing. Arrays may have been centred before they came.
    centre = store.topology.centre
    if centre and ("centre" in store.normalisation or origin[store.topology.index(centre)] == firsts):
        absent[store.topology.index(centre)] -= origin[store.topology.index(centre)]
    shares = {joint: float(count / max(bodies, 1)) for joint, count in zip(store.topology.joints, absent)}
    persons = np.add.reduceat(there, store.offsets[:-1], axis=0).astype(bool).sum(axis=1)
    return shares, empty, _counts(persons)
