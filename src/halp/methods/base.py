"""What training knows of a method: the views it wants, one training step, and the encoders it leaves behind.

Everything else (queue, momentum twin, terms, decoders, heads) is the method's own business. Methods are registered by name
with a dataclass of settings; a recipe names one and sets it up in the section of that name.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.augment import Policy
from halp.distributed import rank_rows, world_size
from halp.encoders import EncoderSettings, build_encoder
from halp.registry import Registry
from halp.skeleton import Topology

Metrics = dict[str, Tensor]


@dataclass(frozen=True)
class StepContext:
    """When a step happens and with which random numbers; metrics are wanted on some steps only.

    `batch` is the number of clips in the batch of all processes together, where there are several; `clips` `(B,)` says which
    clips of the store these are, where training does.
    """

    epoch: int
    generator: torch.Generator
    log_metrics: bool = True
    batch: int | None = None
    clips: Tensor | None = None

    def batch_size(self, local: int) -> int:
        """Clips of the batch of all processes together."""
        return self.batch or local

    def rows(self, local: int) -> slice:
        """Which rows of the whole batch this process holds: draws are made for all, and these are used."""
        return rank_rows(self.batch_size(local)) if world_size() > 1 and self.batch else slice(0, local)


class StepOutput(NamedTuple):
    """What a training step gives: the loss, metrics where they are wanted, and embeddings `(B, D)` by representation.

    The embeddings serve diagnostics alone: the collapse alarm looks at how far they are spread.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = MappingProxyType({})
    embeddings: Mapping[str, Tensor] = MappingProxyType({})


class Method(nn.Module, abc.ABC):
    """A self-supervised method. Its state dict is what a checkpoint holds."""

    #: the views a step takes, by name, each with a policy of its own or None for the recipe's common one
    views: Mapping[str, Policy | None] = {}
    #: prefixes of state that a run forked from another may lack or have in addition
    fork_optional: tuple[str, ...] = ()
    #: keys of past clips that are kept; 0 for none
    queue_size: int = 0
    has_momentum_twin: bool = False
    #: whether it is meant for encoders that are trained already
    tunes: bool = False

    @abc.abstractmethod
    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        """Loss of one step from `{view: clips (B, T, P, V, C)}`; state such as a queue moves on."""

    @abc.abstractmethod
    def encoders(self) -> Mapping[str, nn.Module]:
        """The encoders that are evaluated and exported, by representation; each takes `(B, T, P, V, C)` of its stream."""

    def rewind(self) -> None:
        """Prepare to compute the loss of a dumped step again: undo what the step had changed before it failed."""

    def encoders_replaced(self) -> None:
        """Take note that the encoders have other weights than those they were built with, before the first step."""

    def forward(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        return self.training_step(views, context)


@dataclass(frozen=True)
class BuildContext:
    """What a method is built for: the clips, the chosen encoders and terms, and random numbers for its first state."""

    topology: Topology
    persons: int
    frames: int
    encoder_settings: Mapping[str, EncoderSettings]  # by representation
    terms: Mapping[str, Any]  # settings of the loss terms by name, in order
    generator: torch.Generator
    accumulate: int = 1  # pieces a batch is encoded in

    @property
    def numbers_per_frame(self) -> int:
        """How many numbers a frame has: persons × joints × coordinates."""
        return self.persons * len(self.topology) * self.topology.dimensions

    def build_encoder(self, representation: str) -> Any:
        """A fresh encoder of a representation."""
        return build_encoder(self.encoder_settings[representation], self.topology, self.persons)

    def build_pairs(self, decoder: Callable[[Any], nn.Module]) -> tuple[dict[str, nn.Module], dict[str, nn.Module]]:
        """Fresh encoders of all representations, then what `decoder` makes for each of them."""
        encoders = {name: self.build_encoder(name) for name in self.encoder_settings}
        return encoders, {name: decoder(encoder) for name, encoder in encoders.items()}


METHODS: Registry[Callable[..., Any]] = Registry("method")


def register_method(
    name: str,
    settings: type[Any] | None = None,
    *,
    section: str | None = None,
    views: Mapping[str, Policy | None] | None = None,
    default_terms: tuple[str, ...] | None = None,
    check: Callable[[Any, Any], None] | None = None,
) -> Callable[[Any], Any]:
    """Make a method known by name: `build(settings, context)` returns a `Method`.

    `section` is the recipe's section with its settings (default: the name), `views` what a recipe may describe,
    `default_terms` the loss terms of a method that is composed of terms (None: it takes none), and
    `check(settings, recipe)` may refuse a recipe.
    """
    facts = {"section": section or name, "views": dict(views or {"clip": None}), "default_terms": default_terms}
    return METHODS.register(name, settings, check=check, **facts)


def list_methods() -> list[str]:
    """Names of all methods."""
    return list(METHODS)


def uncount_calls(method: nn.Module) -> None:
    """Take back the last call of everything that counts its calls, as terms do that refit prototypes."""
    for name, buffer in method.named_buffers():
        if name.endswith(".calls"):
            buffer.sub_(1).clamp_min_(0)


@torch.no_grad()
def embedding_std(embeddings: Tensor) -> Tensor:
    """Mean standard deviation of the directions of embeddings `(B, D)`; 1 / √D where they are spread evenly, 0 if collapsed."""
    return F.normalize(embeddings.float(), dim=1).std(0).mean()
