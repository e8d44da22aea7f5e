"""Tracks of people against known truth: crossing, leaving, gaps, cuts and false detections, without any pose
estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halp.data import tracks as tracking
from halp.data.tracks import Detections, track_people

FPS = 30.0
Way = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]  # times (T,) → places (T, 2) in pixels
TEMPLATE = np.random.default_rng(5).uniform(-1, 1, (17, 2)) * [0.25, 0.5]


def walk(start: float, speed: float, height: float = 200.0) -> Way:
    return lambda times: np.stack([start + speed * times, np.full_like(times, height)], axis=1)


def film(
    ways: list[Way],
    seconds: float,
    *,
    seed: int = 0,
    sizes: list[float] | None = None,
    unseen: Callable[[int, float], bool] = lambda person, time: False,
    looks: bool = False,
    cut: float | None = None,
) -> tuple[Detections, npt.NDArray[np.int64]]:
    """Detections of people on their ways, in a random order within each frame, and who each of them is."""
    random = np.random.default_rng(seed)
    times = np.arange(int(seconds * FPS)) / FPS
    sizes = sizes or [100.0] * len(ways)
    clothes = random.dirichlet(np.full(24, 0.3), len(ways)) * 255
    frames, joints, look, truth = [], [], [], []
    places = [way(times) for way in ways]
    for frame, time in enumerate(times):
        for person in random.permutation(len(ways)):
            if unseen(person, time):
                continue
            stride = 0.05 * np.sin(2 * np.pi * time + np.arange(17) + person)[:, None]
            body = (
                (TEMPLATE + stride) * sizes[person]
                + places[person][frame]
                + random.normal(scale=1.0, size=(17, 2))
            )
            frames.append(frame)
            joints.append(body)
            look.append(np.clip(clothes[person] + random.normal(scale=2.0, size=24), 0, 255))
            truth.append(person)
    found = Detections(
        times,
        np.array(frames),
        np.array(joints, dtype=np.float32).reshape(-1, 17, 2),
        np.array(look).astype(np.uint8) if looks else None,
        None if cut is None else np.where(times < cut, 20, 200)[:, None].astype(np.uint8),
    )
    return found, np.array(truth)


def mistakes(found: Detections, truth: npt.NDArray[np.int64]) -> int:
    """Tracks beyond one per person, and detections in a track that is mostly somebody else's."""
    tracks = track_people(found)
    assert sorted(np.concatenate(tracks).tolist()) == list(range(len(truth)))  # everybody is in one track
    for rows in tracks:
        assert (np.diff(found.frame[rows]) > 0).all()  # and nobody is in two places at once
    wrong = sum(int((truth[rows] != np.bincount(truth[rows]).argmax()).sum()) for rows in tracks)
    return wrong + len(tracks) - len(set(truth.tolist()))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000), first=st.floats(60, 200), second=st.floats(60, 200), beside=st.floats(0, 40)
)
def test_two_people_who_cross_stay_who_they_are(
    seed: int, first: float, second: float, beside: float
) -> None:
    # they meet in the middle of five seconds; while one hides the other, one of the two is not seen
    ways = [walk(500 - 2.5 * first, first), walk(500 + 2.5 * second, -second, 200 + beside)]

    def apart(time: float) -> float:
        return float(abs((ways[0](np.array([time])) - ways[1](np.array([time])))[0, 0]))

    found, truth = film(ways, 5, seed=seed, unseen=lambda person, time: person == 1 and apart(time) < 15)
    tracks = track_people(found)
    assert len(tracks) == 2
    for rows in tracks:
        beyond_doubt = [row for row in rows if apart(found.times[found.frame[row]]) > 40]
        assert len(set(truth[beyond_doubt].tolist())) == 1


@pytest.mark.parametrize("seed", range(12))
def test_two_people_stay_who_they_are_if_a_follower_goes_over_from_one_to_the_other(seed: int) -> None:
    """They meet at 2.5 s. For a second from then on, whoever followed the first one has the second one instead,
    who is lost at 3.1 s in his own name; the first one is seen again at 3.8 s.
    """
    ways = [walk(200, 120), walk(800, -120)]
    found, truth = film(
        ways, 5, seed=seed, unseen=lambda who, time: (3.5 <= time < 3.8) if who == 0 else (3.1 <= time < 3.5)
    )
    moment = found.times[found.frame]
    taken = np.flatnonzero((truth == 0) & (moment >= 2.5) & (moment < 3.5))
    joints = found.joints.copy()
    joints[taken, :, 0] += (ways[1](moment[taken]) - ways[0](moment[taken]))[:, :1].astype(np.float32)
    tracks = track_people(replace(found, joints=joints))
    whose = [set(truth[rows[(moment[rows] < 2.2) | (moment[rows] > 3.85)]].tolist()) for rows in tracks[:2]]
    assert sorted(map(sorted, whose)) == [[0], [1]]


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), gap=st.floats(0.1, 3.0), speed=st.floats(-60, 60))
def test_people_are_the_same_after_a_gap_in_which_nobody_is_seen(seed: int, gap: float, speed: float) -> None:
    ways = [walk(200, speed), walk(700, 0.0)]
    assert mistakes(*film(ways, 3 + gap, seed=seed, unseen=lambda person, time: 1.5 <= time < 1.5 + gap)) == 0


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), away=st.floats(2.0, 20.0))
def test_a_person_who_leaves_and_returns_in_the_same_clothes_is_the_same(seed: int, away: float) -> None:
    ways = [walk(300, 0.0), walk(600, 10.0)]
    found = film(
        ways,
        4 + away,
        seed=seed,
        looks=True,
        unseen=lambda person, time: person == 1 and 2 <= time < 2 + away,
    )
    assert mistakes(*found) == 0


