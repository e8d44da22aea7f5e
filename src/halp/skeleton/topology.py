"""Topologies: the joints of a skeleton, their bones, and mapping between layouts by joint name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice
from halp.core.files import read_toml

# the layouts that halp knows, how missing joints derive, and other words for joints
_KNOWN = read_toml(Path(__file__).with_name("topologies.toml"))
DERIVED = {joint: tuple(tuple(way.split()) for way in ways) for joint, ways in _KNOWN["derived"].items()}

# joints of which there are a left and a right one, by the limb they belong to
LIMBS = {
    "arm": ("clavicle", "shoulder", "elbow", "wrist", "hand", "hand_tip", "thumb", "pinky", "index"),
    "leg": ("hip", "knee", "ankle", "foot", "heel", "toe_big", "toe_small", "foot_index"),
}


@dataclass(frozen=True)
class Topology:
    """A named joint layout.

    `parents[v]` is the joint that bone v starts from; a root is its own parent (its bone is zero).
    `centre` is the joint that normalisation moves to the origin; `up` and `across` are the two joint pairs
    (from, to) that normalisation turns onto the z and the x axis. A layout without such joints leaves them
    empty.
    """

    name: str
    joints: tuple[str, ...]
    parents: tuple[int, ...]
    centre: str = ""
    up: tuple[str, str] | None = None
    across: tuple[str, str] | None = None
    dimensions: int = 3

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.joints):
            raise InputError(
                f"topology '{self.name}': {len(self.joints)} joints but {len(self.parents)} parents"
            )
        if len(set(self.joints)) != len(self.joints):
            raise InputError(f"topology '{self.name}': a joint name occurs twice")
        for joint in range(len(self.joints)):
            seen = {joint}
            while self.parents[joint] != joint:
                joint = self.parents[joint]
                if joint in seen:
                    raise InputError(f"topology '{self.name}': parents of '{self.joints[joint]}' form a loop")
                seen.add(joint)

    def __len__(self) -> int:
        return len(self.joints)

    def index(self, joint: str) -> int:
        """Position of a joint by name."""
        if joint not in self._positions:
            check_choice(f"joint of topology '{self.name}'", joint, self.joints)
        return self._positions[joint]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {joint: position for position, joint in enumerate(self.joints)}

    @property
    def bones(self) -> list[tuple[int, int]]:
        """(child, parent) pairs, roots left out."""
        return [(child, parent) for child, parent in enumerate(self.parents) if child != parent]

    @property
    def mirror(self) -> list[int]:
        """For every joint the index of its left/right counterpart (itself for joints in the middle)."""
        others = {"left": "right", "right": "left"}
        result = []
        for position, joint in enumerate(self.joints):
            stem, _, side = joint.rpartition("_")
            result.append(
                self._positions.get(f"{stem}_{others[side]}", position) if side in others else position
            )
        return result

    @property
    def body_parts(self) -> dict[str, list[int]]:
        """Joints of the trunk (with the head), the arms and the legs, by their names; a part may have none.

        >>> {part: len(joints) for part, joints in get_topology("kinect-v2").body_parts.items()}
        {'trunk': 5, 'arm_right': 6, 'leg_right': 4, 'leg_left': 4, 'arm_left': 6}
        """
        parts: dict[str, list[int]] = {
            name: [] for name in ("trunk", "arm_right", "leg_right", "leg_left", "arm_left")
        }
        for position, joint in enumerate(self.joints):
            stem, _, side = joint.rpartition("_")
            limb = next((limb for limb, stems in LIMBS.items() if stem in stems), None)
            parts[f"{limb}_{side}" if limb and side in ("left", "right") else "trunk"].append(position)
        return parts


def chain(joints: Sequence[str], bones: dict[str, str]) -> tuple[int, ...]:
    """Parents by index from a {child: parent} table of names; a joint that is not in the table is a root."""
    position = {joint: i for i, joint in enumerate(joints)}
    return tuple(position[bones.get(joint, joint)] for joint in joints)


def parents_by_name(joints: Sequence[str]) -> tuple[int, ...]:
    """Parents by index in the vocabulary's tree: the nearest ancestor in this layout, else a root.

    >>> parents_by_name(["wrist_left", "hip_center", "shoulder_left", "tail"])
    (2, 1, 1, 3)
    """

    def ancestor(joint: str) -> str:
        seen = {joint}
        parent = _VOCABULARY.get(joint, joint)
        while parent not in joints and parent in _VOCABULARY and parent not in seen:
            seen.add(parent)
            parent = _VOCABULARY[parent]
        return parent if parent in joints else joint

    return chain(joints, {joint: ancestor(joint) for joint in joints})


_TOPOLOGIES: dict[str, Topology] = {}


def register_topology(topology: Topology) -> Topology:
    """Register a topology under its name; a second one of the same name must be equal."""
    if _TOPOLOGIES.setdefault(topology.name, topology) != topology:
        raise InputError(f"topology '{topology.name}' exists already with other joints; rename yours")
    return topology


def get_topology(name: str) -> Topology:
    """The topology of that name.

    Parameters
    ----------
    name : str
        One of `list_topologies`.

    Returns
    -------
    Topology
        Joints, parents, centre and axes.

    Examples
    --------
    >>> len(get_topology("kinect-v2")), get_topology("kinect-v1").joints[3]
    (25, 'head')
    """
    return _TOPOLOGIES[check_choice("topology", name, _TOPOLOGIES)]


def list_topologies() -> list[str]:
    """Names of all known topologies."""
    return sorted(_TOPOLOGIES)


def joint_recipes(source: Topology, target: Topology) -> dict[str, dict[str, float]]:
    """For every joint of `target`, the joints of `source` that form it, with weights.

    >>> joint_recipes(get_topology("openpose-25"), get_topology("kinect-v1-2d"))["foot_left"]
    {'toe_big_left': 0.5, 'toe_small_left': 0.5}
    """
    rows = zip(target.joints, _weights(source, target))
    return {joint: {source.joints[i]: float(row[i]) for i in np.flatnonzero(row)} for joint, row in rows}


def map_joints(
    frames: npt.NDArray[np.float32], source: Topology, target: Topology, *, origin: str = ""
) -> npt.NDArray[np.float32]:
    """Frames `(…, V, C)` of `source` as frames `(…, W, C)` of `target`, by joint name.

    A joint that `source` lacks is the mean of others where `topologies.toml` knows how (the centre of the
    hips, of the shoulders, the spine, …); it is missing (zero) wherever one of those is. `origin` is the
    joint that the frames were centred on, which lies at zero and is there all the same.

    >>> frames = np.ones((1, 1, 17, 2), dtype=np.float32)
    >>> map_joints(frames, get_topology("coco-17"), get_topology("kinect-v1-2d")).shape
    (1, 1, 20, 2)
    """
    if frames.shape[-2:] != (len(source), source.dimensions):
        raise InputError(
            f"frames of shape {frames.shape} do not fit topology '{source.name}', "
            f"which has {len(source)} joints with {source.dimensions} coordinates"
        )
    weights = _weights(source, target)
    mapped = frames[..., weights.argmax(axis=1), :].astype(np.float32)
    for joint, row in enumerate(weights):
        parts = np.flatnonzero(row)
        if len(parts) > 1:
            seen = (frames[..., parts, :] != 0).any(axis=-1)
            if origin in source.joints and source.index(origin) in parts:
                seen[..., parts.tolist().index(source.index(origin))] |= (frames != 0).any(axis=(-2, -1))
            there = seen.all(axis=-1)[..., None]
            mapped[..., joint, :] = np.where(
                there, np.einsum("...vc,v->...c", frames[..., parts, :], row[parts]), 0
            )
    return mapped


@lru_cache(maxsize=64)
def _weights(source: Topology, target: Topology) -> npt.NDArray[np.float32]:
    """Weights `(W, V)`: how much every source joint counts in every target joint; rows sum to 1."""
    if source.dimensions != target.dimensions:
        raise InputError(
            f"topology '{source.name}' has {source.dimensions} coordinates a joint and '{target.name}' has "
            f"{target.dimensions}; choose a target with {source.dimensions}: "
            + ", ".join(
                name for name, known in sorted(_TOPOLOGIES.items()) if known.dimensions == source.dimensions
            )
        )
    rows = {joint: _weights_of(joint, source) for joint in target.joints}
    _refuse_missing(source, target, [joint for joint, row in rows.items() if row is None])
    weights = np.stack([row for row in rows.values() if row is not None])
    weights.flags.writeable = False
    return weights


def _weights_of(
    joint: str, source: Topology, asked: frozenset[str] = frozenset()
) -> npt.NDArray[np.float32] | None:
    if joint in source.joints:
        return np.eye(len(source), dtype=np.float32)[source.index(joint)]
    asked |= {joint}
    for parts in DERIVED.get(joint, ()):
        # a wrist may stand for a hand and a hand for a wrist: what is being derived cannot help to derive
        # itself
        rows = [
            row
            for part in parts
            if part not in asked and (row := _weights_of(part, source, asked)) is not None
        ]
        if len(rows) == len(parts):
            return np.mean(rows, axis=0, dtype=np.float32)
    return None


def _refuse_missing(source: Topology, target: Topology, missing: Sequence[str]) -> None:
    if missing:
        raise InputError(
            f"topology '{source.name}' cannot be mapped onto '{target.name}': it has no {', '.join(missing)};"
            " map both onto a layout whose joints both have"
        )


def _pairs(words: str) -> dict[str, str]:
    """A table from pairs `one:other` of words."""
    return dict(pair.split(":") for pair in words.split())


_SYNONYMS, _BONE_NAMES = _pairs(_KNOWN["words"]["synonyms"]), _pairs(_KNOWN["words"]["bones"])
_SMPL_NAMES = _pairs(_KNOWN["words"]["smpl"])


def canonical_joints(names: Sequence[str]) -> list[str]:
    """Joint names in the vocabulary of the topologies, from any spelling; unknown words are only normalised.

    >>> canonical_joints(["LEFT_SHOULDER", "MidHip", "RBigToe", "mixamorig:Tail"])
    ['shoulder_left', 'hip_center', 'toe_big_right', 'tail']
    >>> canonical_joints(["Hips", "LeftShoulder", "LeftArm", "LeftForeArm"])
    ['hip_center', 'clavicle_left', 'shoulder_left', 'elbow_left']
    """
    sides = {"left": "left", "l": "left", "right": "right", "r": "right"}
    result = []
    for name in names:
        split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.rpartition(":")[2])
        words = [word for word in re.split(r"[\W_]+", split.lower()) if word]
        side = [sides[word] for word in words if word in sides]
        form = "_".join([word for word in words if word not in sides] + side[:1])
        result.append(_SYNONYMS.get(form, form) or name)
    if {"spine3", "collar_left"} <= set(result):
        result = [_SMPL_NAMES.get(form, form) for form in result]
    if any(_BONE_NAMES.get(form, "").startswith(("shoulder_", "hip_")) for form in result):
        result = [_BONE_NAMES.get(form, form) for form in result]
    # Two spellings that fall together would be one joint; then the file's own names are safer.
    return result if len(set(result)) == len(set(names)) else list(names)


def topology_for(joints: Sequence[str], dimensions: int, *, name: str = "custom") -> Topology:
    """The known topology with exactly these joints, or an ad-hoc one with bones from the vocabulary.

    An ad-hoc topology hangs every joint on the nearest ancestor that it has itself; it is not registered.

    >>> topology_for(get_topology("coco-17").joints, 2).name
    'coco-17'
    >>> topology_for(["hip_center", "head", "tail"], 3).parents
    (0, 0, 2)
    """
    names = tuple(joints)
    for known in _TOPOLOGIES.values():
        if known.joints == names and known.dimensions == dimensions:
            return known
    if not names or len(set(names)) != len(names):
        raise InputError(
            f"topology '{name}' needs joints with different names, not: {', '.join(names) or 'none'}"
        )

    def first(*pairs: tuple[str, str]) -> tuple[str, str] | None:
        return next((pair for pair in pairs if set(pair) <= set(names)), None)

    return Topology(
        name,
        names,
        parents_by_name(names),
        centre=next(
            (joint for joint in ("hip_center", "spine", "shoulder_center", "hip_left") if joint in names),
            names[0],
        ),
        up=first(("hip_center", "shoulder_center"), ("hip_center", "neck"), ("hip_left", "shoulder_left")),
        across=first(("shoulder_left", "shoulder_right"), ("hip_left", "hip_right")),
        dimensions=dimensions,
    )


def _describe(name: str, layout: Mapping[str, Any]) -> dict[str, str]:
    """Register a layout of `topologies.toml`; returns its bones, {child: parent}."""
    layout = {**_KNOWN["layouts"].get(layout.get("like"), {}), **layout}
    joints, bones, up = tuple(layout["joints"].split()), _pairs(layout["bones"]), layout.get("up", "").split()
    axes = {"up": (up[0], up[1]) if up else None, "across": ("shoulder_left", "shoulder_right")}
    dimensions = layout.get("dimensions", 3)
    register_topology(
        Topology(name, joints, chain(joints, bones), centre=layout["centre"], dimensions=dimensions, **axes)
    )
    return bones


_BONES = {name: _describe(name, layout) for name, layout in _KNOWN["layouts"].items()}
KINECT_V2 = get_topology("kinect-v2")
KINECT_V1 = get_topology("kinect-v1")
# Bones of the vocabulary for layouts nobody has described; the Kinect tree wins because its root is the hips.
_VOCABULARY: dict[str, str] = {}
for _name in sorted(_BONES, key=lambda name: name != "kinect-v1"):
    for _child, _parent in _BONES[_name].items():
        if _child != "hip_center":
            _VOCABULARY.setdefault(_child, _parent)
