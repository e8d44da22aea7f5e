"""Animated figures built from the explorer's parts: clips, the timeline of a recording, a map of clips."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.cleaning import trunk
from halp.data.cleaning import up_axis as standing_axis
from halp.data.clip import present
from halp.data.spans import Event
from halp.skeleton import Topology

_ABSENT = -32768
_FULL_SCALE = 32767
# Up axis → the axis across, the one in depth, and the sign that keeps the hand of the coordinates: left stays
# left.
_LEVEL = {0: (1, 2, -1.0), 1: (0, 2, 1.0), 2: (0, 1, -1.0)}


@dataclass(frozen=True)
class PlayerClip:
    """Frames `(T, P, V, C)`, C 2 or 3, with a caption; `good`: the neighbour has the query's class.

    A person whose joints are all zero in a frame, and a joint that is not finite, is not drawn. `role` stands
    above the caption instead of "query" or "neighbour"; `film` is the address of the film that the frames
    come from, shown beside them.
    """

    frames: npt.NDArray[np.floating[Any]]
    title: str
    good: bool | None = None
    role: str | None = None
    film: str | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.frames)
        if len(shape) != 4 or 0 in shape or shape[3] not in (2, 3):
            raise InputError(
                f"clip '{self.title}' has shape {shape}; the player takes (frames, persons, joints, 2 or 3"
                " coordinates), none of them zero"
            )


def player(
    rows: Sequence[Sequence[PlayerClip]],
    topology: Topology,
    *,
    up_axis: int | None = None,
    rate: float = 30.0,
    same_zoom: bool = False,
) -> str:
    """The player for rows of clips, the query first, then its neighbours; a chooser steps through rows.

    Clips with three coordinates are seen from the front with `up_axis` up, or the axis that most of the
    bodies stand along; clips with two have x across and stand as most of their bodies do, or with y down as
    in a picture. `rate` is how many frames are played per second; with `same_zoom` all clips are drawn at one
    scale.
    """
    for clip in (clip for row in rows for clip in row):
        if clip.frames.shape[2] != len(topology):
            raise InputError(
                f"clip '{clip.title}' has {clip.frames.shape[2]} joints, topology '{topology.name}' has"
                f" {len(topology)}; give the topology the clip was recorded with"
            )
    if up_axis not in (None, *_LEVEL):
        raise InputError(f"up_axis is {up_axis!r}; it must be 0, 1 or 2, the coordinate that points up")
    up = (
        upward([clip.frames for row in rows for clip in row], topology) if up_axis is None else (up_axis, 1.0)
    )
    packed = [[_packed(clip, up) for clip in row] for row in rows if row]
    if same_zoom:
        for name in ("radius", "half"):
            most = max((clip[name] * clip["extent"] for row in packed for clip in row), default=1.0)
            for drawn in (drawn for row in packed for drawn in row):
                drawn[name] = round(most / drawn["extent"], 4)
    data = {**describe_body(topology), "rate": rate, "rows": packed}
    return _moving_figure("player", data)


def describe_body(topology: Topology) -> dict[str, Any]:
    """What a player needs of a topology: bones, the side of each joint, and the head."""
    return {
        "bones": [*topology.bones, *_trunk_lines(topology)],
        "sides": [_side(joint) for joint in topology.joints],
        "head": next((v for v, joint in enumerate(topology.joints) if joint in ("head", "nose")), -1),
    }


def _trunk_lines(topology: Topology) -> list[tuple[int, int]]:
    """Lines that close the trunk of a body whose bones are a tree: shoulders, hips and missing sides."""
    corners = [f"{part}_{side}" for part in ("shoulder", "hip") for side in ("left", "right")]
    if not all(joint in topology.joints for joint in corners):
        return []
    left_shoulder, right_shoulder, left_hip, right_hip = (topology.joints.index(joint) for joint in corners)
    sides = [(left_shoulder, left_hip), (right_shoulder, right_hip)]
    known = {frozenset(bone) for bone in topology.bones}
    if not any(frozenset(side) in known for side in sides):
        return []  # a spine joins them
    lines = [*sides, (left_shoulder, right_shoulder), (left_hip, right_hip)]
    lines += [
        (joint, right_shoulder)
        for bone in known
        if left_shoulder in bone
        for joint in bone
        if topology.joints[joint] == "nose"
    ]
    return [line for line in lines if frozenset(line) not in known]


def _side(joint: str) -> str:
    """'l', 'r' or 'm' for a joint of the left, the right or the middle of the body."""
    words = joint.lower().split("_")
    return "l" if "left" in words else "r" if "right" in words else "m"


Up = tuple[int, float]  # the axis that points up, and its sign


def upward(clips: Sequence[npt.NDArray[Any]], topology: Topology) -> Up:
    """The axis that points up in most clips `(T, P, V, C)`; if undecided, y down in 2D, z up in 3D."""
    clips = [np.nan_to_num(frames) for frames in clips[:50]]
    if clips and clips[0].shape[3] == 2:
        lines = [line for frames in clips if (line := trunk(frames, topology)) is not None]
        return 1, 1.0 if sum(np.sign(line[1]) for line in lines) > 0 else -1.0
    ways = Counter(way for frames in clips if (way := standing_axis(frames, topology)) is not None)
    return ways.most_common(1)[0][0] if ways else (2, 1.0)


def _packed(clip: PlayerClip, up: Up) -> dict[str, Any]:
    """A clip for the script: its joints in base64, with metadata."""
    joints, facts = pack_joints(clip.frames, up)
    text = base64.b64encode(joints.tobytes()).decode("ascii")
    film = {} if clip.film is None else {"film": clip.film}
    return {"title": clip.title, "role": clip.role, "good": clip.good, **film, **facts, "joints": text}


Box = tuple[npt.NDArray[np.float64], float]


def pack_joints(
    frames: npt.NDArray[Any], up: Up, box: Box | None = None
) -> tuple[npt.NDArray[np.int16], dict[str, Any]]:
    """Frames as int16 `(T, P, V, 3)`, axes across, depth, up, and the facts that a player needs.

    Persons who are never there are left out. `box` (see `bounding_box`) keeps the scale of parts of one
    recording, and all of its persons.
    """
    flat = frames.shape[3] == 2
    frames = np.asarray(frames, dtype=np.float64)
    there = present(np.nan_to_num(frames).astype(np.float32))
    if box is None:
        frames, there = frames[:, there.any(axis=0)], there[:, there.any(axis=0)]
    axes = _axes(frames, *up)
    known = np.isfinite(axes).all(axis=-1) & there[..., None]
    middle, extent = _box(axes[known]) if box is None else box
    reach = np.where(known[..., None], axes - middle, 0.0) / extent
    whole = np.clip(np.round(reach * _FULL_SCALE), -_FULL_SCALE, _FULL_SCALE)
    joints = np.where(known[..., None], whole, _ABSENT).astype("<i2")
    radius = float(np.hypot(reach[..., 0], reach[..., 1]).max(initial=0.0))
    half = float(np.abs(reach[..., 2]).max(initial=0.0))
    facts = {
        "flat": flat,
        "shape": joints.shape[:3],
        "radius": round(radius, 4),
        "half": round(half, 4),
        "extent": extent,
    }
    return joints, facts


def bounding_box(frames: npt.NDArray[Any], up: Up) -> Box:
    """Centre and half extent of all persons in frames `(T, P, V, C)`, as laid out by a player."""
    there = present(np.nan_to_num(frames).astype(np.float32))
    axes = _axes(np.asarray(frames, dtype=np.float64), *up)
    return _box(axes[np.isfinite(axes).all(axis=-1) & there[..., None]])


def _box(places: npt.NDArray[np.float64]) -> Box:
    low, high = (places.min(axis=0), places.max(axis=0)) if len(places) else (np.zeros(3), np.ones(3))
    return (low + high) / 2, float((high - low).max()) / 2 or 1.0


def _axes(frames: npt.NDArray[np.float64], axis: int, sign: float) -> npt.NDArray[np.float64]:
    """Coordinates `(T, P, V, C)` → `(T, P, V, 3)` as (to the right of the screen, away from the viewer, up).

    A normalised person has the right shoulder on +x and so looks along +y; seen from the front its right is
    on our left.
    """
    if frames.shape[-1] == 2:
        return np.stack([frames[..., 0], np.zeros_like(frames[..., 0]), sign * frames[..., 1]], axis=-1)
    across, depth, hand = _LEVEL[axis]
    return np.stack(
        [-frames[..., across], sign * hand * frames[..., depth], sign * frames[..., axis]], axis=-1
    )


def timeline(
    parts: Sequence[Event], *, end: float, start: float = 0.0, faint: Sequence[str] = (), unit: str = "s"
) -> str:
    """The bar of one recording from `start` to `end`; labels in `faint` are drawn without a colour.

    Parts of one label have one colour; the column `note` of a part is shown under the pointer.
    """
    labels = list(dict.fromkeys(part.label for part in parts))
    data = {
        "start": start,
        "stop": end,
        "unit": unit,
        "labels": [label for label in labels if label not in faint],
        "faint": [label for label in labels if label in faint],
        "tiers": {
            "": [
                {"start": e.start, "stop": e.stop, "label": e.label, "note": e.more.get("note", "")}
                for e in parts
            ]
        },
    }
    return _moving_figure("timeline", data)


def clip_map(places: npt.ArrayLike, groups: Sequence[str], *, names: Sequence[str] | None = None) -> str:
    """A map of clips at positions `(N, 2)`, coloured by group, with names on hover.

    What has no finite place is left out.
    """
    where = np.asarray(places, dtype=np.float64).reshape(-1, 2)
    if len(groups) != len(where) or (names is not None and len(names) != len(where)):
        raise InputError(f"a map of {len(where)} points needs a group and a name for each of them")
    shown = np.flatnonzero(np.isfinite(where).all(axis=1)).tolist()
    known, places_of = np.unique(
        np.array([str(groups[row]) for row in shown], dtype=np.str_), return_inverse=True
    )
    categories, values = order_by_frequency(known.tolist(), places_of)
    data = {
        "places": [round(value, 4) for value in scale_to_unit_box(where[shown]).ravel().tolist()],
        "categories": categories,
        "values": values.tolist(),
        "names": None if names is None else [str(names[row]) for row in shown],
    }
    return _moving_figure("map", data)


MARKS = 63  # categories for which page/src/colours.js has a mark: seven colours in nine shapes


def order_by_frequency(categories: list[str], values: npt.NDArray[Any]) -> tuple[list[str], npt.NDArray[Any]]:
    """Categories and each row's index among them (−1: none), most frequent first.

    >>> order_by_frequency(["a", "b"], np.array([1, 0, 1]))
    (['a', 'b'], array([1, 0, 1]))
    """
    if len(categories) <= MARKS:
        return categories, values
    order = np.argsort(-np.bincount(values[values >= 0], minlength=len(categories)), kind="stable")
    places = np.append(np.argsort(order), -1).astype(values.dtype)  # the last one is that of −1
    return [categories[place] for place in order], places[values]


def scale_to_unit_box(places: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Places `(N, 2)` within −1 … 1, both axes in the same scale."""
    if not len(places):
        return np.zeros((0, 2), np.float32)
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    return ((places - middle) / (np.abs(places - middle).max() or 1.0)).astype(np.float32)


def _moving_figure(kind: str, data: Any) -> str:
    """A figure drawn by the script of `page/src/figures.jsx`, which each report contains once."""
    # A script element ends at the first "</", wherever it stands, so no "<" may be left in the data.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<div class="halp-{kind}"><script type="application/json">{text}</script></div>'
