"""The content of a store: counts by class, subject, camera and split, lengths, missing joints, problems."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from halp.core.errors import names_of
from halp.data.choose_splits import split_command
from halp.data.cleaning import (
    exchanged_persons,
    find_spikes,
    handedness,
    seen_joints,
    trunk,
    unit_factor,
    up_axis,
)
from halp.data.clip import Frames
from halp.data.splits import split_sizes
from halp.data.store import Store, open_store

Pairs = Iterator[tuple[str, str]]  # problem and remedy

# How many clips, evenly over the store, are inspected closely.
_LOOKED_AT = 200
_LONG = 1000
_MANY_MISSING = 0.5
# Trunks that differ by more than this are not those of people in the same unit.
_MIXED = 6.0
# Sides are told where they are clear, and worth a word where more than a few clips are wrong.
_SURE, _SOME = 0.1, 0.05
# Second differences against first ones: below 1 for movements, √3 for pure noise.
_JITTER = 1.2


@dataclass(frozen=True)
class Finding:
    """A problem of a store, in words, with a remedy."""

    problem: str
    remedy: str


def find_problems(store: Store, missing: dict[str, float], empty_frames: int) -> list[Finding]:
    """All findings, the most serious first."""
    clips = np.unique(np.linspace(0, len(store) - 1, min(_LOOKED_AT, len(store))).round().astype(int))
    sample = [np.asarray(store.clip(int(clip))) for clip in clips]
    checks = (
        _missing(store, missing, empty_frames),
        _damaged(store, sample),
        _space(store, sample),
        _unknown(store),
    )
    return [Finding(*pair) for pairs in checks for pair in pairs]


def _missing(store: Store, missing: dict[str, float], empty: int) -> Pairs:
    """Joints that are never, seldom or not always seen, and frames with nobody."""
    never = [joint for joint, share in missing.items() if share > 0.999]
    often = [joint for joint, share in missing.items() if _MANY_MISSING < share <= 0.999]
    some = {joint: share for joint, share in missing.items() if 0.001 < share <= _MANY_MISSING}
    if never:
        remedy = "halp prepare … --topology with a layout without it (a name or a TOML file)"
        yield f"{_names(never)} never seen", remedy
    if often:
        problem = f"{_names(often)} missing in more than half of the bodies"
        yield problem, "halp prepare … --topology with a layout without it"
    if some and "interpolate-gaps" not in _done(store):
        worst = max(some, key=some.__getitem__)
        problem = f"{len(some)} joints are missing at times, {worst} in {some[worst]:.1%} of the bodies"
        yield problem, "halp prepare … --normalise … interpolate-gaps=10 (fills gaps up to 10 frames)"
    if empty:
        yield (
            f"nobody is seen in {empty} of {len(store.frames)} frames",
            "halp prepare … --normalise … drop-empty",
        )


def _names(joints: list[str]) -> str:
    return f"{names_of(joints, 3)} {'is' if len(joints) == 1 else 'are'}"


def _done(store: Store) -> set[str]:
    """Normalisation steps without their numbers."""
    return {step.partition("=")[0] for step in store.normalisation}


def _damaged(store: Store, sample: list[Frames]) -> Pairs:
    """Joints that jump or jitter, and persons who swap places."""
    looked = f"of the {len(sample)} clips examined"
    jumps = [int(find_spikes(clip).sum()) for clip in sample]
    if any(jumps):
        problem = (
            f"joints jump away and back in {sum(count > 0 for count in jumps)} {looked} ({sum(jumps)} times)"
        )
        yield problem, "halp prepare … --normalise … remove-outliers interpolate-gaps"
    shaky = sum(_roughness(clip) > _JITTER for clip in sample if len(clip) >= 10)
    if shaky and 2 * shaky >= len(sample) and not _done(store) & {"smooth", "lowpass", "steady"}:
        yield f"jitter from frame to frame in {shaky} {looked}", "halp prepare … --normalise … steady"
    if exchanged := sum(exchanged_persons(clip) > 0 for clip in sample):
        problem = f"persons swap places in {exchanged} {looked}"
        yield problem, "halp prepare … --normalise track-persons … (first of the steps)"


def _roughness(clip: Frames) -> float:
    """Size of second differences relative to first ones, over always visible joints of the first person."""
    steady = seen_joints(clip)[:, 0].all(axis=0)
    if not steady.any():
        return 0.0
    places = clip[:, 0, steady].astype(np.float64)
    first = float(np.linalg.norm(np.diff(places, axis=0), axis=-1).mean())
    second = float(np.linalg.norm(np.diff(places, n=2, axis=0), axis=-1).mean())
    return second / first if first > 0 else 0.0


def _space(store: Store, sample: list[Frames]) -> Pairs:
    """Axis, unit and sides of 3D recordings; stores that were rotated or scaled on purpose are skipped."""
    done, topology, spatial = _done(store), store.topology, store.topology.dimensions == 3
    if spatial and not done & {"rotate-first", "rotate-mean"}:
        ways = [way for clip in sample if (way := up_axis(clip, topology)) is not None]
        if most := _majority(ways, (1, 1.0)):
            problem = f"{'−' if most[1] < 0 else ''}{'xyz'[most[0]]} points up in most clips, not y"
            yield problem, "halp prepare … --normalise upright …"
    if spatial and "scale" not in done:
        units = [unit for clip in sample if (unit := unit_factor(clip, topology)) is not None]
        if most := _majority(units, 1.0):
            name = {0.01: "centimetres", 0.001: "millimetres", 0.0254: "inches"}[most]
            problem = f"coordinates seem to be {name}, not metres"
            yield problem, "halp prepare … --normalise metres …, or scale to body size with scale"
    if spatial and not done & {"scale", "metres"}:
        # bodies of far other sizes than most, as where millimetres and metres are mixed
        lines = [line for clip in sample if (line := trunk(clip, topology)) is not None]
        lengths = np.array([length for line in lines if (length := float(np.linalg.norm(line))) > 1e-6])
        usual = float(np.median(lengths)) if len(lengths) else 1.0
        other = lengths[(lengths > _MIXED * usual) | (lengths * _MIXED < usual)]
        if len(other):
            problem = (
                f"{len(other)} of the {len(lengths)} clips examined have another scale than the rest (a trunk of"
                f" {other[0]:.3g} against {usual:.3g}): units seem to be mixed"
            )
            yield problem, "halp prepare … --normalise metres …, or prepare files of each unit on their own"
    # the left side on the right of where the feet, the nose or the knees point
    told = [side for clip in sample if (side := handedness(clip, topology)) is not None and abs(side) > _SURE]
    wrong = sum(side < 0 for side in told)
    if wrong and wrong >= _SOME * len(told):
        problem = "left and right seem to be exchanged, or recordings mirrored"
        remedy = (
            "check the names and the order of the joints (_left, _right), or negate one axis of the files"
        )
        yield f"{problem}, in {wrong} of {len(told)} clips in which it can be told", remedy


def _majority(values: list[Any], usual: Any) -> Any:
    """The most frequent of the other values, if more than half differ from the usual one."""
    other = [value for value in values if value != usual]
    return max(set(other), key=other.count) if 2 * len(other) > len(values) else None


def _unknown(store: Store) -> Pairs:
    """Clips that are long for one vector, clips without a label, and a missing split."""
    if long := int((store.lengths > _LONG).sum()):
        problem = f"{long} clips have more than {_LONG} frames; an encoder squeezes each into one vector"
        yield problem, "halp prepare … --window SECONDS --stride SECONDS"
    if unlabelled := int((store.labels < 0).sum()):
        problem = f"{unlabelled} of {len(store)} clips have no label (training needs none, evaluation does)"
        yield problem, "halp prepare … --labels TABLE, --pattern PATTERN, or folders named after the classes"
    if not store.splits:
        yield "there are no splits: training uses all clips, evaluation uses folds", split_command(store)


_BLOCK = 20_000
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Inspection:
    """Counts of a store. Shares are between 0 and 1; in `splits`, None stands for a part without clips.

    `columns` counts the values of every column that is known for some clip, under `unknown` the clips without
    a value.
    `findings` names what is wrong with the poses and which step fixes it.
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
    absent_frames: int
    clips_with_persons: dict[int, int]
    dropped: int
    dropped_reasons: dict[str, int]
    repaired: int
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        """Plain data for machines."""
        return asdict(self)


