"""Recordings for an encoder: clips or windows of a store or of pose files of any format, one at a time.

Every command that takes a SOURCE reads it through here, so that it may be a store folder or recordings of any format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halp.clips.clip import Clip, present
from halp.clips.ingest.pipeline import Pipeline
from halp.clips.normalise import check_steps, keep_most_moving
from halp.clips.normalise import normalise as apply_steps
from halp.clips.readers import Dropped, Item, get_reader, sniff_reader, with_options
from halp.clips.store import Store, open_store
from halp.clips.topology_file import find_topology
from halp.clips.windows import Cutting, spans
from halp.errors import InputError
from halp.skeleton import Topology, map_joints

Source = Store | str | os.PathLike[str]


def is_store(source: str | os.PathLike[str]) -> bool:
    """Whether a path is a store folder rather than pose files."""
    return (Path(source) / "store.json").is_file()


def read_clips(
    source: Source,
    format: str = "auto",
    *,
    cutting: Cutting | None = None,
    normalise: Sequence[str] | None = None,
    topology: str | Topology | None = None,
    persons: int | None = None,
    options: Mapping[str, Any] | None = None,
    dropped: list[Dropped] | None = None,
) -> Iterator[Clip]:
    """Clips or windows as an encoder expects them, with memory for one file at a time; `extra["end"]` is where one ends.

    `topology` maps the joints by name, `normalise` are the steps that the encoder was trained with (None: what the format
    asks for), `persons` the most that it takes. A window names its recording; clips of a store keep their own
    names. What cannot be read is left out and added to `dropped`; where nothing can be read this is an error.
    """
    cutting = cutting or Cutting()
    target = None if topology is None else find_topology(topology)
    if isinstance(source, Store) or is_store(source):
        if options:
            raise InputError(f"a store has no options of a format; leave out {', '.join(options)}")
        store = source if isinstance(source, Store) else open_store(source)
        return _from_store(store, cutting, None if normalise is None else check_steps(normalise), target, persons)
    left_out: list[Dropped] = [] if dropped is None else dropped
    return _from_files(Path(source), format, cutting, normalise, target, persons, options or {}, left_out)


def _from_files(
    source: Path,
    format: str,
    cutting: Cutting,
    steps: Sequence[str] | None,
    target: Topology | None,
    persons: int | None,
    options: Mapping[str, Any],
    dropped: list[Dropped],
) -> Iterator[Clip]:
    pipeline, items = open_source(source, format, cutting, steps, target, persons, options)
    count = 0
    for item in items:
        for outcome in pipeline.work([item]):
            if isinstance(outcome, Dropped):
                dropped.append(outcome)
                continue
            count += 1
            seconds = len(outcome.frames) / outcome.fps if outcome.fps > 0 else float(len(outcome.frames))
            yield replace(outcome, extra={"end": outcome.start + seconds, **outcome.extra})
    if not count:
        raise nothing_usable(source, dropped)


def open_source(
    source: Path,
    format: str = "auto",
    cutting: Cutting | None = None,
    steps: Sequence[str] | None = None,
    target: Topology | None = None,
    persons: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[Pipeline, list[Item]]:
    """The pipeline for a source of pose files and its items; whatever is wrong with the settings is found before reading."""
    if not source.exists():
        raise InputError(f"there is nothing at '{source}'; check the path of the source")
    reader = with_options(sniff_reader(source) if format == "auto" else get_reader(format), options or {})
    info = reader.info(source)
    chosen = check_steps(info.normalisation if steps is None else steps)
    pipeline = Pipeline(reader, info, target or info.topology, chosen, cutting or Cutting(), persons, source)
    pipeline.rehearse()
    return pipeline, list(reader.items(source))


def nothing_usable(source: Path, dropped: Sequence[Dropped]) -> InputError:
    """The error where every clip of a source was left out."""
    why = f"; the first one, '{dropped[0].name}': {dropped[0].reason}" if dropped else ""
    return InputError(f"no clip of '{source}' can be used, nothing was written{why}")


def _from_store(
    store: Store, cutting: Cutting, steps: tuple[str, ...] | None, target: Topology | None, persons: int | None
) -> Iterator[Clip]:
    """Clips of a store, which carry its normalisation; further steps that are asked for are applied to what is cut."""
    missing = () if steps is None else _missing_steps(store, steps)
    known = spans(store, cutting.fps)
    own = ("name", "length", "label", "subject", "camera", "recording", "start", "end", "fps")
    more = {name: values for name, values in store.columns.items() if name not in own}
    # An encoder's settings say nothing about the store's own words for its topology, so the joints decide.
    mapped = target is not None and (target.joints, target.dimensions) != (
        store.topology.joints,
        store.topology.dimensions,
    )
    for index in range(len(store)):
        frames = np.array(store.clip(index))
        frames = frames[:, : max(1, int(np.flatnonzero(present(frames).any(axis=0)).max(initial=0)) + 1)]
        if persons is not None and frames.shape[1] > persons:
            frames, _ = keep_most_moving(frames, persons)
        if mapped and target is not None:
            frames = map_joints(frames, store.topology, target, origin=store.origin_joint)
        clip = Clip(
            frames,
            str(store.names[index]),
            int(store.labels[index]),
            int(store.subjects[index]),
            int(store.cameras[index]),
            {name: values[index].item() for name, values in more.items()},
            fps=float(known.fps[index]),
            start=float(known.start[index]),
        )
        for window in cutting.cut(clip) if cutting.window is not None else [clip]:
            whole = cutting.window is None
            seconds = len(window.frames) / window.fps if window.fps > 0 else float(len(window.frames))
            end = float(known.end[index]) if whole else window.start + seconds
            frames = apply_steps(window.frames, target or store.topology, missing, window.fps)
            yield replace(window, frames=frames, extra={**window.extra, "end": end})


def _missing_steps(store: Store, steps: tuple[str, ...]) -> tuple[str, ...]:
    """Steps that are asked for and that a store has not been through; those it has been through have to come first."""
    done = len(store.normalisation)
    if list(steps[:done]) != store.normalisation:
        raise InputError(
            f"store '{store.path}' was normalised by {', '.join(store.normalisation) or 'no step'}, the encoder was trained "
            f"on clips normalised by {', '.join(steps) or 'no step'}; prepare the store with those steps"
        )
    return steps[done:]
