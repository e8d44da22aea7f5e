"""HaLP as a term: hallucinated positives in every stream; prototypes from the newest keys of its queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from halp.core.config import CheckedSettings, limited
from halp.core.distributed import compute_on_rank_zero
from halp.core.errors import InputError
from halp.hallucinate import HallucinatedPositives
from halp.losses.infonce import log_partition
from halp.methods.base import Metrics, StepContext
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatch, StreamBatches, TermOutput, register_term, require_streams
from halp.sphere import exp_map, kmeans, log_map, precise, unit

SOURCES = ("self", "cross_stream")


def partner(stream: str, streams: Sequence[str], turn: int) -> str:
    """The stream whose clusters guide this one; the others take turns, one per refresh.

    >>> [partner("motion", ["joint", "motion", "bone"], turn) for turn in range(3)]
    ['bone', 'joint', 'bone']
    """
    names = list(streams)
    position = names.index(stream)
    return names[(position + 1 + turn % (len(names) - 1)) % len(names)]


@torch.no_grad()
def guided_prototypes(
    keys: Tensor, guide: Tensor, prototypes: int, generator: torch.Generator | None = None
) -> Tensor:
    """Prototypes `(N, D)` of a stream's recent keys by the clusters of another stream's keys `(n, E)`.

    Row i of both is the same clip. A cluster that nothing is nearest to is the key whose guide is nearest to
    its centre. If several processes train together, the first finds them for all.
    """
    keys, guide = precise(keys.detach()), precise(guide.detach())
    room = keys.new_empty(prototypes, keys.shape[1])
    return compute_on_rank_zero(partial(_by_clusters, keys, guide, prototypes, generator), room, generator)


def _by_clusters(keys: Tensor, guide: Tensor, prototypes: int, generator: torch.Generator | None) -> Tensor:
    centres = kmeans(guide, prototypes, generator=generator)
    with torch.autocast(keys.device.type, enabled=False):
        similarity = (guide @ centres.T).to(keys)
        member = torch.zeros_like(similarity).scatter_(1, similarity.argmax(1, keepdim=True), 1)
        nearest = similarity.argmax(0)[None]
        member.scatter_(0, nearest, torch.where(member.sum(0) == 0, 1, member.gather(0, nearest)))
        return group_means(keys, member.T / member.sum(0)[:, None])


def group_means(points: Tensor, share: Tensor, iterations: int = 20, tolerance: float = 1e-4) -> Tensor:
    """Karcher means `(N, D)` of weighted groups of unit rows `(n, D)`; weights `(N, n)` sum to one."""
    means = unit(share @ points)
    for _ in range(iterations):
        step = torch.einsum("gn,gnd->gd", share, log_map(means[:, None], points[None]))
        means = exp_map(means, step)
        if step.is_cpu and step.norm(dim=1).amax().tolist() < tolerance:
            break
    return means


class SharedPositives(HallucinatedPositives):
    """Hallucinated positives; rank 0 fits the prototypes, so that rounding cannot differ between ranks."""

    def cluster(self, keys: Tensor, start: Tensor | None, generator: torch.Generator | None) -> Tensor:
        room = keys.new_empty(self.prototypes, keys.shape[1])
        return compute_on_rank_zero(partial(super().cluster, keys, start, generator), room, generator)

    def log_partition(self, query: Tensor, key: Tensor, negatives: Tensor) -> Tensor:
        # the same without keeping the similarities to a large queue
        return log_partition(query, key, negatives, self.temperature)


@dataclass(frozen=True)
class HalpSettings(CheckedSettings):
    """Everything the paper varies about hallucinated positives. The defaults are those of the paper."""

    weight: float = limited(1.0, least=0)  # μ of Eq. 8
    start_epoch: int = limited(200, least=0)  # μ is 0 before
    prototypes: int = 20
    count: int = 100  # positives per key
    hardness: float = 0.8  # λ
    refresh: int = 5  # steps between two clusterings
    recent: int = 256  # newest keys that are clustered (top-K)
    step: str = "paper"
    filter: str = "rank"
    anchor: str = "key"
    direction: str = "prototype"
    source: str = "queue"
    average_over: str = "positives"
    warm_start: bool = False
    # whose clusters make the prototypes: the stream's own, or by turns those of the others
    prototype_source: str = limited("self", among=SOURCES)
    negatives: bool = False  # Eq. 8 pulls without; true: each positive also pays the denominator of InfoNCE
    # which embeddings of a clip are pulled, with equal weight; others come from terms
    queries: tuple[str, ...] = ("query",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prototype_source == "cross_stream" and self.source != "queue":
            raise InputError(
                f"halp: prototype_source = 'cross_stream' needs source = 'queue', not '{self.source}': queues"
                " are aligned"
            )
        self._check_queries()
        self.term(0.07)

    def check_batch(self, size: int) -> None:
        """Refuse batches that are too small to be clustered."""
        if self.source == "batch" and self.prototypes > size:
            raise InputError(
                f"halp.prototypes = {self.prototypes} is more than batch_size = {size}, and halp.source ="
                " 'batch' clusters the keys of a batch; lower prototypes or raise batch_size"
            )

    def _check_queries(self) -> None:
        if not self.queries or len(set(self.queries)) != len(self.queries):
            raise InputError(f"halp: queries = {list(self.queries)}: name at least one, each once")
        by_query = {"anchor": "query", "direction": "query", "filter": "variant-1", "negatives": True}
        for name, value in by_query.items():
            if len(self.queries) > 1 and getattr(self, name) == value:
                raise InputError(
                    f"halp: {name} = {value!r} depends on the query, and queries = {list(self.queries)} are"
                    " several; name one"
                )

    def term(self, temperature: float) -> HallucinatedPositives:
        """The loss term of one stream; building it checks the settings."""
        try:
            return SharedPositives(
                self.prototypes,
                self.count,
                self.hardness,
                self.refresh,
                self.recent,
                temperature=temperature,
                step=self.step,
                positive_filter=self.filter,
                anchor=self.anchor,
                direction=self.direction,
                source=self.source,
                average_over=self.average_over,
                warm_start=self.warm_start,
                negatives=self.negatives,
            )
        except InputError as error:
            raise InputError(f"halp: {error}") from None


def _check_halp(settings: HalpSettings, streams: Sequence[str], queue: int) -> None:
    if settings.source == "queue" and settings.recent > queue:
        raise InputError(
            f"halp.recent = {settings.recent} is more than contrast.queue = {queue}: prototypes come from "
            "the newest keys of the queue; lower recent, raise queue, or set halp.source to 'batch' or 'keys'"
        )
    if settings.prototype_source == "cross_stream":
        require_streams(
            "halp", streams, "with prototype_source = 'cross_stream' takes the clusters of another stream"
        )


@register_term("halp", HalpSettings, check=_check_halp)
class HalpTerm(nn.Module):
    """Hallucinated positives in every stream, from the start epoch on and once the queue is full."""

    def __init__(self, settings: HalpSettings, streams: Sequence[str], temperature: float) -> None:
        super().__init__()
        self.settings = settings
        self.streams = nn.ModuleDict({stream: settings.term(temperature) for stream in streams})

    def active(self, queue: KeyQueue, context: StepContext) -> bool:
        """Whether the term counts at this context."""
        started = context.epoch >= self.settings.start_epoch and self.settings.weight > 0
        return started and (self.settings.source != "queue" or queue.full)

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        losses: list[Tensor] = []
        metrics: Metrics = {}
        if not self.active(queue, context):
            return next(iter(streams.values())).query.new_zeros(()), metrics
        for stream, batch in streams.items():
            term: Any = self.streams[stream]
            recent = queue.recent(stream, term.recent) if term.needs_recent_keys else None
            prototypes = None
            if recent is not None and self.settings.prototype_source == "cross_stream":
                other = partner(stream, list(streams), term.calls // term.refresh)
                guide = queue.recent(other, term.recent)
                prototypes = guided_prototypes(recent, guide, term.prototypes, context.generator)
            query = self._query(batch)
            losses.append(term(query, batch.key, recent, context.generator, prototypes, queue.keys(stream)))
            if context.log_metrics:
                metrics |= {
                    f"{stream}/{name}": value
                    for name, value in self._metrics(term, batch, queue, stream).items()
                }
                metrics[f"{stream}/loss_halp"] = losses[-1].detach()
        return self.settings.weight * torch.stack(losses).sum(), metrics

    def _query(self, batch: StreamBatch) -> Tensor:
        """The pulled queries: Eq. 8 is linear in the query, so a mean query gives the mean loss."""
        chosen = [batch.query if name == "query" else batch.extra[name] for name in self.settings.queries]
        return chosen[0] if len(chosen) == 1 else torch.stack(chosen).mean(0)

    @torch.no_grad()
    def _metrics(
        self, term: HallucinatedPositives, batch: StreamBatch, queue: KeyQueue, stream: str
    ) -> Metrics:
        """The curves of the supplement: kept positives, and their similarity to query and queue."""
        plan = term.last
        if plan is None:
            return {}
        total, number = plan.kept_sum(), plan.kept.sum().clamp_min(1)
        occupied = (batch.key @ term.centres.T).argmax(1).unique().numel() / len(term.centres)
        metrics = {
            "kept": plan.kept.float().mean(),
            "step": plan.step.mean(),
            "prototypes_used": torch.tensor(occupied),
            "similarity_positive_query": (batch.query * total).sum() / number,
            "similarity_positive_key": (batch.key * total).sum() / number,
        }
        if queue.size:
            metrics["similarity_positive_queue"] = (total @ queue.keys(stream).mean(0)).sum() / number
        return metrics
