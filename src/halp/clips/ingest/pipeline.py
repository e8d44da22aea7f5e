"""From one item of a reader to finished clips: read, map joints, clean, cut into windows, normalise, check.

`prepare` writes what comes out of it to a store, `read_clips` hands it on to an encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from halp.clips.clip import Clip
from halp.clips.normalise import CLEANING, keep_most_moving, normalise
from halp.clips.readers import Dropped, Info, Item, Reader
from halp.clips.windows import Cutting, span_columns
from halp.errors import InputError
from halp.skeleton import Topology, map_joints

Outcome = Clip | Dropped


@dataclass(frozen=True)
class Pipeline:
    """Everything a process needs to turn items of a source into clips."""

    reader: Reader
    info: Info
    target: Topology
    steps: tuple[str, ...]
    cutting: Cutting = field(default_factory=Cutting)
    persons: int | None = None
    root: Path | None = None

    def work(self, items: Sequence[Item]) -> list[Outcome]:
        """Clips and drops of these items, in order."""
        return [outcome for item in items for outcome in self._read(item)]

    def rehearse(self) -> None:
        """Find out on one invented frame whether the mapping and the steps fit the topology, before anything is read."""
        shape = (1, self.info.persons, len(self.info.topology), self.info.topology.dimensions)
        frames = np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32)
        if self.target != self.info.topology:
            frames = map_joints(frames, self.info.topology, self.target)
        # A rate that fits any filter, since the recordings may know theirs.
        normalise(frames, self.target, self.steps, self.cutting.fps or 1000.0)

    def _read(self, item: Item) -> list[Outcome]:
        try:
            outcomes = self.reader.read(item)
        except InputError as error:
            return [Dropped(item.path.name, str(error))]
        except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, OSError, RecursionError) as error:
            what = f"'{item}': the reader of '{self.reader.name}' failed ({type(error).__name__}: {error})"
            return [Dropped(item.path.name, f"{what}; leave this file out")]
        finished: list[Outcome] = []
        for outcome in outcomes:
            finished += self._finish(outcome, item) if isinstance(outcome, Clip) else [outcome]
        return finished

    def _finish(self, clip: Clip, item: Item) -> list[Outcome]:
        """Map, clean, cut, normalise and check one clip."""
        names = self.info.class_names
        if names and not -1 <= clip.label < len(names):
            return [Dropped(clip.name, f"its class {clip.label} is none of the {len(names)} known ones")]
        if not clip.frames.any():
            return [Dropped(clip.name, "nobody is seen in any frame")]
        try:
            cleaning, normalising = split_steps(self.steps)
            clip = replace(self._mapped(clip), source=self._place(item))
            with np.errstate(over="ignore", invalid="ignore"):
                clip.frames = normalise(clip.frames, self.target, cleaning, clip.fps)
            windows = self.cutting.cut(clip)
        except InputError as error:
            return [Dropped(clip.name, str(error))]
        return [self._normalised(window, normalising) for window in windows]

    def _mapped(self, clip: Clip) -> Clip:
        """The clip with the persons and joints of the target."""
        persons = self.info.persons if self.persons is None else min(self.persons, self.info.persons)
        frames, repairs = clip.frames, clip.repairs
        if frames.shape[1] > persons:
            frames, more = keep_most_moving(frames, persons)
            repairs += more
        if self.target != self.info.topology:
            frames = map_joints(frames, self.info.topology, self.target)
        return replace(clip, frames=frames, repairs=repairs, fps=self.cutting.fps or clip.fps)

    def _normalised(self, clip: Clip, steps: Sequence[str]) -> Outcome:
        try:
            if not clip.frames.any():
                return Dropped(clip.name, "nobody is seen in any frame of this window", expected=True)
            # Times are those of the recording, so they are taken before a step can leave frames out.
            extra = {**clip.extra, **span_columns(clip)}
            with np.errstate(over="ignore", invalid="ignore"):
                frames = normalise(clip.frames, self.target, steps, clip.fps)
            return replace(clip, frames=frames, extra=extra)
        except InputError as error:
            return Dropped(clip.name, str(error))

    def _place(self, item: Item) -> str:
        """The item's file below the source; the first file of an item that is a folder."""
        root = self.root
        if root is None:
            return item.path.name
        files = getattr(item.key, "files", ())
        path = item.path / files[0] if files else item.path
        return path.relative_to(root).as_posix() if root.is_dir() and path.is_relative_to(root) else path.name


def split_steps(steps: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Leading steps that clean a recording as a whole, and those that go on a window of it."""
    first = next((number for number, name in enumerate(steps) if name.partition("=")[0] not in CLEANING), len(steps))
    return tuple(steps[:first]), tuple(steps[first:])
