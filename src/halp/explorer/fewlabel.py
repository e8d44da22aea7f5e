"""The few-label model of the explorer, fitted, assessed and queried by the functions of `halp classify`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.encoders.pretrained import PretrainedEncoder, RawCoordinates, compacted
from halp.explorer.answers import SAMPLED, sample
from halp.explorer.collection import Collection
from halp.features.cache import module_fingerprint
from halp.features.encode import embed_frames, ready_clips
from halp.features.loading import as_encoder, choose_shipped
from halp.tasks.adapt import Neighbourhood
from halp.tasks.assessment import Score, cross_validate
from halp.tasks.classifier import TUNED, Classifier, Prediction, fit_classifier, folds, sample_rows, suggest
from halp.tasks.classify import disable_unreliable_rejection
from halp.tasks.labelling import validation_units

SUGGESTED = 12
MANY = 4 * SUGGESTED  # recordings without a label that are enough to choose from
_JUDGED = 400  # labelled rows that are cross-validated; more are sampled
_NEAR = 1000  # rows, labelled or not, that a model is adapted to: a label should show at once


@dataclass(frozen=True)
class FewLabelModel:
    """A classifier fitted to the labels of a revision, its predictions for all rows, and its accuracy."""

    revision: int
    classifier: Classifier
    prediction: Prediction
    suggestions: list[dict[str, Any]]
    counts: dict[str, int]
    seconds: float
    assessment: dict[str, Any] | None = None


def fit_labels(
    collection: Collection,
    values: npt.NDArray[np.int16],
    names: Sequence[str],
    revision: int,
    skipped: Sequence[int] = (),
) -> FewLabelModel | None:
    """A model of at least two classes, or None; rows that were `skipped` are not proposed again."""
    began = time.monotonic()
    rows, labels, classes = _labelled(values, names)
    if len(classes) < 2:
        return None
    units, grouped_by = _units(collection, rows, labels)
    near = _neighbourhood(collection, rows, values)
    vectors = np.asarray(collection.table.vectors[rows])
    classifier = fit_classifier(vectors, labels, classes, units=units, neighbourhood=near)
    classifier = disable_unreliable_rejection(classifier, grouped_by)
    prediction = classifier.predict(collection.table.vectors)
    open_rows = candidates(collection, values, revision)
    open_rows = open_rows[~np.isin(open_rows, np.asarray(skipped, dtype=np.int64))]
    suggestions: list[dict[str, Any]] = []
    if len(open_rows):
        for one in suggest(classifier, np.asarray(collection.table.vectors[open_rows]), SUGGESTED):
            row = int(open_rows[one.row])
            suggestions.append({**collection.describe(row), "uncertainty": round(one.uncertainty, 3)})
    counts = {name: int((labels == number).sum()) for number, name in enumerate(classes)}
    return FewLabelModel(revision, classifier, prediction, suggestions, counts, time.monotonic() - began)


def candidates(collection: Collection, values: npt.NDArray[np.int16], seed: int = 0) -> npt.NDArray[np.int64]:
    """Rows that may be labelled next: one random row per unlabelled recording, if there are enough.

    Windows of a recording that has a label teach little more, and long recordings have more windows than
    short ones.
    """
    of_labelled = np.isin(collection.recording, collection.recording[values >= 0])
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(~of_labelled))
    rows = rows[np.unique(collection.recording[rows], return_index=True)[1]]
    if len(rows) < MANY:
        rows = sample(collection, seed)
        return rows[values[rows] < 0]
    return rows[:SAMPLED]


def assess_labels(
    collection: Collection,
    values: npt.NDArray[np.int16],
    names: Sequence[str],
    model: FewLabelModel,
    untrained: PretrainedEncoder | None = None,
) -> FewLabelModel:
    """The model with its cross-validated accuracy, that of the raw coordinates of the same clips, of an
    `untrained` encoder and, beside an encoder of the user, of the shipped one; and a sentence that decides.

    A class of one recording (or person) cannot be judged and is left out, so that a new class does not hide
    the others'.
    """
    rows, labels, classes = _labelled(values, names)
    units, grouped_by = _units(collection, rows, labels)
    scarce = [number for number in range(len(classes)) if len(np.unique(units[labels == number])) < 2]
    enough = ~np.isin(labels, scarce)
    rows, labels, units = rows[enough], labels[enough], units[enough]
    facts: dict[str, Any] = {"grouped_by": grouped_by, "left_out": [classes[number] for number in scarce]}
    if len(classes) - len(scarce) < 2:
        return replace(model, assessment=facts)
    chosen = sample_rows(labels, units, _JUDGED, 0)
    rows, labels, units = rows[chosen], labels[chosen], units[chosen]
    known = np.unique(labels, return_inverse=True)[1]
    if not list(folds(known, units)):
        return replace(model, assessment=facts)
    encoder = collection.encoder
    plain = RawCoordinates(encoder.topology, stream=encoder.stream, persons=encoder.persons)
    clips = ready_clips(encoder, collection.source, rows)
    raw = embed_frames(plain, [clip.frames for clip in clips])
    recordings, vectors = collection.recording[rows], np.asarray(collection.table.vectors[rows])
    near = _neighbourhood(collection, rows, values)
    scores = {
        "encoder": cross_validate(vectors, known, units, recordings, neighbourhood=near),
        "raw": cross_validate(raw, known, units, recordings, one_scale=True),
    }
    if (shipped := _other_shipped(collection)) is not None:
        beside = _vectors_beside(collection, "shipped", shipped[1], rows)
        scores["shipped"] = cross_validate(beside, known, units, recordings)
        facts["shipped_name"] = shipped[0]
    if untrained is not None:
        beside = _vectors_beside(collection, "untrained", untrained, rows)
        scores["untrained"] = cross_validate(beside, known, units, recordings)
    facts["verdict"] = _verdict(scores, facts.get("shipped_name", ""))
    accuracies = {
        name: {
            "accuracy": score.accuracy,
            "low": score.low,
            "high": score.high,
            "recordings": score.recordings,
        }
        for name, score in scores.items()
    }
    return replace(model, assessment={**accuracies, **facts})


def _vectors_beside(
    collection: Collection, name: str, encoder: PretrainedEncoder, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Vectors of rows by another encoder; each is computed once."""
    known = collection.beside.setdefault(name, {})
    new = [row for row in rows.tolist() if row not in known]
    if new:
        found = embed_frames(encoder, [clip.frames for clip in ready_clips(encoder, collection.source, new)])
        known.update(zip(new, found, strict=True))
    return np.stack([known[row] for row in rows.tolist()])


