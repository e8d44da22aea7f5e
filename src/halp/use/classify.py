"""Classes from a handful of labels: fit a classifier on labelled recordings, give classes to others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip
from halp.clips.store import Store
from halp.clips.tags import Tagger, make_tagger
from halp.clips.windows import Cutting
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation.features import RawCoordinates
from halp.progress import Bar
from halp.training import load_encoder
from halp.use.assessment import MOST, assess
from halp.use.classifier import UNSURE, Labels, Prediction, fit_classifier, sample_rows
from halp.use.embed import embed_clips
from halp.use.model_folder import Model, load_model
from halp.use.sources import Reading, Source, describe_source, in_blocks, read_source, split_reading
from halp.use.suggest import Suggestion, suggest
from halp.use.vectors import VectorTable, embed_table

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Answer:
    """The class of a clip or window, None for none of these, and how probable it is."""

    name: str
    start: float
    end: float
    label: str | None
    probability: float

    def to_json(self) -> dict[str, Any]:
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors `(N, F)` of labelled clips; clips of one group (person or recording) are not independent of each other."""

    vectors: npt.NDArray[np.float32]
    labels: Labels
    classes: tuple[str, ...]
    recordings: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]
    grouped_by: str

    @property
    def counts(self) -> dict[str, int]:
        return {name: int((self.labels == number).sum()) for number, name in enumerate(self.classes)}


@dataclass(frozen=True)
class LabelledSource:
    """Where labelled recordings are and how they are read; a table or a path pattern may hold the labels."""

    source: Source
    cutting: Cutting = field(default_factory=Cutting)
    format: str = "auto"
    labels: Path | None = None
    path: str | None = None

    def clips(self, encoder: PackagedEncoder) -> Iterator[Clip]:
        """Clips with a label, those without left out."""
        tagger = self.tagger()
        for clip in read_source(encoder, self.source, self.cutting, format=self.format):
            clip = tagger.tag(clip) if tagger else clip
            if clip.label >= 0:
                yield clip
        if tagger:
            tagger.check()

    def tagger(self) -> Tagger | None:
        if self.labels is None and self.path is None:
            return None
        root = self.source.path if isinstance(self.source, Store) else self.source
        if not isinstance(root, (str, os.PathLike)):
            raise InputError("arrays have no names to find in a table; use FewLabelClassifier with labels y")
        return make_tagger(Path(root), self.labels, self.path)

    def class_names(self) -> tuple[str, ...]:
        tagger = self.tagger()
        named = None if tagger is None else tagger.class_names
        return tuple(named) if named is not None else describe_source(self.source, format=self.format).class_names


def fit(
    encoder: PackagedEncoder | str | os.PathLike[str],
    labelled: LabelledSource | Source,
    *,
    kind: str = "auto",
    unsure: float = UNSURE,
    seed: int = 0,
    progress: bool = True,
) -> Model:
    """Fit a classifier on labelled recordings and cross-validate it beside the raw coordinates of the same clips."""
    encoder = encoder if isinstance(encoder, PackagedEncoder) else load_encoder(encoder)
    given = labelled if isinstance(labelled, LabelledSource) else LabelledSource(labelled)
    found = labelled_vectors(encoder, given, progress=progress)
    rows = sample_rows(found.labels, found.groups, MOST, seed)
    raw = _raw_vectors(encoder, given, rows)
    classifier = fit_classifier(
        found.vectors, found.labels, found.classes, groups=found.groups, kind=kind, unsure=unsure, seed=seed
    )
    assessment = assess(
        found.vectors[rows],
        raw,
        found.labels[rows],
        found.groups[rows],
        recordings=found.recordings[rows],
        kind=kind,
        seed=seed,
        progress=progress,
    )
    facts = {**assessment.to_json(), "grouped_by": found.grouped_by}
    return Model(encoder, classifier, given.cutting, facts, found.counts)


