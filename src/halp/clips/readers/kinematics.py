"""Forward kinematics of a motion-capture hierarchy: channel values to joint positions, for all frames of a block at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass
class Bone:
    """A joint or an end site of the hierarchy; `channels` are indices into (x, y, z position, x, y, z rotation)."""

    name: str
    parent: int
    offset: tuple[float, ...] = ()
    channels: tuple[int, ...] | None = None


def positions(bones: Sequence[Bone], motion: Floats, wanted: Sequence[int] | None = None) -> Floats:
    """Positions `(T, V, 3)` of the wanted bones (all unless given) from channel values `(T, channels)`.

    Rotations apply in the order of the channels. Position channels take the place of the offset, as the root has them and
    as some programs write them for every joint. Bones that no wanted bone hangs on are not evaluated.
    """
    wanted = range(len(bones)) if wanted is None else wanted
    needed, turning = _needed(bones, wanted)
    values = np.ascontiguousarray(motion.T)
    places: dict[int, Floats] = {}
    rotations: dict[int, Floats] = {}
    column = 0
    for index, bone in enumerate(bones):
        channels = [(channel, values[column + place]) for place, channel in enumerate(bone.channels or ())]
        column += len(channels)
        if index not in needed:
            continue
        local: list[float | Floats] = list(bone.offset)
        for channel, numbers in channels:
            if channel < 3:
                local[channel] = numbers
        if bone.parent == index:
            turn = np.zeros((3, 3, len(motion)))
            turn[0, 0] = turn[1, 1] = turn[2, 2] = 1
            places[index] = np.stack([np.broadcast_to(value, len(motion)) for value in local])
        else:
            above = rotations[bone.parent]
            places[index] = places[bone.parent] + sum(above[:, axis] * local[axis] for axis in range(3))
            turn = above
        if index in turning:
            turn = turn.copy()
            for channel, numbers in channels:
                if channel >= 3:
                    _turn(turn, np.deg2rad(numbers), channel - 3)
            rotations[index] = turn
    return np.stack([places[index].T for index in wanted], axis=1)


def _turn(rotation: Floats, angle: Floats, axis: int) -> None:
    """Multiply rotations `(3, 3, T)` from the right by a rotation about one axis, in place: only two columns change."""
    after, last = (axis + 1) % 3, (axis + 2) % 3
    sine, cosine = np.sin(angle), np.cos(angle)
    first, second = rotation[:, after], rotation[:, last]
    turned = first * cosine + second * sine
    rotation[:, last] = second * cosine - first * sine
    rotation[:, after] = turned


def used_channels(bones: Sequence[Bone], wanted: Sequence[int]) -> npt.NDArray[np.int64]:
    """Columns of the motion that the positions of the wanted bones depend on."""
    needed, turning = _needed(bones, wanted)
    used = [
        index in (needed if channel < 3 else turning)
        for index, bone in enumerate(bones)
        for channel in bone.channels or ()
    ]
    return np.flatnonzero(used)


def _needed(bones: Sequence[Bone], wanted: Sequence[int]) -> tuple[set[int], set[int]]:
    """The bones that the wanted ones hang on, themselves included, and those of them whose rotation moves a needed bone."""
    needed: set[int] = set()
    for index in wanted:
        while index not in needed:
            needed.add(index)
            index = bones[index].parent
    return needed, {bones[index].parent for index in needed if bones[index].parent != index}


@dataclass(frozen=True)
class Sampling:
    """Which recorded frames are needed for a frame rate: output k lies between frames `below[k]` and `below[k] + 1`."""

    below: npt.NDArray[np.int64]
    weight: Floats

    @classmethod
    def at(cls, frames: int, recorded: float, wanted: float) -> Sampling:
        """Sampling of a recording of `frames` frames at `recorded` frames per second to `wanted`; 0 keeps every frame.

        >>> Sampling.at(9, 120.0, 30.0).below.tolist(), Sampling.at(3, 20.0, 30.0).weight.round(2).tolist()
        ([0, 4, 8], [0.0, 0.67, 0.33, 0.0])
        """
        if not wanted:
            return cls(np.arange(frames), np.zeros(frames))
        count = int((frames - 1) * wanted / recorded * (1 + 1e-3) + 1e-9) + 1
        places = np.minimum(np.arange(count) * (recorded / wanted), frames - 1)
        # frame times are written with few digits: what is nearly a recorded frame is that frame
        near = np.abs(places - np.rint(places)) < 0.05
        places = np.where(near, np.rint(places), places)
        below = places.astype(np.int64)
        return cls(below, places - below)

    @property
    def needed(self) -> npt.NDArray[np.int64]:
        """Recorded frames that take part, ascending."""
        return np.unique(np.concatenate([self.below, self.below[self.weight > 0] + 1]))

    def mix(self, frames: Floats) -> Floats:
        """Output frames from the needed recorded ones, by linear interpolation."""
        needed = self.needed
        low = frames[np.searchsorted(needed, self.below)]
        between = self.weight > 0
        high = frames[np.searchsorted(needed, self.below[between] + 1)]
        share = self.weight[between].reshape(-1, *[1] * (frames.ndim - 1))
        low[between] = (1 - share) * low[between] + share * high
        return low
