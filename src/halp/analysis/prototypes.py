"""Similarity of one key and its hallucinated positives to every prototype (the supplement's figure 6)."""

from __future__ import annotations

from typing import cast

import torch

from halp.analysis.similarities import Table
from halp.augment import ClipPool, ViewMaker
from halp.clips.store import Store
from halp.hallucinate import HallucinatedPositives, plan_positives
from halp.methods import MocoMethod
from halp.methods.halp import HalpTerm
from halp.sampling import generator
from halp.streams import derive
from halp.training.run import Run

_CLIPS = 64  # keys to choose one from


@torch.no_grad()
def prototype_similarities(run: Run, store: Store) -> dict[str, tuple[list[int], list[float]]]:
    """Similarity to every prototype, closest to the key first, of one key, two kept positives and a dropped one.

    Empty where the run has no prototypes.
    """
    model = run.model().eval()
    stream = run.recipe.streams[0]
    halp = dict(model.terms.items()).get("halp") if isinstance(model, MocoMethod) else None
    if not isinstance(model, MocoMethod) or not isinstance(halp, HalpTerm):
        return {}
    term = cast(HallucinatedPositives, halp.streams[stream])
    centres = term.centres
    if not len(centres):
        return {}
    pool = ClipPool.from_store(store)
    clips = torch.arange(min(_CLIPS, len(store)))
    views = ViewMaker(run.recipe.views, {"key": None}, store.topology, pool, run.recipe.seed).make(clips, 0, 0)["key"]
    pair: torch.nn.Module = model.pairs[stream]
    keys = pair.get_submodule("key")(derive(views, stream, model.topology))
    plan = plan_positives(keys, centres, query=keys, generator=generator(run.recipe.seed, "report", 1), **term.settings)
    # the key with the most even share of kept and dropped positives shows both kinds
    chosen = int((plan.kept.float().mean(1) - 0.5).abs().argmin())
    good, bad = plan.kept[chosen].nonzero()[:2, 0], (~plan.kept[chosen]).nonzero()[:1, 0]
    positives = plan.positives()[chosen] @ centres.T
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
        [rank, *(round(values[place], 4) for _, values in series.values())] for place, rank in enumerate(ranks)
    ]
    return ["prototype", *series], rows
