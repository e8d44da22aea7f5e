"""Two recordings compared: aligned in time by the encoder's view of each moment, then where they differ, frame and joint."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip, Frames
from halp.clips.windows import Cutting
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.skeleton import Topology
from halp.training import load_encoder
from halp.use.alignment import align
from halp.use.cluster import directions
from halp.use.embed import embed_clips
from halp.use.sources import Source, in_blocks, read_source

MOMENTS = 1500  # of a recording that are compared; more are thinned
_REACH = 1.5  # a stretch differs where it is this many robust deviations above the median
_SHORTEST = 3


@dataclass(frozen=True)
class Stretch:
    """A part where the two differ: its times in both, the mean difference (in mean bone lengths) and the joints that do most."""

    start: float
    end: float
    other_start: float
    other_end: float
    difference: float
    joints: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """An alignment `(L, 2)` of frames, the cosine distance of each pair, and the distance of every joint `(L, V)`.

    Distances of joints are in mean bone lengths of the person, NaN where one of the two is missing.
    """

    first: Clip
    second: Clip
    pairs: npt.NDArray[np.int64]
    distance: npt.NDArray[np.float64]
    joints: npt.NDArray[np.float64]
    stretches: list[Stretch]
    topology: Topology

    def times(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Seconds (frames where the rate is not known) of every pair in both recordings."""
        rates = [clip.fps if clip.fps > 0 else 1.0 for clip in (self.first, self.second)]
        starts = self.first.start, self.second.start
        return starts[0] + self.pairs[:, 0] / rates[0], starts[1] + self.pairs[:, 1] / rates[1]

    def to_json(self) -> dict[str, Any]:
        """Plain data for machines."""
        order = np.argsort(-np.nan_to_num(self.joint_means()), kind="stable")
        return {
            "first": self.first.recording or self.first.name,
            "second": self.second.recording or self.second.name,
            "distance": round(float(self.distance.mean()), 6),
            "difference": round(float(np.nanmean(self.joints)), 6) if np.isfinite(self.joints).any() else None,
            "joints": [
                {"joint": self.topology.joints[v], "difference": _rounded(self.joint_means()[v])} for v in order
            ],
            "stretches": [
                {
                    "start": round(one.start, 6),
                    "end": round(one.end, 6),
                    "other_start": round(one.other_start, 6),
                    "other_end": round(one.other_end, 6),
                    "difference": round(one.difference, 6),
                    "joints": list(one.joints),
                }
                for one in self.stretches
            ],
            "alignment": [[round(float(a), 6), round(float(b), 6)] for a, b in zip(*self.times())],
        }

    def joint_means(self) -> npt.NDArray[np.float64]:
        """Mean difference of every joint over the alignment `(V,)`; NaN where it is never seen in both."""
        return mean_over_time(self.joints)


