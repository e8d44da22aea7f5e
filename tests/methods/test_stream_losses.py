"""Losses across streams against loops written from their definitions: values, gradients, and where gradients
flow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import slow_streams as slow
import torch
from slow_formulas import karcher_mean
from torch import Tensor, nn
from torch.nn import functional as F

from halp.losses.distillation import distillation_loss, nearest_rows, teacher_targets
from halp.losses.mined_positives import mining_loss
from halp.methods import StepContext, StreamBatch
from halp.methods.core_terms import CmdSettings, CmdTerm, CrossClrSettings, CrossClrTerm, InfoNCETerm, IscTerm
from halp.methods.halp import group_means, guided_prototypes, partner
from halp.methods.queue import KeyQueue
from halp.sphere import kmeans

STREAMS = ("joint", "motion", "bone")
Batches = dict[str, StreamBatch]


def unit(*shape: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=g, dtype=torch.float64), dim=-1)


def case(
    streams: tuple[str, ...] = STREAMS, batch: int = 4, length: int = 12, width: int = 6
) -> tuple[Batches, KeyQueue]:
    """Random queries, keys and a full queue of float64, all different."""
    queue = KeyQueue(streams, length, width).double()
    queue.push({stream: unit(length, width, seed=50 + i) for i, stream in enumerate(streams)})
    batches = {
        stream: StreamBatch(
            unit(batch, width, seed=i).requires_grad_(), unit(batch, width, seed=20 + i).requires_grad_()
        )
        for i, stream in enumerate(streams)
    }
    return batches, queue


def arrays(batches: Batches, queue: KeyQueue) -> tuple[dict[str, np.ndarray], ...]:
    return (
        {stream: batch.query.detach().numpy() for stream, batch in batches.items()},
        {stream: batch.key.detach().numpy() for stream, batch in batches.items()},
        {stream: queue.keys(stream).numpy() for stream in batches},
    )


def moment(epoch: int = 0) -> StepContext:
    return StepContext(epoch, torch.Generator().manual_seed(0))


def compare(
    term: nn.Module, batches: Batches, queue: KeyQueue, loss: float, gradients: dict[str, np.ndarray]
) -> None:
    """Value and gradient equal the slow ones, and no key or queue entry receives any gradient."""
    value, metrics = term(batches, queue, moment())
    value.backward()
    assert float(value.detach()) == pytest.approx(loss, rel=1e-10)
    for stream, batch in batches.items():
        np.testing.assert_allclose(batch.query.grad, gradients[stream], atol=1e-12)
        assert batch.key.grad is None
        assert queue.keys(stream).grad is None
    assert all(torch.isfinite(entry).all() and not entry.requires_grad for entry in metrics.values())


@pytest.mark.parametrize("streams", [STREAMS, ("joint", "bone")])
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_cmd_equals_its_definition_for_all_ordered_pairs(streams: tuple[str, ...], share: float) -> None:
    batches, queue = case(streams)
    loss, gradients = slow.mutual_distillation(*arrays(batches, queue), count=round(12 * share))
    compare(CmdTerm(CmdSettings(share=share), streams), batches, queue, loss, gradients)


def test_cmd_weight_scales_the_sum_of_six_terms() -> None:
    batches, queue = case()
    one, _ = CmdTerm(CmdSettings(), STREAMS)(batches, queue, moment())
    three, metrics = CmdTerm(CmdSettings(weight=3.0), STREAMS)(batches, queue, moment())
    assert torch.allclose(three, 3 * one)
    assert sum(float(metrics[f"{stream}/loss_distillation"]) for stream in STREAMS) == pytest.approx(
        float(one.detach())
    )
    pairs = [
        distillation_loss(batches[b].query, queue.keys(b), batches[a].key, queue.keys(a), count=6)
        for a in STREAMS
        for b in STREAMS
        if a != b
    ]
    assert len(pairs) == 6
    assert torch.allclose(torch.stack(pairs).sum(), one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 5, 16, 31, 32])
def test_nearest_rows_are_the_largest_entries(dtype: torch.dtype, count: int) -> None:
    similarity = torch.stack(
        [torch.randperm(32, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    ).to(dtype)
    rows = nearest_rows(similarity, count)
    assert rows.shape == (4, count)
    assert similarity.gather(1, rows).sort(1).values.tolist() == [list(range(32 - count, 32))] * 4


def test_the_teacher_chooses_the_rows_and_the_positive_is_not_among_them() -> None:
    key, queue = torch.eye(4)[:1], torch.eye(4)[[1, 0, 2, 0]] * torch.tensor([[1.0], [0.9], [1.0], [0.8]])
    lesson = teacher_targets(key, queue, 2)
    assert sorted(lesson.rows[0].tolist()) == [1, 3]
    assert torch.allclose(lesson.probability.sum(1), torch.ones(1))
    # a student whose own nearest rows are others is compared on the teacher's rows all the same
    loss = distillation_loss(torch.eye(4)[2:3], queue, key, queue, count=2)
    expected = (lesson.probability * (lesson.probability / 0.5).log()).sum()
    assert torch.allclose(loss, expected)


def test_a_student_that_agrees_with_its_teacher_has_nothing_to_learn() -> None:
    query, queue = unit(3, 5).requires_grad_(), unit(20, 5, seed=1)
    loss = distillation_loss(query, queue, query.detach(), queue, count=10, student_temperature=0.05)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0, abs=1e-12)
    assert query.grad is not None
    assert float(query.grad.abs().max()) < 1e-12


@pytest.mark.parametrize("streams", [STREAMS, ("joint", "motion")])
@pytest.mark.parametrize("top", [1, 3])
def test_mining_equals_its_definition(streams: tuple[str, ...], top: int) -> None:
    batches, queue = case(streams)
    losses, gradients = slow.mining(*arrays(batches, queue), top=top, temperature=0.2)
    compare(
        CrossClrTerm(CrossClrSettings(0, top), streams, 0.2), batches, queue, sum(losses.values()), gradients
    )
    _, metrics = CrossClrTerm(CrossClrSettings(0, top), streams, 0.2)(batches, queue, moment())
    for stream in streams:
        assert float(metrics[f"{stream}/loss_mining"]) == pytest.approx(losses[stream])


def test_mining_is_info_nce_before_its_epoch_and_until_the_queue_is_full() -> None:
    batches, queue = case()
    plain, _ = InfoNCETerm(temperature=0.07)(batches, queue, moment())
    term = CrossClrTerm(CrossClrSettings(start_epoch=5), STREAMS, 0.07)
    before, seen = term(batches, queue, moment(4))
    after, mined = term(batches, queue, moment(5))
    assert torch.equal(before, plain)
    assert not torch.allclose(after, plain)
    assert "joint/loss_mining" not in seen
    assert torch.allclose(
        torch.stack([mined[f"{stream}/loss_contrast"] for stream in STREAMS]).sum(), plain.detach()
    ), "the watched contrast stays comparable over the change"
    queue.filled = 3
    assert torch.equal(term(batches, queue, moment(5))[0], plain)


def test_streams_that_agree_on_their_neighbours_are_seen_to() -> None:
    batches, queue = case(("joint", "bone"))
    twin = {"joint": batches["joint"], "bone": batches["joint"]}
    queue.keys("bone").copy_(queue.keys("joint"))
    _, metrics = CrossClrTerm(CrossClrSettings(0), ("joint", "bone"), 0.07)(twin, queue, moment())
    assert float(metrics["mining_agreement"]) == 1


def test_cross_equals_its_definition() -> None:
    batches, queue = case(("joint", "joint@stgcn"))
    loss, gradients = slow.cross(*arrays(batches, queue), temperature=0.07)
    compare(IscTerm(temperature=0.07), batches, queue, loss, gradients)


def test_cross_without_a_queue_contrasts_with_the_other_clips_of_the_other_representation() -> None:
    batches, _ = case(("joint", "joint@stgcn"))
    value, _ = IscTerm(temperature=0.07)(batches, KeyQueue(list(batches), 0, 6), moment())
    queries, keys, _ = arrays(batches, KeyQueue(list(batches), 0, 6))
    expected = 0.0
    for i in range(4):
        others = {stream: np.delete(found, i, axis=0) for stream, found in keys.items()}
        one = [{stream: found[i : i + 1] for stream, found in part.items()} for part in (queries, keys)]
        expected += slow.cross(*one, others, temperature=0.07)[0] / 4
    assert float(value.detach()) == pytest.approx(expected)


def loss_of(kind: str) -> Callable[..., Tensor]:
    """The loss of two streams as a function of their queries alone."""
    batches, queue = case(("joint", "bone"), batch=2, length=7, width=4)

    def value(*queries: Tensor) -> Tensor:
        moved = {s: StreamBatch(q, batches[s].key.detach()) for s, q in zip(batches, queries)}
        term = {
            "cmd": CmdTerm(CmdSettings(), list(batches)),
            "crossclr": CrossClrTerm(CrossClrSettings(0), list(batches), 0.3),
            "isc": IscTerm(0.3),
        }[kind]
        return term(moved, queue, moment())[0]

    return value


@pytest.mark.parametrize("kind", ["cmd", "crossclr", "isc"])
def test_gradients_pass_gradcheck(kind: str) -> None:
    queries = [unit(2, 4, seed=seed).requires_grad_() for seed in (1, 2)]
    assert torch.autograd.gradcheck(loss_of(kind), queries)


@pytest.mark.parametrize("kind", ["cmd", "crossclr", "isc"])
def test_losses_stay_finite_for_identical_and_opposite_vectors(kind: str) -> None:
    axis = torch.eye(4)[:1].repeat(3, 1)
    for key, past in ((axis, axis), (-axis, axis), (axis, -axis)):
        queue = KeyQueue(["joint", "bone"], 3, 4)
        queue.push({"joint": past, "bone": -past})
        query = axis.clone().requires_grad_()
        batches = {"joint": StreamBatch(query, key), "bone": StreamBatch(query, key)}
        term: nn.Module = {
            "cmd": CmdTerm(CmdSettings(), list(batches)),
            "crossclr": CrossClrTerm(CrossClrSettings(0), list(batches), 0.01),
            "isc": IscTerm(0.01),
        }[kind]
        value, _ = term(batches, queue, moment())
        value.backward()
        assert torch.isfinite(value)
        assert query.grad is not None
        assert torch.isfinite(query.grad).all()


def test_mining_makes_no_larger_tensor_than_queries_times_queue() -> None:
    batches, queue = case(batch=8, length=64)
    largest = 0

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max(largest, out.numel() if isinstance(out, Tensor) else 0)
            return out

    queries, keys, queues = (
        {s: b.query for s, b in batches.items()},
        {s: b.key for s, b in batches.items()},
        {s: queue.keys(s) for s in batches},
    )
    with Watch():
        mining_loss(queries, keys, queues)
    assert largest == 8 * 64


def test_guided_prototypes_are_karcher_means_of_the_other_streams_clusters() -> None:
    keys, guide = unit(40, 5), unit(40, 7, seed=1)
    found = guided_prototypes(keys, guide, 6, torch.Generator().manual_seed(3))
    centres = kmeans(guide, 6, generator=torch.Generator().manual_seed(3))
    np.testing.assert_allclose(
        found, slow.guided_means(keys.numpy(), guide.numpy(), centres.numpy()), atol=1e-3
    )
    assert torch.allclose(found.norm(dim=1), torch.ones(6, dtype=torch.float64))


def test_a_stream_that_guides_itself_keeps_its_own_prototypes() -> None:
    keys = torch.cat(
        [F.normalize(axis + 0.05 * unit(10, 6, seed=i), dim=1) for i, axis in enumerate(torch.eye(6)[:4])]
    )
    own = kmeans(keys, 4, generator=torch.Generator().manual_seed(0), tolerance=1e-7)
    found = guided_prototypes(keys, keys, 4, torch.Generator().manual_seed(0))
    assert float((own - found).abs().max()) < 2e-3


def test_guidance_survives_copies_and_gives_as_many_prototypes_as_asked() -> None:
    keys = unit(12, 5)
    same_guide = unit(1, 5).repeat(12, 1)
    found = guided_prototypes(keys, same_guide, 4, torch.Generator().manual_seed(0))
    assert found.shape == (4, 5)
    assert torch.isfinite(found).all()


def test_group_means_equal_the_karcher_mean_of_each_group() -> None:
    points = F.normalize(unit(30, 5) + torch.eye(5)[0], dim=1)
    share = torch.zeros(2, 30, dtype=torch.float64)
    share[0, :10], share[1, 10:] = 1 / 10, 1 / 20
    means = group_means(points, share, iterations=100, tolerance=1e-10)
    for mean, group in zip(means, (points[:10], points[10:]), strict=True):
        assert np.allclose(mean.numpy(), karcher_mean(list(group.numpy()), tolerance=1e-10), atol=1e-8)


def test_streams_guide_in_turns_and_never_themselves() -> None:
    for stream in STREAMS:
        guides = [partner(stream, STREAMS, turn) for turn in range(4)]
        assert stream not in guides
        assert guides[0] != guides[1]
        assert guides[:2] == guides[2:]
    assert partner("joint", ("joint", "bone"), 7) == "bone"


def test_mining_takes_one_neighbour_and_the_usual_temperature_unless_told_otherwise() -> None:
    rows = F.normalize(
        torch.randn(3, 2, 12, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=-1
    )
    queries, keys, queues = (dict(zip(("joint", "bone"), pair)) for pair in rows)
    plain, told = (
        mining_loss(queries, keys, queues),
        mining_loss(queries, keys, queues, top=1, temperature=0.07),
    )
    assert all(torch.equal(plain.losses[stream], told.losses[stream]) for stream in queries)
