"""Named augmentations against loops written from their definitions, and policies: independence of draws, rows
of a batch.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halp.augment import ClipPool, ViewMaker, ViewSettings, ViewShape, build_policy, build_views
from halp.augment.base import AUGMENTATIONS
from halp.augment.policy import random_views
from halp.core.distributed import rank_rows
from halp.core.errors import InputError
from halp.core.sampling import generator
from halp.skeleton import KINECT_V1, KINECT_V2

SHAPE = ViewShape(5, 12, 2, 25, 3)
STEPS = [name for name in AUGMENTATIONS if not AUGMENTATIONS[name].sampler]


def clips(seed: int = 0, shape: ViewShape = SHAPE) -> torch.Tensor:
    made = torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))
    made[1, :, 1] = 0  # an absent person
    return made


def step(name: str, **settings: object) -> tuple[object, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    entry = AUGMENTATIONS[name]
    made = entry.build(entry.settings(**settings), KINECT_V2)
    x = clips()
    drawn = made.draw(SHAPE, generator(0, name))
    return made, drawn, x, made.apply(x, drawn)


def pool(lengths: tuple[int, ...] = (30, 7, 64, 1, 20), joints: int = 25) -> ClipPool:
    frames = torch.randn(sum(lengths), 1, joints, 3, generator=torch.Generator().manual_seed(9))
    sizes = torch.tensor(lengths)
    return ClipPool(
        frames,
        torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)[:-1]]),
        sizes,
        torch.device("cpu"),
    )


@pytest.mark.parametrize("name", STEPS)
def test_every_augmentation_keeps_the_shape_and_a_part_of_the_batch_gets_its_rows(name: str) -> None:
    made, drawn, x, whole = step(name)
    assert whole.shape == x.shape
    assert torch.isfinite(whole).all()
    part = made.apply(x[1:3], {key: value[1:3] for key, value in drawn.items()})  # type: ignore[attr-defined]
    torch.testing.assert_close(part, whole[1:3])


@pytest.mark.parametrize("name", STEPS)
def test_an_absent_person_stays_absent(name: str) -> None:
    assert not step(name)[3][1, :, 1].any()


def test_shear_and_rotation_multiply_every_point_by_the_clips_matrix() -> None:
    for name in ("shear", "rotation"):
        _, drawn, x, y = step(name)
        for b in range(5):
            torch.testing.assert_close(y[b, 3, 0, 7], drawn["matrix"][b] @ x[b, 3, 0, 7])
    matrix = step("shear", amplitude=0.5)[1]["matrix"]
    assert torch.equal(matrix.diagonal(dim1=1, dim2=2), torch.ones(5, 3))
    assert matrix[:, 0, 1].abs().max() <= 0.5
    for reading in ("each-axis", "one-axis", "aimclr"):
        turn = step("rotation", reading=reading, amplitude=0.5236)[1]["matrix"]
        torch.testing.assert_close(
            turn @ turn.transpose(1, 2), torch.eye(3).expand(5, 3, 3), atol=1e-5, rtol=0
        )
        angle = torch.acos(((turn.diagonal(dim1=1, dim2=2).sum(1) - 1) / 2).clamp(-1, 1))
        assert angle.max() <= 0.5236 * (3**0.5 if reading == "each-axis" else 1.05)


def test_rotation_of_aimclr_turns_the_inverse_way_of_one_axis() -> None:
    """Axis after axis, as its public code does: rows times the transpose of a matrix with the sine above the
    diagonal.
    """
    made, drawn, x, y = step("rotation", reading="aimclr", amplitude=0.5236)
    shape = ViewShape(*x.shape)
    draws = generator(0, "rotation")
    main = torch.randint(3, (len(x), 1), generator=draws)[:, 0].tolist()
    angles = torch.rand(len(x), 3, generator=draws) * 0.5236 / 30
    assert torch.equal(made.draw(shape, generator(0, "rotation"))["matrix"], drawn["matrix"])
    for b in range(len(x)):
        points = x[b].double().numpy()
        for axis in range(3):
            angle = float(angles[b, axis]) * (30 if axis == main[b] else 1)
            turn, (i, j) = np.eye(3), [(1, 2), (2, 0), (0, 1)][axis]
            turn[[i, j], [i, j]] = np.cos(angle)
            turn[i, j], turn[j, i] = np.sin(angle), -np.sin(angle)
            points = points @ turn.T
        np.testing.assert_allclose(y[b].numpy(), points, atol=1e-5)
    other = step("rotation", reading="one-axis", amplitude=0.5236)[1]["matrix"]
    assert torch.equal(other.transpose(1, 2), drawn["matrix"])


def test_mirror_swaps_sides_and_the_true_one_reflects() -> None:
    _, _, x, true = step("mirror")
    swapped = step("mirror", reading="swap")[3]
    left, right = KINECT_V2.index("wrist_left"), KINECT_V2.index("wrist_right")
    assert torch.equal(swapped[:, :, :, left], x[:, :, :, right])
    assert torch.equal(true[..., 0], -swapped[..., 0])
    assert torch.equal(true[..., 1:], swapped[..., 1:])
    again = AUGMENTATIONS["mirror"].build(AUGMENTATIONS["mirror"].settings(), KINECT_V2)
    assert torch.equal(again.apply(true, {}), x)


@pytest.mark.parametrize("joint", ["any", "centre", "wrist_left"])
def test_subtracting_a_joint_moves_it_to_the_origin_in_every_frame(joint: str) -> None:
    _, drawn, x, y = step("subtract-joint", joint=joint)
    chosen = drawn["joint"].tolist()
    if joint != "any":
        assert set(chosen) == {KINECT_V2.index("spine" if joint == "centre" else joint)}
    else:
        assert len(set(chosen)) > 1
    for b, t, p, v in ((0, 0, 0, 3), (3, 11, 1, 24), (4, 5, 0, chosen[4])):
        torch.testing.assert_close(y[b, t, p, v], x[b, t, p, v] - x[b, t, p, chosen[b]])
    with pytest.raises(InputError, match="did you mean 'wrist_left'"):
        step("subtract-joint", joint="wrist_leftt")


@pytest.mark.parametrize("repeat_edge", [False, True])
def test_reflect_crop_continues_by_reflection(repeat_edge: bool) -> None:
    _, drawn, x, y = step("reflect-crop", repeat_edge=repeat_edge)
    padded = np.pad(
        x.numpy(), ((0, 0), (2, 2), (0, 0), (0, 0), (0, 0)), mode="symmetric" if repeat_edge else "reflect"
    )  # 12 // 6 frames
    assert (drawn["start"] != 0).any()
    for b, start in enumerate(drawn["start"].tolist()):
        np.testing.assert_array_equal(y[b], padded[b, 2 + start : 14 + start])


@pytest.mark.parametrize("normalise", [True, False])
def test_blur_is_a_convolution_in_time_with_zeros_outside(normalise: bool) -> None:
    _, drawn, x, y = step("blur", normalise=normalise)
    kernel = drawn["kernel"]
    for b, t in ((0, 0), (3, 5), (4, 11)):
        expected = sum(
            kernel[b, tap] * (x[b, t + tap - 7] if 0 <= t + tap - 7 < 12 else torch.zeros(2, 25, 3))
            for tap in range(15)
        )
        torch.testing.assert_close(y[b, t], expected)
    if normalise:
        torch.testing.assert_close(kernel.sum(1), torch.ones(5))
    else:
        assert (kernel[:, 7] == 1).all()


def test_frame_rate_reads_between_frames_and_waits_at_the_end() -> None:
    _, drawn, x, y = step("frame-rate", min=0.5, max=2.0)
    for b in range(5):
        for t in range(12):
            time = min(float(drawn["rate"][b, 0]) * t, 11)
            low, part = int(time), time - int(time)
            expected = (1 - part) * x[b, low] + part * x[b, min(low + 1, 11)]
            torch.testing.assert_close(y[b, t], expected, atol=2e-5, rtol=1e-4)


def test_masks_hide_the_share_they_say() -> None:
    x, y = step("joint-mask", joints=0.2)[2:]
    assert ((y[0] == 0).all(0)[0].all(1)).sum() == 5
    y = step("joint-mask", joints=0.2, every_frame=True)[3]
    hidden = (y[0, :, 0] == 0).all(2)
    assert (hidden.sum(1) == 5).all(), "five joints in every frame"
    assert hidden.any(0).sum() > 5, "and not the same ones"
    y = step("time-mask", frames=0.25)[3]
    hidden = (y[0] == 0).flatten(1).all(1).nonzero()[:, 0].tolist()
    assert hidden == list(range(hidden[0], hidden[0] + 3))
    _, drawn, x, y = step("axis-mask")
    for b, axis in zip(range(5), drawn["axis"].tolist(), strict=True):
        assert not y[b, ..., axis].any()
        others = [other for other in range(3) if other != axis]
        assert torch.equal(y[b][..., others], x[b][..., others])
    y = step("joint-corruption", joints=0.6, zero=1.0)[3]
    assert ((y[0] == 0).all(0)[0].all(1)).sum() == 15


def test_scale_time_flip_and_noise() -> None:
    _, drawn, x, y = step("scale")
    torch.testing.assert_close(y, x * drawn["factor"].view(5, 1, 1, 1, 1))
    assert torch.equal(step("time-flip")[3], x.flip(1))
    y = step("noise", sigma=0.5)[3]
    assert 0.45 < float((y - x)[0].std()) < 0.55


def test_adding_an_augmentation_shifts_no_others_draws() -> None:
    batch = torch.arange(5)
    common = [{"name": "crop-resize"}, {"name": "shear", "amplitude": 0.4, "probability": 0.5}]

    def views(*more: dict[str, object], first: bool = False) -> dict[str, torch.Tensor]:
        policy = [common[0], *more, common[1]] if first else [*common, *more]
        settings = build_views({"frames": 16, "augmentations": policy})
        return ViewMaker(settings, {"query": None, "key": None}, KINECT_V2, pool(), 0).make(batch, 2, 3)

    plain = views()
    assert not torch.equal(plain["query"], plain["key"])
    nothing = views({"name": "scale", "min": 1.0, "max": 1.0}, first=True)
    assert torch.equal(plain["query"], nothing["query"])
    twice = views({"name": "shear", "amplitude": 0.4})  # a second one of a name has draws of its own
    assert not torch.equal(plain["query"], twice["query"])


def test_probability_is_the_share_of_clips_that_change() -> None:
    many = pool((4,) * 400, joints=20)
    settings = build_views(
        {"frames": 4, "augmentations": [{"name": "scale", "min": 2.0, "max": 2.0, "probability": 0.3}]}
    )
    made = ViewMaker(settings, {"clip": None}, KINECT_V1, many, 0).make(torch.arange(400), 0, 0)["clip"]
    whole = many.frames.view(400, 4, 1, 20, 3)
    changed = ~torch.isclose(made, whole, atol=1e-5).flatten(1).all(1)
    assert 0.2 < float(changed.float().mean()) < 0.4
    torch.testing.assert_close(made[changed], 2 * whole[changed], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("policy", [None, ["crop-resize", {"name": "noise", "probability": 0.5}, "mirror"]])
def test_rows_of_a_batch_are_those_of_the_whole(policy: list[object] | None) -> None:
    settings = build_views({"frames": 8} if policy is None else {"frames": 8, "augmentations": policy})
    maker = ViewMaker(
        settings,
        {"query": None, "key": None, "third": build_policy(["time-flip"], "x")},
        KINECT_V2,
        pool(),
        1,
    )
    whole, part = maker.make(torch.arange(5), 4, 2), maker.make(torch.arange(5), 4, 2, slice(1, 4))
    for view in ("query", "key", "third"):
        torch.testing.assert_close(part[view], whole[view][1:4])


@pytest.mark.parametrize("policy", [None, ["crop-resize", {"name": "noise", "probability": 0.5}, "mirror"]])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 11])
def test_large_batches_are_drawn_in_blocks_by_each_rank_its_own(
    policy: list[object] | None, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = build_views({"frames": 8} if policy is None else {"frames": 8, "augmentations": policy})
    given = (settings, {"query": None, "key": None}, KINECT_V2, pool(), 1)
    batch, block = torch.arange(11) % 5, 4
    maker = ViewMaker(*given, block)
    whole = maker.make(batch, 4, 2)
    drawn: set[object] = set()

    def counted(seed: int, purpose: str, *moment: int) -> torch.Generator:
        drawn.add(moment[2:])
        return generator(seed, purpose, *moment)

    monkeypatch.setattr("halp.augment.policy.generator", counted)
    for rank in range(ranks):
        drawn.clear()
        rows = rank_rows(len(batch), rank, ranks)
        part = maker.make(batch, 4, 2, rows)
        for view in ("query", "key"):
            torch.testing.assert_close(part[view], whole[view][rows], atol=0, rtol=0)
        assert drawn == {(number,) for number in range(rows.start // block, (rows.stop - 1) // block + 1)}
    small = batch[:block]  # batches of at most a block, and without blocks all, are drawn as one
    for left, right, clips in ((ViewMaker(*given, 4), ViewMaker(*given), small), (maker, maker, batch)):
        one, other = left.make(clips, 4, 2), right.make(clips, 4, 2)
        assert torch.equal(one["query"], other["query"])
    assert not torch.equal(ViewMaker(*given).make(batch, 4, 2)["query"], whole["query"])


def test_the_papers_augmentation_is_drawn_for_all_common_views_in_one_sequence() -> None:
    batch, settings = torch.arange(5), ViewSettings(frames=10, crop_min=0.5, rotation=0.3)
    made = ViewMaker(settings, {"query": None, "key": None}, KINECT_V2, pool(), 7).make(batch, 3, 1)
    both = random_views(pool(), batch.repeat(2), settings, generator(7, "views", 3, 1))
    assert torch.equal(torch.cat([made["query"], made["key"]]), both)
    named = build_views(
        {"frames": 10, "augmentations": [{"name": "paper-2023", "crop_min": 0.5, "rotation": 0.3}]}
    )
    same = ViewMaker(named, {"query": None, "key": None}, KINECT_V2, pool(), 7).make(batch, 3, 1)
    assert torch.equal(same["query"], made["query"])


@pytest.mark.parametrize(
    ("views", "words"),
    [
        ({"augmentations": ["sheer"]}, "unknown augmentation 'sheer': did you mean 'shear'"),
        (
            {"augmentations": [{"name": "shear", "amplitud": 1}]},
            "did you mean 'views.augmentations[0].amplitude'",
        ),
        ({"augmentations": [{"amplitude": 1}]}, "has no name"),
        ({"augmentations": "shear"}, "must be a list"),
        ({"augmentations": ["mirror", "crop-resize"]}, "must come first"),
        ({"augmentations": [{"name": "shear", "probability": 2}]}, "must be above 0 and at most 1"),
        ({"augmentations": [{"name": "shear", "probability": "often"}]}, "must be a number"),
        ({"augmentations": ["shear"], "crop_min": 0.5}, "crop_min would be ignored"),
        ({"key": {"augmentation": ["shear"]}}, "did you mean 'views.key.augmentations'"),
        ({"frames": 0}, "must be at least 1"),
    ],
)
def test_wrong_policies_get_one_sentence(views: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        build_views(views)
    assert words in str(caught.value)


def test_two_dimensional_clips_can_be_augmented() -> None:
    shape = ViewShape(3, 6, 1, 25, 2)
    for name in set(STEPS) - {"camera"}:  # it needs a body in space
        made = AUGMENTATIONS[name].build(AUGMENTATIONS[name].settings(), KINECT_V2)
        assert made.apply(torch.randn(tuple(shape)), made.draw(shape, generator(0, name))).shape == tuple(
            shape
        )