def inspect(store: Store | str | os.PathLike[str]) -> Inspection:
    """Count the content of a store and find problems; frames are read block by block.

    Parameters
    ----------
    store : Store or path
        What to look at.

    Returns
    -------
    Inspection
        Counts by class, column and split, lengths, missing joints, and `findings` with their remedies.

    Examples
    --------
    >>> from halp.data.synthetic import make_synthetic_store
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = make_synthetic_store(f"{folder}/people", count=12)
    ...     inspect(store).clips
    12
    """
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
        splits={
            name: {**(size or {"train": None, "test": None}), "hash": opened.splits[name].hash}
            for name, size in split_sizes(opened.splits.values(), opened.columns).items()
        },
        missing_joints=missing,
        empty_frames=empty,
        absent_frames=int((opened.spans - opened.lengths).sum()),
        clips_with_persons=persons,
        dropped=len(dropped),
        dropped_reasons=_reasons(dropped),
        repaired=len(manifest.get("repaired", [])),
        findings=find_problems(opened, missing, empty),
    )


def _counts(values: Any) -> dict[int, int]:
    distinct, counts = np.unique(values, return_counts=True)
    return {int(value): int(count) for value, count in zip(distinct, counts)}


def _columns(store: Store) -> dict[str, dict[int | str, int]]:
    """Counts of all columns with several values; unknown columns and times are left out."""
    columns: dict[str, dict[int | str, int]] = {}
    for name, values in store.columns.items():
        if name in ("name", "length", "label", "start", "end", "recording") or len(values) != len(store):
            continue
        rates = values.dtype.kind == "f"  # computed ones, such as 1 / 0.0333333
        known, counts = np.unique(values.round(2) if rates else values, return_counts=True)
        table = {
            UNKNOWN if value in (-1, "") else value: int(count)
            for value, count in zip(known.tolist(), counts)
        }
        if set(table) != {UNKNOWN}:
            columns[name] = dict(sorted(table.items(), key=lambda pair: pair[0] == UNKNOWN))
    return columns


def _reasons(dropped: list[dict[str, Any]]) -> dict[str, int]:
    """How often each reason occurs; what differs from clip to clip, the file and the line, is left out."""
    faults = (str(drop.get("reason", "")).partition("; ")[0] for drop in dropped)
    return dict(Counter(re.sub(r"^'[^']*'(, [^:]*)?: ", "", fault) for fault in faults).most_common())


def _scan(store: Store) -> tuple[dict[str, float], int, dict[int, int]]:
    """Share of missing (zero) joints of persons who are present, empty frames, clips by number of persons."""
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
    # A clip that is centred has a joint at the origin: there, not missing. Arrays may have been centred
    # before they came.
    centre = store.topology.centre
    if centre and ("centre" in store.normalisation or origin[store.topology.index(centre)] == firsts):
        absent[store.topology.index(centre)] -= origin[store.topology.index(centre)]
    shares = {joint: float(count / max(bodies, 1)) for joint, count in zip(store.topology.joints, absent)}
    persons = np.add.reduceat(there, store.offsets[:-1], axis=0).astype(bool).sum(axis=1)
    return shares, empty, _counts(persons)
