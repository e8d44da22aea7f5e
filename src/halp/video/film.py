"""Films by PyAV: pictures with their true times, turned as the film says; and films written from pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError

SUFFIXES = (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v")
Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class FilmFacts:
    """Size of the pictures as they are shown, frames per second on average, and how many there should be (0: not known)."""

    width: int
    height: int
    fps: float
    frames: int


def require_av() -> Any:
    """PyAV, or one sentence about the extra that brings it."""
    try:
        import av
    except ImportError:
        raise InputError("films need PyAV; install it with `pip install 'halp-motion[video]'`") from None
    return av


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    av = require_av()
    try:
        with av.open(str(path)) as container:
            stream = next(iter(container.streams.video), None)
            if stream is None:
                raise InputError(f"'{path}' has no pictures in it; leave it out")
            stream.thread_type = "AUTO"
            yield container, stream
    except av.error.FFmpegError as error:
        raise InputError(
            f"film '{path}' cannot be read ({error.strerror or error}); convert it to mp4 or leave it out"
        ) from error


def film_facts(path: Path) -> FilmFacts:
    """What a film says of itself."""
    with _opened(path) as (container, stream):
        frame = next(container.decode(stream), None)
        if frame is None:
            raise InputError(f"film '{path}' has no picture; leave it out")
        width, height = (frame.height, frame.width) if _turns(frame) % 2 else (frame.width, frame.height)
        fps = float(stream.average_rate or stream.guessed_rate or 0)
        length = stream.frames or round(fps * float((stream.duration or 0) * (stream.time_base or 0)))
        return FilmFacts(width, height, fps, int(length))


def film_pictures(path: Path) -> Iterator[tuple[float, Picture]]:
    """Times in seconds from the first picture on, and pictures `(H, W, 3)` in RGB, upright."""
    first: float | None = None
    with _opened(path) as (container, stream):
        for number, frame in enumerate(container.decode(stream)):
            rate = float(stream.average_rate or 30)
            moment = float(frame.time) if frame.time is not None else number / rate
            first = moment if first is None else first
            picture = np.rot90(frame.to_ndarray(format="rgb24"), _turns(frame))
            yield moment - first, np.ascontiguousarray(picture)


def film_addresses(source: Path, recordings: Sequence[str], page: Path) -> dict[str, str]:
    """Addresses of the films that recordings of a source come from, as a page that is written there gives them."""
    addresses = {}
    for name in recordings:
        places = [source] if source.is_file() else [source / f"{name}{suffix}" for suffix in SUFFIXES]
        film = next((path for path in places if path.suffix.lower() in SUFFIXES and path.is_file()), None)
        if film is not None:
            addresses[name] = quote(Path(os.path.relpath(film.resolve(), page.resolve().parent)).as_posix())
    return addresses


def _turns(frame: Any) -> int:
    """Quarter turns against the clock that bring a picture upright."""
    return round(float(getattr(frame, "rotation", 0) or 0) / 90) % 4


class FilmWriter:
    """Writes pictures `(H, W, 3)` with their times as an mp4 film; sides are cut to even numbers, as the format wants."""

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        from fractions import Fraction

        av = require_av()
        self.size = (width // 2 * 2, height // 2 * 2)
        self.container = av.open(str(path), "w", format="mp4")
        self.base = Fraction(1, 90_000)
        self.stream = self.container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        self.stream.width, self.stream.height = self.size
        self.stream.pix_fmt, self.stream.time_base = "yuv420p", self.base
        self.stream.codec_context.time_base = self.base
        self.av = av

    def write(self, picture: Picture, moment: float) -> None:
        width, height = self.size
        frame = self.av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:height, :width]), format="rgb24")
        frame.pts, frame.time_base = round(moment / self.base), self.base
        self.container.mux(self.stream.encode(frame))

    def __enter__(self) -> FilmWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.container.mux(self.stream.encode())
        self.container.close()
