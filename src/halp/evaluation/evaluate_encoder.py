"""Evaluating an encoder by a protocol: one or several seeds, a frozen backbone, one result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from halp.core.errors import InputError
from halp.data.choose_splits import ALL
from halp.data.splits import Indices
from halp.data.store import Store, open_store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation.protocol import (
    EncoderEnsemble,
    Features,
    Predictions,
    ProtocolContext,
    get_protocol,
    protocol_settings,
)
from halp.evaluation.results import Result, by_class, mean_and_std, score, versions
from halp.features.cache import FeatureCache, module_fingerprint
from halp.features.loading import as_encoder
from halp.features.opening import open_source

Encoder = PretrainedEncoder | Mapping[str, PretrainedEncoder] | EncoderEnsemble | str | os.PathLike[str]

Setting = bool | int | float | str | Sequence[int] | None  # what settings of protocols are


@overload
def evaluate(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
    encoder: Encoder,
    store: Store | str | os.PathLike[str],
    protocol: str = ...,
    split: str = ...,
    *,
    seed: int = ...,
    seeds: Sequence[int] = ...,
    features: Features | None = ...,
    cache: str | os.PathLike[str] | FeatureCache | None = ...,
    device: str = ...,
    progress: bool = ...,
    **settings: Setting,
) -> Result: ...


@overload
def evaluate(
    encoder: Encoder,
    store: Store | str | os.PathLike[str],
    protocol: Sequence[str],
    split: str = ...,
    *,
    seed: int = ...,
    seeds: Sequence[int] = ...,
    features: Features | None = ...,
    cache: str | os.PathLike[str] | FeatureCache | None = ...,
    device: str = ...,
    progress: bool = ...,
    **settings: Setting,
) -> dict[str, Result]: ...


def evaluate(
    encoder: Encoder,
    store: Store | str | os.PathLike[str],
    protocol: str | Sequence[str] = "knn",
    split: str = "xsub",
    *,
    seed: int = 0,
    seeds: Sequence[int] = (),
    features: Features | None = None,
    cache: str | os.PathLike[str] | FeatureCache | None = None,
    device: str = "auto",
    progress: bool = True,
    **settings: Setting,
) -> Result | dict[str, Result]:
    """Evaluate an encoder on the labelled clips of a store.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str, or mapping of names to several
        An encoder, a run, a package, a shipped name or `auto`. It stays as it is: its fingerprint is taken
        before and after. Several go to the protocol `ensemble`.
    store : Store or path
        Clips with labels and splits.
    protocol : str or sequence of str
        By what, see `list_protocols`; several share the features and give a result each.
    split : str
        On which split, see `store.splits`.
    seed, seeds : int, sequence of int
        One seed, or several for mean and standard deviation.
    features : array (N, F), optional
        Of the central crops, if they are known already.
    cache : path or FeatureCache, optional
        Where features are kept and found again.
    device : str
        Where clips are encoded; `auto` is the first GPU, if there is one.
    progress : bool
        Whether progress is shown.
    **settings
        Of the protocol, such as `k=5`.

    Returns
    -------
    Result, or dict of them by protocol if several are named
        Accuracy, metrics, confusion, and what they were measured on.

    Raises
    ------
    InputError
        Where protocol, split or a setting is not known, or there is nothing to train or to test on.

    Examples
    --------
    >>> import tempfile, halp
    >>> from halp.data.synthetic import make_synthetic_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = make_synthetic_store(f"{folder}/store", count=48)
    ...     result = halp.evaluate("halp-base", store, "knn", progress=False)
    >>> result.protocol, 0 <= result.accuracy <= 100
    ('knn', True)
    """
    names = [protocol] if isinstance(protocol, str) else list(protocol)
    if settings and len(names) > 1:
        raise InputError(
            f"{', '.join(settings)}: settings belong to one protocol, and {', '.join(names)} are several;"
            " call evaluate for each"
        )
    chosen = {name: protocol_settings(name, settings) for name in names}
    store = store if isinstance(store, Store) else open_store(store)
    if isinstance(encoder, (str, os.PathLike)):
        encoder = as_encoder(encoder, open_source(store))
    backbone = _backbone(encoder, names)
    train, test = _labelled_parts(store, split)
    seeds = list(seeds) or [seed]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kept = cache if isinstance(cache, FeatureCache) else FeatureCache(cache)
    context = ProtocolContext(backbone, store, split, train, test, seeds[0], kept, device, progress, features)
    results = {name: _evaluate_by(name, context, chosen[name], seeds) for name in names}
    return results[protocol] if isinstance(protocol, str) else results


def _evaluate_by(protocol: str, context: ProtocolContext, settings: Any, seeds: list[int]) -> Result:
    """The result of one protocol; raises if the backbone changed."""
    backbone, store = context.encoder, context.store
    # raw coordinates have no weights and live anywhere
    home = next((parameter.device for parameter in backbone.parameters()), torch.device("cpu"))
    before = module_fingerprint(backbone)
    outcomes = [get_protocol(protocol).run(replace(context, seed=draw), settings) for draw in seeds]
    backbone.to(home)
    after = module_fingerprint(backbone)
    if before != after:
        raise RuntimeError("the evaluation changed the backbone; its metrics would mean nothing")
    return Result(
        protocol=protocol,
        settings=asdict(settings),
        split=context.split,
        split_hash=store.splits[context.split].hash,
        seed=seeds[0],
        seeds=seeds,
        stream=backbone.stream,
        **_scores(store, context.test, outcomes),
        clips={"train": outcomes[0].trained_on or len(context.train), "test": len(context.test)},
        test_clips_trained_on=count_overlap(backbone.origin, store, context.test),
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
            f"split '{split}' of store '{store.path}' has no labelled clips on one side; evaluation needs"
            " labels"
        )
    return train, test


def _scores(store: Store, test: Indices, outcomes: Sequence[Predictions]) -> dict[str, Any]:
    """Accuracies, metrics and confusions of the predictions of every seed, by their names in a result."""
    names = store.class_names or [str(label) for label in range(int(store.labels.max()) + 1)]
    scored = [score(store.labels[test], outcome.predicted, names) for outcome in outcomes]
    accuracies = [round(accuracy, 4) for accuracy, _, _ in scored]
    accuracy, std = mean_and_std(accuracies)
    confusion = np.sum([counts for _, _, counts in scored], axis=0)
    return {
        "accuracy": accuracy,
        "accuracies": accuracies,
        "std": std,
        "metrics": {
            key: mean_and_std([outcome.metrics[key] for outcome in outcomes])[0]
            for key in outcomes[0].metrics
        },
        "per_class": by_class(confusion, names),
        "confusion": confusion.tolist(),
        "classes": names,
    }


def _backbone(encoder: Encoder, protocols: Sequence[str]) -> Any:
    if isinstance(encoder, Mapping):
        encoder = EncoderEnsemble(encoder)
    for protocol in protocols:
        if isinstance(encoder, EncoderEnsemble) and not get_protocol(protocol).fuses_encoders:
            raise InputError(
                f"protocol '{protocol}' evaluates one encoder; several go to the protocol 'ensemble'"
            )
    if not isinstance(encoder, nn.Module):
        raise InputError(f"an encoder is needed, not {type(encoder).__name__}; see halp.load_encoder")
    return encoder


def pretraining_clips(origin: Mapping[str, Any], store: Store) -> npt.NDArray[np.int64] | None:
    """Indices of the store's clips that an encoder of this origin was pre-trained on; None if unknown.

    It is not known for encoders that do not say, and for other data than the pre-training's: two stores may
    share recordings.
    """
    if origin.get("raw") or origin.get("trained") is False:
        return np.zeros(0, dtype=np.int64)
    origins = list(origin.get("members", {}).values())
    if "initialised" in origin:  # its encoder had learned from other clips before
        origins = [
            origin["initialised"],
            {key: value for key, value in origin.items() if key != "initialised"},
        ]
    if origins:
        parts = [pretraining_clips(member, store) for member in origins]
        known = [part for part in parts if part is not None]
        return np.unique(np.concatenate(known)) if len(known) == len(parts) else None
    split = origin.get("split")
    if split is None or origin.get("data") != store.hash:
        return None
    if split == ALL:
        return np.arange(len(store))
    return store.split(split)[0] if split in store.splits else None


def pretraining_splits(origin: Mapping[str, Any]) -> list[str | None]:
    """The split of the pre-training, and before it those of the encoders that it started from."""
    before = pretraining_splits(origin["initialised"]) if "initialised" in origin else []
    split = origin.get("split")
    return before if split in before else [*before, split]


def count_overlap(origin: Mapping[str, Any], store: Store, test: npt.NDArray[np.int64]) -> int | None:
    """How many of these test clips an encoder was pre-trained on; None if it is not known."""
    clips = pretraining_clips(origin, store)
    return None if clips is None else int(np.isin(test, clips).sum())


def overlap_warning(
    origins: Sequence[Mapping[str, Any]], store: Store, splits: Sequence[str], *, allowed: bool
) -> str | None:
    """Notes on evaluating on these splits; an overlap that is neither allowed nor inevitable is refused."""
    shared, tested = 0, 0
    named: list[str] = []
    for split in splits:
        _, test = store.split(split)
        counts = [(count_overlap(origin, store, test) or 0, origin) for origin in origins]
        most, origin = max(counts, key=lambda pair: pair[0])
        if not most:
            continue
        shared, tested, named = shared + most, tested + len(test), [*named, split]
        learned = pretraining_splits(origin)
        if not allowed and ALL not in learned:
            raise InputError(
                f"{most} of the {len(test)} test clips of split '{split}' were in the pre-training on split"
                f" {' and '.join(map(repr, learned))}; evaluate on that split, pre-train on '{split}', or add"
                " --allow-overlap, which marks the results"
            )
    if not named:
        return None
    where = f"split '{named[0]}'" if len(named) == 1 else f"{len(named)} splits"
    return (
        f"{shared} of the {tested} test clips of {where} were in the pre-training; the results are marked and"
        " cannot be compared with those on clips that were not trained on"
    )
