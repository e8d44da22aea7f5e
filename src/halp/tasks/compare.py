"""Compare two recordings: align them by the encoder's features, then measure differences."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.core.progress import Bar
from halp.data.clip import Clip, Frames
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import Event, Events
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.encode import embed_frames, in_blocks, ready_clips
from halp.features.loading import AnyEncoder, as_encoder, open_for
from halp.features.opening import open_source
from halp.features.source import AnySource, Source
from halp.skeleton import Topology
from halp.tasks.cluster import directions
from halp.tasks.search import rows_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Rows and columns of a step; none stands still for longer than two moments, so that the slope stays between
# 1/3 and 3.
STEPS = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1))


def align(cost: npt.NDArray[np.floating]) -> tuple[Ints, float]:
    """The cheapest path through costs `(N, M)`: pairs `(L, 2)`, and mean cost per step of the shorter side.

    Every moment of the shorter side is matched; the path may begin and end anywhere on the longer one. The
    slope is between 1/3 and 3. Of equal paths the one that is straighter, and then earlier, is taken.
    """
    cost = np.asarray(cost, np.float64)
    if cost.ndim != 2 or 0 in cost.shape or not np.isfinite(cost).all():
        raise InputError(f"alignment needs a cost matrix of finite numbers; this one has shape {cost.shape}")
    if cost.shape[0] > cost.shape[1]:
        path, mean = align(cost.T)
        return path[:, ::-1], mean
    total, taken = accumulate(cost.astype(np.float64))
    return _trace(total, taken), float(total[-1].min()) / len(cost)


def accumulate(cost: Floats) -> tuple[Floats, npt.NDArray[np.int8]]:
    """Cheapest cost `(N, M)` of a path to each entry, and its last step `(N, M)`, row by row.

    A row counts once, whatever the step: where it is matched with several columns, by their mean.
    """
    rows, columns = cost.shape
    step_costs = [_matched(cost, down, right) for down, right in STEPS]
    taken = np.zeros((rows, columns), dtype=np.int8)
    # three rows and columns stand before the matrix; a path begins in the last of these rows, anywhere
    total = np.full((rows + 3, columns + 3), np.inf)
    total[2, 2:] = 0
    for row in range(rows):
        ways = np.stack(
            [
                total[row + 3 - down, 3 - right : 3 - right + columns] + here[row]
                for here, (down, right) in zip(step_costs, STEPS)
            ]
        )
        taken[row] = ways.argmin(0)
        total[row + 3, 3:] = ways.min(0)
    return total[3:, 3:], taken


def _matched(cost: Floats, down: int, right: int) -> Floats:
    """The cost of a step into each entry: the sum over the rows it passes of the mean over its columns."""
    matched = np.zeros_like(cost)
    for above in range(down):
        for left in range(right):
            matched[above:, left:] += cost[: len(cost) - above, : cost.shape[1] - left] / right
    return matched + (0.0 if (down, right) == (1, 1) else 1e-9)  # of equal paths the straight one


def _trace(total: Floats, taken: npt.NDArray[np.int8]) -> Ints:
    """The pairs along the path, traced back from the cheapest end."""
    row, column = len(total) - 1, int(total[-1].argmin())
    path: list[tuple[int, int]] = []
    while row >= 0:
        down, right = STEPS[taken[row, column]]
        path += [(row - above, column) for above in range(down)] + [
            (row, column - left) for left in range(1, right)
        ]
        row, column = row - down, column - right
    return np.array(path[::-1], dtype=np.int64)


TWO = "two recordings are compared as they are; several of each are needed to tell how they vary"
MOMENTS = 300  # of a recording that the encoder looks at; of a longer one every n-th
_REACH = 1.5  # a stretch differs where it is this many robust deviations above the median
_SHORTEST = 3


@dataclass(frozen=True)
class Comparison:
    """An alignment `(L, 2)` of frames, cosine distances, and distances of joints `(L, V)`.

    Distances of joints are in mean bone lengths of the person, NaN if one of the two is missing.
    """

    first: Clip
    second: Clip
    pairs: Ints
    distance: Floats
    joints: Floats
    topology: Topology

    @cached_property
    def stretches(self) -> list[Event]:
        """Where the two differ most: spans of the first recording, largest mean joint distance first.

        The score is the difference in mean bone lengths; `more` names the joints that differ most and the
        span of the second recording.
        """
        return find_stretches(self)

    def events(self) -> Events:
        """The spans of the first recording that differ most."""
        return Events(self.stretches)

    def times(self) -> tuple[Floats, Floats]:
        """Seconds (frames where the rate is not known) of every pair in both recordings."""
        return self.first.times[self.pairs[:, 0]], self.second.times[self.pairs[:, 1]]

    def to_json(self) -> dict[str, Any]:
        """Plain data for machines."""
        means, times = self.joint_means(), np.round(np.column_stack(self.times()), 3)
        order = np.argsort(-np.nan_to_num(means), kind="stable")
        return {
            "first": self.first.recording or self.first.name,
            "second": self.second.recording or self.second.name,
            "matched": {"first": times[[0, -1], 0].tolist(), "second": times[[0, -1], 1].tolist()},
            "distance": round(float(self.distance.mean()), 6),
            "difference": _rounded(mean_over_time(means[:, None])[0]),
            "joints": [{"joint": self.topology.joints[v], "difference": _rounded(means[v])} for v in order],
            "stretches": [_stretch_json(stretch) for stretch in self.stretches],
            "alignment": times.tolist(),
            "no_interval": dict.fromkeys(
                ("matched", "distance", "difference", "joints", "stretches", "alignment"), TWO
            ),
        }

    def joint_means(self) -> Floats:
        """Mean difference of every joint over the alignment `(V,)`; NaN if it is never seen in both."""
        return mean_over_time(self.joints)


def _stretch_json(event: Event) -> dict[str, Any]:
    """A stretch as plain data, times to a millisecond."""
    times = {"start": event.start, "end": event.stop, "other_start": event.more["other_start"]}
    times |= {"other_end": event.more["other_stop"]}
    plain = {name: round(value, 3) for name, value in times.items()}
    return plain | {"difference": _rounded(event.score or 0.0), "joints": list(event.more["joints"])}


def _rounded(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def compare(
    encoder: AnyEncoder,
    first: Any,
    second: Any,
    *,
    source: AnySource | None = None,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Comparison:
    """Align two recordings and show where they differ; the whole shorter one is aligned to a part of the
    longer one.

    Parameters
    ----------
    encoder
        An encoder, or the path or name of one.
    first, second
        Each an array `(T, V, C)` or `(T, P, V, C)`, a file with one recording, or the name of a recording of
        `source`.
    source
        A store or recordings that hold both by name.
    progress
        Whether progress is shown.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields; `window` is the number of seconds around a
        moment that the encoder looks at (default: a twelfth of the shorter recording).

    Returns
    -------
    Comparison
        The alignment, the distance of every joint along it, and the stretches that differ most.

    Examples
    --------
    >>> import numpy as np, halp
    >>> clip = np.random.default_rng(0).normal(size=(40, 25, 3))
    >>> halp.compare("halp-base", clip, clip, topology="kinect-v2", progress=False).pairs[-1].tolist()
    [39, 39]
    """
    reading = combine(reading, keywords)
    whole = replace(reading, window=None, stride=None)
    opened = None if source is None else open_source(source, whole)
    encoder = as_encoder(encoder, opened or (open_source(first, whole) if encoder == "auto" else None))
    one, other = (_read_one(encoder, given, opened, whole) for given in (first, second))
    return compare_clips(encoder, one, other, window=reading.window, progress=progress)


def compare_clips(
    encoder: PretrainedEncoder, one: Clip, other: Clip, *, window: float | None = None, progress: bool = False
) -> Comparison:
    """Align two clips as the encoder reads them and show where they differ."""
    clips = one, other
    shortest = min(len(clip.frames) for clip in clips)
    widths = [window * clip.fps if window and clip.fps > 0 else shortest / 12 for clip in clips]
    steps = np.array([-(-len(clip.frames) // MOMENTS) for clip in clips])
    count = sum(-(-len(clip.frames) // step) for clip, step in zip(clips, steps.tolist()))
    with Bar("looking at moments", count, shown=progress) as bar:
        vectors = [
            sliding_windows(encoder, clip, max(4, round(width)), step, bar)
            for clip, width, step in zip(clips, widths, steps.tolist())
        ]
    rows = directions(np.concatenate(vectors))
    cost = np.maximum(1 - rows[: len(vectors[0])].astype(np.float64) @ rows[len(vectors[0]) :].T, 0)
    path, _ = align(cost)
    pairs = _every_frame(path, steps, [len(clip.frames) for clip in clips])
    distance = np.interp(
        np.linspace(0, 1, len(pairs)), np.linspace(0, 1, len(path)), cost[path[:, 0], path[:, 1]]
    )
    joints = joint_distances(clips[0].frames, clips[1].frames, pairs, encoder.topology)
    return Comparison(clips[0], clips[1], pairs, distance, joints, encoder.topology)


def _every_frame(path: Ints, steps: Ints, lengths: list[int]) -> Ints:
    """Convert a path over thinned frames to pairs of all frames."""
    if (steps == 1).all():
        return path
    fine = np.linspace(0, len(path) - 1, (len(path) - 1) * int(steps.max()) + 1)
    places = [np.interp(fine, np.arange(len(path)), path[:, side] * steps[side]) for side in (0, 1)]
    pairs = np.round(np.column_stack(places)).astype(np.int64)
    return np.unique(np.minimum(pairs, np.array(lengths) - 1), axis=0)


def _read_one(encoder: PretrainedEncoder, given: Any, source: Source | None, reading: Reading) -> Clip:
    if source is not None and isinstance(given, str) and not os.path.exists(given):
        return ready_clips(encoder, source, rows_of(source, given)[:1])[0]
    opened = open_for(encoder, given, reading)[1]
    if len(opened) != 1:
        raise InputError(
            f"'{given}' holds {len(opened)} recordings; compare takes one: give a file, choose a"
            " person with --person, or use --in with names"
        )
    return ready_clips(encoder, opened, [0])[0]


def sliding_windows(
    encoder: PretrainedEncoder, clip: Clip, width: int, step: int, bar: Bar
) -> npt.NDArray[np.float32]:
    """Vectors of the windows of `width` frames around every `step`-th frame, cut off at the ends."""
    middles = range(0, len(clip.frames), step)
    windows = (clip.frames[max(0, middle - width // 2) : middle + (width + 1) // 2] for middle in middles)
    vectors = []
    for block in in_blocks(windows, 64):
        vectors.append(embed_frames(encoder, block))
        bar.advance(len(block))
    return np.concatenate(vectors)


def joint_distances(first: Frames, second: Frames, pairs: Ints, topology: Topology) -> Floats:
    """Distance of the first person's joints in aligned frames `(L, V)`, in mean bone lengths, or NaN."""
    poses = [_pose(frames, topology) for frames in (first, second)]
    return np.linalg.norm(poses[0][pairs[:, 0]] - poses[1][pairs[:, 1]], axis=-1)


