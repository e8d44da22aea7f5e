"""The balanced pull of HaLP against a loop over positives, its gradient, and what it does to embeddings."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from halp.methods import StepContext, StreamBatch
from halp.methods.halp import HalpSettings, HalpTerm
from halp.methods.queue import KeyQueue

TAU = 0.1


def unit(*shape: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=draw, dtype=torch.float64), dim=-1)


def settings(negatives: bool, **more: object) -> HalpSettings:
    return HalpSettings(start_epoch=0, prototypes=4, count=7, recent=16, negatives=negatives, **more)  # type: ignore[arg-type]


def loss(
    negatives: bool, query: Tensor, key: Tensor, queue: KeyQueue, **more: object
) -> tuple[Tensor, HalpTerm]:
    term = HalpTerm(settings(negatives, **more), ("joint",), TAU).double()
    context = StepContext(1, torch.Generator().manual_seed(3))
    value, _ = term({"joint": StreamBatch(query, key)}, queue, context)
    return value, term


@pytest.fixture
def queue() -> KeyQueue:
    made = KeyQueue(("joint",), 24, 5).double()
    made.push({"joint": unit(24, 5, seed=9)})
    return made


@pytest.mark.parametrize("average_over", ["positives", "anchors"])
@pytest.mark.parametrize("filter", ["rank", "variant-1"])
def test_every_kept_positive_stands_where_the_key_stands_in_infonce(
    queue: KeyQueue, average_over: str, filter: str
) -> None:
    query, key = unit(6, 5, seed=1), unit(6, 5, seed=2)
    value, term = loss(True, query, key, queue, average_over=average_over, filter=filter, weight=1.5)
    plan = term.streams["joint"].last  # type: ignore[union-attr]
    made, kept = plan.positives(), plan.kept  # type: ignore[union-attr, operator]
    assert kept.any()
    per_anchor = []
    for i in range(len(query)):
        logits = [float(query[i] @ other) / TAU for other in (key[i], *queue.keys("joint"))]
        denominator = math.log(sum(math.exp(logit) for logit in logits))
        per_anchor.append(
            [denominator - float(query[i] @ made[i, j]) / TAU for j in range(kept.shape[1]) if kept[i, j]]
        )
    if average_over == "positives":
        slow = sum(map(sum, per_anchor)) / sum(map(len, per_anchor))
    else:
        means = [sum(values) / len(values) for values in per_anchor if values]
        slow = sum(means) / len(means)
    assert float(value) == pytest.approx(1.5 * slow, rel=1e-9)


def test_the_gradient_of_the_balanced_pull_is_right(queue: KeyQueue) -> None:
    key = unit(4, 5, seed=2)
    query = unit(4, 5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda q: loss(True, q, key, queue)[0], query)


def test_the_papers_pull_is_the_default_and_knows_no_negatives(queue: KeyQueue) -> None:
    assert not HalpSettings().negatives
    query, key = unit(6, 5, seed=1), unit(6, 5, seed=2)
    paper, term = loss(False, query, key, queue)
    plan = term.streams["joint"].last  # type: ignore[union-attr]
    pulls = (query[:, None] * plan.positives()).sum(2)[plan.kept] / TAU  # type: ignore[union-attr, operator]
    assert float(paper) == pytest.approx(-float(pulls.mean()))
    assert float(loss(True, query, key, queue)[0]) > float(paper)


def test_without_a_queue_the_other_keys_of_the_batch_are_the_negatives() -> None:
    query, key = unit(8, 5, seed=1), unit(8, 5, seed=2)
    empty = KeyQueue(("joint",), 0, 5).double()
    value, term = loss(True, query, key, empty, source="batch")
    plan = term.streams["joint"].last  # type: ignore[union-attr]
    share = plan.kept.sum(1) / plan.kept.sum()  # type: ignore[union-attr]
    paper, _ = loss(False, query, key, empty, source="batch")
    added = (share * torch.logsumexp(query @ key.T / TAU, 1)).sum()
    assert float(value) == pytest.approx(float(paper + added))


@pytest.mark.heavy
def test_only_the_balanced_pull_keeps_embeddings_apart() -> None:
    """Free points under the term alone: the paper's pull draws all of them together, the balanced one does
    not.
    """
    queue = KeyQueue(("joint",), 64, 8).double()
    similarity = {}
    for negatives in (False, True):
        points = unit(64, 8, seed=5).requires_grad_()
        optimiser = torch.optim.SGD([points], lr=5.0)
        term = HalpTerm(
            HalpSettings(start_epoch=0, prototypes=8, count=10, recent=64, negatives=negatives),
            ("joint",),
            0.2,
        ).double()
        context = StepContext(1, torch.Generator().manual_seed(0))
        for _ in range(150):
            unit_points = F.normalize(points, dim=1)
            queue.push({"joint": unit_points.detach()})
            value, _ = term({"joint": StreamBatch(unit_points, unit_points.detach())}, queue, context)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
        final = F.normalize(points.detach(), dim=1)
        similarity[negatives] = float((final @ final.T).mean())
    assert similarity[True] < 0.2
    assert similarity[False] > similarity[True] + 0.1
