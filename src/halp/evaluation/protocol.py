"""The registry of protocols: name, settings, function, and the facts that tables need.

A protocol is a dataclass of settings and a function `(context, settings) → predictions`:

    @register_protocol("centroid", CentroidSettings)
    def centroid(context, settings):
        train, test = context.features[context.train], context.features[context.test]
        ...
        return predicted  # the class of every test clip (N,), or Predictions with further metrics
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from halp.augment import ClipPool, PaperSettings, draw_crops
from halp.core.config import build_settings, parse_assignment
from halp.core.errors import InputError, check_choice
from halp.core.registry import Component, Registry
from halp.core.sampling import generator
from halp.data.splits import FewLabels
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.cache import FeatureCache, feature_key
from halp.features.encode import encode_centres, encode_crops, source_pool
from halp.features.opening import open_source

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def training_crops(pool: ClipPool, clips: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Start and length `(B,)` of a random crop per clip, as in the authors' linear evaluation: U(0.5, 1)."""
    rule = PaperSettings(crop_min=0.5, crop_frames=64)
    return draw_crops(pool.lengths[clips.to(pool.lengths.device)], rule, draws)


@dataclass(frozen=True)
class ProtocolContext:
    """What a protocol receives: an encoder, labelled clips in two parts, a seed, and features on demand.

    Contexts made by `dataclasses.replace` share the clips and central features of an encoder, which depend on
    neither seed nor split.
    """

    encoder: Any  # a PretrainedEncoder, or the EncoderEnsemble of an ensemble
    store: Store
    split: str
    train: Labels  # indices of the training clips
    test: Labels  # indices of the test clips
    seed: int = 0
    cache: FeatureCache = field(default_factory=FeatureCache)
    device: str = "cpu"
    progress: bool = True
    given: Features | None = None  # features of the central crops of all clips, if they are known already
    shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # by what and encoder

    @property
    def labels(self) -> Labels:
        """The class of every clip of the store `(N,)`, −1 if it is unknown."""
        return self.store.labels

    @property
    def train_labels(self) -> Labels:
        return self.store.labels[self.train]

    @property
    def groups(self) -> npt.NDArray[Any]:
        """Units `(N,)` kept together when training clips are held out: subjects or cameras, like the split.

        The clips themselves where it goes by nothing, or by what all of them share.
        """
        column = getattr(self.store.splits[self.split], "column", "")
        values = (
            self.store.columns[column][self.train]
            if column in self.store.columns
            else np.zeros(len(self.train))
        )
        return values if len(np.unique(values)) > 1 else np.arange(len(self.train))

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return max(len(self.store.class_names), int(self.store.labels.max()) + 1)

    @property
    def pool(self) -> ClipPool:
        """All clips of the store in the encoder's layout, on the device."""
        if ("pool", self.encoder) not in self.shared:
            self.shared["pool", self.encoder] = source_pool(
                self.encoder, open_source(self.store), self.device
            )
        return self.shared["pool", self.encoder]

    @property
    def features(self) -> Features:
        """Features `(N, F)` of the central 95 % of every clip of the store."""
        if self.given is not None:
            return self.given
        if ("features", self.encoder) not in self.shared:
            self.shared["features", self.encoder] = self._cached(
                "centre 0.95", lambda: encode_centres(self.encoder, self.pool, progress=self.progress)
            )
        return self.shared["features", self.encoder]

    def _cached(self, crop: str, compute: Callable[[], Iterator[Features]]) -> Features:
        key = feature_key(self.encoder, self.store.hash, crop)
        return self.cache.get(key, self.encoder.output_size, compute).vectors

    def cached_crops(self, number: int) -> Features:
        """Features of one random crop of every training clip, set `number`; cached."""
        chosen = hashlib.sha256(np.asarray(self.train, dtype="<i8").tobytes()).hexdigest()[:16]
        crop = f"random U(0.5, 1) seed {self.seed} set {number} clips {chosen}"
        return self._cached(crop, lambda: self._crops("linear crops", number))

    def fresh_crops(self, purpose: str, number: int) -> Features:
        """The same, encoded again."""
        return np.concatenate(list(self._crops(purpose, number)))

    def few_labels(self, share: float, *, stratified: bool = False) -> Labels:
        """The training clips, drawn by the seed, whose labels may be used: a share, per class or of all."""
        base = self.store.splits[self.split]
        rule = FewLabels(f"{self.split}-few", base, share, seed=self.seed, stratified=stratified)
        few, _ = rule.indices(self.store.columns)
        few = few[np.isin(few, self.train)]
        if not len(few):
            raise InputError(f"a share of {share} of split '{self.split}' holds no labelled clip")
        return few

    def crop(self, clips: Tensor, draws: torch.Generator) -> Tensor:
        """A random crop of each clip `(B,)`, for training classifiers: `(B, T, P, V, C)`, on the device."""
        return self.pool.cut(clips, *training_crops(self.pool, clips, draws), self.encoder.frames)

    def encode_centres(self, encoder: Any, clips: Labels) -> Features:
        """Features `(B, F)` of the central crops of clips `(B,)` by another encoder of the same input."""
        return np.concatenate(
            list(encode_centres(encoder, self.pool, torch.from_numpy(clips), progress=False))
        )

    def _crops(self, purpose: str, number: int) -> Iterator[Features]:
        clips = torch.from_numpy(self.train)
        crops = training_crops(self.pool, clips, generator(self.seed, purpose, number))
        return encode_crops(self.encoder, self.pool, clips, *crops, progress=self.progress)


