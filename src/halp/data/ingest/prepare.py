"""From pose files to a store: all cores read and normalise, one process writes, a manifest says what became of every clip."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Unpack

from halp.core.errors import InputError, Interrupted
from halp.core.progress import Bar, console
from halp.data.clip import NOBODY, Clip, Dropped
from halp.data.ingest.journal import Journal
from halp.data.ingest.pipeline import Outcome, Pipeline, nothing_usable, open_source
from halp.data.readers import Item
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.source_files import leaving_out
from halp.data.splits import SplitRule
from halp.data.store import StoreWriter
from halp.data.tags import Tagger, make_tagger
from halp.data.topology_file import find_topology
from halp.data.windows import WindowSettings

_CHUNK = 32
# Below this many items starting other processes costs more than it saves.
_FEW = 200


def prepare(
    file_format: str,
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    normalisation: Sequence[str] | None = None,
    strict: bool = False,
    workers: int | None = None,
    limit: int | None = None,
    splits: Sequence[SplitRule] = (),
    overwrite: bool = False,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Manifest:
    """Make a store from pose files; it is whole or absent.

    Where many files are read, the same call goes on from where an earlier one was killed or interrupted.

    Parameters
    ----------
    file_format : str
        A reader's name, or `auto`.
    source, store : path
        A file or folder with recordings, and the store to make.
    normalisation : sequence of str, optional
        Steps in place of the format's own; `()` for none.
    strict : bool
        Make a clip that cannot be used an error, in place of leaving it out and naming it in the manifest.
    workers, limit : int, optional
        Processes (default: all cores), and how many items are read (default: all).
    splits : sequence of SplitRule
        Saved in the store beside those of the format.
    overwrite, progress : bool
        Replace an existing store; show progress.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields. `topology` is the layout that joints are mapped onto by
        name; `options` are settings of the reader, such as `min_score`, below which a joint counts as missing.

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
    source = Path(source)
    if limit is not None and limit < 1:
        raise InputError(f"a limit of {limit} items leaves nothing to read; choose at least 1")
    reading = combine(reading, keywords)
    cutting, options = reading.windows, reading.settings
    target = None if reading.topology is None else find_topology(reading.topology)
    table = None if reading.labels is None else Path(reading.labels)
    with leaving_out(table):
        plan, items = open_source(source, file_format, cutting, normalisation, target, options=options)
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
    with _journal(Path(store), plan, items) as journal, writer, Bar("prepare", len(items), shown=progress) as bar:
        names: set[str] = set()
        with closing(_resumed(plan, items, workers, journal)) as results:
            for number, outcomes in results:
                for outcome in outcomes:
                    tagged = tagger.tag(outcome) if tagger is not None and isinstance(outcome, Clip) else outcome
                    _take(tagged, names, class_names, writer, manifest, strict)
                bar.advance(number, f"{len(manifest.dropped)} dropped" if manifest.dropped else None)
        if not manifest.clips and manifest.dropped:
            raise nothing_usable(source, [Dropped(**drop) for drop in manifest.dropped[:1]])
        if tagger is not None:
            manifest.notes += tagger.check()
            if tagger.class_names is not None:
                writer.leave_out_empty_classes()
        manifest.labels = _origin_of_labels(plan, tagger, [name for name in manifest.classes if name in class_names])
        manifest.splits = writer.split_sizes()
        manifest.seconds = round(time.monotonic() - began, 3)
        writer.manifest = manifest.to_json()
    return manifest


def _origin_of_labels(plan: Pipeline, tagger: Tagger | None, classes: Sequence[str]) -> str:
    """How many classes there are and what named them, for the summary."""
    if not classes:
        return "no labels"
    given = tagger is not None and tagger.class_names is not None
    who = "the table or the paths" if given else "folders" if plan.by_folder else "the files"
    return f"{len(classes)} {'class' if len(classes) == 1 else 'classes'} named by {who}"