def _pose(frames: Frames, topology: Topology) -> Floats:
    """The first person `(T, V, C)` relative to its centre joint, in mean bone lengths; NaN if missing."""
    person = frames[:, 0].astype(np.float64)
    centre = topology.index(topology.centre) if topology.centre else None
    seen = (person != 0).any(-1)
    if centre is not None:
        # the centre joint lies at zero once a clip is centred, and is seen all the same
        seen[:, centre] |= seen.any(1)
        person = person - person[:, centre : centre + 1]
    person[~seen] = np.nan
    return person / bone_length(person, topology)


def bone_length(person: Floats, topology: Topology) -> float:
    """Mean length of the bones of a person `(T, V, C)`; 1 if none is seen."""
    bones = np.array(topology.bones, dtype=np.int64).reshape(-1, 2)
    lengths = np.linalg.norm(person[:, bones[:, 0]] - person[:, bones[:, 1]], axis=-1)
    known = lengths[np.isfinite(lengths)]
    size = float(known.mean()) if len(known) else 0.0
    return size if size > 1e-9 else 1.0


def find_stretches(comparison: Comparison) -> list[Event]:
    """Runs of the alignment whose mean joint distance is well above the median, largest first."""
    level = mean_over_time(comparison.joints.T)
    known = level[np.isfinite(level)]
    if not len(known):
        return []
    middle = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - middle)))
    high = np.nan_to_num(level) > middle + _REACH * max(spread, 0.02)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], high, [False]])))
    times, other = comparison.times()
    name = comparison.first.recording or comparison.first.name
    stretches = []
    for start, end in edges.reshape(-1, 2):
        if end - start < _SHORTEST:
            continue
        means = mean_over_time(comparison.joints[start:end])
        worst = np.argsort(-np.nan_to_num(means), kind="stable")[:3]
        last = end - 1 if times[end - 1] > times[start] else min(end, len(times) - 1)
        more = {
            "other_start": float(other[start]),
            "other_stop": float(other[end - 1]),
            "joints": tuple(comparison.topology.joints[v] for v in worst if np.isfinite(means[v])),
        }
        span = name, float(times[start]), float(times[last])
        stretches.append(Event(*span, "differs", "", "model", float(np.nanmean(level[start:end])), more))
    return sorted(stretches, key=lambda stretch: -(stretch.score or 0.0))


def mean_over_time(values: Floats) -> Floats:
    """Mean of every column over the rows that are known; NaN if none is."""
    known = np.isfinite(values)
    count = known.sum(0)
    return np.where(count > 0, np.where(known, values, 0).sum(0) / np.maximum(count, 1), np.nan)
