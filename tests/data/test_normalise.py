"""Every normalisation step does what its name says, on clips where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halp.core.errors import InputError
from halp.data.normalise import NUMBERED, STEPS, normalise
from halp.data.persons import keep_most_moving, motion_energy
from halp.data.rotation import rotation_between
from halp.skeleton import KINECT_V1, KINECT_V2, get_topology


def clip(frames: int = 6, persons: int = 2, seed: int = 0, topology=KINECT_V2) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.normal(1, 1, (frames, persons, len(topology), topology.dimensions)).astype(np.float32)


def authors_fill(person: np.ndarray) -> np.ndarray:
    """Filling as the authors' loop does it, frame by frame, for one person `(T, V, C)`."""
    person = person.copy()
    if not person.any():
        return person
    if not person[0].any():
        seen = [frame.copy() for frame in person if frame.any()]
        person[:] = 0
        person[: len(seen)] = seen
    for time in range(len(person)):
        if not person[time:].any():
            for later in range(time, len(person)):
                person[later] = person[(later - time) % time]
            break
    return person


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_fill_equals_the_authors_loop(there: list[tuple[bool, bool]]) -> None:
    frames = clip(len(there)) * np.array(there, dtype=np.float32)[..., None, None]
    filled = normalise(frames, KINECT_V2, ("fill",))
    for person in range(2):
        np.testing.assert_array_equal(filled[:, person], authors_fill(frames[:, person]))


def test_centre_moves_the_first_persons_centre_to_the_origin_and_keeps_what_is_missing_at_zero() -> None:
    frames = clip()
    frames[2, 1] = 0
    frames[3, 0, 7] = 0
    centred = normalise(frames, KINECT_V2, ("centre",))
    assert not centred[:, 0, KINECT_V2.index("spine")].any()
    np.testing.assert_allclose(centred[0, 1, 3], frames[0, 1, 3] - frames[0, 0, 1], atol=1e-6)
    assert not centred[2, 1].any()
    assert not centred[3, 0, 7].any()


def test_rotations_keep_all_distances() -> None:
    frames = clip()
    for step in ("rotate-first", "rotate-mean", "yaw"):
        turned = normalise(frames, KINECT_V2, (step,))
        between = np.linalg.norm(turned[:, 0] - turned[:, 1], axis=2)
        np.testing.assert_allclose(between, np.linalg.norm(frames[:, 0] - frames[:, 1], axis=2), rtol=1e-4)


def test_rotate_mean_puts_the_mean_trunk_on_z_and_the_mean_shoulders_on_the_xz_plane() -> None:
    turned = normalise(clip(topology=KINECT_V1), KINECT_V1, ("rotate-mean",))[:, 0].mean(axis=0)
    trunk = turned[KINECT_V1.index("shoulder_center")] - turned[KINECT_V1.index("hip_center")]
    shoulders = turned[KINECT_V1.index("shoulder_right")] - turned[KINECT_V1.index("shoulder_left")]
    np.testing.assert_allclose(trunk / np.linalg.norm(trunk), [0, 0, 1], atol=1e-5)
    assert abs(shoulders[1]) < 1e-5
    assert shoulders[0] > 0


def test_rotate_mean_and_yaw_undo_a_turn_of_the_camera() -> None:
    frames = clip(topology=KINECT_V1)
    angle = 0.7
    turn = np.array(
        [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]], dtype=np.float32
    )
    for step in ("rotate-mean", "yaw"):
        np.testing.assert_allclose(
            normalise(frames @ turn.T, KINECT_V1, (step,)), normalise(frames, KINECT_V1, (step,)), atol=1e-4
        )


def test_yaw_leaves_heights_as_they_are() -> None:
    frames = clip()
    np.testing.assert_allclose(normalise(frames, KINECT_V2, ("yaw",))[..., 1], frames[..., 1], atol=1e-5)


