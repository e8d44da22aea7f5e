"""BVH: positions for chosen frames and joints equal those of a plain reading number by number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reader_samples import BVH
from scipy.spatial.transform import Rotation

from halp.core.errors import InputError
from halp.data.readers import Item
from halp.data.readers.bvh import BvhReader, open_bvh, sample_places

CHANNELS = ("Xposition Yposition Zposition", "Zrotation Yrotation Xrotation")


def write(
    path: Path, values: np.ndarray, *, time: str = "0.0083333", end: str = "\n", digits: int = 4
) -> Path:
    """A chain of three joints whose 12 channels have these values."""
    head = [
        "HIERARCHY", "ROOT Hips", "{", "OFFSET 0 0 0", f"CHANNELS 6 {' '.join(CHANNELS)}",
        "JOINT Spine", "{", "OFFSET 0 1.5 0", f"CHANNELS 3 {CHANNELS[1]}",
        "JOINT Head", "{", "OFFSET 0.25 2 0", f"CHANNELS 3 {CHANNELS[1]}",
        "End Site", "{", "OFFSET 0 1 0", "}", "}", "}", "}", "MOTION", f"Frames: {len(values)}", f"Frame Time: {time}",
    ]  # fmt: skip
    rows = [" ".join(f"{number:.{digits}f}" for number in row) for row in values]
    path.write_bytes((end.join([*head, *rows]) + end).encode())
    return path


def slowly(values: np.ndarray) -> np.ndarray:
    """The four positions of `write`'s chain, frame by frame."""
    result = []
    for row in values:
        place, turn = row[:3], Rotation.from_euler("ZYX", row[3:6], degrees=True)
        found = [place]
        for offset, angles in (((0, 1.5, 0), row[6:9]), ((0.25, 2, 0), row[9:12]), ((0, 1, 0), None)):
            place = place + turn.apply(offset)
            found.append(place)
            turn = turn * Rotation.from_euler("ZYX", angles, degrees=True) if angles is not None else turn
        result.append(found)
    return np.array(result)


@pytest.fixture
def motion() -> np.ndarray:
    return np.random.default_rng(0).uniform(-180, 180, (301, 12)).round(4)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_gives_the_slow_positions(
    motion: np.ndarray, end: str, tmp_path: Path
) -> None:
    (clip,) = BvhReader().read(Item(write(tmp_path / "a.bvh", motion, end=end)))
    np.testing.assert_allclose(clip.frames[:, 0], slowly(motion), rtol=1e-5, atol=1e-4)  # type: ignore[union-attr]
    assert clip.fps == pytest.approx(120, abs=0.01)  # type: ignore[union-attr]


def test_a_lower_frame_rate_keeps_every_fourth_frame_and_chosen_joints_only(
    motion: np.ndarray, tmp_path: Path
) -> None:
    reader = BvhReader(fps=30, joints=("head", "hip_center"))
    (clip,) = reader.read(Item(write(tmp_path / "a.bvh", motion)))
    expected = slowly(motion)[::4][:, [2, 0]]
    np.testing.assert_allclose(clip.frames[:, 0], expected, rtol=1e-5, atol=1e-4)  # type: ignore[union-attr]
    assert clip.fps == 30  # type: ignore[union-attr]
    assert reader.info(tmp_path).topology.joints == ("head", "hip_center")


def test_another_frame_rate_interpolates_between_recorded_frames(motion: np.ndarray, tmp_path: Path) -> None:
    (clip,) = BvhReader(fps=50).read(Item(write(tmp_path / "a.bvh", motion)))
    recorded, times = slowly(motion).reshape(len(motion), -1), np.arange(len(motion)) * 0.0083333
    wanted = np.arange(len(clip.frames)) / 50  # type: ignore[union-attr]
    expected = np.stack([np.interp(wanted, times, column) for column in recorded.T], 1)
    # nearly a recorded frame counts as that frame, so compare where the sample lies well between two
    between = np.abs(wanted * 120 - np.rint(wanted * 120)) > 0.1
    found = clip.frames.reshape(len(wanted), -1)  # type: ignore[union-attr]
    np.testing.assert_allclose(found[between], expected[between], atol=1e-3)
    assert len(wanted) == 126


@given(st.integers(1, 500), st.floats(5, 240), st.floats(5, 240))
def test_sampling_stays_within_the_recording_and_keeps_the_tempo(
    frames: int, recorded: float, wanted: float
) -> None:
    places = sample_places(frames, recorded, wanted)
    assert places[0] == 0
    assert places.max() <= frames - 1
    np.testing.assert_allclose(
        places, np.minimum(np.arange(len(places)) * recorded / wanted, frames - 1), atol=0.051
    )
    # no more than one sample short of the end
    assert places[-1] + recorded / wanted > frames - 1 - 1e-6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\n", " 1\n", "13 numbers instead of 12"),
        ("0.", "x.", "no number|not a number"),
        ("0.", "nan 0.", "numbers instead of 12|finite|nan"),
        ("0.", "1e99", "numbers instead of 12|coordinate"),
        ("0.", "\x000.", "no number|not a number"),
    ],
)
def test_what_is_wrong_in_a_long_file_is_named_with_its_line(
    motion: np.ndarray, old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.bvh", motion)
    lines = path.read_text().split("\n")
    at = 200
    lines[at] = (lines[at] + "\n").replace(old, new, 1).rstrip("\n")
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=message) as caught:
        BvhReader().read(Item(path))
    said = str(caught.value)
    assert (f"frame {at - 23}:" if "a coordinate is" in said else f"line {at + 1}:") in said


def test_unusual_but_valid_numbers_are_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.bvh").write_text(BVH)
    plain = open_bvh(tmp_path / "a.bvh").positions(range(4))[0]
    lines = BVH.rstrip("\n").split("\n")
    unusual = [
        *lines[:-1],
        "",
        "  " + "\x0b".join(f"{float(word):+.5e}" for word in lines[-1].split()) + "\t",
        "",
    ]
    (tmp_path / "b.bvh").write_text("\n".join(unusual))
    np.testing.assert_allclose(open_bvh(tmp_path / "b.bvh").positions(range(4))[0], plain, atol=1e-4)


def test_a_frame_rate_cannot_be_changed_if_the_file_does_not_state_it(
    motion: np.ndarray, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.bvh", motion, time="0")
    assert BvhReader().read(Item(path))[0].fps == -1  # type: ignore[union-attr]
    with pytest.raises(InputError, match="line 23: a frame time of 0 gives no frame rate"):
        BvhReader(fps=30).read(Item(path))
