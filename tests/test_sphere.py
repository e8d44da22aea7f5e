"""Geometry on the sphere against slow formulas: the hardest step, geodesics, means, k-means."""

from __future__ import annotations

import numpy as np
import pytest
import slow_formulas as slow
import torch
from read_backs import ReadBacks
from torch import Tensor

from halp import sphere
from halp.core.errors import InputError
from halp.sphere import _lloyd, angle, exp_map, hardest_step, inertia, kmeans, log_map, slerp, unit


def sphere_points(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Uniform unit vectors."""
    return unit(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(
        dtype
    )


def walks(number: int, width: int, kind: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, their closest prototypes and targets; `near` and `obtuse` put the target by the key or across the
    sphere.
    """
    key, first, second = sphere_points(3, number, width, seed=seed).unbind(0)
    if kind == "near":
        first, second = unit(first + 3 * key), unit(second + 3 * key)
    swap = ((key * first).sum(1) < (key * second).sum(1))[:, None]
    closest, target = torch.where(swap, second, first), torch.where(swap, first, second)
    if kind == "obtuse":
        target = unit(target - 3 * key)
        swap = ((key * closest).sum(1) < (key * target).sum(1))[:, None]
        closest, target = torch.where(swap, target, closest), torch.where(swap, closest, target)
    return key, closest, target


@pytest.mark.parametrize("kind", ["uniform", "near", "obtuse"])
@pytest.mark.parametrize("width", [2, 3, 5, 16, 64, 128])
@pytest.mark.parametrize(("dtype", "margin"), [(torch.float64, 1e-7), (torch.float32, 1e-3)])
def test_hardest_step_is_the_furthest_admissible_step_of_a_dense_search(
    kind: str, width: int, dtype: torch.dtype, margin: float
) -> None:
    key, closest, target = walks(150, width, kind, seed=width)
    # within a degree of opposite, single precision does not tell which way the geodesic goes
    defined = (key + target).norm(dim=1) > (0.02 if dtype == torch.float32 else 0)
    assert defined.float().mean() > 0.95
    key, closest, target = (x[defined].to(dtype) for x in (key, closest, target))
    steps = hardest_step(key, closest, target)
    assert steps.dtype == dtype
    wanted = [
        slow.furthest_step(z, p, towards, [towards])
        for z, p, towards in zip(key.double().numpy(), closest.double().numpy(), target.double().numpy())
    ]
    np.testing.assert_allclose(steps.double().numpy(), wanted, atol=margin)


def test_random_walks_of_the_dense_search_include_obtuse_angles_and_whole_ways() -> None:
    key, closest, target = walks(150, 2, "obtuse", seed=2)
    assert ((key * target).sum(1) < 0).float().mean() > 0.5
    printed = [
        slow.closed_form_step(z, p, q) for z, p, q in zip(key.numpy(), closest.numpy(), target.numpy())
    ]
    assert min(printed) < 0  # the arctan of Eq. 7 as printed leaves the range that atan2 keeps


def test_hardest_step_is_equation_7_where_its_arctan_is_on_the_right_branch() -> None:
    key, closest, target = walks(300, 32, "near", seed=5)
    steps = hardest_step(key, closest, target)
    for z, p, towards, step in zip(key.numpy(), closest.numpy(), target.numpy(), steps.tolist(), strict=True):
        assert slow.kappa(z, p, towards) + np.dot(z, towards) > 0
        assert step == pytest.approx(slow.closed_form_step(z, p, towards), abs=1e-9)


def test_hardest_step_broadcasts_over_keys_and_targets() -> None:
    keys, targets = sphere_points(7, 6), sphere_points(5, 6, seed=1)
    closest = targets[(keys @ targets.T).argmax(1)]
    table = hardest_step(keys[:, None], closest[:, None], targets)
    assert table.shape == (7, 5)
    for b in range(7):
        for n in range(5):
            assert float(table[b, n]) == pytest.approx(
                float(hardest_step(keys[b], closest[b], targets[n])), abs=1e-12
            )


def test_point_at_the_hardest_step_is_equally_near_to_both_prototypes() -> None:
    key, closest, target = walks(500, 16, "uniform", seed=3)
    steps = hardest_step(key, closest, target)
    point = slerp(key, target, steps)
    inside = steps < 1
    assert inside.float().mean() > 0.9
    torch.testing.assert_close(
        (point * closest).sum(1)[inside], (point * target).sum(1)[inside], atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [2, 3, 128])
def test_hardest_step_is_finite_and_in_range_for_coincident_and_antipodal_inputs(
    dtype: torch.dtype, width: int
) -> None:
    a, b = sphere_points(2, width, seed=9, dtype=dtype)
    almost = unit(a + 1e-7 * b)
    corners = torch.stack([a, b, -a, -b, almost, -almost])
    steps = hardest_step(corners[:, None, None], corners[None, :, None], corners[None, None])
    assert steps.shape == (6, 6, 6)
    assert torch.isfinite(steps).all()
    assert (steps >= 0).all()
    assert (steps <= 1).all()


def test_hardest_step_of_degenerate_walks_is_the_documented_one() -> None:
    a, b, c = torch.eye(3)
    assert hardest_step(a, b, b) == 1  # closest and target are one: all steps are admissible
    assert hardest_step(a, a, a) == 1
    assert hardest_step(a, c, a) == 0  # the target is nearer already
    assert hardest_step(a, b, -a) == 0  # no geodesic to an opposite point
    assert hardest_step(a, b, c) == 0  # a tie at the start


@pytest.mark.parametrize("width", [2, 3, 128])
def test_angle_keeps_precision_for_nearly_equal_and_nearly_opposite_vectors(width: int) -> None:
    x, y = sphere_points(2, width, seed=4)
    y = unit(y - (x @ y) * x)
    for true in (1e-6, 1e-3, 1.0, np.pi - 1e-3, np.pi - 1e-6):
        point = np.cos(true) * x + np.sin(true) * y
        assert float(angle(x, point)) == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize(("dtype", "margin"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_slerp_equals_equation_4_and_starts_and_ends_at_its_end_points(
    dtype: torch.dtype, margin: float
) -> None:
    x, y = sphere_points(2, 200, 8, dtype=dtype)
    t = torch.rand(200, generator=torch.Generator().manual_seed(0)).to(dtype)
    torch.testing.assert_close(slerp(x, y, 0.0), x, atol=margin, rtol=0)
    torch.testing.assert_close(slerp(x, y, 1.0), y, atol=margin, rtol=0)
    wanted = [
        slow.slerp(a, b, s) for a, b, s in zip(x.double().numpy(), y.double().numpy(), t.double().numpy())
    ]
    np.testing.assert_allclose(slerp(x, y, t).double().numpy(), wanted, atol=margin)


def test_slerp_of_equal_and_opposite_vectors_stays_on_the_sphere() -> None:
    x = sphere_points(20, 4, dtype=torch.float32)
    t = torch.linspace(0, 1, 20)
    torch.testing.assert_close(slerp(x, x, t), x)
    torch.testing.assert_close(slerp(x, -x, t), x)
    assert torch.isfinite(slerp(x, unit(-x + 1e-4 * x.roll(1, 0)), t)).all()


@pytest.mark.parametrize("width", [2, 3, 64])
def test_log_and_exp_maps_undo_each_other(width: int) -> None:
    base, point = sphere_points(2, 300, width, seed=6)
    tangent = log_map(base, point)
    torch.testing.assert_close(exp_map(base, tangent), point, atol=1e-9, rtol=0)
    torch.testing.assert_close(tangent.norm(dim=1), angle(base, point), atol=1e-9, rtol=0)
    torch.testing.assert_close(
        (tangent * base).sum(1), torch.zeros(300, dtype=torch.float64), atol=1e-9, rtol=0
    )
    np.testing.assert_allclose(tangent[0], slow.log_map(base[0].numpy(), point[0].numpy()), atol=1e-9)
    short = 0.3 * tangent
    torch.testing.assert_close(log_map(base, exp_map(base, short)), short, atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_map_of_equal_and_opposite_points_is_zero(dtype: torch.dtype) -> None:
    x = sphere_points(100, 7, dtype=dtype)
    assert log_map(x, x).abs().max() == 0
    assert log_map(x, -x).abs().max() == 0


def karcher_mean(points: Tensor) -> Tensor:
    """The reference, as a tensor."""
    return torch.from_numpy(slow.karcher_mean(list(points.numpy()), tolerance=1e-12))


def test_reference_of_the_mean_minimises_the_squared_angles() -> None:
    points = unit(sphere_points(40, 6, seed=7) + 1.5 * torch.eye(6, dtype=torch.float64)[0])
    mean = karcher_mean(points)
    assert log_map(mean, points).mean(0).norm() < 1e-9  # the gradient

    def cost(centre: Tensor) -> float:
        return float(angle(centre, points).square().sum())

    least = cost(mean)
    for seed in range(100):
        aside = exp_map(mean, 0.05 * sphere_points(6, seed=seed))
        assert cost(aside) > least
    assert cost(unit(points.mean(0))) > least  # and not just the normalised average


def groups(number: int, width: int, centres: int, noise: float, seed: int) -> Tensor:
    """Points scattered around `centres` directions."""
    directions = sphere_points(centres, width, seed=seed)
    return unit(
        directions[torch.arange(number) % centres] + noise * sphere_points(number, width, seed=seed + 1)
    )


@pytest.mark.parametrize(
    ("points", "k"),
    [
        (groups(120, 16, 6, 0.4, seed=1), 6),
        (groups(150, 32, 12, 0.9, seed=2), 8),
        (sphere_points(100, 4, seed=3), 5),
        (sphere_points(100, 16, seed=4), 6),
    ],
    ids=["clear clusters", "fuzzy clusters", "uniform in 4", "uniform in 16"],
)
@pytest.mark.slow
def test_kmeans_reaches_the_inertia_of_the_textbook_within_one_per_cent(points: Tensor, k: int) -> None:
    starts = 12
    random = np.random.default_rng(0)
    wanted = min(slow.inertia(points.numpy(), slow.kmeans(points.numpy(), k, random)) for _ in range(starts))
    found = kmeans(points.float(), k, starts=starts, generator=torch.Generator().manual_seed(0))
    assert slow.inertia(points.numpy(), found.double().numpy()) <= 1.01 * wanted


def test_kmeans_finds_the_centres_of_clear_clusters() -> None:
    points = groups(200, 24, 5, 0.2, seed=8)
    found = kmeans(points, 5, starts=5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found.norm(dim=1), torch.ones(5, dtype=torch.float64))
    for members in (points[torch.arange(200) % 5 == c] for c in range(5)):
        mean = karcher_mean(members)
        assert float(angle(found, mean).min()) < 2e-3


def test_every_centre_of_kmeans_is_the_karcher_mean_of_its_members() -> None:
    points = sphere_points(200, 5, seed=10)
    found = kmeans(points, 6, generator=torch.Generator().manual_seed(0), tolerance=1e-7, iterations=1000)
    nearest = (points @ found.T).argmax(1)
    for j in range(6):
        assert float(angle(found[j], karcher_mean(points[nearest == j]))) < 1e-5


def test_inertia_is_the_sum_of_squared_angles_to_the_nearest_centre() -> None:
    points, centres = sphere_points(50, 6, seed=11), sphere_points(4, 6, seed=12)
    assert float(inertia(points, centres)) == pytest.approx(slow.inertia(points.numpy(), centres.numpy()))


def test_more_starts_of_kmeans_never_end_worse() -> None:
    points = sphere_points(80, 6, seed=13)
    first = inertia(points, kmeans(points, 8, generator=torch.Generator().manual_seed(3)))
    best = inertia(points, kmeans(points, 8, starts=8, generator=torch.Generator().manual_seed(3)))
    assert best <= first


def test_kmeans_repeats_itself_with_the_same_generator_and_only_then() -> None:
    points = sphere_points(100, 8, seed=14)
    one, same, other = (
        kmeans(points, 7, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_kmeans_starts_from_the_given_centres() -> None:
    points = groups(100, 8, 4, 0.3, seed=15)
    settled = kmeans(points, 4, generator=torch.Generator().manual_seed(0), starts=4)
    again = kmeans(points, 4, start=settled)
    assert float(angle(settled, again).max()) < 2e-3
    assert not torch.equal(kmeans(points, 4, start=points[:4], iterations=1), settled)


def test_kmeans_with_as_many_clusters_as_points_returns_the_points() -> None:
    points = sphere_points(12, 5, seed=16)
    found = kmeans(points, 12, generator=torch.Generator().manual_seed(0))
    assert float(inertia(points, found)) < 1e-9
    assert set((points @ found.T).argmax(1).tolist()) == set(range(12))


def test_kmeans_of_one_cluster_is_the_karcher_mean() -> None:
    points = groups(30, 5, 1, 0.5, seed=17)
    found = kmeans(points, 1, generator=torch.Generator().manual_seed(0), tolerance=1e-9)
    torch.testing.assert_close(found[0], karcher_mean(points), atol=1e-7, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kmeans_of_identical_points_gives_that_point(dtype: torch.dtype) -> None:
    points = sphere_points(1, 6, seed=18, dtype=dtype).repeat(10, 1)
    found = kmeans(points, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found, points[:4])


def test_kmeans_covers_every_distinct_point_when_there_are_fewer_than_clusters() -> None:
    distinct = sphere_points(3, 6, seed=19)
    found = kmeans(distinct.repeat(5, 1), 7, generator=torch.Generator().manual_seed(0))
    assert found.shape == (7, 6)
    assert torch.isfinite(found).all()
    torch.testing.assert_close((distinct @ found.T).amax(1), torch.ones(3, dtype=torch.float64))


def test_empty_cluster_of_kmeans_restarts_from_the_worst_served_point() -> None:
    points = groups(60, 8, 3, 0.1, seed=20)
    lost = unit(-points.mean(0))
    found = kmeans(points, 3, start=torch.stack([points[0], lost, lost]))
    assert torch.bincount((points @ found.T).argmax(1), minlength=3).tolist() == [20, 20, 20]


def test_antipodal_points_do_not_upset_kmeans() -> None:
    points = torch.cat([torch.eye(3), -torch.eye(3)])
    for seed in range(10):
        for k in (1, 2, 4):
            found = kmeans(points, k, generator=torch.Generator().manual_seed(seed))
            torch.testing.assert_close(found.norm(dim=1), torch.ones(k))


def test_kmeans_under_autocast_equals_kmeans_without() -> None:
    points = groups(100, 16, 5, 0.4, seed=21).float()
    plain = kmeans(points, 5, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = kmeans(points, 5, generator=torch.Generator().manual_seed(0))
    assert mixed.dtype == torch.float32
    assert torch.equal(plain, mixed)


def test_kmeans_of_half_precision_points_works_in_single_precision() -> None:
    points = groups(100, 16, 5, 0.4, seed=22).bfloat16()
    assert kmeans(points, 5, generator=torch.Generator().manual_seed(0)).dtype == torch.float32


@pytest.mark.parametrize(
    ("points", "k", "start", "words"),
    [
        (sphere_points(4, 3), 5, None, "cannot make 5 clusters out of 4 points"),
        (sphere_points(4, 3), 0, None, "cannot make 0 clusters"),
        (sphere_points(4, 3) * torch.nan, 2, None, "not finite"),
        (sphere_points(2, 4, 3), 2, None, "shape"),
        (sphere_points(4, 3), 2, sphere_points(3, 3), "needs 2 start centres"),
    ],
    ids=["too many", "none", "NaN", "not rows", "start of another size"],
)
def test_kmeans_refuses_impossible_requests_in_one_sentence(
    points: Tensor, k: int, start: Tensor | None, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        kmeans(points, k, start=start)
    assert "\n" not in str(caught.value)


def test_unit_gives_rows_without_direction_the_first_axis() -> None:
    rows = torch.tensor([[0.0, 0.0, 0.0], [0.0, -2.0, 0.0], [1e-30, 0.0, 0.0]])
    torch.testing.assert_close(unit(rows), torch.tensor([[1.0, 0, 0], [0, -1.0, 0], [1.0, 0, 0]]))


def test_maps_take_any_axes_before_the_coordinates() -> None:
    base, point = (
        sphere.unit(torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(seed))) for seed in (0, 1)
    )
    tangent = sphere.log_map(base, point)
    for i in range(2):
        for j in range(4):
            torch.testing.assert_close(tangent[i, j], sphere.log_map(base[i, j], point[i, j]))
    torch.testing.assert_close(sphere.exp_map(base, tangent), point)
    torch.testing.assert_close(tangent.norm(dim=-1), sphere.angle(base, point))


@pytest.mark.parametrize("t", [0.0, 0.25, 0.5, 1.0])
def test_slerp_between_vectors_closer_than_a_sine_can_tell_goes_in_proportion(t: float) -> None:
    near = torch.tensor([1.0, 1e-9], dtype=torch.float64)
    walked = slerp(torch.tensor([1.0, 0.0], dtype=torch.float64), near, t)
    assert float(walked[1]) == pytest.approx(t * 1e-9, abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(5))
def test_starts_of_kmeans_are_drawn_in_proportion_to_the_squared_angle(seed: int, dtype: torch.dtype) -> None:
    points = sphere_points(12, 4, seed=seed, dtype=dtype).repeat(2, 1)
    draws = torch.rand(5, generator=torch.Generator().manual_seed(seed)).double().tolist()
    chosen = [int(draws[0] * len(points))]
    for draw in draws[1:]:
        nearest = torch.stack([angle(points.double(), points[c].double()) for c in chosen]).amin(0)
        cumulative = nearest.square().cumsum(0)
        chosen.append(int((cumulative < draw * cumulative[-1]).sum()))
    started = sphere._spread_start(points, 5, torch.Generator().manual_seed(seed))
    assert torch.equal(started, points[chosen])
    assert len({row % 12 for row in chosen}) == 5


def test_kmeans_without_a_generator_draws_from_that_of_torch() -> None:
    points = groups(60, 8, 3, 0.1, seed=20)
    torch.manual_seed(4)
    found = kmeans(points, 3)
    assert torch.equal(found, kmeans(points, 3, generator=torch.Generator().manual_seed(4)))


def test_kmeans_takes_one_start_unless_told_otherwise_and_the_best_of_several() -> None:
    points = sphere_points(60, 6, seed=13)
    better = 0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        ends = [kmeans(points, 8, generator=generator) for _ in range(3)]
        assert torch.equal(
            ends[0], kmeans(points, 8, generator=torch.Generator().manual_seed(seed), starts=1)
        )
        for starts in (2, 3):
            best = min(ends[:starts], key=lambda centres: float(inertia(points, centres)))
            assert torch.equal(
                best, kmeans(points, 8, generator=torch.Generator().manual_seed(seed), starts=starts)
            )
            better += best is not ends[0]
    assert better


def test_one_round_of_kmeans_moves_each_centre_by_one_step_of_its_mean() -> None:
    points, start = sphere_points(80, 3, seed=23), sphere_points(2, 3, seed=24)
    nearest = (points @ start.T).argmax(1)
    assert float((points * start[nearest]).sum(1).min()) < -0.1  # some are more than a right angle away
    wanted = [exp_map(c, log_map(c, points[nearest == j]).mean(0)) for j, c in enumerate(start)]
    torch.testing.assert_close(
        kmeans(points, 2, start=start, iterations=1), torch.stack(wanted), atol=1e-9, rtol=0
    )


def test_centres_without_members_move_to_the_worst_served_points_and_the_others_stay() -> None:
    points = unit(groups(60, 8, 3, 0.1, seed=20).abs())
    assert float((points @ points[0]).min()) > 0
    lost = -points[0]
    found = kmeans(points, 3, start=torch.stack([lost, points[0], lost]), iterations=1)
    first = int((points @ points[0]).argmin())
    second = int((points @ torch.stack([points[0], points[first]]).T).amax(1).argmin())
    assert torch.equal(found, points[[first, 0, second]])


def test_step_towards_the_key_itself_is_whole_only_where_nothing_is_nearer() -> None:
    key, other = torch.eye(3, dtype=torch.float64)[0], sphere_points(3, seed=1)
    assert hardest_step(key, key, key) == 1
    assert hardest_step(key, other, key) == 0


@pytest.mark.parametrize(("points", "clusters"), [(200, 12), (60, 20), (9, 9), (12, 10)])
def test_kmeans_without_reading_values_back_is_the_same_kmeans(points: int, clusters: int) -> None:
    """Other devices than the CPU queue all iterations: what comes after convergence changes nothing."""
    x = unit(torch.randn(points, 6, generator=torch.Generator().manual_seed(points)))
    start = x[:clusters]
    by_reading = _lloyd(x, start, 100, 1e-3)
    with ReadBacks() as counted:
        queued = _lloyd(x, start, 100, 1e-3, read=False)
    assert counted.seen == []
    torch.testing.assert_close(queued, by_reading, atol=1e-6, rtol=0)


def test_kmeans_without_reading_values_back_revives_a_cluster_that_lost_its_members() -> None:
    x = unit(torch.randn(80, 5, generator=torch.Generator().manual_seed(2)))
    start = torch.cat(
        [x[:4], -x.mean(0, keepdim=True), x[4:5], x[4:5]]
    )  # twins: the second of them has no member
    start = unit(start)
    for read in (True, False):
        centres = _lloyd(x, start, 100, 1e-3, read=read)
        assert (x @ centres.T).argmax(1).unique().numel() == len(start)
        assert float(inertia(x, centres)) < float(inertia(x, start))
    copies = x[:3].repeat(4, 1)
    for read in (True, False):
        assert float(inertia(copies, _lloyd(copies, copies[:5], 100, 1e-3, read=read))) < 1e-5
