"""Similarity of one key and its hallucinated positives to every prototype (the supplement's figure 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from halp.augment import ClipPool, ViewMaker
from halp.core.sampling import generator
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation.analysis.similarities import Table
from halp.hallucinate import HallucinatedPositives, PositivePlan, plan_positives
from halp.methods import MocoMethod
from halp.methods.halp import HalpTerm
from halp.training.run import Run

_CLIPS = 64  # keys to choose one from


Series = dict[str, tuple[list[int], list[float]]]  # by name: prototypes from 1 on, cosines


@dataclass(frozen=True)
class KeySpace:
    """Where a run hallucinates: key encoder with projection head, prototypes, settings of positives."""

    encoder: PretrainedEncoder
    centres: Tensor
    settings: dict[str, Any]


def key_space(run: Run) -> KeySpace | None:
    """The space of the first stream's keys; None if the run has no prototypes."""
    model, stream = run.model().eval(), run.recipe.streams[0]
    halp = dict(model.terms.items()).get("halp") if isinstance(model, MocoMethod) else None
    if not isinstance(model, MocoMethod) or not isinstance(halp, HalpTerm):
        return None
    term = cast(HallucinatedPositives, halp.streams[stream])
    if not len(term.centres):
        return None
    pair: torch.nn.Module = model.pairs[stream]
    data = run.info["data"]
    encoder = PretrainedEncoder(
        pair.get_submodule("key"),
        model.topology,
        stream=stream,
        persons=data["persons"],
        frames=run.recipe.views.frames,
        normalisation=data["normalisation"],
    ).eval()
    return KeySpace(encoder, term.centres, term.settings)


@torch.no_grad()
def prototype_similarities(run: Run, store: Store) -> Series:
    """Similarity of one key, two kept positives and a dropped one to every prototype, closest first.

    Empty if the run has no prototypes.
    """
    space = key_space(run)
    if space is None:
        return {}
    pool = ClipPool.from_store(store)
    clips = torch.arange(min(_CLIPS, len(store)))
    views = ViewMaker(run.recipe.views, {"key": None}, store.topology, pool, run.recipe.seed).make(
        clips, 0, 0
    )["key"]
    keys = space.encoder(views)
    draw = generator(run.recipe.seed, "report", 1)
    plan = plan_positives(keys, space.centres, query=keys, generator=draw, **space.settings)
    # the key with the most even share of kept and dropped positives shows both kinds
    chosen = int((plan.kept.float().mean(1) - 0.5).abs().argmin())
    return similarity_curves(keys, plan, space.centres, chosen)


def similarity_curves(keys: Tensor, plan: PositivePlan, centres: Tensor, chosen: int = 0) -> Series:
    """Similarity to every prototype of one of the keys, two of its kept positives, and a dropped one."""
    good, bad = plan.kept[chosen].nonzero()[:2, 0], (~plan.kept[chosen]).nonzero()[:1, 0]
    positives = plan.positives()[chosen].to(centres) @ centres.T
    order = (keys[chosen] @ centres.T).argsort(descending=True)
    xs = list(range(1, len(centres) + 1))
    series = {"key": (xs, (keys[chosen] @ centres.T)[order].tolist())}
    for number, index in enumerate(good.tolist(), start=1):
        series[f"kept positive {number}"] = (xs, positives[index][order].tolist())
    for index in bad.tolist():
        series["dropped positive"] = (xs, positives[index][order].tolist())
    return series


def prototype_table(run: Run, store: Store) -> Table:
    """Columns and one row per prototype, closest to the key first."""
    series = prototype_similarities(run, store)
    ranks = next(iter(series.values()))[0] if series else []
    rows: list[list[object]] = [
        [rank, *(round(values[place], 4) for _, values in series.values())]
        for place, rank in enumerate(ranks)
    ]
    return ["prototype", *series], rows
