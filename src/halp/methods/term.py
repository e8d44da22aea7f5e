"""Loss terms over `{stream: StreamBatch}`, the summands of momentum contrast. A recipe lists its terms.

A term is built by `build(settings, streams, temperature)` and called as `term(streams, queue, context)`; it
returns its weighted loss and, if they are wanted, metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from halp.augment import Policy
from halp.core.errors import InputError
from halp.core.registry import Component, Registry
from halp.methods.base import Metrics, StepContext
from halp.methods.queue import KeyQueue
from halp.skeleton import Topology


@dataclass(frozen=True)
class StreamBatch:
    """What one stream gives in one step: unit queries and keys `(B, D)`; keys carry no gradient.

    `extra` holds the query encoder's embeddings of further views that a term asked for, by the name of the
    view, and those of changed feature maps, by the variant's name. A view mixed of two clips is among them;
    the key mixed of theirs stands in
    `mixed_keys` under the same name.
    """

    query: Tensor
    key: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    mixed_keys: Mapping[str, Tensor] = field(default_factory=dict)


#: what all streams give in one step, by their names
StreamBatches = Mapping[str, StreamBatch]
#: what a term returns: its weighted loss and, on steps that are logged, metrics
TermOutput = tuple[Tensor, Metrics]


class DrawnMix(Protocol):
    """How the clips of a batch are mixed: one draw for all of them."""

    @property
    def partner(self) -> Tensor:
        """Which clip of the batch each is mixed with, `(B,)`."""
        ...

    @property
    def share(self) -> float:
        """How much of a mixed clip comes from its partner."""
        ...


class Mix(Protocol):
    """What makes a view of two clips of the batch."""

    def draw(self, batch: int, frames: int, generator: torch.Generator) -> DrawnMix: ...

    def apply(self, clips: Tensor, others: Tensor, drawn: Any) -> Tensor:
        """Clips `(B, T, P, V, C)` mixed with their partners, which are given row by row."""
        ...


Views = Mapping[str, Policy | None]
#: a change of the feature map before pooling: (B, …) → (B, …)
MapChange = Callable[[Tensor], Tensor]
#: embeddings of changed feature maps by name: (view, change)
MapVariants = Mapping[str, tuple[str, MapChange]]
Mixes = Mapping[str, Mix]


@dataclass(frozen=True, kw_only=True)
class TermComponent(Component):
    """A registered term and its requirements; see `register_term`."""

    views: Callable[[Any], Views]
    map_variants: Callable[[Any], MapVariants]
    mixes: Callable[[Any, Topology], Mixes]
    check: Callable[[Any, Sequence[str], int], None]
    contrast: bool


TERMS: Registry[TermComponent] = Registry("term", TermComponent)


def register_term(
    name: str,
    settings: type[Any] | None = None,
    *,
    views: Views | Callable[[Any], Views] | None = None,
    map_variants: Callable[[Any], MapVariants] | None = None,
    mixes: Callable[[Any, Topology], Mixes] | None = None,
    check: Callable[[Any, Sequence[str], int], None] | None = None,
    contrast: bool = False,
) -> Callable[[Any], Any]:
    """Make a term known by name; a recipe names it in `terms` and sets it up in the section of that name.

    `views` are further views that the query encoder sees, with their policies, or a function of the settings
    that says which. `map_variants(settings)` are further embeddings of such a view, by name: (view, change of
    its feature map).
    `mixes(settings, topology)` are further views made of the query views of two clips of the batch, by name.
    `check(settings, streams, queue size)` may refuse. `contrast`: the term is InfoNCE or takes its place, and
    reports it as
    `loss_contrast`; a recipe names one such.
    """
    fixed = {} if views is None or callable(views) else dict(views)
    return TERMS.register(
        name,
        settings,
        views=views if callable(views) else lambda _: fixed,
        map_variants=map_variants or (lambda _: {}),
        mixes=mixes or (lambda *_: {}),
        check=check or (lambda *_: None),
        contrast=contrast,
    )


def term_views(terms: Mapping[str, Any]) -> dict[str, Policy | None]:
    """The further views that terms, given with their settings, ask for."""
    return _joined(TERMS[name].views(settings) for name, settings in terms.items())


def term_map_variants(terms: Mapping[str, Any]) -> dict[str, tuple[str, MapChange]]:
    """The embeddings of changed feature maps that terms, given with their settings, ask for."""
    return _joined(TERMS[name].map_variants(settings) for name, settings in terms.items())


def term_mixes(terms: Mapping[str, Any], topology: Topology) -> dict[str, Mix]:
    """The views made of two clips that terms, given with their settings, ask for."""
    return _joined(TERMS[name].mixes(settings, topology) for name, settings in terms.items())


def _joined(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for mapping in mappings for name, value in mapping.items()}


def check_terms(terms: Mapping[str, Any], streams: Sequence[str], queue: int) -> None:
    """Refuse terms, given with settings, that do not work with these streams and this queue size."""
    for name, settings in terms.items():
        TERMS[name].check(settings, streams, queue)
        _check_queries(name, getattr(settings, "queries", ()), terms)
    contrasts = sorted(contrast_terms(terms), key=lambda name: name != "infonce")
    if len(contrasts) > 1:
        raise InputError(
            f"terms: '{contrasts[1]}' replaces InfoNCE; leave '{contrasts[0]}' out, or it would count twice"
        )


def _check_queries(name: str, queries: Sequence[str], terms: Mapping[str, Any]) -> None:
    """Refuse a term that reads embeddings which no term asks for."""
    available = ["query", *term_views(terms), *term_map_variants(terms)]
    for query in queries:
        if query not in available:
            raise InputError(
                f"{name}.queries names '{query}', and terms = {list(terms)} give: {', '.join(available)};"
                " name one of these or add the term that makes it"
            )


def contrast_terms(terms: Iterable[str]) -> list[str]:
    """The terms that are InfoNCE or replace it."""
    return [name for name in terms if TERMS[name].contrast]


def check_recipe_terms(recipe: Any, queue: int) -> None:
    """Refuse terms of a recipe that cannot work with its streams, its batches and this size of the queue."""
    check_terms(recipe.term_settings, recipe.streams, queue)
    for settings in recipe.term_settings.values():
        if hasattr(settings, "check_batch"):
            settings.check_batch(recipe.batch_size)


def build_terms(terms: Mapping[str, Any], streams: Sequence[str], temperature: float) -> nn.ModuleDict:
    """The loss terms of these settings, by name."""
    return nn.ModuleDict(
        {name: TERMS[name].build(chosen, streams, temperature) for name, chosen in terms.items()}
    )


def add_terms(
    loss: Tensor | float, terms: nn.ModuleDict, batches: StreamBatches, queue: KeyQueue, context: StepContext
) -> tuple[Any, Metrics]:
    """A loss with all terms added in order, and the terms' metrics."""
    metrics: Metrics = {}
    for name, term in terms.items():
        with record_function(f"halp: {name} loss"):
            value, seen = term(batches, queue, context)
        loss = loss + value
        metrics |= seen
    return loss, metrics


def require_streams(name: str, streams: Sequence[str], why: str) -> None:
    """Refuse a term that needs several streams if there is one."""
    if len(streams) < 2:
        raise InputError(
            f"terms: '{name}' {why}, and streams = {list(streams)} is only one; name at least two, for"
            ' example streams = ["joint", "motion", "bone"]'
        )


def require_queue(name: str, needed: int, setting: str, queue: int) -> None:
    """Refuse a term that needs more past keys than the queue holds."""
    if queue < needed:
        raise InputError(
            f"terms: '{name}' needs {needed} keys ({setting}) and contrast.queue = {queue} holds fewer; raise"
            " contrast.queue"
        )
