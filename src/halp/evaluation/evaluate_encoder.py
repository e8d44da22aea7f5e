"""Evaluating an encoder by a protocol: one or several seeds, a frozen backbone, one result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from halp.clips.splits import Indices
from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation.context import Predictions, ProtocolContext
from halp.evaluation.encoder_group import EncoderGroup
from halp.evaluation.feature_cache import FeatureCache
from halp.evaluation.features import Features, fingerprint
from halp.evaluation.overlap import count_overlap
from halp.evaluation.protocol import get_protocol
from halp.evaluation.protocol_settings import protocol_settings
from halp.evaluation.results import Result, by_class, mean_and_std, score, versions

Encoder = PackagedEncoder | Mapping[str, PackagedEncoder] | EncoderGroup


def evaluate(
    encoder: Encoder,
    store: Store,
    protocol: str = "knn",
    split: str = "xsub",
    *,
    seed: int = 0,
    seeds: Sequence[int] = (),
    features: Features | None = None,
    cache: str | os.PathLike[str] | FeatureCache | None = None,
    device: str = "auto",
    progress: bool = True,
    **settings: Any,
) -> Result:
    """Evaluate an encoder on the labelled clips of a store.

    `seeds` repeats a protocol and reports mean and standard deviation. `features` of the central crops may be handed in;
    `cache` is a folder where features are kept and found again. Several encoders by name go to the protocol `ensemble`.
    `device` is where clips are encoded: the first GPU, if there is one, unless said otherwise.
    The given encoder stays as it is: its fingerprint is taken before and after, and a difference is an error.
    """
    known, chosen = get_protocol(protocol), protocol_settings(protocol, settings)
    backbone = _backbone(encoder, protocol)
    train, test = _labelled_parts(store, split)
    seeds = list(seeds) or [seed]
    before, home = fingerprint(backbone), _home(backbone)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kept = cache if isinstance(cache, FeatureCache) else FeatureCache(cache)
    context = ProtocolContext(backbone, store, split, train, test, seeds[0], kept, device, progress, features)
    found = [known.run(replace(context, seed=one), chosen) for one in seeds]
    backbone.to(home)
    after = fingerprint(backbone)
    if before != after:
        raise RuntimeError("the evaluation changed the backbone; its metrics would mean nothing")
    return Result(
        protocol=protocol,
        settings=asdict(chosen),
        split=split,
        split_hash=store.splits[split].hash,
        seed=seeds[0],
        seeds=seeds,
        stream=backbone.stream,
        **_scores(store, test, found),
        clips={"train": found[0].trained_on or len(train), "test": len(test)},
        test_clips_trained_on=count_overlap(backbone.origin, store, test),
        encoder=backbone.origin,
        data={"store": str(store.path), "hash": store.hash},
        backbone={"before": before, "after": after},
        versions=versions(),
    )


def _labelled_parts(store: Store, split: str) -> tuple[Indices, Indices]:
    """The training and test clips of a split that have a label."""
    train, test = (part[store.labels[part] >= 0] for part in store.split(split))
    if not len(train) or not len(test):
        raise InputError(
            f"split '{split}' of store '{store.path}' has no labelled clips on one side; evaluation needs labels"
        )
    return train, test


def _scores(store: Store, test: Indices, found: Sequence[Predictions]) -> dict[str, Any]:
    """Accuracies, metrics and confusions of the predictions of every seed, by their names in a result."""
    names = store.class_names or [str(label) for label in range(int(store.labels.max()) + 1)]
    scored = [score(store.labels[test], one.predicted, names) for one in found]
    accuracies = [round(accuracy, 4) for accuracy, _, _ in scored]
    accuracy, std = mean_and_std(accuracies)
    confusion = np.sum([counts for _, _, counts in scored], axis=0)
    return {
        "accuracy": accuracy,
        "accuracies": accuracies,
        "std": std,
        "metrics": {key: mean_and_std([one.metrics[key] for one in found])[0] for key in found[0].metrics},
        "per_class": by_class(confusion, names),
        "confusion": confusion.tolist(),
        "classes": names,
    }


def _home(module: nn.Module) -> torch.device:
    """Where an encoder lives; raw coordinates have no weights and live anywhere."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


def _backbone(encoder: Encoder, protocol: str) -> Any:
    if isinstance(encoder, Mapping):
        encoder = EncoderGroup(encoder)
    if isinstance(encoder, EncoderGroup) and not get_protocol(protocol).fuses_encoders:
        raise InputError(f"protocol '{protocol}' evaluates one encoder; several go to the protocol 'ensemble'")
    if not isinstance(encoder, nn.Module):
        raise InputError(f"an encoder is needed, not {type(encoder).__name__}; load one with halp.load_encoder")
    return encoder