def test_a_person_who_leaves_is_absent_while_the_other_stays_who_he_is() -> None:
    found, truth = film(
        [walk(300, 0.0), walk(600, 0.0)], 6, unseen=lambda person, time: person == 1 and time >= 2
    )
    tracks = track_people(found)
    assert [len(rows) for rows in tracks] == [180, 60]
    assert [set(truth[rows].tolist()) for rows in tracks] == [{0}, {1}]


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_after_a_cut_people_are_told_apart_by_their_clothes(seed: int) -> None:
    def swapped(one: float, other: float) -> Way:  # another camera shows them the other way round
        return lambda times: np.stack([np.where(times < 2, one, other), np.full_like(times, 200.0)], axis=1)

    assert mistakes(*film([swapped(300, 700), swapped(700, 300)], 4, seed=seed, looks=True, cut=2.0)) == 0


@pytest.mark.parametrize(
    ("later", "cut", "costs"), [(-80, None, True), (80, None, False), (0, None, False), (-80, 2.0, False)]
)
def test_only_a_walker_who_walks_back_without_a_cut_is_less_likely_the_same(
    later: float, cut: float | None, costs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def way(times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        x = 300 + np.where(times < 2, 80 * times, 160 + later * (times - 2))
        return np.stack([x, np.full_like(times, 200.0)], axis=1)

    found, _ = film([way], 4, unseen=lambda person, time: 1.9 <= time < 2.1, cut=cut)
    before = found.times[found.frame] < 2
    pieces = [
        tracking._Piece(np.flatnonzero(rows).tolist(), False, np.zeros(2)) for rows in (before, ~before)
    ]

    def cost() -> float:
        return float(tracking._link_costs(pieces, np.array([[0, 1]]), found, tracking._Geometry(found))[0])

    with_turn = cost()
    monkeypatch.setattr(tracking, "_TURN", 0.0)
    extra = with_turn - cost()
    assert extra > 0.3 if costs else extra < 0.03


def test_somebody_else_who_appears_far_away_a_moment_later_is_somebody_else() -> None:
    found, _ = film(
        [walk(100, 0.0), walk(900, 0.0)], 4, unseen=lambda person, time: (time < 2) == (person == 1)
    )
    assert len(track_people(found)) == 2


def test_a_child_in_the_place_of_an_adult_is_somebody_else() -> None:
    found, _ = film(
        [walk(300, 0.0), walk(300, 0.0)],
        6,
        sizes=[200.0, 70.0],
        unseen=lambda person, time: (time < 2.5) == (person == 1) or 2.5 <= time < 3,
    )
    assert len(track_people(found)) == 2


def test_single_false_detections_do_not_break_a_track() -> None:
    found, truth = film(
        [walk(300, 30.0), walk(800, 0.0)], 5, unseen=lambda person, time: person == 1 and time % 1 > 0.02
    )
    tracks = track_people(found)
    assert len(tracks[0]) == 150
    assert set(truth[tracks[0]].tolist()) == {0}


@pytest.mark.parametrize("seed", range(6))
def test_after_a_cut_a_moment_of_a_false_detection_does_not_give_somebody_to_another(seed: int) -> None:
    """One of two people is not seen after the cut. Shortly after it the other one walks through shadow, and for
    two frames something on her is taken for a body, and once more at the end.
    """
    ways = [walk(200, 60, 400), walk(600, 0, 100), lambda times: walk(205, 60, 380)(times)]
    shown = (1.85, 1.9), (3.3, 3.33)
    found, truth = film(
        ways,
        4,
        seed=seed,
        sizes=[100.0, 100.0, 50.0],
        looks=True,
        cut=1.7,
        unseen=lambda who, time: (
            (who == 1 and time >= 1.7) or (who == 2 and not any(a <= time < b for a, b in shown))
        ),
    )
    moment, look = found.times[found.frame], found.look
    assert look is not None
    shadow = (truth == 0) & (moment >= 1.85) & (moment < 2.15)
    look = np.where(shadow[:, None], look // 2 + look[truth == 1].mean(0).astype(np.uint8) // 2, look)
    she, he = track_people(replace(found, look=look))[:2]
    assert set(truth[she].tolist()) == {0}
    assert len(she) == (truth == 0).sum()
    assert set(truth[he].tolist()) == {1}


@pytest.mark.parametrize("people", [0, 1])
def test_nobody_and_one_person_need_no_assignment(people: int) -> None:
    found, truth = film([walk(300, 0.0)] * people, 2)
    assert [len(rows) for rows in track_people(found)] == [60] * people
    assert len(truth) == 60 * people


def test_a_crowd_over_a_long_time_is_tracked_in_bounded_work() -> None:
    ways = [walk(150.0 * person, 20.0 * (-1) ** person) for person in range(8)]
    found, truth = film(ways, 60, seed=1, looks=True)
    tracks = track_people(found)
    right = sum(int((truth[rows] == np.bincount(truth[rows]).argmax()).sum()) for rows in tracks[:8])
    assert right / len(truth) > 0.9