@dataclass(frozen=True)
class Predictions:
    """Result of a protocol: the class of every test clip `(N,)` and other metrics."""

    predicted: Labels
    metrics: dict[str, float] = field(default_factory=dict)
    trained_on: int | None = None  # clips, if a protocol uses a part of the training clips only


class EncoderEnsemble(nn.Module):
    """Several encoders as one, such as those of the joint, motion and bone streams."""

    def __init__(self, members: Mapping[str, PretrainedEncoder]) -> None:
        super().__init__()
        if not members:
            raise InputError("an ensemble needs at least one encoder")
        self.members = nn.ModuleDict(dict(members))

    @property
    def stream(self) -> str:
        return "+".join(self.members)

    @property
    def origin(self) -> dict[str, Any]:
        origins: dict[str, Any] = {name: dict(self._member(name).origin) for name in self.members}
        return {
            "members": origins,
            "trained": all(member.get("trained", True) for member in origins.values()),
        }

    def _member(self, name: str) -> Any:
        return self.members[name]

    def items(self) -> list[tuple[str, PretrainedEncoder]]:
        """Names and encoders in order."""
        return [(name, self._member(name)) for name in self.members]


ProtocolFunction = Callable[[ProtocolContext, Any], Predictions | Labels]


@dataclass(frozen=True, kw_only=True)
class Protocol(Component):
    """A registered protocol. `title` names a table's column by the settings (default: its name)."""

    build: ProtocolFunction
    trains_backbone: Callable[[Any], bool]  # with these settings; raw coordinates have nothing to train
    fuses_encoders: bool  # takes several encoders at once
    title: Callable[[Any], str]
    # override the settings for raw coordinates
    baseline_settings: Mapping[str, Any] = field(default_factory=dict)
    draws_labels: bool = (
        False  # the seed draws which labels are used, so that one value is a mean over several
    )

    def run(self, context: ProtocolContext, settings: Any) -> Predictions:
        """Run the protocol; a plain array of predicted classes counts as predictions without metrics."""
        outcome = self.build(context, settings)
        return outcome if isinstance(outcome, Predictions) else Predictions(outcome)


PROTOCOLS: Registry[Protocol] = Registry("protocol", Protocol)


def register_protocol(
    name: str,
    settings: type[Any] | None = None,
    *,
    trains_backbone: bool | Callable[[Any], bool] = False,
    fuses_encoders: bool = False,
    title: Callable[[Any], str] | None = None,
    baseline_settings: Mapping[str, Any] | None = None,
    draws_labels: bool = False,
) -> Callable[[Any], Any]:
    """Make a protocol known by name; `settings` is a dataclass whose defaults are the published ones."""
    trains = trains_backbone if callable(trains_backbone) else lambda _: bool(trains_backbone)
    return PROTOCOLS.register(
        name,
        settings,
        trains_backbone=trains,
        fuses_encoders=fuses_encoders,
        title=title or (lambda _: name),
        baseline_settings=dict(baseline_settings or {}),
        draws_labels=draws_labels,
    )


def list_protocols() -> list[str]:
    """Names of all protocols.

    Returns
    -------
    list of str
        What `evaluate` takes as `protocol`.

    Examples
    --------
    >>> import halp.evaluation
    >>> {"knn", "linear"} <= set(list_protocols())
    True
    """
    return list(PROTOCOLS)


def get_protocol(name: str) -> Protocol:
    """A protocol by its name."""
    return PROTOCOLS[name]


def protocol_settings(name: str, given: Mapping[str, Any]) -> Any:
    """Checked settings of a protocol; unknown names and values of the wrong kind are refused."""
    return build_settings(get_protocol(name).settings, given, f"{name}.")


def parse_protocol_settings(texts: Iterable[str], protocols: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Settings by protocol; unknown ones are refused before anything is computed.

    >>> import halp.evaluation
    >>> parse_protocol_settings(["knn.k=5", "linear.head=mlp"])
    {'knn': {'k': 5}, 'linear': {'head': 'mlp'}}
    """
    for protocol in protocols:
        check_choice("protocol", protocol, list_protocols())
    settings: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, value = parse_assignment(text, "knn.k=5")
        protocol, dot, name = key.partition(".")
        if not dot:
            raise InputError(f"--set takes protocol.key=value, for example knn.k=5, not '{text}'")
        settings.setdefault(check_choice("protocol", protocol, list_protocols()), {})[name] = value
    for protocol, chosen in settings.items():
        protocol_settings(protocol, chosen)
    return settings
