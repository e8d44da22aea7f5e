"""What is wrong with the poses of a store, how often, and which step or option of `halp prepare` mends it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halp.clips.cleaning import exchanged_persons, find_spikes, seen_joints, unit_factor, up_axis
from halp.clips.clip import Frames
from halp.clips.splits import split_command
from halp.clips.store import Store

# So many clips, evenly over the store, are looked at closely.
_LOOKED_AT = 200
_LONG = 1000
_MANY_MISSING = 0.5
# Second differences against first ones: below 1 for movements, √3 for pure noise.
_JITTER = 1.2


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: in words, and what to do about it."""

    problem: str
    remedy: str


def find_problems(store: Store, missing: dict[str, float], empty_frames: int) -> list[Finding]:
    """Everything that stands out, the gravest first."""
    clips = np.unique(np.linspace(0, len(store) - 1, min(_LOOKED_AT, len(store))).round().astype(int))
    sample = [np.asarray(store.clip(int(clip))) for clip in clips]
    found = [
        *_missing(missing, store.normalisation),
        *_empty(empty_frames, len(store.frames)),
        *_spikes(sample),
        *_jitter(sample, store.normalisation),
        *_exchanged(sample),
        *_axes(sample, store),
        *_length(store),
        *_unknown(store),
    ]
    return found


def _missing(missing: dict[str, float], done: list[str]) -> list[Finding]:
    never = [joint for joint, share in missing.items() if share > 0.999]
    often = [joint for joint, share in missing.items() if _MANY_MISSING < share <= 0.999]
    some = {joint: share for joint, share in missing.items() if 0.001 < share <= _MANY_MISSING}
    found = []
    if never:
        remedy = "halp prepare … --topology with a layout without it (a name or a TOML file)"
        found.append(Finding(f"{_names(never)} never seen", remedy))
    if often:
        found.append(
            Finding(
                f"{_names(often)} missing in more than half of the bodies",
                "halp prepare … --topology with a layout without it",
            )
        )
    if some and not any(step.startswith("interpolate-gaps") for step in done):
        worst = max(some, key=some.__getitem__)
        what = f"{len(some)} joints are missing now and then, {worst} in {some[worst]:.1%} of the bodies"
        found.append(Finding(what, "halp prepare … --normalise … interpolate-gaps=10 (fills gaps up to 10 frames)"))
    return found


def _names(joints: list[str]) -> str:
    shown = ", ".join(joints[:3]) + (f" and {len(joints) - 3} more" if len(joints) > 3 else "")
    return f"{shown} {'is' if len(joints) == 1 else 'are'}"


def _empty(empty: int, frames: int) -> list[Finding]:
    if not empty:
        return []
    return [Finding(f"nobody is seen in {empty} of {frames} frames", "halp prepare … --normalise … drop-empty")]


def _spikes(sample: list[Frames]) -> list[Finding]:
    hit = [int(find_spikes(clip).sum()) for clip in sample]
    clips = sum(count > 0 for count in hit)
    if not clips:
        return []
    what = f"joints jump away and back in {clips} of {len(sample)} clips looked at ({sum(hit)} times)"
    return [Finding(what, "halp prepare … --normalise … remove-outliers interpolate-gaps")]


def _jitter(sample: list[Frames], done: list[str]) -> list[Finding]:
    if any(step.startswith(("smooth", "lowpass")) for step in done):
        return []
    shaky = sum(_roughness(clip) > _JITTER for clip in sample if len(clip) >= 10)
    if 2 * shaky < len(sample) or not shaky:
        return []
    return [
        Finding(
            f"{shaky} of {len(sample)} clips looked at tremble from frame to frame",
            "halp prepare … --normalise … smooth=7",
        )
    ]


def _roughness(clip: Frames) -> float:
    """How large second differences are against first ones, over the joints of the first person that are always seen."""
    steady = seen_joints(clip)[:, 0].all(axis=0)
    if not steady.any():
        return 0.0
    places = clip[:, 0, steady].astype(np.float64)
    first = float(np.linalg.norm(np.diff(places, axis=0), axis=-1).mean())
    second = float(np.linalg.norm(np.diff(places, n=2, axis=0), axis=-1).mean())
    return second / first if first > 0 else 0.0


def _exchanged(sample: list[Frames]) -> list[Finding]:
    clips = sum(exchanged_persons(clip) > 0 for clip in sample)
    if not clips:
        return []
    what = f"persons change places in {clips} of {len(sample)} clips looked at"
    return [Finding(what, "halp prepare … --normalise track-persons … (first of the steps)")]


def _axes(sample: list[Frames], store: Store) -> list[Finding]:
    """Axis and unit of 3D recordings; those that were turned or scaled on purpose are not looked at."""
    done = {step.partition("=")[0] for step in store.normalisation}
    found = []
    if store.topology.dimensions == 3 and not done & {"rotate-first", "rotate-mean"}:
        ways = [way for clip in sample if (way := up_axis(clip, store.topology)) is not None]
        other = [way for way in ways if way != (1, 1.0)]
        if ways and 2 * len(other) > len(ways):
            axis, sign = max(set(other), key=other.count)
            what = f"{'−' if sign < 0 else ''}{'xyz'[axis]} points up in most clips, not y"
            found.append(Finding(what, "halp prepare … --normalise upright …"))
    if store.topology.dimensions == 3 and "scale" not in done:
        units = [unit for clip in sample if (unit := unit_factor(clip, store.topology)) is not None]
        other_units = [unit for unit in units if unit != 1.0]
        if units and 2 * len(other_units) > len(units):
            unit = max(set(other_units), key=other_units.count)
            name = {0.01: "centimetres", 0.001: "millimetres", 0.0254: "inches"}[unit]
            what = f"coordinates seem to be {name}, not metres"
            found.append(Finding(what, "halp prepare … --normalise metres …, or scale to body size with scale"))
    return found


def _length(store: Store) -> list[Finding]:
    long = int((store.lengths > _LONG).sum())
    if not long:
        return []
    what = f"{long} clips have more than {_LONG} frames; an encoder squeezes each into one vector"
    return [Finding(what, "halp prepare … --window SECONDS --stride SECONDS")]


def _unknown(store: Store) -> list[Finding]:
    found = []
    unlabelled = int((store.labels < 0).sum())
    if unlabelled:
        what = f"{unlabelled} of {len(store)} clips have no label (training needs none, evaluation does)"
        found.append(Finding(what, "halp prepare … --labels TABLE, --path PATTERN, or folders named after the classes"))
    if not store.splits:
        what = "there are no splits: training uses all clips, evaluation uses folds"
        found.append(Finding(what, split_command(store)))
    return found
