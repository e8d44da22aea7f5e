"""From pose files to a store: workers read and normalise, one process joins; a manifest lists every clip."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Unpack

from halp.core.errors import InputError, Interrupted
from halp.core.job_parts import NotAllThere, PartDone, in_job_array
from halp.core.progress import Bar
from halp.core.remote import fetched
from halp.core.urls import check_local
from halp.data.clip import NOBODY, Clip, Dropped
from halp.data.ingest.parts import Parts
from halp.data.ingest.pipeline import Outcome, Pipeline, nothing_usable, plan_reading
from halp.data.readers import Item
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.source_files import excluding_files
from halp.data.splits import SplitRule
from halp.data.store_writer import StoreWriter
from halp.data.tagger import Tagger, make_tagger
from halp.data.topology_file import find_topology
from halp.data.windows import WindowSettings
from halp.engine import Engine

# Below this many items starting other processes costs more than it saves.
_FEW = 200


def prepare(
    file_format: str,
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    normalisation: Sequence[str] | None = None,
    strict: bool = False,
    limit: int | None = None,
    splits: Sequence[SplitRule] = (),
    overwrite: bool = False,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Manifest:
    """Make a store from pose files; it appears once it is complete.

    Where many files are read, the same call resumes from where an earlier one was killed or interrupted.

    Parameters
    ----------
    file_format : str
        A reader's name, or `auto`.
    source, store : path
        A file or folder with recordings, and the store to make.
    normalisation : sequence of str, optional
        Steps instead of the format's own; `()` for none.
    strict : bool
        Make a clip that cannot be used an error, instead of leaving it out and naming it in the manifest.
    limit : int, optional
        How many items are read (default: all).
    splits : sequence of SplitRule
        Saved in the store beside those of the format.
    overwrite, progress : bool
        Replace an existing store; show progress.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields. `topology` is the layout that joints are
        mapped onto by name; `options` are settings of the reader, such as `min_score`, below which a joint
        counts as missing.

    Returns
    -------
    Manifest
        What became of every clip; also in the store.

    Raises
    ------
    InputError
        Where nothing can be read, or a setting does not fit; nothing is written then.
    """
    began = time.monotonic()
    check_local(store)
    source = fetched(source)
    if limit is not None and limit < 1:
        raise InputError(f"a limit of {limit} items leaves nothing to read; choose at least 1")
    reading = combine(reading, keywords)
    cutting, options = reading.windows, reading.settings
    if reading.engine is not None:  # workers have folders of their own
        source, store = source.absolute(), Path(store).absolute()
    target = None if reading.topology is None else find_topology(reading.topology)
    table = None if reading.labels is None else Path(reading.labels)
    with excluding_files(table):
        plan, items = plan_reading(source, file_format, cutting, normalisation, target, options=options)
        tagger = make_tagger(source, table, reading.pattern)
    items, info = items[:limit], plan.info
    class_names = info.class_names if tagger is None or tagger.class_names is None else tagger.class_names
    recorded = [*info.applied, *plan.steps]
    manifest = Manifest(plan.reader.name, source.name, recorded)
    writer = StoreWriter(
        store,
        plan.target,
        persons=info.persons,
        class_names=class_names,
        splits=(*info.splits, *splits),
        normalisation=recorded,
        origin={
            "format": plan.reader.name,
            "source": source.name,
            "options": dict(options),
            **({} if cutting == WindowSettings() else {"windows": asdict(cutting)}),
            **info.origin,
        },
        overwrite=overwrite,
    )
    engine = reading.place
    with (
        _parts(Path(store), plan, items, engine) as parts,
        writer,
        Bar("prepare", len(items), shown=progress) as bar,
    ):
        names: set[str] = set()
        with closing(_outcomes(plan, items, parts, engine)) as results:
            for number, outcomes in results:
                for outcome in outcomes:
                    tagged = (
                        tagger.tag(outcome) if tagger is not None and isinstance(outcome, Clip) else outcome
                    )
                    _write_or_drop(tagged, names, class_names, writer, manifest, strict)
                bar.advance(number, f"{len(manifest.dropped)} dropped" if manifest.dropped else None)
        if not manifest.clips and manifest.dropped:
            raise nothing_usable(source, [Dropped(**drop) for drop in manifest.dropped[:1]])
        if tagger is not None:
            manifest.notes += tagger.check()
            if tagger.class_names is not None:
                writer.leave_out_empty_classes()
        manifest.labels = _origin_of_labels(
            plan, tagger, [name for name in manifest.classes if name in class_names]
        )
        manifest.splits = writer.split_sizes()
        manifest.seconds = round(time.monotonic() - began, 3)
        writer.manifest = manifest.to_json()
    return manifest


def _origin_of_labels(plan: Pipeline, tagger: Tagger | None, classes: Sequence[str]) -> str:
    """The number of classes and the origin of their names, for the summary."""
    if not classes:
        return "no labels"
    given = tagger is not None and tagger.class_names is not None
    who = "the table or the paths" if given else "folders" if plan.by_folder else "the files"
    return f"{len(classes)} {'class' if len(classes) == 1 else 'classes'} named by {who}"


def _write_or_drop(
    outcome: Outcome,
    names: set[str],
    class_names: Sequence[str],
    writer: StoreWriter,
    manifest: Manifest,
    strict: bool,
) -> None:
    """Write a clip or record why it is dropped."""
    if isinstance(outcome, Clip) and outcome.name in names:
        outcome = Dropped(
            outcome.name, "a clip of this name was read before; give every clip a name of its own"
        )
    if isinstance(outcome, Dropped):
        if strict and not outcome.expected:
            raise InputError(f"clip '{outcome.name}': {outcome.reason}")
        manifest.dropped.append(asdict(outcome))
        return
    names.add(outcome.name)
    writer.add(outcome)
    known = 0 <= outcome.label < len(class_names)
    manifest.keep(outcome, class_names[outcome.label] if known else str(outcome.label))


@contextmanager
def _parts(store: Path, plan: Pipeline, items: Sequence[Item], engine: Engine) -> Iterator[Parts | None]:
    """For many items: parts, which survive a kill, an interrupt and a job array; else nothing.

    Not for a reader of somebody else: its code may change between two attempts.
    """
    theirs = not type(plan.reader).__module__.startswith("halp.")
    few = 0 if in_job_array(engine.part) else 2 if plan.info.slow else _FEW
    if few == 0 and (theirs or not plan.info.shared):
        raise InputError(f"format '{plan.reader.name}' cannot be read in parts; leave --shard out")
    if len(items) < few or theirs or not plan.info.shared:
        yield None
        return
    parts = Parts(store, plan, items)
    try:
        if engine.part is not None:  # one part of a job array, which does not write the store
            keep_memory()
            deque(parts.outcomes(engine, few=2), maxlen=0)
        yield parts
    except KeyboardInterrupt:
        if not parts.done:
            raise
        raise Interrupted(f"stopped; run the same command again to resume from '{parts.folder}'") from None
    except (PartDone, NotAllThere):
        raise
    except Exception:
        parts.remove()
        raise
    parts.remove()


def _outcomes(
    plan: Pipeline, items: Sequence[Item], parts: Parts | None, engine: Engine
) -> Generator[tuple[int, list[Outcome]], None, None]:
    """Pairs of the number of items done and their results, in the order of the items."""
    keep_memory()
    if parts is None:
        yield from ((1, plan.work([item])) for item in items)
    else:
        yield from parts.outcomes(engine, few=2)


def keep_memory() -> None:
    """Have the allocator keep freed blocks up to this size instead of returning them after every clip."""
    block = np.empty(2**24, dtype=np.uint8)
    del block


@dataclass
class Manifest:
    """Filled while a store is made and saved in it as `manifest.json`.

    `empty` counts the frames without a person that `drop-empty` left out, `dropped` holds the clips left out,
    `repaired` those that were repaired, `notes` what else a user should know; counts are by class, subject
    and camera number.
    """

    format: str
    source: str
    normalisation: list[str]
    clips: int = 0
    frames: int = 0
    empty: int = 0
    labels: str = ""
    dropped: list[dict[str, Any]] = field(default_factory=list)
    repaired: list[dict[str, Any]] = field(default_factory=list)
    classes: Counter[str] = field(default_factory=Counter)
    subjects: Counter[int] = field(default_factory=Counter)
    cameras: Counter[int] = field(default_factory=Counter)
    splits: dict[str, dict[str, int] | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def expected(self) -> int:
        """How many of the dropped clips were published as unusable."""
        return sum(1 for drop in self.dropped if drop["expected"]) - self.nobody

    @property
    def nobody(self) -> int:
        """How many of the dropped clips are windows in which nobody is seen."""
        return sum(1 for drop in self.dropped if drop["reason"] == NOBODY)

    def keep(self, clip: Clip, class_name: str) -> None:
        """Count a clip that goes into the store."""
        self.clips += 1
        self.frames += len(clip.frames)
        self.empty += clip.span - len(clip.frames)
        self.classes[class_name] += 1
        self.subjects[clip.subject] += 1
        self.cameras[clip.camera] += 1
        if clip.repairs:
            self.repaired.append({"name": clip.name, "repairs": list(clip.repairs)})

    def to_json(self) -> dict[str, Any]:
        """Plain data; numbers as keys become text."""
        data = asdict(self)
        for key in ("classes", "subjects", "cameras"):
            data[key] = {str(value): count for value, count in sorted(getattr(self, key).items())}
        data["counts"] = {
            "clips": self.clips,
            "frames": self.frames,
            "frames without a person": self.empty,
            "dropped": len(self.dropped),
            "dropped as published": self.expected,
            "repaired": len(self.repaired),
        }
        return data

    def summary(self) -> str:
        """One sentence for the end of a run.

        >>> Manifest("ntu", "tree", [], clips=3, frames=210).summary()
        '3 clips, 210 frames; 0 dropped, 0 repaired'
        """
        reasons = {"as published": self.expected, "windows without a person": self.nobody}
        known = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
        empty = f"; {self.empty} frames without a person left out, the time is kept" if self.empty else ""
        return (
            f"{self.clips} clips, {self.frames} frames; {len(self.dropped)}"
            f" dropped{f' ({known})' if known else ''}, {len(self.repaired)}"
            f" repaired{empty}{f'; {self.labels}' if self.labels else ''}"
        )
