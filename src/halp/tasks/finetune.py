"""Fine-tuning: the whole network trained with labels, as a model that `halp classify predict` takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn
from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.data.clip import Frames
from halp.data.reading import Reading, ReadingKeywords
from halp.evaluation.protocols.finetune import Finetuned, FinetuneSettings
from halp.evaluation.protocols.finetune import finetune as train
from halp.features.encode import embed_frames, frames_pool, ready_clips
from halp.features.loading import AnyEncoder, open_for
from halp.features.source import AnySource
from halp.tasks.assessment import Score
from halp.tasks.calibration import (
    REJECTION_RATE,
    Floats,
    check_rejection,
    fit_temperature,
    nearest_similarities,
)
from halp.tasks.classifier import BANK, Classifier, Labels, folds, sample_rows
from halp.tasks.classify import disable_unreliable_rejection
from halp.tasks.heads import Candidate, Head, round_to_eight_bit, unit
from halp.tasks.labelling import Labelling, check_classes, labelled_rows, labelling
from halp.tasks.model_folder import Model


def finetune(
    encoder: AnyEncoder,
    labelled: AnySource,
    *,
    settings: FinetuneSettings | None = None,
    rejection_rate: float | None = REJECTION_RATE,
    seed: int = 0,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Model:
    """Train a copy of the encoder and a linear head with labels.

    A first training on four fifths gives accuracy, temperature and threshold; the model itself is trained on
    everything. If no part can be held out, its accuracy is not known.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str
        An encoder, a run, a package or a shipped name; it stays as it is.
    labelled : Source, Store or path
        Recordings with labels, of two classes at least.
    settings : FinetuneSettings, optional
        Epochs, batch size, learning rate, …
    rejection_rate : float or None
        Share of known recordings that may be rejected as unlike everything labelled.
    seed : int
        Of the head, the crops and the order.
    progress : bool
        Whether progress is shown.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields (window, stride, fps, topology, format,
        options, labels, pattern).

    Returns
    -------
    Model
        As `classify_fit` gives it.

    Examples
    --------
    >>> import numpy as np, halp
    >>> draw = np.random.default_rng(0)
    >>> clips = [draw.normal(size=(40, 25, 3)) for _ in range(4)]
    >>> source = halp.open_source(clips, topology="kinect-v2").with_labels(np.array([0, 0, 1, 1]), ["sit", "wave"])
    >>> from halp.evaluation.protocols.finetune import FinetuneSettings
    >>> halp.finetune("halp-base", source, settings=FinetuneSettings(epochs=1), progress=False).labelled
    {'sit': 2, 'wave': 2}
    """
    settings = settings or FinetuneSettings()
    check_rejection(rejection_rate)
    if settings.head != "linear":
        raise InputError("halp finetune trains a linear head; leave out the head, or use the protocol")
    encoder, source = open_for(encoder, labelled, reading, **keywords)
    source = labelled_rows(source)
    check_classes(source)
    data = labelling(source)
    clips = [clip.frames for clip in ready_clips(encoder, source, range(len(source)))]
    pool = frames_pool(encoder, clips)
    how: dict[str, Any] = {"classes": len(data.classes), "seed": seed, "progress": progress}
    splits = folds(data.labels, data.units, seed)
    temperature, nearest, facts = 1.0, None, dict[str, Any]()
    if splits:
        kept, held = splits[0]
        first = train(encoder, pool, kept, data.labels[kept], settings, **how)
        temperature, nearest, facts = _judge(first, clips, data, kept, held)
    network = train(encoder, pool, np.arange(len(clips)), data.labels, settings, **how)
    vectors, kept = embed_frames(network.encoder, clips), sample_rows(data.labels, data.units, BANK, seed)
    head = _head(network, vectors, data.labels, len(data.classes), kept)
    if nearest is None:
        nearest = nearest_similarities(head.bank, data.units[kept])
    classifier = Classifier(head, data.classes, temperature, nearest, rejection_rate)
    classifier = disable_unreliable_rejection(classifier, data.grouped_by)
    tuned = network.encoder
    tuned.origin = {
        **encoder.origin,
        "finetuned": {"epochs": settings.epochs, "learning_rate": settings.learning_rate},
    }
    return Model(
        tuned.eval().cpu(), classifier, source.cutting, {**facts, "grouped_by": data.grouped_by}, data.counts
    )


def _head(
    network: Finetuned, vectors: npt.NDArray[np.float32], labels: Labels, classes: int, kept: Labels
) -> Head:
    """The trained head on standardised vectors, with the rows `kept` as reference for rejection."""
    layer = network.head
    if not isinstance(layer, nn.Linear):
        raise TypeError("a linear head is expected")
    weight, bias = layer.weight.detach().cpu().numpy(), layer.bias.detach().cpu().numpy()
    mean, scale = vectors.mean(0), np.maximum(vectors.std(0), 1e-6)
    bank, weight, bias = (
        round_to_eight_bit(unit((vectors[kept] - mean) / scale)),
        weight * scale,
        bias + weight @ mean,
    )
    return Head(Candidate("linear"), classes, mean, scale, bank, labels[kept], weight, bias)


def _judge(
    network: Finetuned, clips: list[Frames], data: Labelling, kept: Labels, held: Labels
) -> tuple[float, Floats, dict[str, Any]]:
    """Temperature, similarities to the nearest training clip, and accuracy on held-out clips."""
    vectors = embed_frames(network.encoder, clips)
    bank = sample_rows(data.labels[kept], data.units[kept], BANK, 0)
    head = _head(network, vectors[kept], data.labels[kept], len(data.classes), bank)
    logits = head.logits(vectors[held])
    right = logits.argmax(1) == data.labels[held]
    nearest = np.sort((head.directions(vectors[held]) @ head.bank.T).max(1).astype(np.float64))
    score = Score.of(right, data.recordings[held], data.units[held], "fine-tuned, a fifth held out")
    return fit_temperature(logits, data.labels[held]), nearest, {"encoder": asdict(score)}
