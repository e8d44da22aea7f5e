"""What a protocol gets and gives: `ProtocolContext` (encoder, clips, labels, features) and `Predictions`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from halp.augment import ClipPool
from halp.clips.store import Store
from halp.evaluation.feature_cache import FeatureCache
from halp.evaluation.features import Features, clip_pool, embed_centre, embed_random_crops
from halp.sampling import generator

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ProtocolContext:
    """What a protocol gets: an encoder, labelled clips in two parts, a seed, and features computed when asked for.

    Contexts made by `dataclasses.replace` share the clips and central features of an encoder, which depend on neither seed
    nor split.
    """

    encoder: Any  # a PackagedEncoder, or the EncoderGroup of an ensemble
    store: Store
    split: str
    train: Labels  # indices of the training clips
    test: Labels  # indices of the test clips
    seed: int = 0
    cache: FeatureCache = field(default_factory=FeatureCache)
    device: str = "cpu"
    progress: bool = True
    given: Features | None = None  # features of the central crops of all clips, where they are known already
    shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # by what and encoder

    @property
    def labels(self) -> Labels:
        """The class of every clip of the store `(N,)`, −1 where it is unknown."""
        return self.store.labels

    @property
    def train_labels(self) -> Labels:
        return self.store.labels[self.train]

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return max(len(self.store.class_names), int(self.store.labels.max()) + 1)

    @property
    def pool(self) -> ClipPool:
        """All clips of the store in the encoder's layout, on the device."""
        if ("pool", self.encoder) not in self.shared:
            self.shared["pool", self.encoder] = clip_pool(self.encoder, self.store, self.device)
        return self.shared["pool", self.encoder]

    @property
    def features(self) -> Features:
        """Features `(N, F)` of the central 95 % of every clip of the store."""
        if self.given is not None:
            return self.given
        if ("features", self.encoder) not in self.shared:
            self.shared["features", self.encoder] = self.cache.get(
                self.encoder,
                self.store,
                "centre 0.95",
                (len(self.store), self.encoder.output_size),
                lambda: embed_centre(self.encoder, self.pool, progress=self.progress),
            )
        return self.shared["features", self.encoder]

    def cached_crops(self, number: int) -> Features:
        """Features of one random crop of every training clip, set `number`; from the cache where they are there."""
        chosen = hashlib.sha256(np.asarray(self.train, dtype="<i8").tobytes()).hexdigest()[:16]
        crop = f"random U(0.5, 1) seed {self.seed} set {number} clips {chosen}"
        shape = (len(self.train), self.encoder.output_size)
        return self.cache.get(self.encoder, self.store, crop, shape, lambda: self.fresh_crops("linear crops", number))

    def fresh_crops(self, purpose: str, number: int) -> Features:
        """The same, encoded now."""
        clips = torch.from_numpy(self.train)
        draws = generator(self.seed, purpose, number)
        return embed_random_crops(self.encoder, self.pool, clips, draws, progress=self.progress)


@dataclass(frozen=True)
class Predictions:
    """What a protocol found: the class of every test clip `(N,)` and further metrics."""

    predicted: Labels
    metrics: dict[str, float] = field(default_factory=dict)
    trained_on: int | None = None  # clips, where a protocol uses a part of the training clips only
