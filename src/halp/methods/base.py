"""The interface of methods for training: the views, one training step, and the resulting encoders.

Everything else (queue, key encoder, terms, decoders, heads) is the method's own business. Methods are
registered by name with a dataclass of settings; a recipe names one and sets it up in the section of that
name.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.augment import Policy
from halp.core.distributed import rank_rows, world_size
from halp.core.registry import Component, Registry
from halp.encoders import EncoderSettings, build_encoder, require_abilities
from halp.skeleton import Topology

Metrics = dict[str, Tensor]


@dataclass(frozen=True)
class StepContext:
    """When a step happens and with which random numbers; metrics are wanted on some steps only.

    `batch` is the number of clips in the batch of all processes together, if there are several; `clips`
    `(B,)` says which clips of the store these are, where training does. With `check_loss` a method may look
    at the value of its loss and leave its state as it was where that is not finite; otherwise it reads no
    value, which an accelerator would be waited for.
    """

    epoch: int
    generator: torch.Generator
    log_metrics: bool = True
    batch: int | None = None
    clips: Tensor | None = None
    check_loss: bool = True

    def batch_size(self, local: int) -> int:
        """Clips of the batch of all processes together."""
        return self.batch or local

    def rows(self, local: int) -> slice:
        """Which rows of the whole batch this process holds: draws are made for all, and these are used."""
        return rank_rows(self.batch_size(local)) if world_size() > 1 and self.batch else slice(0, local)


class StepOutput(NamedTuple):
    """Output of a training step: loss, metrics if requested, embeddings `(B, D)` by representation.

    The embeddings serve diagnostics alone: the collapse alarm looks at how far they are spread.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = MappingProxyType({})
    embeddings: Mapping[str, Tensor] = MappingProxyType({})


class Method(nn.Module, abc.ABC):
    """A self-supervised method. Its state dict is what a checkpoint holds."""

    #: the views a step takes, by name, each with a policy of its own or None for the recipe's common one
    views: Mapping[str, Policy | None] = MappingProxyType({"clip": None})
    #: the loss terms of a method that is composed of terms, if a recipe names none; None: it takes none
    default_terms: ClassVar[tuple[str, ...] | None] = None
    #: prefixes of state that a run forked from another may lack or have in addition
    fork_optional: tuple[str, ...] = ()
    #: keys of past clips that are kept; 0 for none
    queue_size: int = 0
    backbones: nn.ModuleDict
    #: whether it is meant for encoders that are trained already
    tunes: bool = False

    @classmethod
    def build(cls, settings: Any, context: BuildContext) -> Method:
        """The method with these settings for these clips."""
        return cls(settings, context)

    @classmethod
    def check(cls, settings: Any, recipe: Any) -> None:
        """Refuse an invalid recipe before anything is built."""

    @abc.abstractmethod
    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        """Loss of one step from `{view: clips (B, T, P, V, C)}`; state such as a queue moves on."""

    def encoders(self) -> Mapping[str, nn.Module]:
        """The encoders to evaluate and export, by representation; each takes its stream's `(B, T, P, V, C)`.

        Those in `backbones`, unless a method says otherwise.
        """
        return dict(self.backbones.items())

    def rewind(self) -> None:
        """Prepare to recompute the loss of a dumped step by undoing the changes the step made before it
        failed.
        """
        uncount_calls(self)

    def encoders_replaced(self) -> None:
        """Called before the first step if the encoders were given other weights than they were built with."""

    def forward(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        return self.training_step(views, context)


@dataclass(frozen=True)
class BuildContext:
    """The inputs of a method: clips, encoders and terms, and random numbers for its initial state."""

    topology: Topology
    persons: int
    frames: int
    encoder_settings: Mapping[str, EncoderSettings]  # by representation
    terms: Mapping[str, Any]  # settings of the loss terms by name, in order
    generator: torch.Generator | None = None
    encode_chunks: int = 1  # chunks a batch is encoded in

    @property
    def numbers_per_frame(self) -> int:
        """How many numbers a frame has: persons × joints × coordinates."""
        return self.persons * len(self.topology) * self.topology.dimensions

    def build_encoder(self, representation: str) -> Any:
        """A fresh encoder of a representation."""
        return build_encoder(self.encoder_settings[representation], self.topology, self.persons)

    def build_encoders(self, needed: Sequence[str] = (), why: str = "") -> dict[str, Any]:
        """Fresh encoders of all representations; `why` completes the error if one lacks a needed ability."""
        encoders = {name: self.build_encoder(name) for name in self.encoder_settings}
        for name, encoder in encoders.items():
            require_abilities(encoder, self.encoder_settings[name].name, needed, why)
        return encoders


@dataclass(frozen=True, kw_only=True)
class MethodComponent(Component):
    """A registered method: a subclass of `Method`, which declares its views, terms and checks."""

    build: type[Method]
    section: str  # of a recipe, with its settings


METHODS: Registry[MethodComponent] = Registry("method", MethodComponent)


def register_method(
    name: str, settings: type[Any] | None = None, *, section: str | None = None
) -> Callable[[type[Method]], type[Method]]:
    """Decorator that makes a class of `Method`, built as `cls(settings, context)`, known by name.

    `section` is the recipe's section with its settings (default: the name).
    """
    return METHODS.register(name, settings, section=section or name)


def uncount_calls(method: nn.Module) -> None:
    """Undo the last call of all modules that count calls, such as terms that refit prototypes."""
    for module in method.modules():
        uncount = getattr(module, "uncount_call", None)
        if callable(uncount):
            uncount()


@torch.no_grad()
def embedding_std(embeddings: Tensor) -> Tensor:
    """Mean standard deviation of the directions of embeddings `(B, D)`; 1 / √D if uniform, 0 if collapsed."""
    return F.normalize(embeddings.float(), dim=1).std(0).mean()
