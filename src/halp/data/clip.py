"""A clip: one recorded sequence of joints with its metadata. Readers make clips, stores keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError

Frames = npt.NDArray[np.float32]
Value = int | float | str
#: Runs (first frame, count), in order.
Runs = tuple[tuple[int, int], ...]


@dataclass
class Clip:
    """One recorded sequence of joints and its metadata; -1 means unknown.

    Parameters
    ----------
    frames : array (T, P, V, C)
        Coordinates, kept as float32; an absent person is all zeros.
    name : str
        Of the clip, unique in its store.
    label, subject, camera : int
        Numbers of class, person and camera.
    extra : mapping
        Further values of a data set, such as `setup` or `repetition`; splits may use them.
    repairs : tuple of str
        Repairs that a reader made, in words; the manifest of a store names them.
    fps : float
        Frames per second.
    recording, start : str, float
        The longer recording that this clip was cut from and where, in seconds (in frames where `fps` is not
        known).
    source : str
        The file below the source folder, where a reader's item is a file.
    absent : tuple of (first, count)
        Runs of frames without a person that `drop-empty` left out, numbered over the whole `span` of the
        clip; they keep their time, and `times` are those of the recording's own clock.

    Examples
    --------
    >>> clip = Clip(np.ones((4, 1, 25, 3)), "wave-1", label=0, fps=2.0)
    >>> clip.shape, clip.times.tolist()
    ((4, 1, 25, 3), [0.0, 0.5, 1.0, 1.5])
    """

    frames: Frames
    name: str
    label: int = -1
    subject: int = -1
    camera: int = -1
    extra: Mapping[str, Value] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()
    fps: float = -1.0
    recording: str = ""
    start: float = 0.0
    source: str = ""
    absent: Runs = ()

    def __post_init__(self) -> None:
        self.frames = np.ascontiguousarray(self.frames, dtype=np.float32)
        if self.frames.ndim != 4 or 0 in self.frames.shape:
            raise InputError(
                f"clip '{self.name}' has shape {self.frames.shape}; "
                "expected (frames, persons, joints, coordinates), none of them zero"
            )
        if not np.isfinite(self.frames).all():
            frame, person, joint, _ = np.argwhere(~np.isfinite(self.frames))[0]
            raise InputError(
                f"clip '{self.name}' has a coordinate that is not finite (frame {frame}, person {person},"
                f" joint {joint}); fill gaps before storing it"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.frames.shape

    @property
    def span(self) -> int:
        """Frames from the first to the last of the clip, including dropped ones."""
        return len(self.frames) + sum(count for _, count in self.absent)

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """Whether anybody is seen in a frame, `(T,)`."""
        return np.asarray(present(self.frames).any(axis=1))

    @property
    def times(self) -> npt.NDArray[np.float64]:
        """Time of each frame, `(T,)`, in seconds of the recording (in frames if `fps` is unknown)."""
        return self.start + frame_numbers(len(self.frames), self.absent) / (self.fps if self.fps > 0 else 1.0)

    def restored(self) -> Clip:
        """The clip with zeros for dropped frames, so that frames are evenly spaced."""
        if not self.absent:
            return self
        frames = np.zeros((self.span, *self.shape[1:]), dtype=np.float32)
        frames[frame_numbers(len(self.frames), self.absent)] = self.frames
        return replace(self, frames=frames, absent=())


def frame_numbers(length: int, absent: Runs) -> npt.NDArray[np.int64]:
    """Numbers `(T,)` of a clip's frames over its whole span.

    >>> frame_numbers(3, ((1, 4),)).tolist()
    [0, 5, 6]
    """
    there = np.ones(length + sum(count for _, count in absent), dtype=bool)
    for first, count in absent:
        there[first : first + count] = False
    return np.flatnonzero(there)


def runs(mask: npt.NDArray[np.bool_]) -> Runs:
    """Runs of True `(T,)` as (first, count).

    >>> runs(np.array([False, True, True, False, True]))
    ((1, 2), (4, 1))
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return tuple((int(first), int(last - first)) for first, last in zip(edges[::2], edges[1::2]))


def present(frames: Frames) -> npt.NDArray[np.bool_]:
    """Which persons are present in which frames: `(T, P, V, C)` → `(T, P)`. All joints zero means absent."""
    return (frames != 0).reshape(*frames.shape[:2], -1).any(axis=2)


def unknown(like: object) -> int | str:
    """The value for unknown entries of a column: an empty string for text, -1 for numbers."""
    return "" if isinstance(like, str) else -1


#: The reason why a window is left out in which nobody is seen.
NOBODY = "nobody is seen in any frame of this window"


@dataclass(frozen=True)
class Dropped:
    """A clip that is left out, with the reason. `expected`: published as unusable, so no error in strict
    mode.
    """

    name: str
    reason: str
    expected: bool = False
