"""Classes from few labels: fit a classifier on labelled recordings, predict the classes of others."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits
from typing_extensions import Unpack

from halp.core.errors import InputError, check_choice
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import Event
from halp.data.windows import WindowSettings
from halp.encoders.pretrained import PretrainedEncoder, RawCoordinates
from halp.encoders.sides import SIDES, with_sides
from halp.features.embed import embed_table
from halp.features.encode import embed_frames, ready_clips
from halp.features.loading import AnyEncoder, open_for
from halp.features.source import AnySource, Source
from halp.features.table import FeatureTable
from halp.tasks.adapt import MOST as MOST_NEAR
from halp.tasks.adapt import Neighbourhood
from halp.tasks.assessment import MOST, assess
from halp.tasks.calibration import REJECTION_RATE, Reject, check_rejection
from halp.tasks.classifier import (
    TUNED,
    Classifier,
    Prediction,
    Suggestion,
    fit_classifier,
    sample_rows,
    suggest,
)
from halp.tasks.labelling import check_classes, labelled_rows, labelling
from halp.tasks.model_folder import Model, load_model
from halp.tasks.segments import SEEN, Predictions, predicted


def fit(
    encoder: AnyEncoder,
    labelled: AnySource,
    *,
    unlabelled: AnySource | None = None,
    kind: str = "auto",
    sides: str = "matter",
    rejection_rate: float | None = REJECTION_RATE,
    seed: int = 0,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Model:
    """Fit a classifier on labelled recordings, cross-validated against the raw coordinates of the same clips.

    Parameters
    ----------
    encoder
        An encoder, or the path or name of one.
    labelled
        A store, or recordings in a folder for each class, of any kind that `halp.open_source` takes.
    unlabelled
        Further recordings without labels, opened with the same options. With them, and with recordings of
        `labelled` that have no label, few labels go further (see `halp.tasks.adapt`).
    kind
        linear, knn, prototypes, adapted (uses clips without labels), or auto to choose by cross-validation.
    sides
        Whether left and right matter to your classes: matter, soft (less), or same (either hand will do). The
        last two encode every clip twice.
    rejection_rate
        Share of the known clips that may be rejected; None for no rejection. It is off where the labelled
        clips are not of several known persons, for nothing then tells how unlike another person may be.
    seed
        Of the folds.
    progress
        Whether progress is shown.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields (window, stride, fps, topology, format,
        options, labels, pattern).

    Returns
    -------
    Model
        What `classify_predict` takes and `save_model` keeps.

    Examples
    --------
    >>> import numpy as np, halp
    >>> draw = np.random.default_rng(0)
    >>> clips = [draw.normal(size=(40, 25, 3)) for _ in range(4)]
    >>> source = halp.open_source(clips, topology="kinect-v2").with_labels(np.array([0, 0, 1, 1]), ["sit", "wave"])
    >>> model = halp.classify_fit("halp-base", source, kind="prototypes", progress=False)
    >>> model.labelled
    {'sit': 2, 'wave': 2}
    """
    check_rejection(rejection_rate)
    check_choice("sides", sides, SIDES)
    reading = combine(reading, keywords)
    encoder, everything = open_for(encoder, labelled, reading)
    encoder = with_sides(encoder, sides)
    source = labelled_rows(everything)
    check_classes(source)
    vectors = np.asarray(embed_table(encoder, source, progress=progress).vectors)
    data = labelling(source)
    further = [everything.select(everything.labels < 0)]
    if unlabelled is not None:
        further.append(open_for(encoder, unlabelled, _as_read(everything, reading))[1])
    near = _neighbourhood(encoder, vectors, source, further, kind, seed, progress)
    labels, units = data.labels, data.units
    rows = sample_rows(labels, units, MOST, seed)
    raw = _raw_vectors(encoder, source.select(rows))
    how: dict[str, Any] = {"kind": kind, "seed": seed}
    part = vectors[rows], raw, labels[rows], units[rows]
    import_module("scipy.optimize")  # has a BLAS of its own, which is limited only once it is loaded
    with threadpool_limits(1):  # on products this small, further threads only wait for each other
        classifier = fit_classifier(
            vectors,
            labels,
            data.classes,
            units=units,
            rejection_rate=rejection_rate,
            neighbourhood=near,
            **how,
        )
        assessment = assess(*part, data.recordings[rows], progress=progress, neighbourhood=near, **how)
    clips = 0 if near is None else len(near) - len(labels)
    facts = {**assessment, "grouped_by": data.grouped_by, "unlabelled": clips}
    return Model(
        encoder, disable_unreliable_rejection(classifier, data.grouped_by), source.cutting, facts, data.counts
    )


def _as_read(source: Source, reading: Reading) -> Reading:
    """How unlabelled clips are read: cut like the labelled ones, their labels ignored."""
    return replace(reading, labels=None, pattern=None).cut_by(source.cutting)


def _neighbourhood(
    encoder: PretrainedEncoder,
    vectors: npt.NDArray[np.float32],
    source: Source,
    further: list[Source],
    kind: str,
    seed: int,
    progress: bool,
) -> Neighbourhood | None:
    """Labelled and unlabelled vectors; None if there are no unlabelled ones or none are needed."""
    further = [one for one in further if len(one)]
    if kind not in ("auto", "adapted") or not further or len(vectors) > TUNED:
        if kind == "adapted":
            raise InputError(
                f"kind 'adapted' needs clips without labels and at most {TUNED} labelled ones; name"
                " recordings with --unlabelled SOURCE, or choose --kind auto"
            )
        return None
    room, found, units = MOST_NEAR - len(vectors), [], [source.rows["recording"]]
    draw = np.random.default_rng(seed)
    for number, one in enumerate(further):
        share = max(1, room // (len(further) - number))
        if len(one) > share:
            one = one.select(np.sort(draw.choice(len(one), share, replace=False)))
        table = embed_table(encoder, one, progress=progress)
        seen = table.seen > 0
        found.append(np.asarray(table.vectors)[seen])
        units.append(one.rows["recording"][seen] + units[-1].max(initial=-1) + 1)
        room -= int(seen.sum())
    return Neighbourhood.of(vectors, np.concatenate(found), np.concatenate(units), seed=seed)


def _raw_vectors(encoder: PretrainedEncoder, source: Source) -> npt.NDArray[np.float32]:
    """Resized coordinates of labelled clips, as the encoder gets them."""
    plain = RawCoordinates(encoder.topology, stream=encoder.stream, persons=encoder.persons)
    return embed_frames(plain, [clip.frames for clip in ready_clips(encoder, source, range(len(source)))])


def predict(
    model: Model | str | os.PathLike[str],
    source: AnySource,
    *,
    reject: Reject = "auto",
    cache: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Predictions:
    """The class of every clip or window of a source, in order; by default recordings are cut as for fitting.

    Parameters
    ----------
    model
        A model or its folder.
    source
        A store, recordings of any format, or arrays.
    reject
        "auto" for the rate of the model, "none" for never, or the share of known clips that may be rejected.
    cache, progress
        See `halp.embed_table`.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields (window, stride, fps, topology, format,
        options, labels, pattern).

    Returns
    -------
    Predictions
        A sequence of events: the label, the probability as score, and in `more` the best class and whether it
        is rejected.

    Examples
    --------
    >>> import numpy as np, halp
    >>> draw = np.random.default_rng(0)
    >>> clips = [draw.normal(size=(40, 25, 3)) for _ in range(4)]
    >>> source = halp.open_source(clips, topology="kinect-v2").with_labels(np.array([0, 0, 1, 1]), ["sit", "wave"])
    >>> model = halp.classify_fit("halp-base", source, kind="prototypes", progress=False)
    >>> halp.classify_predict(model, clips[:1], topology="kinect-v2", cache=False, progress=False)[0].more["best"]
    'sit'
    """
    model = model if isinstance(model, Model) else load_model(model)
    reading = combine(reading, keywords)
    cutting = window_settings(model, reading.windows)
    warn_about(model, cutting, reject)
    table, prediction = predict_table(
        model, source, reading.cut_by(cutting), reject=reject, cache=cache, progress=progress
    )
    return answers(model, table, prediction, cutting, reject)


def window_settings(model: Model, asked: WindowSettings) -> WindowSettings:
    """How a source is cut: as for fitting, by default."""
    fitted = model.cutting
    fps = fitted.fps if asked.fps is None else asked.fps
    if asked.window is None and asked.stride is None:
        return WindowSettings(fitted.window, fitted.stride, fps)
    return WindowSettings(fitted.window if asked.window is None else asked.window, asked.stride, fps)


def notes(model: Model, cutting: WindowSettings, reject: Reject = "auto") -> list[str]:
    """Warnings about predictions: rejection off or uncalibrated, windows unlike those of the fit."""
    sentences = []
    classifier = model.classifier
    rate = classifier.rejection_rate if check_rejection(reject) == "auto" else check_rejection(reject)
    if reject == "auto" and rate is None:
        sentences.append(
            "rejection is off, since the labelled clips are not of several known persons and do not show how"
            " much persons differ; name people with a column subject in --labels or {subject}"
            " in --pattern, or force it with --reject 0.05"
        )
    elif rate and not np.isfinite(classifier.threshold(reject)):
        sentences.append(
            f"nothing is rejected, since {len(classifier.similarities)} labelled clips are too few to find the"
            f" {float(rate):.0%} least similar ones; label more, or raise --reject"
        )
    widths = model.cutting.window, cutting.window
    if widths[0] != widths[1]:
        spans = ["whole clips" if width is None else f"windows of {width:g} s" for width in widths]
        remedy = "leave out --window" if widths[1] is None else f"fit it with --window {widths[1]:g}"
        sentences.append(
            f"the model was fitted on {spans[0]} and is used on {spans[1]}, which it has not seen; {remedy}"
        )
    return sentences


def warn_about(model: Model, cutting: WindowSettings, reject: Reject = "auto") -> None:
    """Warn about what limits the answers of a model, see `notes`."""
    for sentence in notes(model, cutting, reject):
        warnings.warn(sentence, stacklevel=3)


def disable_unreliable_rejection(classifier: Classifier, grouped_by: str) -> Classifier:
    """The classifier; without rejection if its similarities do not compare different persons."""
    return classifier if grouped_by == "person" else replace(classifier, rejection_rate=None)


def predict_table(
    model: Model,
    source: AnySource,
    reading: Reading,
    *,
    reject: Reject = "auto",
    cache: bool = True,
    progress: bool = True,
) -> tuple[FeatureTable, Prediction]:
    """Vectors of a source and the predictions of the classifier for them."""
    check_rejection(reject)
    table = embed_table(model.encoder, source, cache=cache, progress=progress, reading=reading)
    return table, model.classifier.predict(table.vectors, reject=reject)


def answers(
    model: Model,
    table: FeatureTable,
    prediction: Prediction,
    cutting: WindowSettings,
    reject: Reject = "auto",
) -> Predictions:
    """Predictions with names and times; clips and windows without a person have no class."""
    can_reject = model.classifier.can_reject(reject)
    classes, best, probability = model.classifier.classes, prediction.best, prediction.probability
    somebody = table.seen > 0 if cutting.window is None else table.seen >= SEEN
    somebody &= np.any(table.vectors, axis=1)  # nor where all joints lie in one place
    rows: list[tuple[int, Event]] = []
    for row, there in enumerate(somebody.tolist()):
        where = table.name(row), float(table.starts[row]), float(table.stops[row])
        rejected = bool(prediction.rejected[row]) if can_reject else None
        known = (classes[best[row]], float(probability[row]), rejected) if there else (None,)
        rows.append((int(table.recording[row]), predicted(*where, *known)))
    for recording, start, stop in table.absences:
        name = table.recordings[recording]
        rows += [(recording, predicted(name, *span, None)) for span in _empty_windows(start, stop, cutting)]
    return Predictions([event for _, event in sorted(rows, key=lambda row: (row[0], row[1].start))])


def _empty_windows(start: float, stop: float, cutting: WindowSettings) -> list[tuple[float, float]]:
    """Windows that lie in a span in which nobody is seen; they have no vector."""
    if cutting.window is None:
        return []
    stride = cutting.stride or cutting.window
    first, last = math.ceil(start / stride - 1e-6), math.floor((stop - cutting.window) / stride + 1e-6)
    return [(place * stride, place * stride + cutting.window) for place in range(first, last + 1)]


def suggest_recordings(
    model: Model | str | os.PathLike[str],
    source: AnySource,
    count: int,
    *,
    cache: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> list[tuple[str, Suggestion]]:
    """Recordings to label next, most useful first; a recording is represented by the mean of its windows."""
    model = model if isinstance(model, Model) else load_model(model)
    reading = combine(reading, keywords)
    reading = reading.cut_by(window_settings(model, reading.windows))
    table = embed_table(model.encoder, source, cache=cache, progress=progress, reading=reading)
    sums = np.zeros((len(table.recordings), table.vectors.shape[1]), dtype=np.float64)
    np.add.at(sums, table.recording, table.vectors)
    means = sums / np.bincount(table.recording, minlength=len(table.recordings))[:, None]
    return [
        (table.recordings[suggestion.row], suggestion)
        for suggestion in suggest(model.classifier, means.astype(np.float32), count)
    ]