def _other_shipped(collection: Collection) -> tuple[str, PretrainedEncoder] | None:
    """The shipped encoder that reads these joints and its name; None if it is the one in use."""
    try:
        name = choose_shipped(collection.source)
    except InputError:
        return None
    encoder = compacted(as_encoder(name))
    same = module_fingerprint(encoder) == module_fingerprint(collection.encoder)
    return None if same else (name, encoder)


def _verdict(scores: dict[str, Score], shipped: str) -> str:
    """Which encoder to keep; nothing is certain where one's accuracy lies in the interval of the other's."""
    names = {"raw": "positions alone", "shipped": shipped, "untrained": "the untrained encoder"}
    own, other = scores["encoder"], max(scores.keys() - {"encoder"}, key=lambda name: scores[name].accuracy)
    best, points = scores[other], 100 * (own.accuracy - scores[other].accuracy)
    if best.low <= own.accuracy <= best.high or own.low <= best.accuracy <= own.high:
        return f"No certain difference from {names[other]} yet."
    if points > 0:
        return f"Keep this encoder: {points:.0f} points above {names[other]}."
    return f"Keep {names[other]}: {-points:.0f} points above this encoder."


def _neighbourhood(
    collection: Collection, rows: npt.NDArray[np.int64], values: npt.NDArray[np.int16]
) -> Neighbourhood | None:
    """The labelled rows and a sample of unlabelled ones to spread few labels over; None if not useful."""
    others = np.flatnonzero(values < 0)
    if len(rows) > TUNED or not len(others):
        return None
    room = max(_NEAR - len(rows), 0)
    if len(others) > room:
        others = np.sort(np.random.default_rng(0).choice(others, room, replace=False))
    own, further = (np.asarray(collection.table.vectors[part]) for part in (rows, others))
    units = collection.recording[np.concatenate([rows, others])].astype(np.int64)
    return Neighbourhood.of(own, further, units, most=_NEAR)


def _labelled(
    values: npt.NDArray[np.int16], names: Sequence[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[str]]:
    """Labelled rows, their labels numbered from 0, and the names of the classes."""
    rows = np.flatnonzero(values >= 0)
    there, labels = np.unique(values[rows], return_inverse=True)
    return rows, labels.astype(np.int64), [names[number] for number in there]


def _units(
    collection: Collection, rows: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], str]:
    subjects = collection.table.subjects[rows].tolist()
    return validation_units(
        labels, subjects, np.unique(collection.recording[rows], return_inverse=True)[1].astype(np.int64)
    )
