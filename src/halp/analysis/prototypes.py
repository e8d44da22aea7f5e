"""Similarity of one key and its hallucinated positives to every prototype (the supplement's figure 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from halp.analysis.similarities import Table
from halp.augment import ClipPool, ViewMaker
from halp.clips.store import Store
from halp.hallucinate import HallucinatedPositives, plan_positives
from halp.methods import MocoMethod
from halp.methods.halp import HalpTerm
from halp.sampling import generator
from halp.sphere import kmeans
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


@dataclass(frozen=True)
class PrototypeQuality:
    """Shares in [0, 1], over keys with labels."""

    purity: float  # keys whose class is the commonest one of their prototype
    false_positives: float  # kept positives whose nearest other key has another class than the key they started from
    false_keys: float  # the same for the keys themselves: what a positive at no distance would have
    kept: float  # positives that the filter keeps


@torch.no_grad()
def prototype_purity(keys: Tensor, labels: Tensor, prototypes: Tensor) -> float:
    """Share of unit keys `(n, D)` whose label `(n,)` is the commonest among the keys of their nearest prototype `(N, D)`.

    >>> keys = torch.eye(3)[[0, 0, 0, 1, 1]]
    >>> prototype_purity(keys, torch.tensor([5, 5, 7, 7, 7]), torch.eye(3)[:2])
    0.8
    """
    nearest = (keys @ prototypes.T).argmax(1)
    classes = int(labels.max()) + 1
    counts = torch.bincount(nearest * classes + labels, minlength=len(prototypes) * classes)
    return float(counts.view(-1, classes).amax(1).sum()) / len(keys)


@torch.no_grad()
def false_share(vectors: Tensor, anchors: Tensor, keys: Tensor, labels: Tensor) -> float:
    """Share of unit vectors `(m, D)` whose nearest key, their anchor `(m,)` left out, has another label than the anchor.

    >>> keys = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> false_share(keys, torch.arange(3), keys, torch.tensor([0, 0, 1]))
    0.3333...
    """
    similarity = vectors @ keys.T
    similarity[torch.arange(len(vectors)), anchors] = -torch.inf
    return float((labels[similarity.argmax(1)] != labels[anchors]).double().mean())


@torch.no_grad()
def prototype_quality(
    keys: Tensor,
    labels: Tensor,
    *,
    prototypes: int = 20,
    recent: int = 256,
    count: int = 20,
    hardness: float = 0.8,
    generator: torch.Generator | None = None,
) -> PrototypeQuality:
    """Quality of what HaLP makes of unit keys `(n, D)` with labels `(n,)`, averaged over batches of `recent` keys.

    Each batch is clustered as the newest keys of a queue are, and every key of it is an anchor of `count` positives.
    """
    shares = []
    for rows in torch.randperm(len(keys), generator=generator).split(recent):
        if len(rows) < min(recent, len(keys)):
            continue
        centres = kmeans(keys[rows], prototypes, generator=generator)
        plan = plan_positives(keys[rows], centres, count=count, hardness=hardness, generator=generator)
        positives, anchors = plan.positives()[plan.kept], rows[:, None].expand_as(plan.kept)[plan.kept]
        shares.append(
            [
                prototype_purity(keys[rows], labels[rows], centres),
                false_share(positives, anchors, keys, labels),
                false_share(keys[rows], rows, keys, labels),
                float(plan.kept.double().mean()),
            ]
        )
    return PrototypeQuality(*torch.tensor(shares, dtype=torch.float64).mean(0).tolist())
