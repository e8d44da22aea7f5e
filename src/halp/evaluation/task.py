"""What protocols are made of: the task they get, the outcome they give, and the registry they stand in.

A protocol is a class of settings and a function `(task, settings) → Outcome`; `register_protocol` makes it known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from halp.clips.store import Store
from halp.errors import InputError, choose
from halp.evaluation.cache import FeatureCache
from halp.evaluation.features import Features, clip_pool, embed_centre, embed_random_crops
from halp.sampling import generator
from halp.views import ClipPool

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """What a protocol gets: an encoder, labelled clips in two parts, a seed, and features that are computed when asked for."""

    encoder: Any  # a PackagedEncoder, or the EncoderGroup of an ensemble
    store: Store
    split: str
    train: Labels
    test: Labels
    seed: int = 0
    cache: FeatureCache = field(default_factory=FeatureCache)
    device: str = "cpu"
    progress: bool = True
    given: Features | None = None  # features of the central crops of all clips, where they are known already

    @property
    def train_labels(self) -> Labels:
        return self.store.labels[self.train]

    @property
    def classes(self) -> int:
        return max(len(self.store.class_names), int(self.store.labels.max()) + 1)

    @cached_property
    def pool(self) -> ClipPool:
        return clip_pool(self.encoder, self.store, self.device)

    @cached_property
    def features(self) -> Features:
        """Features `(N, F)` of the central 95 % of every clip of the store."""
        if self.given is not None:
            return self.given
        return self.cache.get(
            self.encoder,
            self.store,
            "centre 0.95",
            lambda: embed_centre(self.encoder, self.pool, progress=self.progress),
        )

    def crops(self, number: int) -> Features:
        """Features of one random crop of every training clip, set `number`; from the cache where it is there."""
        chosen = hashlib.sha256(np.asarray(self.train, dtype="<i8").tobytes()).hexdigest()[:16]
        crop = f"random U(0.5, 1) seed {self.seed} set {number} clips {chosen}"
        return self.cache.get(self.encoder, self.store, crop, lambda: self.fresh_crops("linear crops", number))

    def fresh_crops(self, purpose: str, number: int) -> Features:
        """The same, encoded now."""
        clips = torch.from_numpy(self.train)
        draws = generator(self.seed, purpose, number)
        return embed_random_crops(self.encoder, self.pool, clips, draws, progress=self.progress)


@dataclass(frozen=True)
class Outcome:
    """What a protocol found: the class of every test clip `(N,)` and further figures."""

    predicted: Labels
    figures: dict[str, float] = field(default_factory=dict)
    trained_on: int | None = None  # clips, where a protocol uses a part of the training clips only


Protocol = Callable[[Task, Any], Outcome]
_PROTOCOLS: dict[str, tuple[type[Any], Protocol]] = {}


def register_protocol(name: str, settings: type[Any]) -> Callable[[Protocol], Protocol]:
    """Make a protocol known by name; `settings` is a dataclass whose defaults are the published ones."""
    if not is_dataclass(settings):
        raise TypeError(f"the settings of protocol '{name}' have to be a dataclass")

    def add(protocol: Protocol) -> Protocol:
        _PROTOCOLS[name] = (settings, protocol)
        return protocol

    return add


def list_protocols() -> list[str]:
    """Names of all protocols."""
    return sorted(_PROTOCOLS)


def get_protocol(name: str) -> tuple[type[Any], Protocol]:
    """The settings and the function of a protocol."""
    return _PROTOCOLS[choose("protocol", name, _PROTOCOLS)]


def protocol_settings(name: str, given: dict[str, Any]) -> Any:
    """Checked settings of a protocol; unknown names and values of the wrong kind are refused."""
    kind, _ = get_protocol(name)
    defaults = {entry.name: getattr(kind(), entry.name) for entry in fields(kind)}
    checked = {}
    for key, value in given.items():
        default = defaults[choose(f"setting of protocol '{name}'", key, defaults)]
        if isinstance(value, list):
            value = tuple(value)
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if default is not None and value is not None and type(value) is not type(default):
            raise InputError(f"protocol '{name}': {key} = {value!r} has to be like its default, {default!r}")
        checked[key] = value
    return kind(**checked)
