"""What predictive methods share: one view, an encoder and a decoder per stream, a loss averaged over the whole batch.

Masked prediction, P&C, MS2L, LongT GAN and GL-Transformer differ in what they hide, what they decode and how they compare
it; each says so in `predict`. Neither queue nor momentum twin.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from halp.augment import Policy
from halp.distributed import gather
from halp.encoders import has_setting
from halp.errors import InputError
from halp.methods.base import Method, Metrics, StepContext, StepOutput
from halp.skeleton import Topology
from halp.streams import derive

VIEWS: Mapping[str, Policy | None] = {"clip": None}


@dataclass(frozen=True)
class PredictiveSettings:
    """What the settings of all predictive methods have."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights of losses by name; 1 where none is given."""
        return {}


@dataclass(frozen=True)
class WholeBatch:
    """The batch of all processes together, of which this one holds some rows: draws and means are those of the whole."""

    total: int
    rows: slice
    generator: torch.Generator

    def rand(self, *shape: int) -> Tensor:
        """Uniform numbers `(B, *shape)` for the rows of this process, drawn for all."""
        return torch.rand(self.total, *shape, generator=self.generator)[self.rows]

    def randint(self, high: int) -> Tensor:
        """Whole numbers below `high`, `(B,)`, for the rows of this process, drawn for all."""
        return torch.randint(high, (self.total,), generator=self.generator)[self.rows]

    def some_frames(self, frames: int, share: float) -> Tensor:
        """A share of the frames of every clip, drawn at random: `(B, frames)`."""
        return hidden_frames(self.rand(frames), share)

    def gather(self, rows: Tensor) -> Tensor:
        """All rows `(total, D)` from those of every process."""
        return gather(rows, self.total)

    def mean(self, per_clip: Tensor) -> Tensor:
        """Mean of a number per clip `(B,)` over the clips of all processes."""
        return self.gather(per_clip[:, None]).mean()


@dataclass(frozen=True)
class Predicted:
    """What one stream gives: losses by name, each a scalar of the whole batch, its features `(B, F)`, further metrics."""

    losses: Mapping[str, Tensor]
    features: Tensor
    metrics: Metrics = field(default_factory=dict)


class PredictiveMethod(Method):
    """Encoders and decoders by representation; the loss is the weighted sum over streams and their losses."""

    views = VIEWS
    fork_optional = ("decoders.",)
    profiled: ClassVar[str] = "halp: prediction"

    def __init__(
        self,
        encoders: Mapping[str, nn.Module],
        decoders: Mapping[str, nn.Module],
        settings: PredictiveSettings,
        topology: Topology,
    ) -> None:
        super().__init__()
        self.settings, self.topology = settings, topology
        self.backbones, self.decoders = nn.ModuleDict(encoders), nn.ModuleDict(decoders)

    @abc.abstractmethod
    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        """Encode and decode clips `(B, T, P, V, C)` of the representation `name`."""

    def encoders(self) -> dict[str, nn.Module]:
        return dict(self.backbones.items())

    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        clips = views["clip"]
        batch = WholeBatch(context.batch_size(len(clips)), context.rows(len(clips)), context.generator)
        weights, losses = self.settings.weights, list[Tensor]()
        metrics: Metrics = {}
        embeddings = {}
        for name in self.backbones:
            with record_function(self.profiled):
                found = self.predict(name, derive(clips, name, self.topology), batch)
            losses += [weights[part] * loss if part in weights else loss for part, loss in found.losses.items()]
            embeddings[name] = batch.gather(found.features.detach())
            if context.log_metrics:
                metrics |= {f"{name}/loss_{part}": loss.detach() for part, loss in found.losses.items()}
                metrics |= {f"{name}/{entry}": value.detach() for entry, value in found.metrics.items()}
        loss = torch.stack(losses).sum()
        if context.log_metrics:
            metrics["loss"] = loss.detach()
        return StepOutput(loss, metrics, embeddings)


def hidden_frames(noise: Tensor, share: float) -> Tensor:
    """Which frames `(B, T)` are hidden: the share of them, at least one, with the smallest of random numbers `(B, T)`."""
    count = max(1, round(share * noise.shape[1]))
    return noise.argsort(1).argsort(1) < count


def refuse_pieces(recipe: Any) -> None:
    """Refuse a batch that is encoded in pieces."""
    if recipe.optimiser.accumulate != 1:
        raise InputError(f"method '{recipe.method}' encodes a batch at once; set optimiser.accumulate to 1")


def require_encoder(recipe: Any, needed: Sequence[str], why: str) -> None:
    """Refuse a recipe whose streams have other encoders than those that the method works on, and a batch in pieces.

    Views have to be as long as an encoder with learned positions expects.
    """
    for chosen in map(recipe.encoder_of, recipe.streams):
        if chosen.name not in needed:
            raise InputError(
                f"method '{recipe.method}' {why}, which encoder '{chosen.name}' does not have; "
                f"set encoder.name to {' or '.join(map(repr, needed))}"
            )
    check_frames(recipe)
    refuse_pieces(recipe)


def check_frames(recipe: Any) -> None:
    """Refuse views of another length than an encoder with learned positions expects."""
    for chosen in map(recipe.encoder_of, recipe.streams):
        if has_setting(chosen.name, "frames") and recipe.views.frames != chosen.frames:
            raise InputError(
                f"views.frames = {recipe.views.frames} and encoder.frames = {chosen.frames} have to be the same number"
            )
