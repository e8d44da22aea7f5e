"""Whole recordings of a source as recorded: poses by person, with times on the recording's own clock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.data.clip import present
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import person_of
from halp.features.opening import open_source
from halp.features.source import AnySource
from halp.skeleton import Topology

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PoseTrack:
    """Joints `(T, V, C)` of a person in a recording, NaN if missing; `height_px`: in pixels of a video."""

    recording: str
    person: int
    joints: Floats
    topology: Topology
    fps: float
    start: float = 0.0
    subject: str = ""
    height_px: float = 0.0

    @property
    def times(self) -> Floats:
        return self.start + np.arange(len(self.joints)) / self.fps

    @property
    def name(self) -> str:
        return self.recording if not self.person else f"{self.recording}, person {self.person + 1}"

    def while_seen(self) -> PoseTrack:
        """The part from the first to the last frame in which the person is seen: before and after, he or she is
        absent, not missing.
        """
        seen = np.flatnonzero(np.isfinite(self.joints).any(axis=(1, 2)))
        if not len(seen):
            return self
        first, last = int(seen[0]), int(seen[-1]) + 1
        return replace(self, joints=self.joints[first:last], start=self.start + first / self.fps)

    def to_json(self) -> dict[str, Any]:
        return {"recording": self.recording, "subject": self.subject, "person": self.number}

    @property
    def number(self) -> int:
        """The person's number from 1: in a video of several people, else the place in the recording."""
        return person_of(self.recording) or self.person + 1


def read_poses(
    source: AnySource, reading: Reading | None = None, **keywords: Unpack[ReadingKeywords]
) -> Iterator[PoseTrack]:
    """Every person of every recording of a source, as recorded; clips of a store are normalised."""
    reading = combine(reading, keywords)
    opened = open_source(source, reading)
    topology = opened.topology
    origin = "" if opened.store is None else opened.store.origin_joint
    for clip, _ in opened.read():
        clip = clip.restored()
        rate = clip.fps if clip.fps > 0 else reading.fps or 0.0
        if rate <= 0:
            raise InputError(
                f"recording '{clip.recording or clip.name}' does not state its frames per second; give --fps"
            )
        there = present(clip.frames)
        for person in np.flatnonzero(there.any(axis=0)):
            joints = clip.frames[:, person].astype(np.float64)
            missing = (joints == 0).all(axis=2)
            if origin:  # the joint that frames were centred on lies at zero and is there all the same
                missing[:, topology.index(origin)] = False
            joints[missing | ~there[:, person, None]] = np.nan
            subject = str(clip.extra.get("subject_name", "")) or (
                str(clip.subject) if clip.subject >= 0 else ""
            )
            height = float(clip.extra.get("height_px", 0))
            name = clip.recording or clip.name
            yield PoseTrack(name, int(person), joints, topology, float(rate), clip.start, subject, height)


def source_name(source: AnySource) -> str:
    """The name of a source in titles."""
    return str(source) if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "recordings")


def recording_lengths(source: AnySource) -> dict[str, float]:
    """Where every recording of a source ends, in seconds of its own clock, in the order of the source."""
    opened = open_source(source)
    lengths = dict.fromkeys(opened.recordings, 0.0)
    for name, stop in zip(opened.names, opened.stops.tolist()):
        lengths[name] = max(lengths[name], stop)
    return lengths


def filled(values: Floats) -> Floats:
    """Values `(T, …)` with gaps interpolated along time; zero if never seen."""
    flat = values.reshape(len(values), -1).copy()
    time = np.arange(len(flat))
    for column in flat.T:
        known = np.isfinite(column)
        column[~known] = np.interp(time[~known], time[known], column[known]) if known.any() else 0.0
    return flat.reshape(values.shape)
