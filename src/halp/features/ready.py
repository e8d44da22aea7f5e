"""The one definition of "ready for this encoder": joints mapped by name, then normalisation steps.

Recordings and arrays are raw. Clips of a store have been through steps already, perhaps on another joint
layout. Where the encoder's own steps cancel what was done (centring again, turning again, scaling again),
they are applied to what is stored and give what they would give on the recordings; where they cannot, the
store is refused with the command that makes one that fits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.cleaning import gap_counts
from halp.data.clip import Clip, Frames, present
from halp.data.ingest.pipeline import split_steps
from halp.data.normalise import CLEANING, MIDDLE, normalise, normalise_clip
from halp.data.persons import keep_most_moving, present_first
from halp.data.store import Store
from halp.features.source import Source
from halp.skeleton import Topology, list_topologies, map_joints

# What a step does to a clip that a later step has to cancel, and what each step cancels.
_CHANGES = {
    "centre": {"place"},
    "centre-persons": {"places"},
    "picture": {"places", "sizes"},
    "rotate-first": {"rotation"},
    "rotate-mean": {"rotation"},
    "yaw": {"turn"},
    "yaw-frames": {"turns"},
    "scale": {"size"},
}
_CANCELS = {
    "centre": {"place"},
    "centre-persons": {"place", "places"},
    "picture": {"place", "places", "size", "sizes"},
    "rotate-mean": {"rotation", "turn"},
    "yaw": {"turn"},
    "yaw-frames": {"turn", "turns"},
    "scale": {"size"},
}
# Repairs of a recording: they keep its place, direction and size, so that what they leave can be normalised
# like any other.
_REPAIRS = CLEANING | {"fill", "fill-gaps", "drop-empty", "order-persons"}


class EncoderInput(Protocol):
    """What an encoder expects of clips."""

    topology: Topology
    persons: int
    normalisation: list[str]


#: Columns of rows: joint positions that were missing and filled for the encoder, and all of them.
GAPS = ("filled", "points")


def gap_note(rows: npt.NDArray[Any]) -> str:
    """A sentence about missing joint positions that were filled in these rows; empty if there were none."""
    filled, points = (int(rows[name].sum()) for name in GAPS)
    if not filled:
        return ""
    return (
        f"{filled:,} of {points:,} joint positions ({filled / points:.1%}) were missing and were interpolated"
        " between the frames in which they are seen"
    )


@dataclass(frozen=True)
class Preparation:
    """How recordings of a source become clips that an encoder reads; made by `prepare_source`."""

    source: Topology
    target: Topology
    persons: int
    origin: str  # joint that lies at zero in the source without being missing
    move: bool  # whether that joint is to be moved away from zero first
    cleaning: tuple[str, ...]
    steps: tuple[str, ...]
    # steps for a window in which the person is missing whom earlier steps took for the first
    again: tuple[str, ...] = ()
    note: str = ""  # what a user should know about the vectors

    @property
    def maps(self) -> bool:
        return (self.source.joints, self.source.dimensions) != (self.target.joints, self.target.dimensions)

    @property
    def fills(self) -> bool:
        """Whether gaps are filled."""
        return "fill-gaps" in self.steps

    def is_identity(self, persons: int) -> bool:
        """Whether clips of this many persons are ready as they are, in frames that show the first person."""
        return not (self.maps or self.cleaning or self.steps) and persons <= self.persons

    def recording(self, frames: Frames, fps: float = -1.0) -> Frames:
        """A whole recording `(T, P, V, C)` with the encoder's joints, cleaned; most active persons first."""
        if frames.shape[1] > self.persons:
            frames, _ = keep_most_moving(frames, frames.shape[1])
        if self.move:
            frames = _moved_from_origin(frames, self.source.index(self.origin))
        elif not self.origin and (joint := centred_on(frames, self.source)):
            warnings.warn(
                f"joint '{joint}' is at zero in every frame of a recording, inside the body, and counts as"
                " missing; if recordings are centred on it, add a constant to all their coordinates",
                stacklevel=2,
            )
        if self.maps:
            frames = map_joints(frames, self.source, self.target, origin="" if self.move else self.origin)
        with np.errstate(over="ignore", invalid="ignore"):
            return normalise(frames, self.target, self.cleaning, fps)

    def window(self, frames: Frames, fps: float = -1.0) -> Frames:
        """A clip or window of such a recording, normalised; all zeros if nobody is seen.

        Whoever is there comes first, as many persons as the encoder reads.
        """
        frames, steps = self._ordered(frames)
        if not steps or not frames.any():
            return frames
        with np.errstate(over="ignore", invalid="ignore"):
            return normalise(frames, self.target, steps, fps)

    def clip(self, piece: Clip) -> Clip:
        """The same, with the clip's metadata and the frames that were left out."""
        frames, steps = self._ordered(piece.frames)
        piece = replace(piece, frames=frames)
        if not steps or not piece.frames.any():
            return piece
        with np.errstate(over="ignore", invalid="ignore"):
            return normalise_clip(piece, self.target, steps)

    def _ordered(self, frames: Frames) -> tuple[Frames, tuple[str, ...]]:
        """The persons that the encoder reads, and their remaining steps."""
        ordered = present_first(frames)
        steps = self.steps if ordered is frames else self.again or self.steps
        return ordered[:, : self.persons], steps

    def pieces(self, recording: Clip, rows: npt.NDArray[Any]) -> Iterator[Frames]:
        """Rows of a source cut from a recording; whole clips get empty frames back, if gaps are filled."""
        if self.fills and recording.absent:
            recording = recording.restored()
            yield from (self.recording(recording.frames, recording.fps) for _ in rows)
            return
        frames = self.recording(recording.frames, recording.fps)
        for first, length in zip(rows["first"].tolist(), rows["length"].tolist()):
            yield frames[first : first + length]

    def windows(self, recording: Clip, rows: npt.NDArray[Any]) -> Iterator[Frames]:
        """The clips or windows of a recording given by rows of its source, ready for the encoder.

        The rows learn how many joint positions are filled.
        """
        for place, frames in enumerate(self.pieces(recording, rows)):
            if self.fills:
                rows["filled"][place], rows["points"][place] = gap_counts(frames[:, : self.persons])
            yield self.window(frames, recording.fps)


