"""Joint layouts by name: joints, bones, left and right, mapping between layouts, and derived streams."""

from halp.skeleton.topology import (
    DERIVED,
    KINECT_V1,
    KINECT_V2,
    LIMBS,
    Topology,
    canonical_joints,
    chain,
    get_topology,
    joint_recipes,
    list_topologies,
    map_joints,
    parents_by_name,
    register_topology,
    topology_for,
)

__all__ = [
    "DERIVED",
    "KINECT_V1",
    "KINECT_V2",
    "LIMBS",
    "Topology",
    "canonical_joints",
    "chain",
    "get_topology",
    "joint_recipes",
    "list_topologies",
    "map_joints",
    "parents_by_name",
    "register_topology",
    "topology_for",
]
