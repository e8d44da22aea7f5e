"""Windows cover a recording, and a clip knows its recording and time span."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from clip_samples import make_store, write_pku
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_samples import BVH, write_mediapipe

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.ingest.pipeline import is_store
from halp.data.ingest.prepare import prepare
from halp.data.store import open_store
from halp.data.windows import WindowSettings, cut_windows, spans, squeeze_warning
from halp.features.opening import open_source


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 500), st.floats(1, 120), st.floats(0.1, 5), st.floats(0.1, 5))
@pytest.mark.heavy
def test_windows_are_equally_long_in_order_and_reach_the_last_frame(
    length: int, fps: float, window: float, stride: float
) -> None:
    if stride * fps < 1:
        return
    found = cut_windows(length, fps, window, stride)
    width = min(length, max(1, round(window * fps)))
    assert {end - start for start, end in found} == {width}
    assert found[0][0] == 0
    assert found[-1][1] == length
    starts = [start for start, _ in found]
    assert starts == sorted(set(starts))
    # All but the last start where a slow count of strides puts them.
    assert starts[:-1] == [round(number * stride * fps) for number in range(len(starts) - 1)]
    if stride <= window:
        covered = np.zeros(length, dtype=bool)
        for start, end in found:
            covered[start:end] = True
        assert covered.sum() >= length - len(
            found
        )  # rounding may leave single frames between windows that only touch


@pytest.mark.parametrize(
    ("window", "stride", "fps"), [(0, 1, 30), (1, 0, 30), (1, 1, 0), (float("nan"), 1, 30), (1, -1, 30)]
)
def test_windows_that_cannot_be_are_refused(window: float, stride: float, fps: float) -> None:
    with pytest.raises(InputError, match="above 0"):
        cut_windows(100, fps, window, stride)


def test_a_stride_shorter_than_a_frame_is_refused() -> None:
    with pytest.raises(InputError, match="shorter than a frame"):
        cut_windows(100, 10, 1, 0.01)


def write_recording(folder: Path, frames: int = 90, name: str = "walk") -> Path:
    """A BVH file of this many frames whose root moves one unit per frame along x."""
    head, _, _ = BVH.partition("Frames:")
    rows = "\n".join(f"{t + 1} 10 0 0 0 0 0 0 0 0 0 0" for t in range(frames))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.bvh"
    path.write_text(f"{head}Frames: {frames}\nFrame Time: 0.0333333\n{rows}\n")
    return path


def test_prepare_cuts_windows_that_know_their_recording(tmp_path: Path) -> None:
    write_recording(tmp_path / "own")
    prepare(
        "auto",
        tmp_path / "own",
        tmp_path / "store",
        window=1,
        stride=0.5,
        fps=30,
        normalisation=(),
        progress=False,
    )
    store = open_store(tmp_path / "store")
    found = spans(store)
    assert store.lengths.tolist() == [30] * 5
    assert store.names[1] == "walk@0.50"
    assert set(found.recording) == {"walk"}
    np.testing.assert_allclose(found.start, [0, 0.5, 1, 1.5, 2])
    np.testing.assert_allclose(found.end, found.start + 1)
    np.testing.assert_allclose(found.fps, 30)
    assert store.clip(2)[0, 0, 0, 0] == 31
    assert store.header["origin"]["windows"] == {"window": 1, "stride": 0.5, "fps": 30}


def test_windows_are_normalised_one_by_one(tmp_path: Path) -> None:
    write_recording(tmp_path / "own")
    prepare(
        "auto",
        tmp_path / "own",
        tmp_path / "store",
        window=1,
        fps=30,
        normalisation=("centre",),
        progress=False,
    )
    store = open_store(tmp_path / "store")
    assert all(not store.clip(clip)[:, :, 0].any() for clip in range(3))


def test_windows_in_seconds_need_a_frame_rate(tmp_path: Path) -> None:
    write_mediapipe(tmp_path)
    with pytest.raises(InputError, match="give it with --fps"):
        prepare("mediapipe", tmp_path, tmp_path / "store", window=1, progress=False)
    with pytest.raises(InputError, match="a stride needs a window"):
        prepare("mediapipe", tmp_path, tmp_path / "store", stride=1, progress=False)


def test_a_store_without_spans_has_whole_recordings(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    found = spans(store)
    assert found.recording.tolist() == store.names.tolist()
    assert found.start.tolist() == [0] * len(store)
    assert found.end.tolist() == store.lengths.tolist()
    np.testing.assert_allclose(spans(store, fps=10).end, store.lengths / 10)


def test_segments_of_a_recording_keep_their_place_in_it(tmp_path: Path) -> None:
    write_pku(tmp_path / "pku")
    prepare("pku-mmd", tmp_path / "pku", tmp_path / "store", progress=False)
    found = spans(open_store(tmp_path / "store"))
    assert set(found.recording) == {"A01N02-L"}
    np.testing.assert_allclose(found.start * 30, [1, 5], atol=1e-4)
    np.testing.assert_allclose(found.end * 30, [5, 12], atol=1e-4)


def test_recordings_come_alike_from_files_and_from_a_store(tmp_path: Path) -> None:
    write_recording(tmp_path / "own")
    write_recording(tmp_path / "own", 40, "run")
    prepare("auto", tmp_path / "own", tmp_path / "store", fps=30, normalisation=(), progress=False)
    assert is_store(tmp_path / "store")
    assert not is_store(tmp_path / "own")
    cutting = {"window": 1, "stride": 0.5, "fps": 30}
    files = list(open_source(tmp_path / "own", **cutting).clips())
    kept = list(open_source(tmp_path / "store", **cutting).clips())
    assert [_span(one) for one in files] == [_span(one) for one in kept]
    assert [one.recording for one in files] == ["run", "run", "walk", "walk", "walk", "walk", "walk"]
    for one, other in zip(files, kept, strict=True):
        np.testing.assert_array_equal(one.frames, other.frames)
    run, walk = open_source(tmp_path / "store").clips()
    assert (_span(run), walk.shape) == (("run", 0.0, pytest.approx(40 / 30)), (90, 1, 4, 3))


def _span(clip: Clip) -> tuple[str, float, float]:
    return clip.recording or clip.name, clip.start, float(clip.extra["end"])


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    write_recording(tmp_path)
    (tmp_path / "x.bvh").write_text("HIERARCHY\n")
    with pytest.warns(UserWarning, match=r"left out: 'x\.bvh'"):
        assert len(open_source(tmp_path)) == 1
    with pytest.raises(InputError, match="no MOTION part"):
        len(open_source(tmp_path / "x.bvh"))
    (tmp_path / "x.bvh").write_text("")
    with pytest.warns(UserWarning, match=r"'x\.bvh': '.*x\.bvh': the file is empty"):
        assert len(open_source(tmp_path)) == 1


def test_labels_go_along_with_clips(tmp_path: Path) -> None:
    write_recording(tmp_path / "own" / "walk")
    write_recording(tmp_path / "own" / "run", 40, "b")
    found = list(open_source(tmp_path / "own", fps=30).clips())
    assert [(clip.name, clip.label, clip.source) for clip in found] == [
        ("run/b", 0, "run/b.bvh"),
        ("walk/walk", 1, "walk/walk.bvh"),
    ]


def test_a_squeezed_recording_draws_a_warning() -> None:
    assert squeeze_warning([100, 200], 64) is None
    assert "1 of 2 recordings" in str(squeeze_warning([100, 2000], 64))
    assert "the encoder reads 64" in str(squeeze_warning([100, 20000], 64))


def test_a_clip_cut_twice_keeps_the_first_recording() -> None:
    clip = Clip(np.ones((90, 1, 20, 3)), "a", fps=30, recording="long", start=10)
    first, *_, last = WindowSettings(1, 1).cut(clip)
    assert (first.recording, first.start, last.start, last.name) == ("long", 10, 12, "a@12.00")