def prepare_source(encoder: EncoderInput, source: Source) -> Preparation:
    """The preparation of this source for this encoder; an error says what to do if it is impossible."""
    wanted = tuple(encoder.normalisation)
    done = source.applied
    _refuse_unlike(encoder, source)
    repairs = [step for step in done if step.partition("=")[0] in _REPAIRS]
    # an encoder that does not know its normalisation takes clips as they are
    if not wanted or (done == wanted[: len(done)] and _same_anchors(done, source.topology, encoder.topology)):
        steps = wanted[len(done) :] if wanted else ()
        move, note = False, ""
    else:
        left = _irreversible_steps(done, wanted, source.store is not None and source.store.persons == 1)
        if left:
            raise InputError(_refusal(encoder, source, left))
        same = {
            *wanted,
            "order-persons",
            *(["interpolate-gaps"] if {"picture", "fill-gaps"} & {*wanted} else []),
        }
        unwanted = [step for step in repairs if step not in same]
        steps, move = wanted, "centre" in done or "centre-persons" in done
        note = (
            f"'{source.name}' was repaired by {', '.join(unwanted)}, which the encoder does not do: vectors"
            " of the recordings themselves may differ"
            if unwanted
            else ""
        )
    gaps = source.store is not None and bool(source.store.absent) and source.cutting.window is not None
    again = () if _irreversible_steps(done, wanted, alone=True) else split_steps(wanted)[1]
    if gaps and "drop-empty" not in steps:
        again = ("drop-empty", *again) if again and "drop-empty" not in again else again
        # windows are cut in time, with the empty frames that a store left out put back
        steps = ("drop-empty", *steps)
    cleaning, steps = split_steps(steps)
    origin = source.topology.centre if "centre" in done else MIDDLE if "centre-persons" in done else ""
    ready = Preparation(
        source.topology, encoder.topology, encoder.persons, origin, move, cleaning, steps, again, note
    )
    _rehearse(ready)
    return ready


