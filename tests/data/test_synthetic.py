"""The synthetic clips: reproducible, plausible bodies, an honest floor for what learning has to beat."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from halp.core.errors import InputError
from halp.data.clip import Clip, Frames, present
from halp.data.normalise import AUTHORS, normalise
from halp.data.synthetic import (
    ACTIONS,
    _make_clip,
    _perform,
    make_subject,
    make_synthetic_store,
    synthetic_clips,
    synthetic_splits,
)
from halp.data.synthetic_body import get_action
from halp.skeleton import KINECT_V2

INTERACTIONS = {"punch", "push", "shake hands", "hand over", "high five", "hug"}
LABELS = range(len(ACTIONS))


@cache
def sample() -> list[Clip]:
    return list(synthetic_clips(600))


def limb_lengths(frames: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    child, parent = np.array(KINECT_V2.bones).T
    return np.linalg.norm(frames[..., child, :] - frames[..., parent, :], axis=-1)


def exact(label: int, subject: int = 1) -> Frames:
    return _make_clip(label, subject, 2, 1, seed=0, noisy=False).frames


def test_same_seed_gives_the_same_clips() -> None:
    pairs = zip(range(30), synthetic_clips(30, seed=4), synthetic_clips(30, seed=4), strict=True)
    for _, one, two in pairs:
        assert (one.name, one.extra) == (two.name, two.extra)
        np.testing.assert_array_equal(one.frames, two.frames)


def test_different_seeds_give_different_clips() -> None:
    one, two = (_make_clip(0, 1, 1, 1, seed=seed).frames for seed in (0, 1))
    assert one.shape != two.shape or not np.allclose(one, two)


@pytest.mark.heavy
def test_a_clip_does_not_depend_on_how_many_are_asked_for() -> None:
    few = {clip.name: clip.frames for clip in synthetic_clips(subjects=2, seed=2)}
    many = synthetic_clips(subjects=3, repetitions=2, seed=2)
    shared = [(clip.frames, few[clip.name]) for clip in islice(many, 150) if clip.name in few]
    assert len(shared) > 20
    for one, two in shared:
        np.testing.assert_array_equal(one, two)


@pytest.mark.heavy
def test_fewer_clips_are_the_first_of_more_clips() -> None:
    assert [clip.name for clip in synthetic_clips(20)] == [clip.name for clip in sample()[:20]]


@pytest.mark.heavy
def test_full_data_set_has_every_class_subject_camera_and_repetition_once() -> None:
    clips = list(synthetic_clips(subjects=2, repetitions=2))
    keys = {(clip.label, clip.subject, clip.camera, clip.extra["repetition"]) for clip in clips}
    assert len(clips) == len(keys) == len(ACTIONS) * 2 * 3 * 2
    assert {key[1:] for key in keys} == {(s, c, r) for s in (1, 2) for c in (1, 2, 3) for r in (1, 2)}
    for clip in clips:
        name = (
            f"S001C{clip.camera:03d}P{clip.subject:03d}R{clip.extra['repetition']:03d}A{clip.label + 1:03d}"
        )
        assert clip.name == name


def test_first_clips_are_a_fair_sample() -> None:
    assert set(Counter(clip.label for clip in sample()).values()) == {600 // len(ACTIONS)}
    assert {clip.subject for clip in sample()} == set(range(1, 21))
    assert min(Counter(clip.camera for clip in sample()).values()) > 150


def test_there_are_enough_actions_and_interactions() -> None:
    assert len(set(ACTIONS)) == len(ACTIONS) >= 16
    assert set(ACTIONS) >= INTERACTIONS
    assert len(INTERACTIONS) >= 3


def test_splits_follow_subjects_and_cameras() -> None:
    xsub, xview = synthetic_splits(20)
    assert (xsub.name, xsub.column, len(xsub.train)) == ("xsub", "subject", 10)
    assert (xview.name, xview.column, xview.train) == ("xview", "camera", (2, 3))


def test_interactions_have_two_bodies_and_the_others_one() -> None:
    for clip in sample()[:100]:
        assert clip.shape[1] == (2 if ACTIONS[clip.label] in INTERACTIONS else 1), clip.name
        assert present(clip.frames).any(axis=0).all()


def test_clips_are_finite_float32_before_the_camera_and_vary_in_length() -> None:
    lengths = [len(clip.frames) for clip in sample()]
    assert 30 <= min(lengths) < 45
    assert 105 < max(lengths) <= 120
    for clip in sample():
        assert clip.frames.dtype == np.float32
        assert clip.shape[2:] == (25, 3)
        assert np.isfinite(clip.frames).all()
        depth = clip.frames[present(clip.frames)][..., 2]
        assert depth.min() > 1.0
        assert depth.max() < 6.0


def test_some_bodies_are_lost_and_found_again() -> None:
    found_again = 0
    for clip in sample():
        there = present(clip.frames)[:, 0]
        found_again += bool(there[0] and there[-1] and not there.all())
    assert 0.02 < found_again / len(sample()) < 0.3


@pytest.mark.parametrize("label", LABELS, ids=ACTIONS)
def test_limbs_keep_their_lengths_without_noise(label: int) -> None:
    lengths = limb_lengths(exact(label))
    assert lengths.min() > 0.01
    np.testing.assert_allclose(lengths, np.broadcast_to(lengths[:1], lengths.shape), atol=1e-5)


def test_limbs_differ_between_subjects_and_jitter_is_small() -> None:
    one, two = (limb_lengths(exact(0, subject))[0, 0] for subject in (1, 2))
    assert np.abs(one - two).max() > 0.01
    noisy = limb_lengths(next(clip.frames for clip in sample() if present(clip.frames).all()))
    assert 0.002 < noisy.std(axis=0).mean() < 0.03


@pytest.mark.parametrize("label", LABELS, ids=ACTIONS)
def test_feet_keep_to_the_floor_and_knees_bend_ahead(label: int) -> None:
    action = get_action(label)
    people = [make_subject(0, person) for person in range(1, 1 + len(action.parts))]
    joints = _perform(action, people, np.random.default_rng(label))
    part = {name: joints[:, :, KINECT_V2.index(name)] for name in KINECT_V2.joints}
    assert joints[..., 1].min() > -0.08
    if ACTIONS[label] != "jump":
        assert np.minimum(part["foot_left"], part["foot_right"])[..., 1].max() < 0.12
    ahead = np.cross(part["hip_left"] - part["hip_right"], [0.0, 1.0, 0.0])
    for side in ("left", "right"):
        knee = part[f"knee_{side}"] - (part[f"hip_{side}"] + part[f"ankle_{side}"]) / 2
        thigh, shin = (part[f"knee_{side}"] - part[f"{end}_{side}"] for end in ("hip", "ankle"))
        straight = (thigh * -shin).sum(axis=-1) > 0.95 * np.linalg.norm(thigh, axis=-1) * np.linalg.norm(
            shin, axis=-1
        )
        assert (((knee * ahead).sum(axis=-1) > 0) | straight).all()


@pytest.mark.heavy
def test_store_keeps_the_normalised_clips(tmp_path: Path) -> None:
    store = make_synthetic_store(tmp_path / "store", count=96, subjects=4, seed=1)
    assert (len(store), store.persons, store.topology) == (96, 2, KINECT_V2)
    assert store.class_names == list(ACTIONS)
    assert tuple(store.normalisation) == AUTHORS
    assert store.header["origin"]["generator"] == "synthetic"
    assert store.header["origin"]["seed"] == 1
    for index, clip in zip(range(96), islice(synthetic_clips(subjects=4, seed=1), 96), strict=True):
        persons = clip.shape[1]
        np.testing.assert_array_equal(
            store.clip(index)[:, :persons], normalise(clip.frames, KINECT_V2, AUTHORS)
        )
        assert not store.clip(index)[:, persons:].any()
    train, test = store.split("xsub")
    assert set(store.subjects[train]) == {1, 3}
    assert set(store.subjects[test]) == {2, 4}
    assert set(store.cameras[store.split("xview")[1]]) == {1}


def test_store_is_replaced_only_when_asked_for(tmp_path: Path) -> None:
    first = make_synthetic_store(tmp_path / "store", count=5)
    with pytest.raises(InputError, match="exists already"):
        make_synthetic_store(tmp_path / "store", count=5)
    second = make_synthetic_store(tmp_path / "store", count=5, seed=9, normalisation=(), overwrite=True)
    assert second.hash != first.hash
    assert second.normalisation == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"count": 0}, "asked for"),
        ({"count": 10**6}, "repetitions"),
        ({"subjects": 1}, "subjects"),
        ({"repetitions": 0}, "repetitions"),
        ({"seed": -1}, "seed"),
    ],
)
def test_impossible_wishes_are_refused_with_the_remedy(arguments: dict[str, int], word: str) -> None:
    with pytest.raises(InputError, match=word):
        synthetic_clips(**arguments)


def test_nearest_neighbour_in_raw_coordinates_is_above_chance_but_far_from_solved() -> None:
    rows = []
    for clip in sample():
        frames = np.zeros((len(clip.frames), 2, 25, 3), dtype=np.float32)
        frames[:, : clip.shape[1]] = normalise(clip.frames, KINECT_V2, AUTHORS)
        seen = frames[present(frames).any(axis=1)].reshape(-1, 150)
        at = np.linspace(0, len(seen) - 1, 32)
        low = np.minimum(at.astype(int), len(seen) - 2)
        way = (at - low)[:, None]
        rows.append((seen[low] * (1 - way) + seen[low + 1] * way).ravel())
    features = np.stack(rows)
    columns = {"subject": np.array([clip.subject for clip in sample()])}
    labels = np.array([clip.label for clip in sample()])
    train, test = synthetic_splits()[0].indices(columns)
    squared = (features[train] ** 2).sum(axis=1) - 2 * features[test] @ features[train].T
    accuracy = (labels[train][squared.argmin(axis=1)] == labels[test]).mean()
    assert 5 / len(ACTIONS) < accuracy < 0.65
