"""Cleaning fixes what is wrong, keeps what is right and leaves missing joints missing."""

from __future__ import annotations

import numpy as np
import pytest
from clip_samples import walker
from hypothesis import given, settings
from hypothesis import strategies as st

from halp.core.errors import InputError
from halp.data.cleaning import exchanged_persons, find_spikes, unit_factor, up_axis
from halp.data.ingest.pipeline import split_steps
from halp.data.jitter import WIDTHS, jitter, steady
from halp.data.normalise import check_steps, normalise
from halp.skeleton import KINECT_V1, get_topology


def slow_fill(frames: np.ndarray, limit: float) -> np.ndarray:
    """Straight lines joint by joint, one frame at a time."""
    result = frames.copy()
    for person in range(frames.shape[1]):
        there = [time for time in range(len(frames)) if frames[time, person].any()]
        for joint in range(frames.shape[2]):
            seen = [time for time in there if frames[time, person, joint].any()]
            for time in range(there[0], there[-1] + 1) if seen else ():
                if time in seen:
                    continue
                left = max((t for t in seen if t < time), default=None)
                right = min((t for t in seen if t > time), default=None)
                if left is None or right is None:
                    length = right if left is None else len(frames) - 1 - left
                    if length <= limit:
                        result[time, person, joint] = frames[right if left is None else left, person, joint]
                elif right - left - 1 <= limit:
                    share = (time - left) / (right - left)
                    low, high = frames[left, person, joint], frames[right, person, joint]
                    result[time, person, joint] = low + share * (high - low)
    return result


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4, np.inf]))
def test_gaps_up_to_the_limit_are_filled_as_a_slow_loop_does(seed: int, limit: float) -> None:
    draw = np.random.default_rng(seed)
    frames = walker(14, 2, seed) * (draw.uniform(size=(14, 2, 20, 1)) > 0.4)
    step = "interpolate-gaps" if limit == np.inf else f"interpolate-gaps={limit:g}"
    np.testing.assert_allclose(normalise(frames, KINECT_V1, (step,)), slow_fill(frames, limit), atol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_spikes_are_found_where_they_are_and_nowhere_else(width: int) -> None:
    frames = walker()
    frames[20 : 20 + width, 0, 5] += 3
    expected = np.zeros(frames.shape[:3], dtype=bool)
    expected[20 : 20 + width, 0, 5] = True
    np.testing.assert_array_equal(find_spikes(frames), expected)
    repaired = normalise(frames, KINECT_V1, ("remove-outliers", "interpolate-gaps"))
    assert np.abs(repaired - walker()).max() < 0.03


def test_a_real_movement_is_not_a_spike() -> None:
    frames = walker()
    frames[30:, 0, 5] += 3
    assert not find_spikes(frames).any()
    assert not find_spikes(walker(2)).any()


@pytest.mark.parametrize("steps", [("smooth",), ("smooth=9",), ("lowpass",), ("lowpass=4",)])
def test_smoothing_takes_jitter_away_and_leaves_gaps(steps: tuple[str]) -> None:
    clean = walker(200)
    noisy = clean + np.random.default_rng(1).normal(0, 0.02, clean.shape).astype(np.float32)
    noisy[50:55, 0, 3] = 0
    result = normalise(noisy, KINECT_V1, steps, fps=60)
    assert not result[50:55, 0, 3].any()
    inner = np.r_[10:45, 60:190]
    assert np.abs(result - clean)[inner].mean() < 0.7 * np.abs(noisy - clean)[inner].mean()
    np.testing.assert_allclose(normalise(clean, KINECT_V1, steps, fps=60)[20:-20], clean[20:-20], atol=0.01)


def slow_steady(courses: np.ndarray, noise: float) -> np.ndarray:
    """Every joint of `(T, V, C)` averaged over the width of the smallest estimated error, frame by frame."""
    count, result = len(courses), courses.copy()
    for joint in range(courses.shape[1]):
        least = 2 * noise**2
        for width in (width for width in WIDTHS if width <= count):
            near = [
                np.clip(np.arange(time - width // 2, time + width // 2 + 1), 0, count - 1)
                for time in range(count)
            ]
            average = np.array([courses[places, joint].mean(axis=0) for places in near])
            error = ((courses[:, joint] - average) ** 2).mean() + 2 * noise**2 / width
            if error < least:
                least, result[:, joint] = error, average
    return result


def test_jitter_is_averaged_away_as_a_slow_loop_does_and_movement_stays() -> None:
    clean = walker(60, 2)
    draw = np.random.default_rng(1)
    noisy = clean + draw.normal(0, 0.05, clean.shape).astype(np.float32)
    assert jitter(noisy[:, 0]) == pytest.approx(0.05, rel=0.1)
    result = steady(noisy)
    for person in range(2):
        expected = slow_steady(
            noisy[:, person].astype(np.float64), jitter(noisy[:, person].astype(np.float64))
        )
        np.testing.assert_allclose(result[:, person], expected, atol=1e-6)
    assert np.abs(result - clean).mean() < 0.5 * np.abs(noisy - clean).mean()


def test_what_does_not_jitter_or_is_missing_stays_as_recorded_to_the_bit() -> None:
    clean = walker(60, 2)
    assert steady(clean) is clean
    frames = clean.copy()
    frames[:, 1] += np.random.default_rng(1).normal(0, 0.05, frames[:, 1].shape).astype(np.float32)
    frames[20:30, 1, 3] = 0
    result = normalise(frames, KINECT_V1, ("steady",))
    np.testing.assert_array_equal(result[:, 0], clean[:, 0])
    np.testing.assert_array_equal(result[:, 1, 3], frames[:, 1, 3])
    assert (np.delete(result[:, 1], 3, axis=1) != np.delete(frames[:, 1], 3, axis=1)).any()
    np.testing.assert_array_equal(steady(frames[:2]), frames[:2])
    assert not steady(np.zeros_like(frames)).any()
    np.testing.assert_array_equal(normalise(frames, KINECT_V1, ("steady=0.2",)), frames)


def test_a_low_pass_filter_keeps_slow_and_removes_fast_waves() -> None:
    time = np.arange(600) / 100
    slow, fast = np.sin(2 * np.pi * 1 * time), np.sin(2 * np.pi * 20 * time)
    frames = np.full((600, 1, 20, 3), 5.0, dtype=np.float32)
    frames[:, 0, 0, 0] += slow + fast
    result = normalise(frames, KINECT_V1, ("lowpass=5",), fps=100)[100:-100, 0, 0, 0] - 5
    np.testing.assert_allclose(result, slow[100:-100], atol=0.02)


@pytest.mark.parametrize(
    ("step", "fps", "message"),
    [
        ("lowpass", -1.0, "needs the frame rate"),
        ("lowpass=30", 50.0, "half the frame rate"),
        ("smooth=4", 30.0, "odd number of frames"),
        ("smooth=-3", 30.0, "not a number above 0"),
        ("smooth=0", 30.0, "not a number above 0"),
        ("centre=3", 30.0, "takes no number"),
        ("interpolate-gap=3", 30.0, "did you mean 'interpolate-gaps'"),
    ],
)
def test_steps_that_cannot_be_done_say_why(step: str, fps: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        normalise(walker(), KINECT_V1, (step,), fps=fps)


def test_exchanged_persons_are_put_back() -> None:
    frames = walker(40, 2)
    mixed = frames.copy()
    mixed[15:25] = mixed[15:25, ::-1]
    assert exchanged_persons(mixed) == 2
    assert exchanged_persons(frames) == 0
    np.testing.assert_array_equal(normalise(mixed, KINECT_V1, ("track-persons",)), frames)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("sign", [1, -1])
def test_a_recording_is_set_upright_by_a_rotation(axis: int, sign: int) -> None:
    frames = walker()
    lying = np.roll(frames, axis - 1, axis=-1)
    if sign < 0:
        # Half a turn about another axis, so that the hand of the coordinates stays.
        lying = lying * np.where(np.arange(3) == (axis + 1) % 3, 1, -1).astype(np.float32)
    assert up_axis(lying, KINECT_V1) == (axis, sign)
    stood = normalise(lying, KINECT_V1, ("upright",))
    assert up_axis(stood, KINECT_V1) == (1, 1.0)
    # A proper rotation: distances stay and so does the volume spanned by three joints.
    edges = [clip[0, 0, 1:4] - clip[0, 0, 0] for clip in (lying, stood)]
    np.testing.assert_allclose(np.linalg.det(edges[0]), np.linalg.det(edges[1]), rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(edges[0], axis=1), np.linalg.norm(edges[1], axis=1), rtol=1e-5)


@pytest.mark.parametrize("unit", [1.0, 0.01, 0.001, 0.0254])
def test_units_are_inferred_from_the_trunk(unit: float) -> None:
    frames = (walker() / unit).astype(np.float32)
    assert unit_factor(frames, KINECT_V1) == unit
    np.testing.assert_allclose(normalise(frames, KINECT_V1, ("metres",)), walker(), rtol=1e-4)


def test_flat_recordings_have_no_up_axis_and_no_unit() -> None:
    flat = get_topology("coco-17")
    frames = np.ones((3, 1, 17, 2), dtype=np.float32)
    np.testing.assert_array_equal(normalise(frames, flat, ("upright", "metres")), frames)


def test_cleaning_goes_before_windows_and_the_rest_after() -> None:
    steps = check_steps(("remove-outliers=5", "interpolate-gaps", "centre", "smooth"))
    assert split_steps(steps) == (("remove-outliers=5", "interpolate-gaps"), ("centre", "smooth"))
