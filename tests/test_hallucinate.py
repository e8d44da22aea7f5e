"""Hallucinated positives against slow formulas written from the paper: draws, steps, filters, loss, gradient,
the term.
"""

from __future__ import annotations

import inspect
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slow_formulas as slow
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import halp.hallucinate
from halp.core.errors import InputError
from halp.hallucinate import (
    ANCHORS,
    AVERAGES,
    DIRECTIONS,
    FILTERS,
    STEPS,
    HallucinatedPositives,
    hallucinate,
    halp_loss,
    plan_positives,
    positive_alignment_loss,
)
from halp.sphere import angle, hardest_step, kmeans, slerp, unit

SETTINGS = list(itertools.product(STEPS, FILTERS, ANCHORS, DIRECTIONS))


def seeded(seed: int) -> torch.Generator:
    """A fresh generator."""
    return torch.Generator().manual_seed(seed)


def sphere_points(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Uniform unit vectors."""
    return unit(torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)).to(dtype)


def scene(
    batch: int = 6, prototypes: int = 5, width: int = 8, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries near their keys, and prototypes all around."""
    key = sphere_points(batch, width, seed=seed)
    query = unit(key + 0.7 * sphere_points(batch, width, seed=seed + 100))
    return query.to(dtype), key.to(dtype), sphere_points(prototypes, width, seed=seed + 200, dtype=dtype)


@pytest.mark.parametrize("reduction", AVERAGES)
@pytest.mark.parametrize(("step", "filter", "anchor", "direction"), SETTINGS)
def test_loss_and_gradient_equal_the_slow_formula(
    step: str, filter: str, anchor: str, direction: str, reduction: str
) -> None:
    query, key, prototypes = scene()
    query.requires_grad_()
    how: dict[str, Any] = {"step": step, "positive_filter": filter, "anchor": anchor, "direction": direction}
    count, hardness, temperature = 9, 0.9, 0.2

    loss = halp_loss(
        query,
        key,
        prototypes,
        count=count,
        hardness=hardness,
        temperature=temperature,
        average_over=reduction,
        generator=seeded(3),
        **how,
    )
    loss.backward()
    assert query.grad is not None

    positives, kept = hallucinate(
        key, prototypes, count=count, hardness=hardness, generator=seeded(3), query=query, **how
    )
    wanted, gradient = slow.halp_loss(
        query.detach().numpy(), positives.numpy(), kept.numpy(), temperature, reduction
    )
    assert loss.item() == pytest.approx(wanted, abs=1e-9)
    np.testing.assert_allclose(query.grad, gradient, atol=1e-9)

    made = [
        slow.hallucinate(q, k, prototypes.numpy(), draws, hardness=hardness, **how)
        for q, k, draws in zip(
            query.detach().numpy(), key.numpy(), drawn(len(key), count, 5, direction, step)
        )
    ]
    np.testing.assert_allclose(positives, np.stack([m[0] for m in made]), atol=1e-7)
    assert kept.tolist() == [m[1].tolist() for m in made]


def drawn(
    batch: int, count: int, prototypes: int, direction: str, step: str
) -> list[list[tuple[int, float]]]:
    """The random numbers of `seeded(3)` in the order in which a plan uses them: targets, then steps."""
    generator = seeded(3)
    choice = torch.zeros(batch, count, dtype=torch.long)
    if direction == "prototype":
        choice = torch.randint(prototypes - 1, (batch, count), generator=generator)
    uniform = (
        torch.zeros(batch, count) if step == "hardest" else torch.rand(batch, count, generator=generator)
    )
    return [list(zip(c, u)) for c, u in zip(choice.tolist(), uniform.tolist())]


def test_settings_of_the_comparison_keep_some_positives_and_drop_others() -> None:
    query, key, prototypes = scene()
    for filter in ("rank", "variant-1"):
        kept = plan_positives(
            key,
            prototypes,
            query=query,
            count=200,
            step="hardest",
            positive_filter=filter,
            generator=seeded(0),
        ).kept
        assert 0.1 < float(kept.float().mean()) < 0.95


def test_only_the_query_receives_a_gradient() -> None:
    query, key, prototypes = (x.requires_grad_() for x in scene())
    halp_loss(query, key, prototypes, count=5, generator=seeded(0)).backward()
    assert key.grad is None
    assert prototypes.grad is None
    assert query.grad is not None
    assert query.grad.abs().sum() > 0


@pytest.mark.parametrize("reduction", AVERAGES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gradient_passes_gradcheck(reduction: str, direction: str) -> None:
    query, key, prototypes = scene(batch=3, width=4)
    fixed = query.clone()
    made = plan_positives(key, prototypes, query=fixed, count=6, direction=direction, generator=seeded(1))

    def loss(moving: Tensor) -> Tensor:
        return positive_alignment_loss(moving, made, 0.07, reduction)

    assert torch.autograd.gradcheck(loss, query.requires_grad_())


def test_loss_of_default_settings_passes_gradcheck() -> None:
    query, key, prototypes = scene(batch=3, width=4)
    assert torch.autograd.gradcheck(
        lambda moving: halp_loss(moving, key, prototypes, count=6, generator=seeded(1)),
        query.requires_grad_(),
    )


@pytest.mark.parametrize("reduction", AVERAGES)
def test_loss_is_zero_and_has_a_zero_gradient_where_nothing_is_kept(reduction: str) -> None:
    key, prototypes = sphere_points(4, 3), sphere_points(5, 3, seed=1)
    query = key.clone().requires_grad_()  # nothing is closer to the query than the key is
    loss = halp_loss(
        query,
        key,
        prototypes,
        count=8,
        step="hardest",
        positive_filter="variant-1",
        average_over=reduction,
        generator=seeded(0),
    )
    loss.backward()
    assert query.grad is not None
    assert loss.item() == 0
    assert query.grad.abs().max() == 0


def test_reductions_differ_where_anchors_keep_different_numbers() -> None:
    query, key, prototypes = scene()
    kept = plan_positives(key, prototypes, query=query, count=20, step="hardest", generator=seeded(0)).kept
    assert kept.sum(1).unique().numel() > 1
    by_positives, by_anchors = (
        halp_loss(query, key, prototypes, count=20, step="hardest", average_over=how, generator=seeded(0))
        for how in ("positives", "anchors")
    )
    assert float(by_positives) != pytest.approx(float(by_anchors), rel=1e-6)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("noise", [0.2, 1.0, 4.0])
def test_kept_is_the_argmax_over_materialised_positives_but_for_rounding(step: str, noise: float) -> None:
    directions = sphere_points(20, 64, seed=1)
    prototypes = unit(directions + 0.3 * sphere_points(20, 64, seed=2)).float()
    key = unit(directions[torch.arange(64) % 20] + noise * sphere_points(64, 64, seed=3)).float()
    positives, kept = hallucinate(key, prototypes, count=100, step=step, hardness=1.0, generator=seeded(0))
    closest = (key @ prototypes.T).argmax(1, keepdim=True)
    similarity = (positives.double() @ prototypes.double().T).view(64, 100, 20)
    own = similarity.gather(2, closest[:, :, None].expand(-1, 100, 1))[..., 0]
    rival = similarity.scatter(2, closest[:, :, None].expand(-1, 100, 1), -2).amax(2)
    clear = (own - rival).abs() > 2e-6
    if step == "hardest":  # those are on the boundary by intent, unless a third prototype interferes
        assert clear.float().mean() < 0.2
    else:
        assert clear.float().mean() > 0.99
    assert torch.equal(kept[clear], (own > rival)[clear])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_ranked_steps_leave_nothing_to_filter(dtype: torch.dtype, direction: str) -> None:
    for seed in range(20):
        query, key, prototypes = scene(16, 12, 4, seed=seed, dtype=dtype)
        made = plan_positives(
            key,
            prototypes,
            query=query,
            step="ranked",
            hardness=1.0,
            direction=direction,
            generator=seeded(seed),
        )
        assert made.kept.all()
        closest = (key @ prototypes.T).argmax(1, keepdim=True)
        similarity = made.positives() @ prototypes.T
        own = similarity.gather(2, closest[:, None].expand(-1, 100, 1))[..., 0]
        assert (own >= similarity.amax(2) - 2e-6).all()


def test_ranked_steps_reach_as_far_as_the_ranking_over_all_prototypes_admits() -> None:
    _, key, prototypes = scene(10, 8, 5, seed=4)
    made = plan_positives(key, prototypes, count=400, step="ranked", hardness=1.0, generator=seeded(0))
    for b, z in enumerate(key.numpy()):
        own = slow.closest_prototype(z, prototypes.numpy())
        rivals = [p for j, p in enumerate(prototypes.numpy()) if j != own]
        for j in range(8):
            if j != own:
                furthest = slow.furthest_step(z, prototypes[own].numpy(), prototypes[j].numpy(), rivals)
                steps = made.step[b][made.target[b] == j]
                assert float(steps.max()) <= furthest + 1e-9
                assert float(steps.max()) >= 0.8 * furthest


def test_hardest_positives_lie_on_the_boundary_and_are_kept_where_only_the_pair_binds() -> None:
    key, pair = sphere_points(50, 6, seed=1), sphere_points(2, 6, seed=2)
    positives, kept = hallucinate(key, pair, count=4, step="hardest", generator=seeded(0))
    similarity = positives @ pair.T
    torch.testing.assert_close(similarity[..., 0], similarity[..., 1], atol=1e-12, rtol=0)
    assert kept.all()
    single = hallucinate(key.float(), pair.float(), count=4, step="hardest", generator=seeded(0))
    assert single[1].all()


@pytest.mark.parametrize(("dtype", "margin"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
def test_hardest_step_of_the_plan_is_hardest_step_of_the_sphere(dtype: torch.dtype, margin: float) -> None:
    _, key, prototypes = scene(40, 10, 16, seed=7, dtype=dtype)
    made = plan_positives(
        key, prototypes, count=30, step="hardest", positive_filter="none", generator=seeded(0)
    )
    closest = prototypes[(key @ prototypes.T).argmax(1)]
    wanted = hardest_step(key[:, None], closest[:, None], prototypes[made.target])
    torch.testing.assert_close(made.step, wanted, atol=margin, rtol=0)


@pytest.mark.parametrize(("dtype", "margin"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_positives_of_a_plan_lie_on_the_geodesics_of_the_sphere(dtype: torch.dtype, margin: float) -> None:
    _, key, prototypes = scene(40, 10, 16, seed=7, dtype=dtype)
    made = plan_positives(key, prototypes, count=30, generator=seeded(0))
    wanted = slerp(key[:, None].expand(-1, 30, -1), prototypes[made.target], made.step)
    torch.testing.assert_close(made.positives(), wanted, atol=margin, rtol=0)


def test_target_is_uniform_over_all_prototypes_but_the_closest() -> None:
    _, key, prototypes = scene(6, 7, 5, seed=5)
    count = 20_000
    target = plan_positives(key, prototypes, count=count, generator=seeded(0)).target
    closest = (key @ prototypes.T).argmax(1)
    assert closest.unique().numel() > 2
    for b in range(6):
        drawn_times = torch.bincount(target[b], minlength=7).double()
        assert drawn_times[closest[b]] == 0
        others = drawn_times[torch.arange(7) != closest[b]]
        chi_square = ((others - count / 6).square() / (count / 6)).sum()
        assert chi_square < 25.7  # 5 degrees of freedom, one chance in ten thousand


@pytest.mark.parametrize("hardness", [0.3, 0.8, 1.0])
@pytest.mark.parametrize("step", ["paper", "authors"])
def test_steps_fill_their_range_uniformly(step: str, hardness: float) -> None:
    _, key, prototypes = scene(5, 6, 12, seed=6)
    made = plan_positives(key, prototypes, count=4000, step=step, hardness=hardness, generator=seeded(0))
    closest = prototypes[(key @ prototypes.T).argmax(1)]
    share = made.step / hardest_step(key[:, None], closest[:, None], prototypes[made.target])
    low, high = (0.0, hardness) if step == "paper" else (1 - hardness, 1.0)
    assert float(share.min()) >= low - 1e-9
    assert float(share.max()) <= high + 1e-9
    # a uniform variable of width w: mean within five standard errors, and each tenth of the range as full as
    # the others
    scaled = (share - low) / (high - low)
    assert abs(float(scaled.mean()) - 0.5) < 5 * (1 / 12 / scaled.numel()) ** 0.5
    tenths = torch.histc(scaled, bins=10, min=0, max=1) / scaled.numel()
    assert (tenths - 0.1).abs().max() < 0.015


def test_walk_between_query_and_key_covers_the_whole_geodesic() -> None:
    query, key, prototypes = scene()
    made = plan_positives(
        key, prototypes, query=query, direction="query", step="hardest", positive_filter="none", count=2
    )
    torch.testing.assert_close(made.positives()[:, 0], query)
    back = plan_positives(
        key,
        prototypes,
        query=query,
        direction="query",
        anchor="query",
        step="hardest",
        positive_filter="none",
        count=2,
    )
    torch.testing.assert_close(back.positives()[:, 0], key)


def test_variant_2_keeps_everything_as_in_the_paper() -> None:
    query, key, prototypes = scene(30, 10, 4, seed=8, dtype=torch.float32)
    for step in STEPS:
        assert plan_positives(
            key, prototypes, query=query, step=step, positive_filter="variant-2", generator=seeded(0)
        ).kept.all()


def test_loss_draws_the_same_positives_as_hallucinate_and_repeats_with_the_generator() -> None:
    query, key, prototypes = scene()
    one, same, other = (halp_loss(query, key, prototypes, count=7, generator=seeded(s)) for s in (1, 1, 2))
    assert one == same
    assert one != other
    first, again = (hallucinate(key, prototypes, count=7, generator=seeded(1))[0] for _ in range(2))
    assert torch.equal(first, again)


@st.composite
def degenerate_scenes(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors out of a small pool: duplicates, opposites, near misses, keys that are prototypes,
    dimension 2.
    """
    width = draw(st.integers(2, 5))
    number = st.integers(-4, 4)
    pool = unit(
        torch.tensor(
            draw(st.lists(st.lists(number, min_size=width, max_size=width), min_size=2, max_size=4))
        ).double()
    )
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    batch, prototypes = draw(st.integers(1, 3)), draw(st.integers(2, 5))

    def rows(size: int) -> Tensor:
        picked = [draw(st.integers(0, len(pool) - 1)) for _ in range(size)]
        signs = [draw(st.sampled_from([1.0, 1.0, -1.0])) for _ in range(size)]
        aside = [draw(st.sampled_from([0.0, 0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1])) for _ in range(size)]
        base = pool[picked] * torch.tensor(signs)[:, None]
        return unit(base + torch.tensor(aside)[:, None] * pool[picked].roll(1, 1)).to(dtype)

    return rows(batch), rows(batch), rows(prototypes)


@settings(max_examples=250, deadline=None)
@given(degenerate_scenes(), st.sampled_from(SETTINGS), st.sampled_from(AVERAGES), st.integers(0, 1000))
@pytest.mark.slow
def test_no_unit_vectors_give_a_positive_off_the_sphere_or_a_loss_that_is_not_finite(
    vectors: tuple[Tensor, Tensor, Tensor], how: tuple[str, str, str, str], reduction: str, seed: int
) -> None:
    query, key, prototypes = vectors
    named: dict[str, Any] = dict(zip(("step", "positive_filter", "anchor", "direction"), how))
    query.requires_grad_()
    loss = halp_loss(
        query,
        key,
        prototypes,
        count=6,
        hardness=1.0,
        temperature=1,
        average_over=reduction,
        generator=seeded(seed),
        **named,
    )
    loss.backward()
    positives, kept = hallucinate(
        key, prototypes, count=6, hardness=1.0, generator=seeded(seed), query=query, **named
    )
    assert torch.isfinite(positives).all()
    torch.testing.assert_close(positives.norm(dim=2), torch.ones(positives.shape[:2], dtype=key.dtype))
    assert query.grad is not None
    assert torch.isfinite(loss)
    wanted, gradient = slow.halp_loss(
        query.detach().double().numpy(), positives.double().numpy(), kept.numpy(), 1.0, reduction
    )
    # the closed form does not normalise, so what rounding does to a nearly opposite target shows here
    assert loss.item() == pytest.approx(wanted, abs=2e-3)
    np.testing.assert_allclose(query.grad.double(), gradient, atol=2e-3)


@settings(max_examples=60, deadline=None)
@given(degenerate_scenes(), st.integers(0, 1000))
@pytest.mark.heavy
def test_steps_of_degenerate_scenes_are_in_range(vectors: tuple[Tensor, Tensor, Tensor], seed: int) -> None:
    query, key, prototypes = vectors
    for step, direction in itertools.product(STEPS, DIRECTIONS):
        made = plan_positives(
            key, prototypes, query=query, step=step, direction=direction, count=4, generator=seeded(seed)
        )
        assert torch.isfinite(made.step).all()
        assert (made.step >= 0).all()
        assert (made.step <= 1).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_walk_to_an_opposite_point_stays_where_it_is(direction: str, dtype: torch.dtype) -> None:
    key = sphere_points(8, 6, dtype=dtype)
    query = -key
    prototypes = torch.cat([key[:1], -key[:1]])
    made = plan_positives(key[:1], prototypes, query=query[:1], direction=direction, step="hardest", count=3)
    torch.testing.assert_close(made.positives()[0], key[:1].expand(3, -1))
    torch.testing.assert_close(made.kept_sum(), made.kept.sum() * key[:1])


def keys_for(term: HallucinatedPositives, number: int = 40, width: int = 8, seed: int = 0) -> Tensor:
    """Recent keys for a term."""
    return sphere_points(max(number, term.recent), width, seed=seed, dtype=torch.float32)


def small_term(**changes: Any) -> HallucinatedPositives:
    """A term small enough to follow."""
    return HallucinatedPositives(**{"prototypes": 4, "count": 10, "refresh": 3, "recent": 32, **changes})


def test_term_refits_its_prototypes_at_the_first_call_and_every_refresh_calls() -> None:
    term = small_term(refresh=3)
    query, key, _ = scene(dtype=torch.float32)
    refitted = []
    for call in range(8):
        before = term.centres
        term(query, key, keys_for(term, seed=call), generator=seeded(call))
        if not torch.equal(term.centres, before):
            refitted.append(call)
    assert refitted == [0, 3, 6]
    assert int(term.calls) == 8


def test_term_needs_recent_keys_only_when_it_refits() -> None:
    term = small_term(refresh=3)
    query, key, _ = scene(dtype=torch.float32)
    term(query, key, keys_for(term))
    term(query, key)
    term(query, key, None)
    with pytest.raises(InputError, match="recent_keys"):
        term(query, key)


def test_term_equals_kmeans_of_the_newest_keys_followed_by_the_loss() -> None:
    term = small_term(temperature=0.1, hardness=0.5, average_over="anchors", step="authors")
    query, key, _ = scene(dtype=torch.float32)
    keys = keys_for(term, number=100)
    generator = seeded(5)
    loss = term(query, key, keys, generator=seeded(5))
    centres = kmeans(keys[-32:], 4, generator=generator)
    assert torch.equal(term.centres, centres)
    wanted = halp_loss(
        query,
        key,
        centres,
        count=10,
        hardness=0.5,
        temperature=0.1,
        average_over="anchors",
        step="authors",
        generator=generator,
    )
    assert torch.equal(loss, wanted)


def test_term_resumes_from_its_saved_state_in_a_fresh_module() -> None:
    query, key, _ = scene(dtype=torch.float32)
    term, fresh = small_term(), small_term()
    for call in range(4):
        term(query, key, keys_for(term, seed=call), generator=seeded(call))
    fresh.load_state_dict(term.state_dict())
    assert torch.equal(fresh.centres, term.centres)
    for call in range(4, 8):
        ours = term(query, key, keys_for(term, seed=call), generator=seeded(call))
        theirs = fresh(query, key, keys_for(term, seed=call), generator=seeded(call))
        assert torch.equal(ours, theirs)
    untouched = small_term()
    untouched.load_state_dict(small_term().state_dict())
    assert int(untouched.calls) == 0


def test_state_of_a_term_inside_a_model_round_trips() -> None:
    query, key, _ = scene(dtype=torch.float32)
    model = torch.nn.ModuleDict({"joint": small_term(), "bone": small_term()})
    model["joint"](query, key, sphere_points(32, 8, dtype=torch.float32))
    copy = torch.nn.ModuleDict({"joint": small_term(), "bone": small_term()})
    copy.load_state_dict(model.state_dict())
    assert torch.equal(copy["joint"].centres, model["joint"].centres)
    assert copy["bone"].centres.numel() == 0


def test_prototypes_come_from_the_source_that_is_asked_for() -> None:
    query, key, _ = scene(batch=12, dtype=torch.float32)
    recent = sphere_points(32, 8, seed=50, dtype=torch.float32)
    of_queue, of_batch, of_keys = (small_term(source=source) for source in ("queue", "batch", "keys"))
    of_queue(query, key, recent, generator=seeded(0))
    of_batch(query, key, generator=seeded(0))
    of_keys(query, key, generator=seeded(0))
    assert torch.equal(of_queue.centres, kmeans(recent, 4, generator=seeded(0)))
    assert torch.equal(of_batch.centres, kmeans(key, 4, generator=seeded(0)))
    assert torch.equal(of_keys.centres, key)
    before = of_batch.centres
    of_batch(query, key.flip(1), generator=seeded(0))  # the batch is clustered at every call
    assert not torch.equal(of_batch.centres, before)


def test_keys_as_prototypes_are_their_own_closest() -> None:
    query, key, _ = scene(batch=12, dtype=torch.float32)
    term = small_term(source="keys")
    loss = term(query, key, generator=seeded(0))
    assert torch.isfinite(loss)
    assert term.last is not None
    assert (term.last.target != torch.arange(12)[:, None]).all()


def test_warm_start_continues_from_the_present_prototypes() -> None:
    query, key, _ = scene(dtype=torch.float32)
    keys = sphere_points(32, 8, seed=60, dtype=torch.float32)
    warm, cold = small_term(refresh=1, warm_start=True), small_term(refresh=1)
    for term in (warm, cold):
        term(query, key, keys, generator=seeded(0))
    settled = warm.centres
    for term in (warm, cold):
        term(query, key, keys, generator=seeded(1))
    assert float(angle(warm.centres, settled).max()) < 5e-3
    assert float(angle(cold.centres, settled).max()) > 0.1


def test_autocast_to_half_precision_leaves_the_geometry_in_single_precision() -> None:
    query, key, _ = scene(batch=16, dtype=torch.float32)
    keys = sphere_points(32, 8, seed=70, dtype=torch.float32)
    plain_term, mixed_term = small_term(), small_term()
    plain = plain_term(query, key, keys, generator=seeded(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = mixed_term(query, key, keys, generator=seeded(0))
        function = halp_loss(query, key, plain_term.centres, generator=seeded(1))
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed_term.centres, plain_term.centres)
    assert torch.equal(mixed, plain)
    assert torch.equal(function, halp_loss(query, key, plain_term.centres, generator=seeded(1)))


def test_half_precision_vectors_are_worked_on_in_single_precision() -> None:
    query, key, _ = scene(batch=16, dtype=torch.bfloat16)
    query.requires_grad_()
    term = small_term()
    loss = term(query, key, sphere_points(32, 8, seed=70, dtype=torch.bfloat16), generator=seeded(0))
    loss.backward()
    assert loss.dtype == term.centres.dtype == torch.float32
    assert query.grad is not None
    assert query.grad.dtype == torch.bfloat16
    assert term.last is not None
    assert term.last.theta.dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prototypes": 64}, "more than recent"),
        ({"prototypes": 1}, "at least two"),
        ({"count": 0}, "at least one positive"),
        ({"hardness": 0.0}, "out of range"),
        ({"hardness": 1.2}, "out of range"),
        ({"hardness": float("nan")}, "out of range"),
        ({"refresh": 0}, "at least 1"),
        ({"temperature": 0.0}, "positive"),
        ({"step": "authers"}, "unknown step 'authers': did you mean 'authors'"),
        ({"positive_filter": "ranks"}, "unknown filter 'ranks': did you mean 'rank'"),
        ({"anchor": "keys"}, "unknown anchor 'keys': did you mean 'key'"),
        ({"direction": "up"}, "unknown direction 'up'"),
        ({"source": "memory"}, "unknown source 'memory'"),
        ({"average_over": "sum"}, "unknown average_over 'sum'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(f"{k}={v}" for k, v in value.items()),
)
def test_term_refuses_impossible_settings_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        small_term(**changes)
    assert "\n" not in str(caught.value)


def test_term_refuses_too_few_keys_and_diverged_keys() -> None:
    query, key, _ = scene(dtype=torch.float32)
    term = small_term()
    with pytest.raises(InputError, match="3 keys cannot give 4 prototypes"):
        term(query, key, sphere_points(3, 8, dtype=torch.float32))
    with pytest.raises(InputError, match="not finite"):
        term(query, key, torch.full((32, 8), torch.nan))
    assert int(term.calls) == 0  # a refused call is not counted


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"step": "fast"}, "unknown step"),
        ({"positive_filter": "fast"}, "unknown filter"),
        ({"anchor": "fast"}, "unknown anchor"),
        ({"direction": "fast"}, "unknown direction"),
        ({"anchor": "query"}, "pass query="),
        ({"direction": "query"}, "pass query="),
        ({"positive_filter": "variant-1"}, "pass query="),
    ],
)
def test_hallucinate_refuses_unknown_names_and_a_missing_query(how: dict[str, str], words: str) -> None:
    _, key, prototypes = scene()
    with pytest.raises(InputError, match=words):
        hallucinate(key, prototypes, count=3, **how)


def test_hallucinate_refuses_a_single_prototype() -> None:
    _, key, prototypes = scene()
    with pytest.raises(InputError, match="at least two prototypes"):
        hallucinate(key, prototypes[:1])


def test_slow_contrast_formula_agrees_with_cross_entropy() -> None:
    query, key, queue = scene(batch=5, prototypes=30)
    logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], 1) / 0.07
    wanted = torch.nn.functional.cross_entropy(logits, torch.zeros(5, dtype=torch.long))
    assert slow.infonce(query.numpy(), key.numpy(), queue.numpy(), 0.07) == pytest.approx(float(wanted))


@pytest.mark.parametrize("function", [hallucinate, halp_loss, plan_positives, HallucinatedPositives])
def test_settings_are_those_of_the_paper_unless_others_are_given(function: Any) -> None:
    paper = {
        **{"prototypes": 20, "count": 100, "hardness": 0.8, "refresh": 5, "recent": 256, "temperature": 0.07},
        **{"step": "paper", "positive_filter": "rank", "anchor": "key", "direction": "prototype"},
    }
    given_by = {
        name: p.default
        for name, p in inspect.signature(function).parameters.items()
        if p.default is not p.empty
    }
    shared = given_by.keys() & paper.keys()
    assert {"count", "hardness"} <= shared
    assert {name: given_by[name] for name in shared} == {name: paper[name] for name in shared}


@pytest.mark.parametrize("reduction", AVERAGES)
def test_loss_of_a_single_positive_is_its_similarity_over_the_temperature(reduction: str) -> None:
    query, key, prototypes = scene(batch=1)
    positives, kept = hallucinate(key, prototypes, count=1, hardness=0.1, generator=seeded(0))
    assert kept.all()
    loss = halp_loss(
        query, key, prototypes, count=1, hardness=0.1, average_over=reduction, generator=seeded(0)
    )
    assert float(loss) == pytest.approx(-float((query[0] * positives[0, 0]).sum()) / 0.07)


@pytest.mark.parametrize(("off", "walks"), [(0.0, False), (1.1e-4, False), (1.35e-4, True)])
def test_positive_stays_at_the_key_and_is_kept_where_the_target_is_as_good_as_opposite(
    off: float, walks: bool
) -> None:
    axes = torch.eye(3, dtype=torch.float64)
    target = unit(-axes[0] + off * axes[1])
    plan = plan_positives(axes[:1], torch.stack([axes[0], target]), count=4, step="hardest")
    assert plan.kept.all()
    assert bool((plan.theta > 0).all()) is walks
    assert walks or torch.equal(plan.positives(), axes[:1].expand(1, 4, 3))


@pytest.mark.parametrize("seed", range(3))
def test_first_variant_drops_what_is_further_from_the_query_than_the_key_on_the_way_to_the_key(
    seed: int,
) -> None:
    query, key, prototypes = scene(batch=20, seed=seed)
    for anchor in ANCHORS:
        positives, kept = hallucinate(
            key, prototypes, query=query, anchor=anchor, direction="query", positive_filter="variant-1", count=5, hardness=1.0,
            generator=seeded(seed),
        )  # fmt: skip
        wanted = [
            [slow.passes_variant_1(positive, q, k, slack=1e-12) for positive in walks]
            for walks, q, k in zip(positives.numpy(), query.numpy(), key.numpy())
        ]
        assert kept.tolist() == wanted


def test_term_takes_the_smallest_settings_that_make_sense() -> None:
    term = HallucinatedPositives(prototypes=2, count=1, hardness=1.0, refresh=1, recent=2)
    assert term.centres.shape == (0, 0)
    assert term.calls == 0
    query, key, _ = scene(batch=2)
    assert torch.isfinite(term(query, key, key))
    assert term.centres.shape == (2, 8)


def test_rows_that_are_not_of_unit_length_are_refused_with_the_remedy() -> None:
    query, key, _ = scene(dtype=torch.float32)
    keys = keys_for(small_term())
    with pytest.raises(InputError, match=r"^query has rows of length 3 to 3.*normalise them first"):
        small_term()(3 * query, key, keys)
    with pytest.raises(InputError, match=r"^key has rows of length 0\.5"):
        small_term()(query, key / 2, keys)
    with pytest.raises(
        InputError, match=r"recent_keys has rows of length 2 to 2, and HaLP takes unit vectors"
    ):
        small_term()(query, key, 2 * keys)
    assert torch.isfinite(small_term()(query.bfloat16(), key.bfloat16(), keys.bfloat16()))


def test_the_term_with_negatives_pays_the_denominator_of_infonce() -> None:
    query, key, _ = scene(dtype=torch.float64)
    keys = keys_for(small_term()).double()
    plain, balanced = (small_term(negatives=on, temperature=0.2).double() for on in (False, True))
    loss, more = (term(query, key, keys, seeded(1)) for term in (plain, balanced))
    plan = plain.last
    assert plan is not None
    logits = torch.cat([(query * key).sum(1, keepdim=True), query @ keys.T], 1) / 0.2
    share = plan.kept.sum(1) / plan.kept.sum()
    torch.testing.assert_close(more, loss + (share * logits.logsumexp(1)).sum())
    bank = sphere_points(50, 8, seed=3)
    other = small_term(negatives=True, temperature=0.2).double()(query, key, keys, seeded(1), negatives=bank)
    assert float(other) != pytest.approx(float(more))


def test_the_term_shows_its_settings() -> None:
    shown = repr(HallucinatedPositives(prototypes=7, recent=64, hardness=0.5, negatives=True))
    for setting in ("prototypes=7", "recent=64", "hardness=0.5", "negatives=True", "step='paper'"):
        assert setting in shown


class Sizes(TorchDispatchMode):
    """The numbers that operations make: the most of one, and all together."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self.total = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.most, self.total = max(self.most, made.numel()), self.total + made.numel()
        return made


@pytest.mark.parametrize("step", ["paper", "ranked"])
def test_keys_as_prototypes_cost_no_cube_of_the_batch(step: str) -> None:
    sizes = {}
    for batch in (128, 512):
        term = HallucinatedPositives(source="keys", count=16, step=step)
        query, key, _ = scene(batch, 2, 32, dtype=torch.float32)
        with Sizes() as sizes[batch]:
            term(query, key, generator=seeded(0))
    assert sizes[512].most <= 1 << 22
    assert sizes[512].total < 20 * sizes[128].total  # 16 times by the square, 64 by the cube


@pytest.mark.parametrize("at_once", [1, 700, 1 << 22])
@pytest.mark.parametrize("count", [3, 30])  # fewer and more than there are targets
def test_drawn_targets_and_portions_of_rivals_change_no_bit(
    count: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key, prototypes = scene(12, 10, 6, dtype=torch.float32)
    monkeypatch.setattr("halp.hallucinate._AT_ONCE", at_once)
    made = plan_positives(key, prototypes, query=query, count=count, step="hardest", generator=seeded(2))
    for b, g in itertools.product(range(12), range(count)):
        z, target = key[b].double().numpy(), int(made.target[b, g])
        own = slow.closest_prototype(z, prototypes.double().numpy())
        goal = prototypes[target].double().numpy()
        wanted = slow.furthest_step(z, prototypes[own].double().numpy(), goal, [goal])
        assert float(made.step[b, g]) == pytest.approx(wanted, abs=1e-4)
    whole = plan_positives(key, prototypes, query=query, count=30, step="hardest", generator=seeded(2))
    same = whole.target[:, None] == made.target[:, :, None]  # (B, G, 30)
    equal = whole.theta[:, None] == made.theta[:, :, None]
    assert same.any(2).float().mean() > 0.9
    assert torch.equal((same & equal).any(2), same.any(2))


@pytest.mark.parametrize("packed", [False, True])
def test_the_two_files_of_the_method_work_in_a_foreign_project(tmp_path: Path, packed: bool) -> None:
    """Copied beside a script or into a package, where halp cannot be imported."""
    home = tmp_path / "theirs" if packed else tmp_path
    home.mkdir(exist_ok=True)
    source = Path(halp.hallucinate.__file__).parent
    for name in ("hallucinate.py", "sphere.py"):
        shutil.copy(source / name, home)
    (tmp_path / "halp.py").write_text("raise ImportError('halp is not here')\n")
    script = tmp_path / "train.py"
    script.write_text(
        f"import torch\nfrom {'theirs.' if packed else ''}hallucinate import HallucinatedPositives\n"
        "rows = torch.nn.functional.normalize(torch.randn(48, 8), dim=1)\n"
        "query = rows[:8].clone().requires_grad_()\n"
        "term = HallucinatedPositives(prototypes=4, count=10, recent=32, negatives=True)\n"
        "term(query, rows[8:16], rows[16:]).backward()\n"
        "assert query.grad.isfinite().all() and query.grad.abs().sum() > 0\n"
        "for wrong in (dict(step='best'), dict(count=0)):\n"
        "    try:\n        HallucinatedPositives(**wrong)\n"
        "    except ValueError as error:\n        print(error)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import runpy; "
         f"runpy.run_path({str(script)!r})"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "unknown step 'best'. Known: authors, hardest, paper, ranked." in answer.stdout
    assert "count = 0" in answer.stdout
