"""Videos by PyAV: upright frames with their true times; and writing videos from frames."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, missing_extra
from halp.data.spans import film_of

SUFFIXES = (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v")
Picture = npt.NDArray[np.uint8]


#: Containers that are opened; playlists and lists of other files are not among them.
CONTAINERS = ("mov", "mp4", "matroska", "webm", "avi", "mpegts", "mpeg", "asf", "flv", "ogg")
MOST_PIXELS = 8192 * 4320  # per frame
LONGEST = 24 * 3600.0  # seconds of a video
LONGEST_JUMP = 3600.0  # seconds between two frames


@dataclass(frozen=True)
class FilmFacts:
    """Width, height, mean fps, number of frames and seconds as the video declares them (0: unknown)."""

    width: int
    height: int
    fps: float
    frames: int
    seconds: float = 0.0


def require_av() -> Any:
    """PyAV, or an error that names the extra to install."""
    try:
        import av
    except ImportError:
        raise missing_extra("videos need PyAV", "video") from None
    return av


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    av = require_av()
    if path.exists() and not path.is_file():  # reading a pipe would block for ever
        raise InputError(f"video '{path}' is not a regular file; copy it to disk first")
    allowed = {"format_whitelist": ",".join(CONTAINERS), "protocol_whitelist": "file"}
    try:
        with av.open(str(path), options=allowed, metadata_errors="replace") as container:
            video = next(iter(container.streams.video), None)
            if video is None:
                raise InputError(f"'{path}' has no video stream; convert it to mp4, or remove it")
            width, height = video.codec_context.width, video.codec_context.height
            if width * height > MOST_PIXELS:
                size = f"frames of {width} × {height} pixels, more than {MOST_PIXELS:,}"
                raise InputError(f"video '{path}' has {size}; scale it down first")
            # frames may be larger than declared
            video.codec_context.options = {"max_pixels": str(MOST_PIXELS)}
            video.thread_type = "AUTO"
            yield container, video
    except av.error.FFmpegError as error:
        if path.is_file() and not path.stat().st_size:
            raise InputError(
                f"video '{path}' is empty; copy it again, or remove it from the source"
            ) from error
        raise InputError(
            f"video '{path}' cannot be read ({error.strerror or error}); convert it to mp4, or remove it from"
            " the source"
        ) from error


def film_facts(path: Path) -> FilmFacts:
    """What a video declares about itself; its first frame is decoded."""
    with _opened(path) as (container, video):
        _, frame = _first_frame(path, _timed_frames(container, video))
        width, height = (frame.height, frame.width) if _turns(frame) % 2 else (frame.width, frame.height)
        fps = float(video.average_rate or video.guessed_rate or 0)
        seconds = float((video.duration or 0) * (video.time_base or 0)) or (container.duration or 0) / 1e6
        return FilmFacts(width, height, fps, int(video.frames or round(fps * seconds)), seconds)


def film_pictures(path: Path, start: float = 0.0) -> Iterator[tuple[float, Picture]]:
    """Times in seconds from the first frame on, strictly increasing, and frames `(H, W, 3)` in RGB, upright.

    With `start` only frames from that time on; decoding begins at the key frame before it, where the
    container can seek.
    """
    with _opened(path) as (container, video):
        frames = _timed_frames(container, video)
        origin, frame = _first_frame(path, frames)
        size, before = (frame.width, frame.height), -1.0
        frames = chain([(origin, frame)], frames) if start <= 0 else _sought(container, video, origin, start)
        for moment, frame in frames:
            moment -= origin
            if moment < start or moment <= before:
                continue
            if moment > LONGEST or 0 <= before < moment - LONGEST_JUMP:
                raise InputError(
                    f"video '{path}' jumps from {max(before, 0):.1f} s to {moment:.1f} s in one frame or is"
                    f" longer than {LONGEST / 3600:.0f} hours; cut it, or rewrite its timestamps by"
                    " converting it to mp4"
                )
            before = moment
            if (frame.width, frame.height) != size:
                frame = frame.reformat(*size)
            picture = np.rot90(frame.to_ndarray(format="rgb24"), _turns(frame))
            yield moment, np.ascontiguousarray(picture)


def film_picture(path: Path, moment: float) -> Picture:
    """The frame at a moment: the first one from there on, or the last of the video."""
    shown = next(film_pictures(path, moment), None) or deque(film_pictures(path), maxlen=1)[0]
    return shown[1]


def _first_frame(path: Path, frames: Iterator[tuple[float, Any]]) -> tuple[float, Any]:
    found = next(frames, None)
    if found is None:
        raise InputError(f"no frame of video '{path}' can be decoded; convert it to mp4, or remove it")
    return found


def _timed_frames(container: Any, video: Any) -> Iterator[tuple[float, Any]]:
    """Decoded frames with their times on the container's clock."""
    rate = float(video.average_rate or video.guessed_rate or 30)
    for number, frame in enumerate(container.decode(video)):
        yield float(frame.time) if frame.time is not None else number / rate, frame


def _sought(container: Any, video: Any, origin: float, start: float) -> Iterator[tuple[float, Any]]:
    """Frames from a key frame at or before `start` seconds after the first frame on."""
    # a container that cannot seek to the place is read from its beginning
    for moment in (origin + start, origin):
        container.seek(round(moment / video.time_base), stream=video)
        frames = _timed_frames(container, video)
        found = next(frames, None)
        if found is not None and (found[0] <= moment or moment == origin):
            return chain([found], frames)
    return iter(())


def film_addresses(source: Path, recordings: Sequence[str], page: Path) -> dict[str, str]:
    """Addresses of the videos of a source's recordings, relative to the folder of a page."""
    addresses = {}
    for name in recordings:
        names = [name, film_of(name)]  # a person of a video, or the video itself
        places = (
            [source] if source.is_file() else [source / f"{one}{end}" for one in names for end in SUFFIXES]
        )
        film = next((path for path in places if path.suffix.lower() in SUFFIXES and path.is_file()), None)
        if film is not None:
            addresses[name] = quote(Path(os.path.relpath(film.resolve(), page.resolve().parent)).as_posix())
    return addresses


def _turns(frame: Any) -> int:
    """Counter-clockwise quarter turns that make a frame upright."""
    return round(float(getattr(frame, "rotation", 0) or 0) / 90) % 4


class FilmWriter:
    """Write frames `(H, W, 3)` with their times as an mp4 video; sides are cropped to even numbers."""

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        from fractions import Fraction

        av = require_av()
        self.size = (width // 2 * 2, height // 2 * 2)
        self.container = av.open(str(path), "w", format="mp4")
        self.base = Fraction(1, 90_000)
        self.video = self.container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        self.video.width, self.video.height = self.size
        self.video.pix_fmt, self.video.time_base = "yuv420p", self.base
        self.video.options = {"preset": "veryfast"}
        self.video.codec_context.time_base = self.base
        self.av = av

    def write(self, picture: Picture, moment: float) -> None:
        width, height = self.size
        frame = self.av.VideoFrame.from_ndarray(
            np.ascontiguousarray(picture[:height, :width]), format="rgb24"
        )
        frame.pts, frame.time_base = round(moment / self.base), self.base
        self.container.mux(self.video.encode(frame))

    def __enter__(self) -> FilmWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.container.mux(self.video.encode())
        self.container.close()
