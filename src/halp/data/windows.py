"""Windows of long recordings: where they start and end, and which span of a recording each clip is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.store import Store

WINDOW, STRIDE = 2.0, 0.5  # seconds, where neither the user nor a model says
# A recording of more than so many times the frames that an encoder reads is squeezed beyond what it knows.
_FRAMES_READ = 20


def cut_windows(
    length_frames: int, fps: float, window_seconds: float, stride_seconds: float | None = None
) -> list[tuple[int, int]]:
    """Start and end (exclusive), in frames, of windows over a recording.

    Windows start at multiples of the stride (the window itself unless said otherwise) and all have the same
    length. Where the last frames would be left over, one more window ends with the recording. A shorter
    recording is one window.

    >>> cut_windows(100, 10.0, 4.0, 2.0)
    [(0, 40), (20, 60), (40, 80), (60, 100)]
    >>> cut_windows(95, 10.0, 4.0)
    [(0, 40), (40, 80), (55, 95)]
    >>> cut_windows(7, 10.0, 4.0)
    [(0, 7)]
    """
    if length_frames < 1:
        return []
    stride_seconds = window_seconds if stride_seconds is None else stride_seconds
    for name, value in {"window": window_seconds, "stride": stride_seconds, "fps": fps}.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"a {name} of {value:g} is not possible; give a number above 0")
    width = max(1, round(window_seconds * fps))
    if width >= length_frames:
        return [(0, length_frames)]
    # Each start is rounded on its own, so that rounding does not add up over a long recording.
    count = int((length_frames - width) / (stride_seconds * fps) + 1e-9) + 1
    if count > length_frames:
        raise InputError(f"a stride of {stride_seconds:g} s is shorter than a frame at {fps:g} fps")
    starts = [round(number * stride_seconds * fps) for number in range(count)]
    starts = [start for start in starts if start + width <= length_frames]
    if starts[-1] + width < length_frames:
        starts.append(length_frames - width)
    return [(start, start + width) for start in starts]


@dataclass(frozen=True)
class WindowSettings(CheckedSettings):
    """How recordings are cut: seconds of a window and its stride, and fps if a file states none.

    `fps` replaces what a file says. Without `window` a recording stays whole.
    """

    window: float | None = limited(None, above=0, most=1_000_000)
    stride: float | None = limited(None, above=0, most=1_000_000)
    fps: float | None = limited(None, above=0, most=100_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride is not None and self.window is None:
            raise InputError("a stride needs a window; give --window SECONDS as well")

    def cut(self, clip: Clip) -> list[Clip]:
        """The windows of a clip, or the clip itself without a window length."""
        fps = self.fps or clip.fps
        clip = replace(clip, fps=fps)
        if self.window is None:
            return [clip]
        clip = clip.restored()
        if fps <= 0:
            raise InputError(
                f"recording '{clip.name}' does not state its frame rate, so a window in seconds cannot be"
                " cut; give it with --fps"
            )
        recording = clip.recording or clip.name
        return [
            replace(
                clip,
                frames=clip.frames[first:last],
                name=f"{clip.name}@{clip.start + first / fps:.2f}",
                recording=recording,
                start=clip.start + first / fps,
                extra=dict(clip.extra),
            )
            for first, last in cut_windows(len(clip.frames), fps, self.window, self.stride)
        ]


def span_columns(clip: Clip) -> dict[str, int | float | str]:
    """Store columns for a clip with a known frame rate or recording; none for others."""
    if clip.fps <= 0 and not clip.recording:
        return {}
    seconds = clip.span / clip.fps if clip.fps > 0 else float(clip.span)
    return {
        "recording": clip.recording or clip.name,
        "start": clip.start,
        "end": clip.start + seconds,
        "fps": float(clip.fps) if clip.fps > 0 else -1.0,
    }


@dataclass(frozen=True)
class Spans:
    """Recording, start and end in seconds, and fps of every clip (-1: unknown, times in frames)."""

    recording: npt.NDArray[np.str_]
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    fps: npt.NDArray[np.float64]


def spans(store: Store, fps: float | None = None, part: slice = slice(None)) -> Spans:
    """Time spans of a store's clips; a store that does not know them has whole recordings that start at 0.

    `fps` is used for clips whose frame rate the store does not know; `part` chooses some of the clips.
    """
    rates, starts, names = store.fps[part], store.starts[part], store.names[part]
    if fps is not None:
        rates = np.where(rates > 0, rates, fps)
    end = starts + store.spans[part] / np.where(rates > 0, rates, 1.0)
    if not store.timed:
        return Spans(names, starts, end, rates)
    recording, ends = store.columns["recording"][part], store.columns["end"][part].astype(np.float64)
    return Spans(np.where(recording == "", names, recording), starts, np.where(ends > 0, ends, end), rates)


def squeeze_warning(lengths: Sequence[int] | npt.NDArray[Any], frames: int) -> str | None:
    """A warning if recordings (lengths in frames) are much longer than the encoder's input, or None."""
    long = [int(length) for length in lengths if length > _FRAMES_READ * frames]
    if not long:
        return None
    return (
        f"{len(long)} of {len(lengths)} recordings are much longer than what the encoder was trained on (up"
        f" to {max(long)} frames; the encoder reads {frames}): each is squeezed into one vector; cut them"
        " with --window SECONDS --stride SECONDS"
    )