@pytest.mark.parametrize("topology", ["kinect-v2", "coco-17"])
def test_scale_makes_big_and_small_people_alike(topology: str) -> None:
    known = get_topology(topology)
    frames = clip(topology=known)
    scaled = normalise(frames, known, ("scale",))
    np.testing.assert_allclose(normalise(frames * 37, known, ("scale",)), scaled, rtol=1e-4)
    assert not normalise(np.zeros_like(frames), known, ("scale",)).any()


def test_scale_is_the_mean_of_the_median_bone_lengths_bit_for_bit() -> None:
    known, draw = get_topology("kinect-v2"), np.random.default_rng(0)
    for share in (0.0, 0.02, 0.4, 0.9):
        frames = draw.normal(size=(31, 2, len(known), 3)).astype(np.float32)
        frames[draw.random(frames.shape[:3]) < share] = 0
        frames[:3, 0], frames[:, :, 7] = 0, 0  # a person who comes late, a joint that is never seen
        body, centre, medians = frames[:, 0].astype(np.float64), known.index(known.centre or ""), []
        for start, end in known.bones:
            there = [
                np.linalg.norm(body[t, start] - body[t, end])
                for t in range(len(body))
                if all(body[t, joint].any() or (joint == centre and body[t].any()) for joint in (start, end))
            ]
            medians += [float(np.median(there))] if there else []
        size = np.float32(sum(medians) / len(medians))
        np.testing.assert_array_equal(normalise(frames, known, ("scale",)), frames / size)


def test_gaps_are_filled_on_the_straight_line_between_their_ends() -> None:
    frames = np.zeros((7, 1, 25, 3), dtype=np.float32)
    frames[1:6] = np.arange(1, 6, dtype=np.float32)[:, None, None, None]
    whole = frames.copy()
    frames[2:5, 0, 4] = 0
    frames[1, 0, 5] = 0
    filled = normalise(frames, KINECT_V2, ("interpolate-gaps",))
    np.testing.assert_allclose(filled[:, 0, 4], whole[:, 0, 4])
    np.testing.assert_allclose(filled[1, 0, 5], whole[2, 0, 5])
    assert not filled[[0, 6]].any()


def test_a_joint_that_is_never_seen_stays_missing() -> None:
    frames = clip()
    frames[:, 0, 9] = 0
    assert not normalise(frames, KINECT_V2, ("interpolate-gaps",))[:, 0, 9].any()


def test_empty_frames_are_dropped_and_a_clip_of_nothing_is_refused() -> None:
    frames = clip()
    frames[[0, 3]] = 0
    np.testing.assert_array_equal(normalise(frames, KINECT_V2, ("drop-empty",)), frames[[1, 2, 4, 5]])
    with pytest.raises(InputError, match="nobody"):
        normalise(frames * 0, KINECT_V2, ("drop-empty",))


def test_persons_are_ordered_by_their_motion_energy() -> None:
    frames = clip(persons=3)
    frames[:, 0] *= 0.1
    frames[:, 2] *= 9
    ordered = normalise(frames, KINECT_V2, ("order-persons",))
    np.testing.assert_array_equal(ordered, frames[:, [2, 1, 0]])
    assert (np.diff(motion_energy(ordered)) < 0).all()
    kept, repairs = keep_most_moving(frames, 2)
    np.testing.assert_array_equal(kept, frames[:, [2, 1]])
    assert len(repairs) == 1


def test_one_frame_nobody_and_an_absent_first_person_pass_through_every_step() -> None:
    alone = clip(4)
    alone[:, 0] = 0
    for step in (*STEPS, *NUMBERED):
        for frames in (clip(1), alone, np.zeros((2, 1, 25, 3), dtype=np.float32)):
            if step.startswith("picture") or (step == "drop-empty" and not frames.any()):
                continue  # for pictures, and for somebody
            result = normalise(frames, KINECT_V2, (step,), fps=30)
            assert result.dtype == np.float32
            assert np.isfinite(result).all()


