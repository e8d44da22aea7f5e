"""A session: reads the collection in the background, keeps labels, refits the few-label model."""

from __future__ import annotations

import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halp.core.errors import InputError
from halp.core.packages import find_package
from halp.core.progress import Bar, console, watchers
from halp.data.reading import Reading
from halp.explorer.folder import WatchedFolder
from halp.explorer.groups import GroupBook
from halp.explorer.imports import import_sklearn, uncollected
from halp.explorer.label_column import LabelColumn, label_rows
from halp.explorer.labels import LabelBook

if TYPE_CHECKING:
    from halp.encoders.pretrained import PretrainedEncoder
    from halp.evaluation.analysis.prototypes import KeySpace
    from halp.explorer.camera import LiveCamera
    from halp.explorer.collection import Collection
    from halp.explorer.columns import Column
    from halp.explorer.fewlabel import FewLabelModel
    from halp.explorer.preview import Preview
    from halp.features.known import SomeEncoder
    from halp.features.source import Source
    from halp.training.run import Run

PAUSE = 0.15  # seconds that the model waits for further labels


@dataclass(frozen=True)
class Settings:
    """The settings of `halp explore`."""

    source: Path
    encoder: str = "auto"
    labels: Path | None = None
    reading: Reading = field(default_factory=Reading)
    runs: tuple[Path, ...] = ()

    @property
    def label_file(self) -> Path:
        """Path of the label file; beside the source by default."""
        source = self.source.resolve()
        return self.labels or source.with_name(f"{source.name}.labels.csv")


@dataclass
class Progress:
    """Progress of the work in the background."""

    title: str = "starting"
    done: int = 0
    total: int = 0
    error: str = ""
    ready: list[str] = field(default_factory=list)


