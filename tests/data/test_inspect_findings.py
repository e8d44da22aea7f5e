"""`inspect` names what is wrong with the poses and the step that fixes it, and what that step leaves is
clean.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from clip_samples import walker
from reader_samples import shared

from halp.data.arrays import store_from_arrays
from halp.data.clip import Clip
from halp.data.inspect import inspect
from halp.data.readers import get_reader
from halp.data.splits import Split
from halp.skeleton import KINECT_V1


def damage(frames: np.ndarray, kind: str) -> np.ndarray:
    draw = np.random.default_rng(0)
    if kind == "gaps":
        frames = frames * (draw.uniform(size=(*frames.shape[:3], 1)) > 0.1)
    elif kind == "spikes":
        frames[20, 0, 5] += 4
    elif kind == "jitter":
        frames = frames + draw.normal(0, 0.05, frames.shape)
    elif kind == "swap":
        frames[15:25] = frames[15:25, ::-1]
    elif kind == "axes":
        frames = np.roll(frames, 1, axis=-1)
    elif kind == "units":
        frames = frames * 1000
    elif kind == "empty":
        frames[5] = 0
    return frames


@pytest.mark.parametrize(
    ("kind", "steps", "word"),
    [
        ("gaps", ("interpolate-gaps",), "missing at times"),
        ("spikes", ("remove-outliers", "interpolate-gaps"), "jump away and back"),
        ("jitter", ("steady",), "jitter"),
        ("swap", ("track-persons",), "swap places"),
        ("axes", ("upright",), "z points up"),
        ("units", ("metres",), "millimetres"),
        ("empty", ("drop-empty",), "nobody is seen"),
    ],
)
def test_what_is_wrong_is_named_and_its_step_mends_it(
    kind: str, steps: tuple, word: str, tmp_path: Path
) -> None:
    arrays = [damage(walker(60, 2, seed), kind) for seed in range(4)]
    settings = {"topology": KINECT_V1, "labels": [0, 1] * 2, "splits": [Split("a", "label", (0,))]}
    store_from_arrays(tmp_path / "bad", arrays, **settings)
    problems = {finding.problem: finding.remedy for finding in inspect(tmp_path / "bad").findings}
    (named,) = [problem for problem in problems if word in problem]
    assert steps[0].partition("=")[0] in problems[named]
    store_from_arrays(tmp_path / "good", arrays, normalisation=steps, **settings)
    assert not [finding for finding in inspect(tmp_path / "good").findings if word in finding.problem]


def test_good_recordings_have_no_findings(tmp_path: Path) -> None:
    arrays = [walker(60, 2, seed) for seed in range(4)]
    splits = [Split("a", "label", (0,))]
    store_from_arrays(tmp_path / "store", arrays, topology=KINECT_V1, labels=[0, 1, 0, 1], splits=splits)
    assert inspect(tmp_path / "store").findings == []


def test_a_joint_at_the_origin_is_not_missing_and_one_never_seen_is(tmp_path: Path) -> None:
    arrays = [walker(20, 1, seed) for seed in range(3)]
    arrays = [frames - frames[:, :1, :1] for frames in arrays]
    for frames in arrays:
        frames[:, 0, 7] = 0
    store_from_arrays(tmp_path / "store", arrays, topology=KINECT_V1)
    found = inspect(tmp_path / "store")
    assert found.missing_joints["hip_center"] == 0
    assert found.missing_joints["hand_left"] == 1
    assert any("hand_left is never seen" in finding.problem for finding in found.findings)


def test_long_clips_and_missing_labels_are_named(tmp_path: Path) -> None:
    store_from_arrays(tmp_path / "store", [walker(1200)], topology=KINECT_V1)
    remedies = " ".join(finding.remedy for finding in inspect(tmp_path / "store").findings)
    assert "--window SECONDS" in remedies
    assert "--labels TABLE" in remedies
    assert "halp split" in remedies


def real_store(path: Path, change) -> list[str]:
    """Findings about 40 real clips after a change."""
    source = shared("data", "nw-ucla.npz")
    reader = get_reader("interchange")
    clips = [clip for clip in reader.read(next(iter(reader.items(source))))[::37] if isinstance(clip, Clip)]
    store_from_arrays(
        path, [change(clip.frames.copy(), number) for number, clip in enumerate(clips)], topology=KINECT_V1
    )
    return [finding.problem for finding in inspect(path).findings]


@pytest.mark.heavy
def test_millimetres_among_metres_are_noticed(tmp_path: Path) -> None:
    assert not [
        problem for problem in real_store(tmp_path / "same", lambda clip, _: clip) if "mixed" in problem
    ]
    mixed = real_store(tmp_path / "mixed", lambda clip, number: clip * (1000 if number % 2 else 1))
    assert [problem for problem in mixed if "units seem to be mixed" in problem]


@pytest.mark.heavy
def test_left_and_right_exchanged_or_mirrored_is_noticed(tmp_path: Path) -> None:
    words = "left and right seem to be exchanged"
    mirrored = np.array([-1, 1, 1], dtype=np.float32)
    assert not [
        problem for problem in real_store(tmp_path / "same", lambda clip, _: clip) if words in problem
    ]
    assert [
        p for p in real_store(tmp_path / "swap", lambda clip, _: clip[:, :, KINECT_V1.mirror]) if words in p
    ]
    assert [p for p in real_store(tmp_path / "mirror", lambda clip, _: clip * mirrored) if words in p]
