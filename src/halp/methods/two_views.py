"""Two views of a clip through one encoder and head, compared by a loss: Barlow Twins, VICReg.

No queue, no key encoder, no negatives; the methods differ in the loss alone (`compare`). Further terms, such
as HaLP with prototypes from the batch, join by name: for them the first view is the query and the second the
key, both of unit length.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from halp.core.config import CheckedSettings, limited
from halp.core.distributed import gather
from halp.methods.base import BuildContext, Method, Metrics, StepContext, StepOutput
from halp.methods.moco import VIEWS
from halp.methods.predictive import refuse_chunks
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatch, add_terms, build_terms, check_recipe_terms
from halp.skeleton.streams import derive
from halp.sphere import unit


@dataclass(frozen=True)
class TwoViewSettings(CheckedSettings):
    """The projection head, and the temperature of further terms."""

    section: ClassVar[str]
    width: int = limited(6144, least=2)  # of every layer of the head
    layers: int = limited(3, least=1)
    temperature: float = limited(0.07, above=0)  # of further terms; the loss itself has none


def projection_head(inputs: int, width: int, layers: int) -> nn.Sequential:
    """Linear maps without bias, BatchNorm and ReLU between them: `(B, inputs)` → `(B, width)`."""
    modules: list[nn.Module] = []
    for before, after in pairwise([inputs] + [width] * layers):
        if modules:
            modules += [nn.BatchNorm1d(before), nn.ReLU()]
        modules.append(nn.Linear(before, after, bias=False))
    return nn.Sequential(*modules)


class TwoViewMethod(Method):
    """One encoder and head per stream; both views pass through, each with its own BatchNorm statistics."""

    views = VIEWS
    default_terms = ()
    fork_optional = ("terms.",)

    def __init__(self, settings: TwoViewSettings, context: BuildContext) -> None:
        super().__init__()
        self.settings, self.topology = settings, context.topology
        encoders = context.build_encoders()
        self.backbones = nn.ModuleDict(encoders)
        self.heads = nn.ModuleDict(
            {
                stream: projection_head(encoder.output_size, settings.width, settings.layers)
                for stream, encoder in encoders.items()
            }
        )
        self.terms = build_terms(context.terms, list(encoders), settings.temperature)
        self.queue = KeyQueue(list(encoders), 0, settings.width)

    @classmethod
    def check(cls, settings: TwoViewSettings, recipe: Any) -> None:
        refuse_chunks(recipe)
        check_recipe_terms(recipe, queue=0)

    @abc.abstractmethod
    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        """The loss of the embeddings `(B, D)` of two views of the same clips."""

    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        total = context.batch_size(len(views["query"]))
        with record_function("halp: both views forward"):
            pairs = {
                stream: [gather(self._project(stream, views[view]), total) for view in VIEWS]
                for stream in self.backbones
            }
        # half precision would blur correlations and angles: the loss is computed in full
        with torch.autocast(views["query"].device.type, enabled=False):
            loss, metrics = self._loss(pairs, context)
        return StepOutput(loss, metrics, {stream: first.detach() for stream, (first, _) in pairs.items()})

    def _project(self, stream: str, clips: Tensor) -> Tensor:
        return self.heads[stream](self.backbones[stream](derive(clips, stream, self.topology))).float()

    def _loss(self, pairs: Mapping[str, list[Tensor]], context: StepContext) -> tuple[Tensor, Metrics]:
        losses, metrics, batches = [], {}, {}
        for stream, (first, second) in pairs.items():
            losses.append(self.compare(first, second))
            batches[stream] = StreamBatch(unit(first), unit(second.detach()))
            if context.log_metrics:
                metrics[f"{stream}/loss_{self.settings.section}"] = losses[-1].detach()
                similarity = (batches[stream].query.detach() * batches[stream].key).sum(1).mean()
                metrics[f"{stream}/similarity_key_query"] = similarity
        loss, seen = add_terms(torch.stack(losses).sum(), self.terms, batches, self.queue, context)
        if context.log_metrics:
            metrics |= seen | {"loss": loss.detach()}
        return loss, metrics
