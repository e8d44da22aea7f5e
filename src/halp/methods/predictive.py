"""Shared by predictive methods: one view, an encoder and a decoder per stream, a loss over the batch.

Masked prediction, P&C, MS2L, LongT GAN and GL-Transformer differ in what they hide, what they decode and how
they compare it; each says so in `predict`. Their settings may have `weights` of losses by name. Neither queue
nor key encoder.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from halp.core.distributed import gather
from halp.core.errors import InputError
from halp.encoders import has_setting
from halp.methods.base import BuildContext, Method, Metrics, StepContext, StepOutput
from halp.skeleton.streams import derive


@dataclass(frozen=True)
class WholeBatch:
    """The batch of all processes, of which this one holds some rows: draws and means are of the whole."""

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
    """Results of one stream: losses by name, each a scalar of the whole batch, features `(B, F)`, metrics."""

    losses: Mapping[str, Tensor]
    features: Tensor
    metrics: Metrics = field(default_factory=dict)


class PredictiveMethod(Method):
    """Encoders and decoders by representation; the loss is the weighted sum over streams and their losses."""

    fork_optional = ("decoders.",)
    profiled: ClassVar[str] = "halp: prediction"
    needs: ClassVar[tuple[str, ...]] = ()  # abilities of an encoder, see `halp.encoders.require_abilities`
    why: ClassVar[str] = ""  # it needs them

    def __init__(self, settings: Any, context: BuildContext) -> None:
        super().__init__()
        self.settings, self.topology = settings, context.topology
        encoders = context.build_encoders(self.needs, self.why)
        decoders = {name: self.decoder(encoder, settings, context) for name, encoder in encoders.items()}
        self.backbones, self.decoders = nn.ModuleDict(encoders), nn.ModuleDict(decoders)

    @classmethod
    def check(cls, settings: Any, recipe: Any) -> None:
        check_frames(recipe)
        refuse_chunks(recipe)

    @abc.abstractmethod
    def decoder(self, encoder: Any, settings: Any, context: BuildContext) -> nn.Module:
        """What decodes the features of an encoder."""

    @abc.abstractmethod
    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        """Encode and decode clips `(B, T, P, V, C)` of the representation `name`."""

    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        clips = views["clip"]
        batch = WholeBatch(context.batch_size(len(clips)), context.rows(len(clips)), context.generator)
        weights, losses = getattr(self.settings, "weights", {}), list[Tensor]()
        metrics: Metrics = {}
        embeddings = {}
        for name in self.backbones:
            with record_function(self.profiled):
                predicted = self.predict(name, derive(clips, name, self.topology), batch)
            losses += [
                weights[part] * loss if part in weights else loss for part, loss in predicted.losses.items()
            ]
            embeddings[name] = batch.gather(predicted.features.detach())
            if context.log_metrics:
                metrics |= {f"{name}/loss_{part}": loss.detach() for part, loss in predicted.losses.items()}
                metrics |= {f"{name}/{entry}": value.detach() for entry, value in predicted.metrics.items()}
        loss = torch.stack(losses).sum()
        if context.log_metrics:
            metrics["loss"] = loss.detach()
        return StepOutput(loss, metrics, embeddings)


def hidden_frames(noise: Tensor, share: float) -> Tensor:
    """Mask `(B, T)` of hidden frames: the share with the smallest random numbers `(B, T)`, at least one."""
    count = max(1, round(share * noise.shape[1]))
    return noise.argsort(1).argsort(1) < count


def refuse_chunks(recipe: Any) -> None:
    """Refuse a batch that is encoded in chunks."""
    if recipe.optimiser.encode_chunks != 1:
        raise InputError(
            f"method '{recipe.method}' encodes a batch at once; set optimiser.encode_chunks to 1"
        )


def check_frames(recipe: Any) -> None:
    """Refuse views of another length than an encoder with learned positions expects."""
    for chosen in map(recipe.encoder_of, recipe.streams):
        if has_setting(chosen.name, "frames") and recipe.views.frames != chosen.frames:
            raise InputError(
                f"views.frames = {recipe.views.frames} and encoder.frames = {chosen.frames} must be the same"
                " number"
            )
