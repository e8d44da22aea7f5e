"""Evaluating an encoder by a protocol: one or several seeds, a frozen backbone, one result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import nn

from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation.cache import FeatureCache
from halp.evaluation.ensemble import EncoderGroup
from halp.evaluation.features import Features, fingerprint
from halp.evaluation.results import Result, by_class, mean_and_std, score, versions
from halp.evaluation.task import Task, get_protocol, protocol_settings

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
    _, run = get_protocol(protocol)
    chosen = protocol_settings(protocol, settings)
    backbone = _backbone(encoder, protocol)
    train, test = store.split(split)
    train, test = train[store.labels[train] >= 0], test[store.labels[test] >= 0]
    if not len(train) or not len(test):
        raise InputError(
            f"split '{split}' of store '{store.path}' has no labelled clips on one side; evaluation needs labels"
        )
    seeds = list(seeds) or [seed]
    before, home = fingerprint(backbone), _home(backbone)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kept = cache if isinstance(cache, FeatureCache) else FeatureCache(cache)
    outcomes = []
    for one in seeds:
        task = Task(backbone, store, split, train, test, one, kept, device, progress, features)
        outcomes.append(run(task, chosen))
        # central crops do not depend on the seed
        features = task.__dict__.get("features", features)
    backbone.to(home)
    after = fingerprint(backbone)
    if before != after:
        raise RuntimeError("the evaluation changed the backbone; its figures would mean nothing")
    names = store.class_names or [str(label) for label in range(int(store.labels.max()) + 1)]
    scored = [score(store.labels[test], outcome.predicted, names) for outcome in outcomes]
    accuracies = [round(accuracy, 4) for accuracy, _, _ in scored]
    accuracy, std = mean_and_std(accuracies)
    confusion = np.sum([found for _, _, found in scored], axis=0)
    return Result(
        protocol=protocol,
        settings=asdict(chosen),
        split=split,
        split_hash=store.splits[split].hash,
        seed=seeds[0],
        seeds=seeds,
        stream=backbone.stream,
        accuracy=accuracy,
        accuracies=accuracies,
        std=std,
        figures={key: mean_and_std([one.figures[key] for one in outcomes])[0] for key in outcomes[0].figures},
        per_class=by_class(confusion, names),
        confusion=confusion.tolist(),
        classes=names,
        clips={"train": outcomes[0].trained_on or len(train), "test": len(test)},
        encoder=backbone.origin,
        data={"store": str(store.path), "hash": store.hash},
        backbone={"before": before, "after": after},
        versions=versions(),
    )


def _home(module: nn.Module) -> torch.device:
    """Where an encoder lives; raw coordinates have no weights and live anywhere."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


def _backbone(encoder: Encoder, protocol: str) -> Any:
    if isinstance(encoder, Mapping):
        encoder = EncoderGroup(encoder)
    if isinstance(encoder, EncoderGroup) and protocol != "ensemble":
        raise InputError(f"protocol '{protocol}' evaluates one encoder; several go to the protocol 'ensemble'")
    if not isinstance(encoder, nn.Module):
        raise InputError(f"an encoder is needed, not {type(encoder).__name__}; load one with halp.load_encoder")
    return encoder