def _irreversible_steps(done: Sequence[str], wanted: Sequence[str], alone: bool) -> list[str]:
    """Steps of `done` that no wanted step cancels; a person `alone` has no position among others."""
    cancelled = set().union(*(_CANCELS.get(step, set()) for step in wanted))
    cancelled |= {f"{effect}s" for effect in cancelled & {"place", "size"}} if alone else set()
    return [step for step in done if not _CHANGES.get(step, set()) <= cancelled]


def _same_anchors(steps: Sequence[str], one: Topology, other: Topology) -> bool:
    """Whether these steps do the same on both layouts, so that they commute with mapping between them."""
    if not any(step in _CHANGES for step in steps):
        return True
    if (one.centre, one.up, one.across) != (other.centre, other.up, other.across):
        return False
    return "scale" not in steps or (one.joints, one.parents) == (other.joints, other.parents)


#: Joints in the middle of the body, on which recordings may have been centred.
_MIDLINE = ("hip_center", "spine", "chest", "shoulder_center", "neck")


def centred_on(frames: Frames, topology: Topology) -> str:
    """The midline joint on which frames seem to be centred: always at zero, and inside the body."""
    body = frames[present(frames)[:, 0], 0]
    at_zero = (body == 0).all(axis=(0, 2))
    centred = [joint for joint in _MIDLINE if joint in topology.joints and at_zero[topology.index(joint)]]
    if not len(body) or not centred or at_zero.all():
        return ""
    others = body[:, ~at_zero]
    inside = ((others.min(axis=1) < 0) & (others.max(axis=1) > 0)).all(axis=1)
    return centred[0] if inside.mean() > 0.9 else ""


def _moved_from_origin(frames: Frames, joint: int) -> Frames:
    """Seen joints moved by one offset, so that the first person's joint at zero does not count as missing."""
    seen = (frames != 0).any(axis=-1)
    seen[:, 0, joint] |= present(frames)[:, 0]
    offset = np.float32(2 * np.abs(frames).max(initial=0.5))
    return np.where(seen[..., None], frames + offset, np.float32(0))


def _rehearse(ready: Preparation) -> None:
    """Find out on one synthetic frame whether joints and steps fit, before anything is read."""
    shape = (1, 1, len(ready.source), ready.source.dimensions)
    frames = np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32)
    ready.window(ready.recording(frames, 1000.0), 1000.0)


def _refuse_unlike(encoder: EncoderInput, source: Source) -> None:
    mine, theirs = encoder.topology.dimensions, source.topology.dimensions
    if mine != theirs:
        raise InputError(
            f"the encoder reads {mine} coordinates per joint, and '{source.name}' ({source.topology.name})"
            f" has {theirs}; see `halp encoders` for one that reads {theirs}, or train your own: `halp"
            f" prepare auto {quote(source.name)} stores/mine` and `halp pretrain small --data stores/mine`"
        )


def _refusal(encoder: EncoderInput, source: Source, left: Sequence[str]) -> str:
    return (
        f"'{source.name}' was normalised by {', '.join(source.applied)} on joints of"
        f" '{source.topology.name}', and the encoder reads {', '.join(encoder.normalisation)}, which cannot"
        f" undo {', '.join(left)}; prepare the recordings for it: `{prepare_command(encoder, source.store)}`"
    )


def prepare_command(encoder: EncoderInput, store: Store | None) -> str:
    """The command that makes a store of the same recordings for this encoder."""
    header: dict[str, Any] = {} if store is None else dict(store.header.get("origin", {}))
    target = "stores/for-encoder" if store is None else f"{store.path}-for-encoder"
    words = [
        "halp",
        "prepare",
        str(header.get("format", "auto")),
        str(header.get("source", "RECORDINGS")),
        target,
    ]
    if encoder.topology.name in list_topologies():
        words += ["--topology", encoder.topology.name]
    words += ["--normalise", *encoder.normalisation]
    options = [f"{key}={value}" for key, value in dict(header.get("options", {})).items()]
    words += ["--option", *options] if options else []
    return " ".join(quote(word) for word in words)
