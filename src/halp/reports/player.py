"""The skeleton player: clips side by side, a query and its nearest neighbours, as one HTML fragment that animates itself."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.clip import present
from halp.errors import InputError
from halp.reports.templating import render, trusted, trusted_asset
from halp.skeleton import Topology

_ABSENT = -32768
_LARGEST = 32767
# Up axis → the axis across, the one in depth, and the sign that keeps the hand of the coordinates: left stays left.
_LEVEL = {0: (1, 2, -1.0), 1: (0, 2, 1.0), 2: (0, 1, -1.0)}


@dataclass(frozen=True)
class PlayerClip:
    """Frames `(T, P, V, C)`, C 2 or 3, with a caption; `good` says whether a neighbour has the class of its query.

    A person whose joints are all zero in a frame, and a joint that is not finite, is not drawn. `role` stands above the
    caption in place of "query" or "neighbour".
    """

    frames: npt.NDArray[np.floating[Any]]
    title: str
    good: bool | None = None
    role: str | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.frames)
        if len(shape) != 4 or 0 in shape or shape[3] not in (2, 3):
            raise InputError(
                f"clip '{self.title}' has shape {shape}; the player takes (frames, persons, joints, 2 or 3 coordinates), "
                "none of them zero"
            )


def player(rows: Sequence[Sequence[PlayerClip]], topology: Topology, *, up_axis: int = 2, rate: float = 30.0) -> str:
    """The player for rows of clips, each row the query first and then its neighbours; a chooser steps through the rows.

    Clips with three coordinates have `up_axis` up and are seen from the front; clips with two have x across and y up.
    `rate` is how many frames are played per second.
    """
    for clip in (clip for row in rows for clip in row):
        if clip.frames.shape[2] != len(topology):
            raise InputError(
                f"clip '{clip.title}' has {clip.frames.shape[2]} joints, topology '{topology.name}' has {len(topology)}; "
                "give the topology the clip was recorded with"
            )
    if up_axis not in _LEVEL:
        raise InputError(f"up_axis is {up_axis!r}; it has to be 0, 1 or 2, the coordinate that points up")
    data = {
        "bones": topology.bones,
        "sides": [_side(joint) for joint in topology.joints],
        "head": next((v for v, joint in enumerate(topology.joints) if joint in ("head", "nose")), -1),
        "rate": rate,
        "rows": [[_packed(clip, up_axis) for clip in row] for row in rows if row],
    }
    # A script element ends at the first "</", wherever it stands, so no "<" may be left in the data.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    style, script = trusted_asset("player.css"), trusted_asset("player.js")
    return render("player.html", style=style, script=script, data=trusted(text)).rstrip("\n")


def _side(joint: str) -> str:
    """'l', 'r' or 'm' for a joint of the left, the right or the middle of the body."""
    words = joint.lower().split("_")
    return "l" if "left" in words else "r" if "right" in words else "m"


def _packed(clip: PlayerClip, up_axis: int) -> dict[str, Any]:
    """A clip for the script: joints as int16 `(T, P, V, 3)` in base64, axes in the order across, depth, up."""
    frames = np.asarray(clip.frames, dtype=np.float64)
    there = present(np.nan_to_num(frames).astype(np.float32))
    frames, there = frames[:, there.any(axis=0)], there[:, there.any(axis=0)]
    axes = _axes(frames, up_axis)
    known = np.isfinite(axes).all(axis=-1) & there[..., None]
    low, high = (axes[known].min(axis=0), axes[known].max(axis=0)) if known.any() else (np.zeros(3), np.ones(3))
    middle = (low + high) / 2
    extent = float((high - low).max()) / 2 or 1.0
    whole = np.round((np.where(known[..., None], axes, middle) - middle) / extent * _LARGEST)
    joints = np.where(known[..., None], whole, _ABSENT).astype("<i2")
    reach = np.where(known[..., None], axes - middle, 0.0) / extent
    return {
        "title": clip.title,
        "role": clip.role,
        "good": clip.good,
        "flat": clip.frames.shape[3] == 2,
        "shape": joints.shape[:3],
        "radius": round(float(np.hypot(reach[..., 0], reach[..., 1]).max(initial=0.0)), 4),
        "half": round(float(np.abs(reach[..., 2]).max(initial=0.0)), 4),
        "joints": base64.b64encode(joints.tobytes()).decode("ascii"),
    }


def _axes(frames: npt.NDArray[np.float64], up_axis: int) -> npt.NDArray[np.float64]:
    """Coordinates `(T, P, V, C)` → `(T, P, V, 3)` as (to the right of the screen, away from the viewer, up).

    A normalised person has the right shoulder on +x and so looks along +y; seen from the front its right is on our left.
    """
    if frames.shape[-1] == 2:
        return np.stack([frames[..., 0], np.zeros_like(frames[..., 0]), frames[..., 1]], axis=-1)
    across, depth, sign = _LEVEL[up_axis]
    return np.stack([-frames[..., across], sign * frames[..., depth], frames[..., up_axis]], axis=-1)
