"""The player packs clips so that the script gets back the joints it was given, and nobody who is absent."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from halp.core.errors import InputError
from halp.reports.player import PlayerClip, player
from halp.skeleton import KINECT_V1, KINECT_V2, Topology

V = len(KINECT_V1)
ABSENT = -32768


def packed(html: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json">(.*?)</script>', html, re.S)
    assert match
    return json.loads(match.group(1))


def joints(clip: dict[str, Any]) -> npt.NDArray[np.int16]:
    return np.frombuffer(base64.b64decode(clip["joints"]), dtype="<i2").reshape(*clip["shape"], 3)


def one(frames: npt.NDArray[Any], **options: Any) -> dict[str, Any]:
    return packed(player([[PlayerClip(frames, "clip")]], KINECT_V1, **options))["rows"][0][0]


def random_frames(*shape: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=shape)


def test_packed_joints_are_the_clip_seen_from_the_front() -> None:
    frames = random_frames(5, 1, V, 3)
    seen = joints(one(frames, up_axis=2)).astype(float)
    turned = frames * (-1, -1, 1)
    middle = (turned.reshape(-1, 3).max(axis=0) + turned.reshape(-1, 3).min(axis=0)) / 2
    scale = np.ptp(turned.reshape(-1, 3), axis=0).max() / 2
    np.testing.assert_allclose(seen / 32767 * scale + middle, turned, atol=1e-3)


@pytest.mark.parametrize("up_axis", [0, 1, 2])
def test_no_choice_of_the_up_axis_mirrors_a_person(up_axis: int) -> None:
    corners = np.zeros((1, 1, V, 3))
    corners[0, 0, 1:4] = np.eye(3)
    seen = joints(one(corners, up_axis=up_axis)).astype(float)[0, 0]
    axes = seen[1:4] - seen[0]
    assert np.linalg.det(axes) > 0
    assert axes[up_axis, 2] > 0


def test_two_coordinates_lie_flat_and_a_picture_stands_upright() -> None:
    frames = random_frames(3, 1, V, 2)
    hip, head = KINECT_V1.index("hip_center"), KINECT_V1.index("shoulder_center")
    frames[:, :, hip], frames[:, :, head] = (0.0, 9.0), (0.0, 1.0)  # pixels: y points down
    clip = one(frames)
    seen = joints(clip)
    assert clip["flat"]
    assert not seen[..., 1].any()
    assert (seen[..., head, 2] > seen[..., hip, 2]).all()
    assert (joints(one(frames * (1, -1)))[..., head, 2] > joints(one(frames * (1, -1)))[..., hip, 2]).all()
    assert np.argmax(seen[0, 0, :, 0]) == np.argmax(frames[0, 0, :, 0])


@pytest.mark.parametrize(("axis", "sign"), [(1, 1.0), (2, 1.0), (1, -1.0)])
def test_people_stand_upright_whatever_axis_they_were_recorded_along(axis: int, sign: float) -> None:
    frames = 0.1 * random_frames(3, 1, V, 3)
    hip, head = KINECT_V1.index("hip_center"), KINECT_V1.index("shoulder_center")
    frames[..., hip, axis], frames[..., head, axis] = 0.0, sign
    seen = joints(one(frames))
    assert (seen[..., head, 2] > seen[..., hip, 2]).all()


def test_two_bodies_at_one_zoom_keep_their_sizes() -> None:
    small, large = random_frames(3, 1, V, 3), 3 * random_frames(3, 1, V, 3)
    clips = [PlayerClip(small, "small"), PlayerClip(large, "large")]
    one_zoom = packed(player([clips], KINECT_V1, same_zoom=True))["rows"][0]
    sizes = [clip["extent"] / clip["radius"] for clip in one_zoom]
    assert sizes[1] / sizes[0] == pytest.approx(9, rel=0.01)


def test_absent_person_is_marked_in_its_frames_and_dropped_when_never_there() -> None:
    frames = random_frames(4, 3, V, 3)
    frames[1:3, 1] = 0
    frames[:, 2] = 0
    clip = one(frames)
    assert clip["shape"] == [4, 2, V]
    assert ((joints(clip) == ABSENT).all(axis=(2, 3)) == [[0, 0], [0, 1], [0, 1], [0, 0]]).all()


def test_joint_that_is_not_finite_is_absent_alone() -> None:
    frames = random_frames(2, 1, V, 3)
    frames[0, 0, 3, 1] = np.nan
    gone = (joints(one(frames)) == ABSENT).all(axis=-1)
    assert gone.sum() == 1
    assert gone[0, 0, 3]


@pytest.mark.parametrize("frames", [np.zeros((2, 2, V, 3)), np.ones((1, 1, V, 3)), np.ones((1, 1, V, 2))])
def test_clip_of_nobody_or_of_one_place_has_finite_sizes(frames: npt.NDArray[np.float64]) -> None:
    clip = one(frames)
    assert np.isfinite([clip["radius"], clip["half"]]).all()


def test_titles_cannot_leave_the_data() -> None:
    title = "</script><script>alert(1)</script> & \"'"
    html = player([[PlayerClip(random_frames(1, 1, V, 3), title)]], KINECT_V1)
    assert "alert(1)</script>" not in html
    assert packed(html)["rows"][0][0]["title"] == title


def test_sides_and_bones_come_from_the_topology() -> None:
    data = packed(player([], KINECT_V2))
    assert data["sides"][KINECT_V2.index("hand_tip_left")] == "l"
    assert data["sides"][KINECT_V2.index("knee_right")] == "r"
    assert data["sides"][KINECT_V2.index("spine")] == "m"
    assert len(data["bones"]) == len(KINECT_V2) - 1
    assert data["head"] == KINECT_V2.index("head")
    assert packed(player([], Topology("dot", ("a",), (0,))))["head"] == -1


def test_good_and_rows_are_kept_and_empty_rows_left_out() -> None:
    frames = random_frames(1, 1, V, 3)
    row = [PlayerClip(frames, "q"), PlayerClip(frames, "a", True), PlayerClip(frames, "b", False)]
    rows = packed(player([row, [], row[:1]], KINECT_V1))["rows"]
    assert [[clip["good"] for clip in line] for line in rows] == [[None, True, False], [None]]


@pytest.mark.parametrize("shape", [(3, 20, 3), (0, 1, 20, 3), (3, 1, 20, 4)])
def test_clip_of_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="'wave' has shape"):
        PlayerClip(np.zeros(shape), "wave")


def test_wrong_topology_and_wrong_up_axis_are_refused() -> None:
    clip = PlayerClip(random_frames(1, 1, V, 3), "wave")
    with pytest.raises(InputError, match="'wave' has 20 joints, topology 'kinect-v2' has 25"):
        player([[clip]], KINECT_V2)
    with pytest.raises(InputError, match="up_axis is 3"):
        player([[clip]], KINECT_V1, up_axis=3)
