"""Fine-tuning: the whole network trained with labels, as a model that `halp classify predict` takes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from halp.augment import ClipPool
from halp.clips.clip import Clip
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation.protocols.finetune import Finetuned, FinetuneSettings
from halp.evaluation.protocols.finetune import finetune as train
from halp.training import load_encoder
from halp.use.calibration import (
    Floats,
    accuracy_interval,
    fit_temperature,
    nearest_similarities,
    novelty_threshold,
)
from halp.use.classifier import UNSURE, Classifier, Labels, folds
from halp.use.classify import LabelledSource, group_clips
from halp.use.embed import embed_clips, join_frames
from halp.use.heads import Candidate, Head, unit
from halp.use.model_folder import Model
from halp.use.sources import Source, in_blocks


@dataclass(frozen=True)
class _Clips:
    """Labelled clips in memory."""

    clips: list[Clip]
    labels: Labels
    classes: tuple[str, ...]
    recordings: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]
    grouped_by: str


def finetune(
    encoder: PackagedEncoder | str | os.PathLike[str],
    labelled: LabelledSource | Source,
    *,
    settings: FinetuneSettings | None = None,
    unsure: float = UNSURE,
    seed: int = 0,
    progress: bool = True,
) -> Model:
    """Train a copy of the encoder and a linear head. A first training on four fifths gives accuracy, temperature and threshold.

    The model itself is trained on everything; where no part can be held out, its accuracy is not known.
    """
    settings = settings or FinetuneSettings()
    if settings.head != "linear":
        raise InputError("halp finetune trains a linear head; leave out the head, or use the protocol finetune")
    encoder = encoder if isinstance(encoder, PackagedEncoder) else load_encoder(encoder)
    given = labelled if isinstance(labelled, LabelledSource) else LabelledSource(labelled)
    data = _read(encoder, given)
    splits = list(folds(data.labels, data.groups, seed))
    temperature, nearest, facts = 1.0, None, dict[str, Any]()
    if splits:
        kept, held = splits[0]
        first = _train(encoder, data, kept, settings, seed, progress)
        temperature, nearest, facts = _judge(first, data, kept, held)
    network = _train(encoder, data, np.arange(len(data.labels)), settings, seed, progress)
    head = _head(network, _embed(network.encoder, data.clips), data.labels, len(data.classes))
    if nearest is None:
        nearest = nearest_similarities(head.bank, data.groups)
    known = np.sort(nearest[np.isfinite(nearest)])
    classifier = Classifier(head, data.classes, temperature, novelty_threshold(nearest, unsure), known)
    tuned = network.encoder
    tuned.origin = {**encoder.origin, "finetuned": {"epochs": settings.epochs, "learning_rate": settings.learning_rate}}
    counts = {name: int((data.labels == number).sum()) for number, name in enumerate(data.classes)}
    return Model(tuned.eval().cpu(), classifier, given.cutting, {**facts, "grouped_by": data.grouped_by}, counts)


def _read(encoder: PackagedEncoder, given: LabelledSource) -> _Clips:
    names, clips = given.class_names(), list(given.clips(encoder))
    if not clips:
        raise InputError("no labelled recording was found to fine-tune on; give labels with --labels labels.csv")
    there, position = np.unique([clip.label for clip in clips], return_inverse=True)
    if len(there) < 2:
        raise InputError("fine-tuning needs recordings of two classes at least; use `halp classify fit` for one")
    recordings = np.unique([clip.recording or clip.name for clip in clips], return_inverse=True)[1].astype(np.int64)
    groups, grouped_by = group_clips(position, [clip.subject for clip in clips], recordings)
    classes = tuple(names[label] if names else str(label) for label in there)
    return _Clips(clips, position.astype(np.int64), classes, recordings, groups, grouped_by)


def _train(
    encoder: PackagedEncoder, data: _Clips, rows: Labels, settings: FinetuneSettings, seed: int, progress: bool
) -> Finetuned:
    lengths = torch.tensor([len(clip.frames) for clip in data.clips])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    pool = ClipPool(torch.from_numpy(join_frames(data.clips, encoder.persons)), offsets, lengths, torch.device("cpu"))
    return train(
        encoder, pool, rows, data.labels[rows], settings, classes=len(data.classes), seed=seed, progress=progress
    )


def _embed(encoder: PackagedEncoder, clips: list[Clip]) -> npt.NDArray[np.float32]:
    return np.concatenate([embed_clips(encoder, block) for block in in_blocks(clips, 256, 65_536)])


def _head(network: Finetuned, vectors: npt.NDArray[np.float32], labels: Labels, classes: int) -> Head:
    """The trained head on standardised vectors, W x + b = (W·scale) (x − mean) / scale + (b + W mean)."""
    layer = network.head
    if not isinstance(layer, nn.Linear):
        raise TypeError("a linear head is expected")
    weight, bias = layer.weight.detach().cpu().numpy(), layer.bias.detach().cpu().numpy()
    mean, scale = vectors.mean(0), np.maximum(vectors.std(0), 1e-6)
    bank = unit((vectors - mean) / scale)
    return Head(Candidate("linear"), classes, mean, scale, bank, labels, weight * scale, bias + weight @ mean)


def _judge(network: Finetuned, data: _Clips, kept: Labels, held: Labels) -> tuple[float, Floats, dict[str, Any]]:
    """Temperature, similarities to the nearest training clip, and accuracy, on clips that were not trained on."""
    vectors = _embed(network.encoder, data.clips)
    head = _head(network, vectors[kept], data.labels[kept], len(data.classes))
    logits = head.logits(vectors[held])
    right = logits.argmax(1) == data.labels[held]
    nearest = (head.directions(vectors[held]) @ head.bank.T).max(1).astype(np.float64)
    low, high = accuracy_interval(right, data.recordings[held], data.groups[held])
    score = {
        "accuracy": float(right.mean()),
        "low": low,
        "high": high,
        "recordings": len(np.unique(data.recordings[held])),
        "chosen": "fine-tuned, a fifth held out",
    }
    return fit_temperature(logits, data.labels[held]), nearest, {"encoder": score}
