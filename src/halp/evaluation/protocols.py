"""Protocols: named evaluations of an encoder on a split of a store, each ending in a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError, choose
from halp.evaluation.features import Features, embed, embed_random_crops, fingerprint
from halp.evaluation.knn import knn_predict
from halp.evaluation.linear import LinearSettings, fit_linear, predict_linear
from halp.evaluation.results import Result, score, versions
from halp.sampling import generator

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """What a protocol gets: an encoder, labelled clips in two parts, a seed, and the features of the central crops."""

    encoder: PackagedEncoder
    store: Store
    train: Labels
    test: Labels
    seed: int
    features: Features
    progress: bool

    @property
    def train_labels(self) -> Labels:
        return self.store.labels[self.train]


Protocol = Callable[..., tuple[Labels, dict[str, Any]]]
_PROTOCOLS: dict[str, Protocol] = {}


def register_protocol(name: str) -> Callable[[Protocol], Protocol]:
    """Make a protocol known by name: `(task, **settings)` → predicted classes of the test clips, settings as used."""

    def add(protocol: Protocol) -> Protocol:
        _PROTOCOLS[name] = protocol
        return protocol

    return add


def list_protocols() -> list[str]:
    """Names of all protocols."""
    return sorted(_PROTOCOLS)


@register_protocol("knn")
def _knn(task: Task, k: int = 1, temperature: float | None = None) -> tuple[Labels, dict[str, Any]]:
    train, test = task.features[task.train], task.features[task.test]
    predicted = knn_predict(train, task.train_labels, test, k, temperature=temperature)
    return predicted, {"k": k, "temperature": temperature, "similarity": "cosine"}


@register_protocol("linear")
def _linear(task: Task, **settings: Any) -> tuple[Labels, dict[str, Any]]:
    chosen = LinearSettings(**settings)
    clips = torch.from_numpy(task.train)
    crops = [
        embed_random_crops(task.encoder, task.store, clips, generator(task.seed, "linear crops", crop))
        for crop in range(chosen.crops)
    ] or [task.features[task.train]]
    classifier = fit_linear(crops, task.train_labels, chosen, generator(task.seed, "linear"), progress=task.progress)
    return predict_linear(classifier, task.features[task.test]), asdict(chosen)


def evaluate(
    encoder: PackagedEncoder,
    store: Store,
    protocol: str = "knn",
    split: str = "xsub",
    *,
    seed: int = 0,
    features: Features | None = None,
    progress: bool = True,
    **settings: Any,
) -> Result:
    """Evaluate an encoder on the labelled clips of a store; `features` of the central crops may be handed in.

    The backbone is frozen: its fingerprint is taken before and after, and a difference is an error.
    """
    run = _PROTOCOLS[choose("protocol", protocol, _PROTOCOLS)]
    train, test = store.split(split)
    train, test = train[store.labels[train] >= 0], test[store.labels[test] >= 0]
    if not len(train) or not len(test):
        raise InputError(
            f"split '{split}' of store '{store.path}' has no labelled clips on one side; evaluation needs labels"
        )
    before = fingerprint(encoder)
    if features is None:
        features = embed(encoder, store, progress=progress)
    try:
        predicted, used = run(Task(encoder, store, train, test, seed, features, progress), **settings)
    except TypeError as error:
        raise InputError(f"protocol '{protocol}': {error}") from error
    after = fingerprint(encoder)
    if before != after:
        raise RuntimeError("the evaluation changed the backbone; its figures would mean nothing")
    count = int(store.labels.max()) + 1
    names = store.class_names or [str(label) for label in range(count)]
    accuracy, per_class, confusion = score(store.labels[test], predicted, names)
    return Result(
        protocol=protocol,
        settings=used,
        split=split,
        split_hash=store.splits[split].hash,
        seed=seed,
        stream=encoder.stream,
        accuracy=round(accuracy, 4),
        per_class=per_class,
        confusion=confusion,
        classes=names,
        clips={"train": len(train), "test": len(test)},
        encoder=encoder.origin,
        data={"store": str(store.path), "hash": store.hash},
        backbone={"before": before, "after": after},
        versions=versions(),
    )
