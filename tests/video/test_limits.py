"""Limits of video files: size, length, timestamps, containers, metadata."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import halp
from halp.core.errors import InputError

av = pytest.importorskip("av", reason="PyAV is not installed (pip install halp-motion[video])")

from halp.data.readers.video import MOST_FRAMES, even_times  # noqa: E402
from halp.video import film as film_module  # noqa: E402
from halp.video.film import FilmWriter, film_facts, film_picture, film_pictures  # noqa: E402


def write_video(
    path: Path, times: list[float], size: tuple[int, int] = (64, 48), title: bytes = b"", every: int = 12
) -> Path:
    """Grey frames, each brighter than the one before by one, a key frame every `every` frames."""
    with av.open(str(path), "w") as container:
        if title:
            container.metadata["title"] = "X" * len(title)
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.gop_size = every
        stream.codec_context.time_base = stream.time_base = Fraction(1, 1000)
        for number, moment in enumerate(times):
            picture = np.full((size[1], size[0], 3), number % 256, dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = round(1000 * moment), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    if title:
        path.write_bytes(path.read_bytes().replace(b"X" * len(title), title))
    return path


def test_a_list_of_other_files_named_mp4_is_refused(tmp_path: Path) -> None:
    write_video(tmp_path / "other.mp4", [0.0, 0.1])
    listed = tmp_path / "list.mp4"
    listed.write_text("ffconcat version 1.0\nfile other.mp4\n")
    with av.open(str(listed)) as container:  # FFmpeg itself opens it
        assert container.format.name == "concat"
    with pytest.raises(InputError, match=r"list\.mp4' cannot be read"):
        film_facts(listed)


def test_frames_with_too_many_pixels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "a.mp4", [0.0, 0.1], size=(128, 64))
    assert film_facts(path).width == 128
    monkeypatch.setattr(film_module, "MOST_PIXELS", 128 * 64 - 1)
    with pytest.raises(InputError, match=r"128 × 64 pixels, more than .* scale it down"):
        film_facts(path)


def test_timestamps_that_jump_by_more_than_an_hour_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    with FilmWriter(path, 64, 48, 10) as writer:
        for moment in (0.0, 0.1, 0.2, 20_000.0):
            writer.write(np.zeros((48, 64, 3), dtype=np.uint8), moment)
    with pytest.raises(InputError, match=r"jumps from 0\.2 s to 20000\.0 s"):
        list(film_pictures(path))


def test_a_jump_of_minutes_is_missing_time_and_not_a_pose_that_is_held() -> None:
    rows = even_times(np.array([0.0, 0.1, 0.2, 600.0, 600.1]), 10.0)
    assert len(rows) == 6002
    assert (rows == -1).sum() == 6002 - 5 - 2 * 5  # half a second after and before
    with pytest.raises(InputError, match="cut it"):
        even_times(np.array([0.0, MOST_FRAMES]), 2.0)


@pytest.mark.parametrize("reads", [film_facts, halp.people, halp.open_source])
def test_a_pipe_is_refused_and_not_waited_for(reads: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(InputError, match=r"pipe\.mp4' is n(ot a regular|either a) file"):
        reads(tmp_path / "pipe.mp4")


def test_metadata_that_is_not_utf8_costs_nothing(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.avi", [0.0, 0.1, 0.2], title=b"caf\xe9 des amis")
    assert b"caf\xe9 des amis" in path.read_bytes()
    with pytest.raises(UnicodeDecodeError):
        av.open(str(path))
    assert film_facts(path).width == 64


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi"])
@pytest.mark.parametrize("every", [1, 7, 100])
def test_reading_from_a_later_time_gives_the_frames_that_reading_all_gives(
    tmp_path: Path, suffix: str, every: int
) -> None:
    path = write_video(tmp_path / f"a.{suffix}", [number / 10 for number in range(40)], every=every)
    whole = list(film_pictures(path))
    assert len(whole) == 40
    for start in (0.05, 1.0, 2.95, 3.9, 5.0):
        part = list(film_pictures(path, start))
        expected = [(moment, picture) for moment, picture in whole if moment >= start]
        assert [moment for moment, _ in part] == [moment for moment, _ in expected]
        assert all((one == other).all() for (_, one), (_, other) in zip(part, expected, strict=True))
    assert (film_picture(path, 1.0) == whole[10][1]).all()
    assert (film_picture(path, 99.0) == whole[-1][1]).all()