def labelled_vectors(encoder: PackagedEncoder, given: LabelledSource, *, progress: bool = True) -> LabelledVectors:
    """Vectors and labels of a source; classes without a clip are left out."""
    names = given.class_names()
    vectors, labels, subjects, recordings = [], [], [], []
    with Bar("embedding", describe_source(given.source, format=given.format).recordings or 0, shown=progress) as bar:
        for clips in in_blocks(given.clips(encoder), 256, 65_536):
            vectors.append(embed_clips(encoder, clips))
            labels += [clip.label for clip in clips]
            subjects += [clip.subject for clip in clips]
            recordings += [clip.recording or clip.name for clip in clips]
            bar.advance(len(clips))
    if not labels:
        raise InputError(
            "no labelled recording was found; put recordings into a folder for each class, or name the classes in a table: "
            "--labels labels.csv with the columns name and label"
        )
    there, position = np.unique(labels, return_inverse=True)
    if names and there.max() >= len(names):
        raise InputError(f"a recording has class {there.max()}, but there are {len(names)} class names")
    classes = tuple(names[label] if names else str(label) for label in there)
    numbers = np.unique(recordings, return_inverse=True)[1].astype(np.int64)
    groups, grouped_by = group_clips(position, subjects, numbers)
    return LabelledVectors(np.concatenate(vectors), position.astype(np.int64), classes, numbers, groups, grouped_by)


def group_clips(
    labels: Labels, subjects: list[int], recordings: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], str]:
    """Persons where everybody is known and no class has one person only; recordings otherwise."""
    people = np.unique(subjects, return_inverse=True)[1].astype(np.int64)
    known = min(subjects) >= 0 and all(len(np.unique(people[labels == label])) > 1 for label in np.unique(labels))
    if known:
        return people, "person"
    return recordings, "recording"


def _raw_vectors(encoder: PackagedEncoder, given: LabelledSource, rows: Labels) -> npt.NDArray[np.float32]:
    """Resized coordinates of some of the labelled clips, as the encoder gets them."""
    plain = RawCoordinates(encoder.topology, stream=encoder.stream, persons=encoder.persons)
    wanted = {int(row) for row in rows}
    clips = (clip for row, clip in enumerate(given.clips(encoder)) if row in wanted)
    return np.concatenate([embed_clips(plain, block) for block in in_blocks(clips, 256, 65_536)])


def predict(
    model: Model | str | os.PathLike[str],
    source: Source,
    **reading: Unpack[Reading],
) -> list[Answer]:
    """The class of every clip or window of a source in its order; recordings are cut as for fitting unless told otherwise.

    `reading`: window, stride, fps, format, cache, progress.
    """
    model = model if isinstance(model, Model) else load_model(model)
    spans, rest = split_reading(reading)
    table, found = predict_table(model, source, cutting_for(model, **spans), **rest)
    return answers(model, table, found)


def cutting_for(model: Model, window: float | None, stride: float | None, fps: float | None) -> Cutting:
    """How a source is cut: as the model was fitted, where nothing else is said."""
    own = model.cutting
    if window is None and stride is None:
        return Cutting(own.window, own.stride, fps or own.fps)
    return Cutting(window or own.window, stride, fps or own.fps)


def predict_table(model: Model, source: Source, cutting: Cutting, **rest: Any) -> tuple[VectorTable, Prediction]:
    """Vectors of a source and what the classifier says about them; `rest` is what `embed_table` takes."""
    table = embed_table(model.encoder, source, cutting, **rest)
    return table, model.classifier.predict(table.vectors)


def answers(model: Model, table: VectorTable, found: Prediction) -> list[Answer]:
    """Predictions with names and times."""
    classes = model.classifier.classes
    return [
        Answer(
            table.name(row),
            float(table.starts[row]),
            float(table.ends[row]),
            None if label < 0 else classes[label],
            float(found.probability[row]),
        )
        for row, label in enumerate(found.label.tolist())
    ]


def suggest_recordings(model: Model, table: VectorTable, count: int) -> list[tuple[str, Suggestion]]:
    """Recordings to label next; a recording is the mean of its windows."""
    sums = np.zeros((len(table.recordings), table.vectors.shape[1]), dtype=np.float64)
    np.add.at(sums, table.recording, table.vectors)
    means = sums / np.bincount(table.recording, minlength=len(table.recordings))[:, None]
    return [(table.recordings[one.row], one) for one in suggest(model.classifier, means.astype(np.float32), count)]
