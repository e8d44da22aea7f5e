"""From one item of a reader to finished clips: read, map joints, clean, cut into windows, normalise, check.

`prepare` writes what comes out of it to a store, `halp.features.source` hands it on to an encoder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from halp.core.errors import InputError
from halp.data.clip import NOBODY, Clip, Dropped
from halp.data.normalise import CLEANING, check_steps, normalise, normalise_clip
from halp.data.persons import keep_most_moving
from halp.data.readers import ChoosesDimensions, Info, Item, Reader, get_reader, sniff_reader, with_options
from halp.data.readers.shared import class_folder, class_folders
from halp.data.source_files import walking_once
from halp.data.text_files import LONGEST_NAME, MOST_CLASSES, problem, shown, utf8
from halp.data.windows import WindowSettings, span_columns
from halp.skeleton import Topology, map_joints

Outcome = Clip | Dropped


@dataclass(frozen=True)
class Pipeline:
    """Everything a process needs to turn items of a source into clips."""

    reader: Reader
    info: Info
    target: Topology
    steps: tuple[str, ...]
    cutting: WindowSettings = field(default_factory=WindowSettings)
    root: Path | None = None
    by_folder: bool = False

    def work(self, items: Sequence[Item]) -> list[Outcome]:
        """Clips and drops of these items, in order."""
        return [outcome for item in items for outcome in self._read(item)]

    def rehearse(self) -> None:
        """Check on one synthetic frame that the mapping and the steps fit the topology, before reading."""
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
            return [_printable(Dropped(item.path.name, str(error)))]
        except (
            ValueError,
            TypeError,
            LookupError,
            ArithmeticError,
            MemoryError,
            OSError,
            RecursionError,
        ) as error:
            fault = f"'{item}': the reader of '{self.reader.name}' failed ({type(error).__name__}: {error})"
            return [_printable(Dropped(item.path.name, f"{fault}; leave this file out"))]
        finished: list[Outcome] = []
        for outcome in map(_printable, outcomes):
            finished += self._finish(outcome, item) if isinstance(outcome, Clip) else [outcome]
        return finished

    def _finish(self, clip: Clip, item: Item) -> list[Outcome]:
        """Map, clean, cut, normalise and check one clip."""
        names = self.info.class_names
        if not -1 <= clip.label < (len(names) or MOST_CLASSES):
            known = f"none of the {len(names)} known ones" if names else "not a class number"
            return [Dropped(clip.name, f"its class {clip.label} is {known}")]
        if not clip.frames.any():
            return [Dropped(clip.name, "nobody is seen in any frame")]
        try:
            cleaning, normalising = split_steps(self.steps)
            clip = replace(self._mapped(clip), source=self._place(item))
            if clip.label < 0 and self.by_folder:
                folder = class_folder(item, self.root or item.path.parent)
                clip.label = names.index(folder) if folder in names else -1
            with np.errstate(over="ignore", invalid="ignore"):
                clip.frames = normalise(clip.frames, self.target, cleaning, clip.fps)
            windows = self.cutting.cut(clip)
        except InputError as error:
            return [Dropped(clip.name, str(error))]
        return [self._normalised(window, normalising) for window in windows]

    def _mapped(self, clip: Clip) -> Clip:
        """The clip with at most the format's persons, and the joints of the target."""
        frames, repairs = clip.frames, clip.repairs
        if frames.shape[1] > self.info.persons:
            frames, more = keep_most_moving(frames, self.info.persons)
            repairs += more
        if self.target != self.info.topology:
            frames = map_joints(frames, self.info.topology, self.target)
        return replace(clip, frames=frames, repairs=repairs, fps=self.cutting.fps or clip.fps)

    def _normalised(self, clip: Clip, steps: Sequence[str]) -> Outcome:
        try:
            if not clip.frames.any():
                return Dropped(clip.name, NOBODY, expected=True)
            with np.errstate(over="ignore", invalid="ignore"):
                clip = normalise_clip(clip, self.target, steps)
            return replace(clip, extra={**clip.extra, **span_columns(clip)})
        except InputError as error:
            return Dropped(clip.name, str(error))

    def _place(self, item: Item) -> str:
        """The item's file below the source; the first file of an item that is a folder."""
        root = self.root
        if root is None:
            return utf8(item.path.name)
        files = getattr(item.key, "files", ())
        path = item.path / files[0] if files else item.path
        return utf8(
            path.relative_to(root).as_posix() if root.is_dir() and path.is_relative_to(root) else path.name
        )


def _printable(outcome: Outcome) -> Outcome:
    """A clip or drop whose names can be encoded, even if they come from a file name that is not UTF-8."""
    if isinstance(outcome, Dropped):
        return replace(outcome, name=utf8(outcome.name), reason=utf8(outcome.reason))
    if outcome.name == utf8(outcome.name) and outcome.recording == utf8(outcome.recording):
        return outcome
    return replace(outcome, name=utf8(outcome.name), recording=utf8(outcome.recording))


def split_steps(steps: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Leading steps that clean a recording as a whole, and those applied to each window."""
    first = next(
        (number for number, name in enumerate(steps) if name.partition("=")[0] not in CLEANING), len(steps)
    )
    return tuple(steps[:first]), tuple(steps[first:])


def is_store(source: str | os.PathLike[str]) -> bool:
    """Whether a path is a store folder rather than pose files."""
    return (Path(source) / "store.json").is_file()


@walking_once()
def plan_reading(
    source: Path,
    file_format: str = "auto",
    cutting: WindowSettings | None = None,
    steps: Sequence[str] | None = None,
    target: Topology | None = None,
    options: Mapping[str, Any] | None = None,
    dimensions: int | None = None,
) -> tuple[Pipeline, list[Item]]:
    """The pipeline and items of a source of pose files; settings are checked before anything is read.

    `dimensions` are those of `target`, if there is one: some readers can give either.
    """
    dimensions = dimensions if target is None else target.dimensions
    if not source.exists():
        raise InputError(f"there is nothing at '{source}'; check the path of the source")
    if not (source.is_file() or source.is_dir()):  # reading a pipe would block for ever
        raise InputError(f"'{source}' is neither a file nor a folder; write the recordings to files")
    reader = with_options(
        sniff_reader(source) if file_format == "auto" else get_reader(file_format), options or {}
    )
    if dimensions is not None and isinstance(reader, ChoosesDimensions):
        reader = reader.for_dimensions(dimensions)
    info = reader.info(source)
    chosen = check_steps(info.normalisation if steps is None else steps)
    items = list(reader.items(source))
    # One rule for all formats: where the files name no classes, the folders below the source do. A reader of
    # somebody else may number classes that it does not name.
    by_folder = not info.class_names and type(reader).__module__.startswith("halp.")
    info = replace(info, class_names=class_folders(items, source)) if by_folder else info
    if wrong := next(
        (name for name in info.class_names if len(name) > LONGEST_NAME or not name.isprintable()), ""
    ):
        fault = f"a class is called {shown(wrong)} ({len(wrong)} characters)"
        raise problem(source, "", fault, f"use plain names of at most {LONGEST_NAME} characters")
    pipeline = Pipeline(
        reader, info, target or info.topology, chosen, cutting or WindowSettings(), source, by_folder
    )
    pipeline.rehearse()
    return pipeline, items


def nothing_usable(source: Path, dropped: Sequence[Dropped]) -> InputError:
    """The error raised when every clip of a source was left out."""
    why = f"; the first one, '{dropped[0].name}': {dropped[0].reason}" if dropped else ""
    return InputError(f"no clip of '{source}' is usable; nothing was written{why}")