def test_steps_that_a_topology_cannot_carry_out_say_so() -> None:
    flat = get_topology("coco-17")
    for step in ("rotate-first", "rotate-mean", "yaw"):
        with pytest.raises(InputError, match="3D axes"):
            normalise(clip(topology=flat), flat, (step,))
    with pytest.raises(InputError, match="did you mean 'centre'"):
        normalise(clip(), KINECT_V2, ("center",))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=6, max_size=6))
def test_rotation_between_is_a_rotation_that_turns_one_direction_onto_the_other(numbers: list[float]) -> None:
    source, target = np.array(numbers[:3]), np.array(numbers[3:])
    rotation = rotation_between(source, target)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-6)
    if np.linalg.norm(source) > 1e-3 and np.linalg.norm(target) > 1e-3:
        assert np.linalg.det(rotation) > 0.99
        turned = rotation @ source / np.linalg.norm(source)
        np.testing.assert_allclose(turned, target / np.linalg.norm(target), atol=1e-6)


def test_every_person_is_centred_between_its_own_shoulders_and_what_is_missing_stays_zero() -> None:
    frames = clip(4)
    frames[1, 1] = 0
    frames[2, 0, 3] = 0
    found = normalise(frames, KINECT_V2, ["centre-persons"])
    for t, p, v in np.ndindex(4, 2, 25):
        gone = (t, p) == (1, 1) or (t, p, v) == (2, 0, 3)
        expected = np.zeros(3) if gone else frames[t, p, v] - frames[t, p, KINECT_V2.index("shoulder_center")]
        np.testing.assert_allclose(found[t, p, v], expected, atol=1e-6)
    with pytest.raises(InputError, match="centre-persons"):
        normalise(clip(topology=get_topology("coco-17")), get_topology("coco-17"), ["centre-persons"])


def test_every_frame_is_turned_about_the_vertical_until_its_shoulders_lie_along_x() -> None:
    frames = clip(5)
    frames[2, 0] = 0  # turned like the frame before
    found = normalise(frames, KINECT_V2, ["yaw-frames"])
    left, right = (KINECT_V2.index(joint) for joint in ("shoulder_left", "shoulder_right"))
    line = found[:, 0, right] - found[:, 0, left]
    seen = [0, 1, 3, 4]
    np.testing.assert_allclose(line[seen, 2], 0, atol=1e-5)
    assert (line[seen, 0] > 0).all()
    np.testing.assert_allclose(found[..., 1], frames[..., 1])
    np.testing.assert_allclose(np.linalg.norm(found, axis=3), np.linalg.norm(frames, axis=3), rtol=1e-5)
    same = normalise(
        np.stack([frames[1, :], np.stack([frames[1, 0], frames[2, 1]])]), KINECT_V2, ["yaw-frames"]
    )
    np.testing.assert_allclose(found[2, 1], same[1, 1], atol=1e-5)
    np.testing.assert_allclose(normalise(np.zeros_like(frames), KINECT_V2, ["yaw-frames"]), 0)


def test_every_axis_of_a_clip_is_scaled_to_the_box_and_what_is_absent_stays_zero() -> None:
    frames = np.random.default_rng(0).normal(size=(9, 2, 25, 3)).astype(np.float32)
    frames[3:, 1] = 0
    boxed = normalise(frames, KINECT_V2, ("box",))
    seen = (frames != 0).any(axis=3)
    for axis in range(3):
        values = boxed[..., axis][seen]
        assert (values.min(), values.max()) == (-1, 1)
        order = np.argsort(frames[..., axis][seen])
        assert (np.diff(values[order]) >= 0).all()
    assert not boxed[~seen].any()
    assert not normalise(np.zeros_like(frames), KINECT_V2, ("box",)).any()


def test_every_nth_frame_is_picked() -> None:
    frames = np.arange(130, dtype=np.float32)[:, None, None, None] * np.ones((1, 1, 25, 3), np.float32) + 1
    assert normalise(frames, KINECT_V2, ("pick=50",))[:, 0, 0, 0].tolist() == list(range(1, 101, 2))
    assert len(normalise(frames[:30], KINECT_V2, ("pick=50",))) == 30
