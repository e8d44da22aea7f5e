"""Frames without a person keep their time: in clips, through stores, merges, journals and the interchange
file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from interchange_samples import write_interchange

from halp.core.errors import InputError
from halp.data.arrays import store_from_arrays
from halp.data.clip import Clip
from halp.data.ingest.prepare import prepare
from halp.data.merge import merge
from halp.data.store import open_store
from halp.data.store_check import check_absent
from halp.data.windows import spans
from halp.features.opening import open_source

GAP = slice(20, 40)  # of 60 frames at 10 per second


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Six seconds; from 2 s to 4 s nobody is seen. The first joint tells the time."""
    frames = np.random.default_rng(0).normal(size=(60, 25, 3)).astype(np.float32)
    frames[:, 3, 0] = np.arange(1, 61)
    frames[GAP] = 0
    folder = tmp_path / "recordings"
    folder.mkdir()
    np.save(folder / "gap.npy", frames)
    return folder


def stored(recording: Path, name: str = "store", **settings):
    path = recording.parent / name
    options = {"topology": "kinect-v2"}
    manifest = prepare(
        "arrays",
        recording,
        path,
        normalisation=("drop-empty",),
        options=options,
        fps=10,
        progress=False,
        **settings,
    )
    return manifest, open_store(path)


def test_frames_without_a_person_are_counted_and_keep_their_time(recording: Path) -> None:
    manifest, store = stored(recording)
    assert "20 frames without a person left out, the time is kept" in manifest.summary()
    assert store.lengths.tolist() == [40]
    assert store.spans.tolist() == [60]
    assert store.times(0) == pytest.approx((store.clip(0)[:, 0, 3, 0] - 1) / 10)
    assert spans(store).end.tolist() == [6.0]


def test_windows_of_a_store_stand_where_those_of_the_files_do(recording: Path) -> None:
    _, store = stored(recording)
    cutting = {"window": 1.0, "stride": 0.5, "fps": 10}
    from_files = list(open_source(recording, options={"topology": "kinect-v2"}, **cutting).clips())
    from_store = list(open_source(store, **cutting).clips())
    assert [clip.start for clip in from_store] == [clip.start for clip in from_files]
    assert from_store
    assert all(not 2.0 <= clip.start <= 3.0 for clip in from_store)
    for one, other in zip(from_store, from_files, strict=True):
        np.testing.assert_array_equal(one.frames, other.frames)
        np.testing.assert_allclose(one.times, other.times)
        assert one.extra["end"] == other.extra["end"]


def test_windows_without_a_person_are_named_as_such(recording: Path) -> None:
    manifest, _ = stored(recording, window=1.0, stride=1.0)
    assert "2 dropped (2 windows without a person)" in manifest.summary()


def test_a_merged_store_and_an_interchange_file_keep_the_clock(recording: Path) -> None:
    _, store = stored(recording)
    np.save(recording / "other.npy", np.random.default_rng(1).normal(size=(9, 25, 3)).astype(np.float32))
    _, other = stored(recording, "second")
    merged = merge([other.path, store.path], recording.parent / "merged", progress=False)
    np.testing.assert_allclose(merged.times(2), store.times(0))
    file = recording.parent / "whole.npz"
    write_interchange(store, file)
    prepare("interchange", file, recording.parent / "again", progress=False)
    again = open_store(recording.parent / "again")
    np.testing.assert_allclose(again.times(0), store.times(0))


def test_arrays_keep_the_clock_and_a_clip_knows_who_is_there(tmp_path: Path) -> None:
    frames = np.ones((6, 25, 3), dtype=np.float32)
    frames[1:4] = 0
    clip = Clip(frames[:, None], "gap", fps=2.0, start=10.0)
    assert clip.present.tolist() == [True, False, False, False, True, True]
    assert clip.times.tolist() == [10.0, 10.5, 11.0, 11.5, 12.0, 12.5]
    store = store_from_arrays(
        tmp_path / "store", [frames], topology="kinect-v2", normalisation=("drop-empty",)
    )
    assert store.times(0).tolist() == [0.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "absent", [[1], {"0": [[1, 0]]}, {"0": [[5, 2]]}, {"9": [[0, 1]]}, {"0": [[1, 2], [2, 1]]}, {"0": 3}]
)
def test_runs_that_do_not_fit_the_clips_are_refused(absent: object) -> None:
    with pytest.raises(InputError, match="absent"):
        check_absent(Path("store"), absent, np.array([4]))