def _take(
    outcome: Outcome, names: set[str], class_names: Sequence[str], writer: StoreWriter, manifest: Manifest, strict: bool
) -> None:
    """Write a clip or note why it is left out."""
    if isinstance(outcome, Clip) and outcome.name in names:
        outcome = Dropped(outcome.name, "a clip of this name was read before; give every clip a name of its own")
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
def _journal(store: Path, plan: Pipeline, items: Sequence[Item]) -> Iterator[Journal | None]:
    """Where many items are read: what keeps them if this process is killed or interrupted, and nothing otherwise.

    Not for a reader of somebody else: its code may change between two attempts.
    """
    if len(items) < _FEW or not type(plan.reader).__module__.startswith("halp."):
        yield None
        return
    journal = Journal(store, plan, items)
    try:
        yield journal
    except KeyboardInterrupt:
        if not journal.files:
            raise
        raise Interrupted(f"stopped; the same command goes on with what '{journal.folder}' keeps") from None
    except Exception:
        journal.remove()
        raise
    journal.remove()


def _resumed(
    plan: Pipeline, items: Sequence[Item], workers: int | None, journal: Journal | None
) -> Generator[tuple[int, list[Outcome]], None, None]:
    """What an earlier attempt kept, then what is read now."""
    if journal is None:
        yield from _outcomes(plan, items, workers)
        return
    yield from journal.replay()
    if journal.done:
        console.print(f"{journal.done} of {len(items)} items were read by an earlier attempt")
    with closing(_outcomes(plan, items[journal.done :], workers)) as results:
        for count, outcomes in results:
            journal.add(count, outcomes)
            yield count, outcomes


def _outcomes(
    plan: Pipeline, items: Sequence[Item], workers: int | None
) -> Generator[tuple[int, list[Outcome]], None, None]:
    """Pairs of how many items were done and what came of them, in the order of the items."""
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise InputError(f"{workers} workers cannot do anything; choose at least 1")
    foreign = type(plan.reader).__module__.startswith("halp_plugin_")  # a file that other processes have not loaded
    few, size = (2, 1) if plan.info.slow else (_FEW, _CHUNK)
    if workers == 1 or len(items) < few or not plan.info.shared or foreign:
        keep_memory()
        for item in items:
            yield 1, plan.work([item])
        return
    chunks = [items[start : start + size] for start in range(0, len(items), size)]
    # Fresh processes: a fork of a process with threads (as torch starts them) can hang.
    pool = ProcessPoolExecutor(
        min(workers, len(chunks)), multiprocessing.get_context("spawn"), initializer=_start, initargs=(plan,)
    )
    waiting: deque[tuple[int, Future[list[Outcome]]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((len(chunk), pool.submit(_work, chunk)))
            # Few chunks are on their way at a time, so that memory does not grow with the data set.
            if len(waiting) >= 3 * workers:
                number, future = waiting.popleft()
                yield number, future.result()
        for number, future in waiting:
            yield number, future.result()
    except BrokenProcessPool as error:
        raise InputError(
            "a process that reads clips died; nothing was written; try with `workers=1`, and in a script of your own call "
            "prepare under `if __name__ == '__main__':`"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def keep_memory() -> None:
    """Have the allocator keep freed blocks up to this size, or every clip's arrays would be fetched from the system anew."""
    block = np.empty(2**24, dtype=np.uint8)
    del block


_plan: Pipeline


def _start(plan: Pipeline) -> None:
    """Set up a reading process: it leaves the keyboard to its parent and ends with it."""
    global _plan
    _plan = plan
    keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _work(items: Sequence[Item]) -> list[Outcome]:
    return _plan.work(items)


@dataclass
class Manifest:
    """Filled while a store is made and saved in it as `manifest.json`.

    `empty` counts the frames without a person that `drop-empty` left out, `dropped` holds the clips left out, `repaired`
    those that were mended, `notes` what else a user should know; counts are by class, subject and camera number.
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
            f"{self.clips} clips, {self.frames} frames; {len(self.dropped)} dropped{f' ({known})' if known else ''}, "
            f"{len(self.repaired)} repaired{empty}{f'; {self.labels}' if self.labels else ''}"
        )