class Session:
    """State shared by all tabs; methods may be called from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.progress = Progress()
        self.failure: InputError | None = None
        self.revision = 0
        self.model: FewLabelModel | None = None
        self.labels = LabelBook(settings.label_file)
        self.folder = WatchedFolder(settings.source, settings.label_file)
        self.groups = GroupBook(self.labels)
        self._collection: Collection | None = None
        self._changed = threading.Condition()
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._label_rows: LabelColumn | None = None
        self.preview: Preview | None = None  # what is embedded so far
        self.skipped: list[int] = []  # rows that were proposed and not labelled
        self.settings_kept: dict[str, Any] = {}
        self._heard: list[str] = []  # warnings while the collection was read

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The runs given, else the run of the encoder, by folder name."""
        paths = self.settings.runs or ((self._own_run,) if self._own_run else ())
        if not paths:
            return {}
        from halp.reports.run_report import open_runs  # brings the training along, which is slow to import

        return open_runs(paths)

    @cached_property
    def _own_run(self) -> Path | None:
        """The run folder that was given as the encoder."""
        path = Path(self.settings.encoder)
        return path if find_package(path) is None and (path / "run.json").is_file() else None

    @cached_property
    def key_space(self) -> KeySpace | None:
        """The layer at which the encoder's training hallucinated positives; None if unknown."""
        from halp.evaluation.analysis.prototypes import key_space
        from halp.training.run import open_run

        return None if self._own_run is None else key_space(open_run(self._own_run))

    @cached_property
    def camera(self) -> LiveCamera:
        """The page's camera, opened on first use."""
        from halp.explorer.camera import LiveCamera

        return LiveCamera()

    def start(self) -> None:
        """Begin reading; returns at once."""
        watchers.append(self._watch)
        self._begin(self._live)

    def _begin(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=self._guarded, args=(work,), daemon=True))
        self._threads[-1].start()

    @property
    def busy(self) -> bool:
        """Whether something is still being computed."""
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Stop starting new work."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._watch in watchers:
            watchers.remove(self._watch)

    @property
    def collection(self) -> Collection:
        if self._collection is None:
            raise InputError("the collection is still being read; wait a moment")
        return self._collection

    def touch(self) -> None:
        """Notify all tabs and the model of a change."""
        with self._changed:
            self.revision += 1
            self._changed.notify_all()

    def _watch(self, bar: Bar) -> None:
        # of the one that is shown
        part = bar.title == self.progress.title and bar.total < self.progress.total
        # later bars belong to refits, which show themselves
        if "pca" not in self.progress.ready and not part:
            self.progress.title, self.progress.done, self.progress.total = bar.title, bar.done, bar.total

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except InputError as error:
            self.failure, self.progress.error = error, str(error)
        except Exception as error:
            traceback.print_exc()
            self.progress.error = f"{type(error).__name__}: {error}"
        self.revision += 1

    def _ready(self, part: str, title: str = "") -> None:
        self.progress.ready.append(part)
        self.progress.title, self.progress.done, self.progress.total = title, 0, 0
        self.touch()

    def load(self) -> None:
        """Read the collection and lay it out."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            collection = self._read()
        for one in {str(one.message): one for one in heard}.values():  # parts of the work may say the same
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        self._heard = [str(one.message) for one in heard if issubclass(one.category, UserWarning)]
        self.open(collection)

    def _read(self) -> Collection:
        from halp.features.known import open_compact

        given = self.settings
        with uncollected():
            encoder, source = open_compact(given.encoder, given.source, given.reading)
            from halp.explorer.collection import (
                Collection,
            )  # after what is wrong with the paths has been said

        return Collection(encoder, source, begun=self._show_preview)

    def _show_preview(self, encoder: SomeEncoder, source: Source) -> None:
        from halp.explorer.preview import Preview

        self.preview = Preview(encoder, source)

    def open(self, collection: Collection) -> None:
        """Compute map and groups of a collection, quickest parts first."""
        self._collection = collection
        with self.labels.lock:
            self.skipped = self._known_rows(self.labels.ledger.setting("skipped", []))
            self.settings_kept = self.labels.ledger.setting("page", {})
        with suppress(InputError):  # of other recordings
            collection.name_by(self.settings_kept.get("pattern", ""))
        self.collection.lay_out("pca")
        self._ready("pca", "laying out the map")
        self.collection.lay_out("tsne")
        self._ready("tsne", "finding groups")
        self.collection.hold_files()
        self.groups.open(self.collection)
        self._ready("groups")
        import_sklearn()  # labels and searches will need both; nothing that is kept already does
        _ = self.collection.encoder

    def _live(self) -> None:
        self._begin(self._refit_forever)
        self.load()

    @property
    def warnings(self) -> list[str]:
        """Warnings about the collection and its labels, as sentences; what was left out first."""
        own = [self.labels.trouble, self.folder.news]
        for part in (self.collection.source, self.collection.table):
            own += getattr(part, "warnings", ())
        return list(dict.fromkeys(one for one in [*own, *self._heard, self.collection.note] if one))

    def set(self, **settings: Any) -> None:
        """Keep settings of the page: naming of recordings (`pattern`), research mode (`researcher`)."""
        before, kept = self.collection.pattern, self.settings_kept | settings
        with self.labels.lock:
            self.collection.name_by(settings.get("pattern", before))
            try:
                self.labels.ledger.set("page", kept)
            except InputError:
                self.collection.name_by(before)
                raise
            self.settings_kept = kept
        if "researcher" in settings:
            self._fitted = -1  # the model is compared with more
        self.touch()

    def skip(self, rows: Sequence[int]) -> None:
        """Do not propose these rows again, now and after a restart."""
        with self.labels.lock:
            skipped = [*self.skipped, *(row for row in rows if row not in self.skipped)]
            self.labels.ledger.set("skipped", [self.collection.span(row) for row in skipped])
            self.skipped = skipped
        model = self.model
        if model is not None and not [one for one in model.suggestions if one["row"] not in self.skipped]:
            self._fitted = -1  # all were skipped: others are proposed
            self.touch()

    def _known_rows(self, spans: Sequence[tuple[str, float, float]]) -> list[int]:
        """Rows that have exactly these spans."""
        numbers = {name: number for number, name in enumerate(self.collection.recordings)} if spans else {}
        rows = [
            row
            for name, *_ in spans
            if name in numbers
            for row in self.collection.rows_of(numbers[name]).tolist()
        ]
        wanted = {tuple(span) for span in spans}
        return [row for row in dict.fromkeys(rows) if self.collection.span(row) in wanted]

    # -- labels and the model

    def row_spans(self, rows: Sequence[int]) -> list[tuple[str, float, float, str]]:
        """Spans of rows in the form that labels have."""
        return [(*self.collection.span(row), self.collection.subject(row)) for row in rows]

    def label_column(self) -> LabelColumn:
        """For every row the label that people gave to at least half of it."""
        labels = self.labels.now
        if self._label_rows is None or self._label_rows.labels is not labels:
            names, events = labels.names, [event for _, event in labels.human]
            self._label_rows = LabelColumn(labels, label_rows(self.collection, events, names), names)
        return self._label_rows

    def _refit_forever(self) -> None:
        self._fitted = -1
        while not self._stopped:
            with self._changed:
                self._changed.wait_for(self._has_work)
            if self._stopped:
                return
            time.sleep(PAUSE)
            self._fitted = self.labels.revision
            try:
                self.fit_now()
            except InputError as error:
                console.print(f"the model was not fitted: {error}", highlight=False, markup=False)
            except Exception:  # the next label may do better
                traceback.print_exc()
            self.touch()

    def _has_work(self) -> bool:
        return self._stopped or ("pca" in self.progress.ready and self.labels.revision != self._fitted)

    def fit_now(self) -> None:
        """Fit and assess the model of the current labels."""
        from halp.explorer.fewlabel import assess_labels, fit_labels

        import_sklearn()
        column = self.label_column()
        values, names = column.values, column.names
        self.model = fit_labels(self.collection, values, names, column.labels.revision, self.skipped)
        if self.model is not None:
            self.touch()
            if self.labels.now is column.labels:  # nobody has labelled meanwhile
                untrained = self._untrained if self.settings_kept.get("researcher") else None
                self.model = assess_labels(self.collection, values, names, self.model, untrained)

    @cached_property
    def _untrained(self) -> PretrainedEncoder | None:
        """The encoder's architecture with its initial weights, for researchers to compare with."""
        from halp.evaluation.evaluate_run import fresh_weights
        from halp.features.loading import as_encoder

        encoder = as_encoder(self.settings.encoder, self.collection.source)
        return fresh_weights(encoder) if encoder.architecture else None

    # -- what the page asks for

    def pulse(self) -> dict[str, Any]:
        """Revisions of everything that can change, in a few bytes."""
        self.labels.look_at_table()
        return {
            "revision": self.revision,
            "progress": asdict(self.progress),
            "labels": self.labels.revision,
            "folder": self.folder.look(),
            "groups": 0 if self.groups.now is None else self.groups.now.revision,
            "model": None if self.model is None else [self.model.revision, self.model.assessment is not None],
        }

    def column(self, name: str) -> Column:
        """A column to colour by, including changing ones such as labels."""
        from halp.explorer.columns import Column

        collection = self.collection
        if name == "label":
            column = self.label_column()
            return Column(name, column.values, column.names)
        if name == "group" and (now := self.groups.now) is not None:
            return Column(name, now.clusters.group.astype(np.int16), list(now.names))
        if name in ("prediction", "confidence") and self.model is not None:
            found = self.model.prediction
            if name == "confidence":
                return Column(name, found.probability.astype(np.float32))
            label = np.where(found.rejected, -1, found.best)
            return Column(name, label.astype(np.int16), list(self.model.classifier.classes))
        if name not in collection.columns:
            raise InputError(f"there is no column '{name[:80]}' yet")
        return collection.columns[name]
