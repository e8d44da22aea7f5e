"""Topologies: which joints a skeleton has, how they hang together, and how one layout maps onto another by joint name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from halp.errors import InputError, choose


@dataclass(frozen=True)
class Topology:
    """A named joint layout.

    `parents[v]` is the joint that bone v starts from; a root is its own parent (its bone is zero).
    `centre` is the joint that normalisation moves to the origin; `up` and `across` are the two joint pairs (from, to)
    that normalisation turns onto the z and the x axis. A layout without such joints leaves them empty.
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
            raise InputError(f"topology '{self.name}': {len(self.joints)} joints but {len(self.parents)} parents")
        if len(set(self.joints)) != len(self.joints):
            raise InputError(f"topology '{self.name}': a joint name occurs twice")
        for joint in range(len(self.joints)):
            seen = {joint}
            while self.parents[joint] != joint:
                joint = self.parents[joint]
                if joint in seen:
                    raise InputError(f"topology '{self.name}': the parents of '{self.joints[joint]}' form a loop")
                seen.add(joint)

    def __len__(self) -> int:
        return len(self.joints)

    def index(self, joint: str) -> int:
        """Position of a joint by name."""
        if joint not in self._positions:
            choose(f"joint of topology '{self.name}'", joint, self.joints)
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
        """For every joint the index of its left/right twin (itself for joints in the middle)."""
        twins = {"left": "right", "right": "left"}
        result = []
        for position, joint in enumerate(self.joints):
            stem, _, side = joint.rpartition("_")
            result.append(self._positions.get(f"{stem}_{twins[side]}", position) if side in twins else position)
        return result


def chain(joints: Sequence[str], bones: dict[str, str]) -> tuple[int, ...]:
    """Parents by index from a {child: parent} table of names; a joint that is not in the table is a root."""
    position = {joint: i for i, joint in enumerate(joints)}
    return tuple(position[bones.get(joint, joint)] for joint in joints)


_LIMBS = {
    "elbow_left": "shoulder_left",
    "wrist_left": "elbow_left",
    "hand_left": "wrist_left",
    "elbow_right": "shoulder_right",
    "wrist_right": "elbow_right",
    "hand_right": "wrist_right",
    "hip_left": "hip_center",
    "knee_left": "hip_left",
    "ankle_left": "knee_left",
    "foot_left": "ankle_left",
    "hip_right": "hip_center",
    "knee_right": "hip_right",
    "ankle_right": "knee_right",
    "foot_right": "ankle_right",
    "shoulder_left": "shoulder_center",
    "shoulder_right": "shoulder_center",
}

# The order of NTU RGB+D and PKU-MMD; joint 21 (here `shoulder_center`, index 20) is the root of the bones.
_KINECT_V2 = (
    "hip_center spine neck head "
    "shoulder_left elbow_left wrist_left hand_left shoulder_right elbow_right wrist_right hand_right "
    "hip_left knee_left ankle_left foot_left hip_right knee_right ankle_right foot_right "
    "shoulder_center hand_tip_left thumb_left hand_tip_right thumb_right"
).split()
_KINECT_V2_BONES = _LIMBS | {
    "hip_center": "spine",
    "spine": "shoulder_center",
    "neck": "shoulder_center",
    "head": "neck",
    "hand_tip_left": "thumb_left",
    "thumb_left": "hand_left",
    "hand_tip_right": "thumb_right",
    "thumb_right": "hand_right",
}
_KINECT_V1 = (
    "hip_center spine shoulder_center head "
    "shoulder_left elbow_left wrist_left hand_left shoulder_right elbow_right wrist_right hand_right "
    "hip_left knee_left ankle_left foot_left hip_right knee_right ankle_right foot_right"
).split()
_KINECT_V1_BONES = _LIMBS | {"spine": "hip_center", "shoulder_center": "spine", "head": "shoulder_center"}

_TOPOLOGIES: dict[str, Topology] = {}


def register_topology(topology: Topology) -> Topology:
    """Make a topology known by its name; a second one of the same name has to be equal."""
    if _TOPOLOGIES.setdefault(topology.name, topology) != topology:
        raise InputError(f"topology '{topology.name}' exists already with other joints; give yours another name")
    return topology


def get_topology(name: str) -> Topology:
    """The topology of that name.

    >>> len(get_topology("kinect-v2")), get_topology("kinect-v1").joints[3]
    (25, 'head')
    """
    return _TOPOLOGIES[choose("topology", name, _TOPOLOGIES)]


def list_topologies() -> list[str]:
    """Names of all known topologies."""
    return sorted(_TOPOLOGIES)


def joint_map(source: Topology, target: Topology) -> list[int]:
    """Indices that pick the joints of `target` out of `source`, by name.

    >>> joint_map(get_topology("kinect-v2"), get_topology("kinect-v1"))[:4]
    [0, 1, 20, 3]
    """
    missing = [joint for joint in target.joints if joint not in source.joints]
    if missing:
        raise InputError(
            f"topology '{source.name}' cannot be mapped onto '{target.name}': it has no {', '.join(missing)}; "
            f"map both onto a layout whose joints both have"
        )
    return [source.index(joint) for joint in target.joints]


KINECT_V2 = register_topology(
    Topology(
        "kinect-v2",
        tuple(_KINECT_V2),
        chain(_KINECT_V2, _KINECT_V2_BONES),
        centre="spine",
        up=("hip_center", "spine"),
        across=("shoulder_left", "shoulder_right"),
    )
)
KINECT_V1 = register_topology(
    Topology(
        "kinect-v1",
        tuple(_KINECT_V1),
        chain(_KINECT_V1, _KINECT_V1_BONES),
        centre="hip_center",
        up=("hip_center", "shoulder_center"),
        across=("shoulder_left", "shoulder_right"),
    )
)