def _rounded(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def compare(
    encoder: PackagedEncoder | str | os.PathLike[str],
    first: Any,
    second: Any,
    *,
    source: Source | None = None,
    window: float | None = None,
    fps: float | None = None,
    format: str = "auto",
) -> Comparison:
    """Align two recordings and show where they differ.

    Each is an array `(T, V, C)` or `(T, P, V, C)`, a file with one recording, or the name of a recording of `source`.
    `window` is how many seconds around a moment the encoder looks at (default: a twelfth of the shorter recording).
    """
    encoder = encoder if isinstance(encoder, PackagedEncoder) else load_encoder(encoder)
    one, other = (_read_one(encoder, what, source, fps, format) for what in (first, second))
    widths = [
        window * clip.fps if window and clip.fps > 0 else min(len(one.frames), len(other.frames)) / 12
        for clip in (one, other)
    ]
    steps = [-(-len(clip.frames) // MOMENTS) for clip in (one, other)]
    vectors = [
        moments(encoder, clip, max(4, round(width)), step) for clip, width, step in zip((one, other), widths, steps)
    ]
    rows = directions(np.concatenate(vectors))
    cost = np.maximum(1 - rows[: len(vectors[0])].astype(np.float64) @ rows[len(vectors[0]) :].T, 0)
    path, _ = align(cost)
    pairs = path * np.array(steps)
    distances = joint_distances(one.frames, other.frames, pairs, encoder.topology)
    made = Comparison(one, other, pairs, cost[path[:, 0], path[:, 1]], distances, [], encoder.topology)
    return Comparison(**{**made.__dict__, "stretches": find_stretches(made)})


def _read_one(encoder: PackagedEncoder, what: Any, source: Source | None, fps: float | None, format: str) -> Clip:
    cutting = Cutting(fps=fps)
    if source is not None and isinstance(what, str) and not os.path.exists(what):
        for clip in read_source(encoder, source, cutting, format=format):
            if what in (clip.name, clip.recording):
                return clip
        raise InputError(f"there is no file '{what}', and no recording of that name where it is searched for")
    given = what if isinstance(what, (str, os.PathLike)) else [what]
    clips = list(read_source(encoder, given, cutting, format=format))
    if len(clips) != 1:
        raise InputError(
            f"'{what}' holds {len(clips)} recordings; compare takes one: name a file, or use --in with names"
        )
    return clips[0]


def moments(encoder: PackagedEncoder, clip: Clip, width: int, step: int) -> npt.NDArray[np.float32]:
    """Vectors of the windows of `width` frames around every `step`-th frame, cut off at the ends."""
    middles = range(0, len(clip.frames), step)
    windows = (
        Clip(clip.frames[max(0, middle - width // 2) : middle + (width + 1) // 2], "moment") for middle in middles
    )
    return np.concatenate([embed_clips(encoder, block) for block in in_blocks(windows, 256, 65_536)])


def joint_distances(
    first: Frames, second: Frames, pairs: npt.NDArray[np.int64], topology: Topology
) -> npt.NDArray[np.float64]:
    """Distance of every joint of the first person in aligned frames `(L, V)`, in mean bone lengths; NaN where one is missing."""
    poses = [_pose(frames, topology) for frames in (first, second)]
    return np.linalg.norm(poses[0][pairs[:, 0]] - poses[1][pairs[:, 1]], axis=-1)


def _pose(frames: Frames, topology: Topology) -> npt.NDArray[np.float64]:
    """The first person `(T, V, C)` around its centre joint, in mean bone lengths; NaN for what is missing."""
    person = frames[:, 0].astype(np.float64)
    centre = topology.index(topology.centre) if topology.centre else None
    seen = (person != 0).any(-1)
    if centre is not None:
        # the centre joint lies at zero once a clip is centred, and is seen all the same
        seen[:, centre] |= seen.any(1)
        person = person - person[:, centre : centre + 1]
    person[~seen] = np.nan
    bones = np.array(topology.bones, dtype=np.int64).reshape(-1, 2)
    lengths = np.linalg.norm(person[:, bones[:, 0]] - person[:, bones[:, 1]], axis=-1)
    known = lengths[np.isfinite(lengths)]
    size = float(known.mean()) if len(known) else 0.0
    return person / size if size > 1e-9 else person


def find_stretches(made: Comparison) -> list[Stretch]:
    """Runs of the alignment that stand out above its median by their mean joint distance, largest first."""
    level = mean_over_time(made.joints.T)
    known = level[np.isfinite(level)]
    if not len(known):
        return []
    middle = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - middle)))
    high = np.nan_to_num(level) > middle + _REACH * max(spread, 0.02)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], high, [False]])))
    one, other = made.times()
    found = []
    for start, end in edges.reshape(-1, 2):
        if end - start < _SHORTEST:
            continue
        means = mean_over_time(made.joints[start:end])
        worst = np.argsort(-np.nan_to_num(means), kind="stable")[:3]
        found.append(
            Stretch(
                float(one[start]),
                float(one[end - 1]),
                float(other[start]),
                float(other[end - 1]),
                float(np.nanmean(level[start:end])),
                tuple(made.topology.joints[v] for v in worst if np.isfinite(means[v])),
            )
        )
    return sorted(found, key=lambda stretch: -stretch.difference)


def mean_over_time(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mean of every column over the rows that are known; NaN where none is."""
    known = np.isfinite(values)
    count = known.sum(0)
    return np.where(count > 0, np.where(known, values, 0).sum(0) / np.maximum(count, 1), np.nan)
