"""Virtual cameras and the faults of estimators against loops written from their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from halp.augment import ViewShape
from halp.augment.base import AUGMENTATIONS
from halp.augment.cameras import camera_rotation
from halp.core.errors import InputError
from halp.core.sampling import generator
from halp.data.normalise import normalise
from halp.skeleton import get_topology

BODY, FLAT = get_topology("body-16"), get_topology("body-16-2d")
SHAPE = ViewShape(4, 10, 1, 16, 3)


def bodies(seed: int = 0) -> torch.Tensor:
    clips = torch.randn(tuple(SHAPE), generator=torch.Generator().manual_seed(seed))
    clips = clips - clips[:, :, :, :1]  # the hips at the origin, as a store has them
    clips[2, :, :, 5] = 0  # a missing joint
    return clips


def applied(
    name: str, clips: torch.Tensor, **settings: object
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    entry = AUGMENTATIONS[name]
    step = entry.build(entry.settings(**settings), BODY)
    drawn = step.draw(SHAPE, generator(0, name))
    return drawn, step.apply(clips, drawn)


def test_a_camera_is_a_pinhole_at_its_distance_and_missing_joints_stay_missing() -> None:
    clips = bodies()
    drawn, picture = applied("camera", clips)
    for b in range(4):
        joints = [v for v in range(16) if not (b == 2 and v == 5)]
        size = math.sqrt(
            sum(float(clips[b, t, 0, v].square().sum()) for t in range(10) for v in joints)
            / (10 * len(joints))
        )
        for v in joints:
            body = (drawn["rotation"][b] @ clips[b, 3, 0, v] / size).tolist()
            place, distance = drawn["place"][b].tolist(), float(drawn["distance"][b])
            depth = max(distance - body[2], 0.2 * distance)
            expected = [(body[axis] + place[axis] * distance) / depth * distance for axis in (0, 1)]
            np.testing.assert_allclose(picture[b, 3, 0, v].tolist(), [*expected, 0.0], atol=1e-4)
    assert not picture[2, :, :, 5].any()


def test_a_far_camera_sees_what_an_orthographic_one_does() -> None:
    clips = bodies()
    _, far = applied("camera", clips, distance_min=1e5, distance_max=1e5, off_centre=0.0)
    _, flat = applied("camera", clips, orthographic=True, off_centre=0.0)
    torch.testing.assert_close(far, flat, atol=1e-3, rtol=0)


def test_a_quarter_turn_and_a_view_from_above() -> None:
    zero, quarter = torch.zeros(1), torch.full((1,), math.pi / 2)
    to_the_side = camera_rotation(quarter, zero, zero)[0] @ torch.tensor([0.0, 0.0, 1.0])
    torch.testing.assert_close(to_the_side, torch.tensor([1.0, 0.0, 0.0]), atol=1e-6, rtol=0)
    towards_camera = camera_rotation(zero, quarter, zero)[0] @ torch.tensor(
        [0.0, 1.0, 0.0]
    )  # the head of a body seen from above
    torch.testing.assert_close(towards_camera, torch.tensor([0.0, 0.0, 1.0]), atol=1e-6, rtol=0)


def test_bones_keep_their_direction_and_have_another_length_left_and_right_alike() -> None:
    clips = bodies()
    drawn, longer = applied("bone-lengths", clips)
    for child, parent in BODY.bones:
        before, after = (
            clips[0, :, 0, child] - clips[0, :, 0, parent],
            longer[0, :, 0, child] - longer[0, :, 0, parent],
        )
        torch.testing.assert_close(after, before * drawn["factor"][0, child], atol=1e-5, rtol=1e-5)
    left, right = BODY.index("elbow_left"), BODY.index("elbow_right")
    assert drawn["factor"][0, left] == drawn["factor"][0, right]


def test_swapped_sides_are_a_run_of_frames_of_whole_limbs() -> None:
    clips = bodies()
    drawn, swapped = applied("side-swaps", clips)
    for b in range(4):
        for t in range(10):
            for v in range(16):
                source = BODY.mirror[v] if drawn["frames"][b, t] and drawn["joints"][b, v] else v
                torch.testing.assert_close(swapped[b, t, 0, v], clips[b, t, 0, source])
    assert drawn["frames"].any(1).all()


def test_lost_frames_lie_on_the_line_between_the_kept_ones() -> None:
    clips = bodies()
    drawn, filled = applied("lost-frames", clips, frames=0.8)
    for b, kept in enumerate(drawn["kept"]):
        times = np.flatnonzero(kept.numpy())
        for v in (1, 7):
            for axis in range(3):
                series = clips[b, :, 0, v, axis].numpy()
                expected = np.interp(np.arange(10), times, series[times])
                np.testing.assert_allclose(filled[b, :, 0, v, axis].numpy(), expected, atol=1e-5)


def test_what_lies_beyond_the_edge_of_the_picture_is_missing_in_the_whole_clip() -> None:
    clips = bodies()
    _, picture = applied("camera", clips)
    drawn, cut = applied("picture-edge", picture, outside=1.0)
    for b in range(4):
        edge, share = int(drawn["edge"][b]), float(drawn["share"][b])
        seen = (picture[b, :, 0] != 0).any(-1).any(0)
        along = picture[b, :, 0].median(0).values[:, 1 if edge == 0 else 0] * (-1 if edge == 2 else 1)
        low, high = float(along[seen].min()), float(along[seen].max())
        expected = seen & (along >= low + share * (high - low))
        assert ((cut[b, :, 0] != 0).any(-1).any(0) == expected).all()


@pytest.mark.parametrize("hidden", [[], ["hip_center"], ["hip_center", "shoulder_center"]])
def test_batches_are_normalised_as_single_clips_are(hidden: list[str]) -> None:
    _, picture = applied("camera", bodies())
    _, picture = applied("jitter", picture)
    for joint in hidden:
        picture[1, :, :, BODY.index(joint)] = 0
    _, batch = applied("picture", picture)
    for b in range(4):
        single = normalise(picture[b, ..., :2].numpy(), FLAT, ["picture"])
        np.testing.assert_allclose(batch[b, ..., :2].numpy(), single, atol=1e-5)
        assert math.isclose(
            float(np.sqrt(np.square(single[(single != 0).any(-1)]).mean())), 0.5, rel_tol=0.05
        )


def test_pictures_count_y_downwards_unless_the_trunk_shows_otherwise() -> None:
    body = np.zeros((3, 1, 16, 2), dtype=np.float32)
    body[:, :, :, 0] = 5.0
    body[:, :, FLAT.index("hip_center"), 1] = 10.0
    body[:, :, FLAT.index("shoulder_center"), 1] = 4.0  # above the hips where y points down
    assert normalise(body, FLAT, ["picture-up"])[0, 0, FLAT.index("shoulder_center"), 1] == -4.0
    upwards = body * np.array([1, -1], dtype=np.float32)
    assert (normalise(upwards, FLAT, ["picture-up"]) == upwards).all()


def test_cameras_need_space_and_pictures_do_not() -> None:
    entry = AUGMENTATIONS["camera"]
    with pytest.raises(InputError, match="flat already"):
        entry.build(entry.settings(), FLAT)
    with pytest.raises(InputError, match="must be at least 3"):
        entry.settings(distance_min=1.0)
    with pytest.raises(InputError, match="are in 3D"):
        normalise(np.ones((2, 1, 16, 3), dtype=np.float32), BODY, ["picture"])
