"""A clip: one recorded sequence of joints with what is known about it. Readers make clips, stores keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from halp.errors import InputError

Frames = npt.NDArray[np.float32]
Value = int | float | str


@dataclass
class Clip:
    """Frames `(T, P, V, C)` in float32 (an absent person is all zeros) and labels; -1 stands for "not known".

    `extra` holds further values a data set has for its clips, such as `setup` or `repetition`; splits may use them.
    `repairs` says in words what a reader had to mend; the manifest of a store names them.
    `fps` are frames per second. A clip cut from a longer one names that `recording` and where it starts in it, in seconds
    (in frames where `fps` is not known). `source` is the file below the source folder, where a reader's item is a file.
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
                f"clip '{self.name}' has a coordinate that is not finite (frame {frame}, person {person}, joint {joint}); "
                "fill gaps before storing it"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.frames.shape


def present(frames: Frames) -> npt.NDArray[np.bool_]:
    """Which person is there in which frame: `(T, P, V, C)` → `(T, P)`. A person whose joints are all zero is absent."""
    return (frames != 0).reshape(*frames.shape[:2], -1).any(axis=2)


@dataclass(frozen=True)
class Dropped:
    """A clip that is left out, by its name and the reason. `expected`: published as unusable, so no error in strict mode."""

    name: str
    reason: str
    expected: bool = False
