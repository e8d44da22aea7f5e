"""Topologies hang together, and joints map by name, with derived ones and with errors that list what is
missing.
"""

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.skeleton import (
    KINECT_V1,
    Topology,
    canonical_joints,
    get_topology,
    joint_recipes,
    list_topologies,
    map_joints,
    register_topology,
    topology_for,
)


@pytest.mark.parametrize("name", list_topologies())
def test_every_topology_is_one_tree_with_twins_and_axes(name: str) -> None:
    topology = get_topology(name)
    assert len(topology.bones) == len(topology) - 1
    mirror = topology.mirror
    assert [mirror[mirror[joint]] for joint in range(len(topology))] == list(range(len(topology)))
    for joint, twin in zip(topology.joints, mirror, strict=True):
        assert (joint.endswith(("_left", "_right"))) == (topology.joints[twin] != joint)
    used = [topology.centre, *(topology.up or ()), *(topology.across or ())]
    assert set(used) <= set(topology.joints)


@pytest.mark.parametrize(
    ("name", "joints", "dimensions"),
    [("kinect-v1", 20, 3), ("kinect-v2", 25, 3), ("mediapipe-33", 33, 3), ("openpose-25", 25, 2), ("openpose-18", 18, 2),
     ("coco-17", 17, 2), ("halpe-26", 26, 2)],
)  # fmt: skip
def test_topologies_have_the_joints_and_coordinates_of_their_format(
    name: str, joints: int, dimensions: int
) -> None:
    topology = get_topology(name)
    assert (len(topology), topology.dimensions) == (joints, dimensions)


def test_published_orders_are_kept() -> None:
    # Positions from the formats' own documentation.
    assert [
        get_topology("coco-17").index(j) for j in ("nose", "shoulder_left", "hip_right", "ankle_right")
    ] == [0, 5, 12, 16]
    assert [get_topology("openpose-25").index(j) for j in ("hip_center", "ear_left", "toe_big_left", "heel_right")] == [
        8, 18, 19, 24,
    ]  # fmt: skip
    assert [get_topology("halpe-26").index(j) for j in ("head", "hip_center", "toe_big_right", "heel_left")] == [
        17, 19, 21, 24,
    ]  # fmt: skip
    assert [get_topology("openpose-18").index(j) for j in ("wrist_left", "hip_left", "ear_left")] == [
        7,
        11,
        17,
    ]
    assert [get_topology("mediapipe-33").index(j) for j in ("mouth_left", "wrist_right", "hip_left", "foot_index_right")] == [
        9, 16, 23, 32,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target"),
    [("mediapipe-33", "kinect-v1"), ("mediapipe-33", "kinect-v2"), ("kinect-v2", "kinect-v1"),
     ("openpose-25", "kinect-v1-2d"), ("openpose-18", "kinect-v1-2d"), ("coco-17", "kinect-v1-2d"),
     ("openpose-25", "coco-17"), ("halpe-26", "body-16-2d"), ("mediapipe-33-2d", "coco-17")],
)  # fmt: skip
def test_known_layouts_map_onto_each_other(source: str, target: str) -> None:
    left, right = get_topology(source), get_topology(target)
    frames = np.random.default_rng(0).normal(size=(3, 2, len(left), left.dimensions)).astype(np.float32)
    mapped = map_joints(frames, left, right)
    assert mapped.shape == (3, 2, len(right), right.dimensions)
    recipes = joint_recipes(left, right)
    assert list(recipes) == list(right.joints)
    for joint, parts in recipes.items():
        expected = sum(weight * frames[..., left.index(part), :] for part, weight in parts.items())
        if joint in left.joints:
            assert np.array_equal(mapped[..., right.index(joint), :], frames[..., left.index(joint), :])
        np.testing.assert_allclose(mapped[..., right.index(joint), :], expected, rtol=1e-5, atol=1e-6)


def test_the_spine_is_half_way_between_hips_and_shoulders() -> None:
    coco, target = get_topology("coco-17"), get_topology("kinect-v1-2d")
    frames = np.ones((1, 1, 17, 2), dtype=np.float32)
    for joint, place in {
        "hip_left": (0, 4),
        "hip_right": (2, 4),
        "shoulder_left": (0, 8),
        "shoulder_right": (2, 8),
    }.items():
        frames[0, 0, coco.index(joint)] = place
    mapped = map_joints(frames, coco, target)[0, 0]
    assert mapped[target.index("hip_center")].tolist() == [1, 4]
    assert mapped[target.index("spine")].tolist() == [1, 6]


def test_a_joint_derived_from_a_missing_one_is_missing() -> None:
    coco, target = get_topology("coco-17"), get_topology("kinect-v1-2d")
    frames = np.ones((1, 1, 17, 2), dtype=np.float32)
    frames[0, 0, coco.index("hip_left")] = 0
    mapped = map_joints(frames, coco, target)[0, 0]
    assert not mapped[target.index("hip_center")].any()
    assert not mapped[target.index("spine")].any()
    assert mapped[target.index("hip_right")].all()


def test_an_error_lists_the_joints_that_are_missing() -> None:
    with pytest.raises(InputError, match="it has no hand_tip_left, thumb_left, hand_tip_right, thumb_right"):
        map_joints(np.zeros((1, 1, 20, 3), np.float32), KINECT_V1, get_topology("kinect-v2"))


def test_two_and_three_dimensions_do_not_mix() -> None:
    with pytest.raises(
        InputError,
        match="has 2 coordinates a joint and 'kinect-v1' has 3; choose a target with 2: body-16-2d, coco-17",
    ):
        map_joints(np.zeros((1, 1, 17, 2), np.float32), get_topology("coco-17"), KINECT_V1)
    with pytest.raises(InputError, match="frames of shape"):
        map_joints(np.zeros((1, 1, 20, 2), np.float32), KINECT_V1, KINECT_V1)


def test_an_ad_hoc_topology_takes_its_bones_from_the_vocabulary() -> None:
    topology = topology_for(["hip_center", "head", "wrist_left", "shoulder_left"], 3)
    assert topology.parents == (0, 0, 3, 0)
    assert (topology.centre, topology.across) == ("hip_center", None)


@pytest.mark.parametrize("joints", [[], ["a", "a"]])
def test_an_ad_hoc_topology_needs_different_joints(joints: list[str]) -> None:
    with pytest.raises(InputError, match="needs joints with different names"):
        topology_for(joints, 3)


@pytest.mark.parametrize("parents", [(0,), (1, 0)])
def test_parents_that_are_no_tree_are_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        Topology("loop", ("a", "b"), parents)


def test_a_name_stands_for_one_topology() -> None:
    with pytest.raises(InputError, match="exists already with other joints"):
        register_topology(Topology("coco-17", ("a",), (0,)))


def test_names_that_would_fall_together_are_left_alone() -> None:
    assert canonical_joints(["LeftHip", "hip_left", "x"]) == ["LeftHip", "hip_left", "x"]


def test_every_layout_of_a_body_maps_onto_body_16() -> None:
    body = get_topology("body-16")
    arms_and_legs = ("shoulder", "elbow", "hip", "knee")
    fifteen = [
        "head",
        "neck",
        "torso",
        *(f"{s}_{j}" for s in ("left", "RIGHT") for j in (*arms_and_legs, "hand", "foot")),
    ]
    thirteen = [
        "nose",
        *(f"{side}{j}" for side in "lr" for j in ("_wrist", "_ankle", *("_" + j for j in arms_and_legs))),
    ]
    own = [topology_for(canonical_joints(names), 3) for names in (fifteen, thirteen)]
    for source in [*own, *map(get_topology, ("kinect-v1", "kinect-v2", "mediapipe-33"))]:
        frames = np.random.default_rng(0).normal(size=(4, 2, len(source), 3)).astype(np.float32)
        mapped = map_joints(frames, source, body)
        assert mapped.shape == (4, 2, 16, 3)
        assert (mapped != 0).all()
    np.testing.assert_array_equal(
        map_joints(frames, source, body)[..., 6, :], frames[..., source.index("wrist_left"), :]
    )


def test_a_wrist_and_a_hand_that_are_both_missing_are_missing() -> None:
    source = topology_for([joint for joint in get_topology("body-16").joints if joint != "wrist_left"], 3)
    with pytest.raises(InputError, match="it has no wrist_left;"):
        map_joints(np.ones((1, 1, 15, 3), dtype=np.float32), source, get_topology("body-16"))


def test_a_joint_at_the_origin_counts_when_others_derive_from_it() -> None:
    coco, target = get_topology("openpose-25"), get_topology("kinect-v1-2d")
    frames = np.random.default_rng(0).uniform(1, 2, (3, 1, 25, 2)).astype(np.float32)
    centred = frames - frames[:, :, [coco.index("hip_center")]]
    expected = map_joints(frames, coco, target) - frames[:, :, [coco.index("hip_center")]]
    np.testing.assert_allclose(map_joints(centred, coco, target, origin="hip_center"), expected, atol=1e-6)
    assert not map_joints(centred, coco, target)[:, 0, target.index("spine")].any()


SMPL = (
    "pelvis left_hip right_hip spine1 left_knee right_knee spine2 left_ankle right_ankle spine3 left_foot"
    " right_foot neck left_collar right_collar head left_shoulder right_shoulder left_elbow right_elbow"
    " left_wrist right_wrist"
).split()


def fingers(side: str) -> list[str]:
    return [
        f"{side}_{finger}{n}" for finger in ("index", "middle", "pinky", "ring", "thumb") for n in (1, 2, 3)
    ]


def mhr_hand(side: str) -> list[str]:
    names = [
        f"{side}_{finger}{end}"
        for finger in ("thumb", "forefinger", "middle_finger", "ring_finger", "pinky_finger")
        for end in ("4", "3", "2", "_third_joint")
    ]
    return [*names, f"{side}_wrist"]


MHR = [
    *"nose left_eye right_eye left_ear right_ear left_shoulder right_shoulder left_elbow right_elbow"
    " left_hip right_hip".split(),
    *"left_knee right_knee left_ankle right_ankle left_big_toe left_small_toe left_heel right_big_toe"
    " right_small_toe".split(),
    *[
        "right_heel",
        *mhr_hand("right"),
        *mhr_hand("left"),
        "left_olecranon",
        "right_olecranon",
        "left_cubital_fossa",
    ],
    *"right_cubital_fossa left_acromion right_acromion neck".split(),
]


def mhr_tips(side: str) -> list[str]:
    ends = ("tip", "first-joint", "second-joint", "third-joint")  # from the tip to the hand
    return [f"{side}-{f}-{end}" for f in ("thumb", "index", "middle", "ring", "pinky") for end in ends]


MHR_OUT = [name.replace("_", "-") for name in MHR]  # as SAM 3D Body calls what it gives
for place, name in enumerate(MHR_OUT):
    MHR_OUT[place] = f"{name}-tip" if name.endswith("-toe") else name
for side in ("right", "left"):
    first = MHR.index(f"{side}_thumb4")
    MHR_OUT[first : first + 20] = mhr_tips(side)


@pytest.mark.parametrize(
    ("name", "joints"),
    [
        ("smpl-22", SMPL),
        ("smpl-24", [*SMPL, "left_hand", "right_hand"]),
        (
            "smplx-55",
            [*SMPL, "jaw", "left_eye_smplhf", "right_eye_smplhf", *fingers("left"), *fingers("right")],
        ),
        ("mhr-70", MHR),
        ("mhr-70", MHR_OUT),
    ],
)
def test_body_models_are_known_by_the_names_of_their_joints(name: str, joints: list[str]) -> None:
    found = topology_for(canonical_joints(joints), 3)
    assert found.name == name
    body = get_topology("body-16")
    frames = np.random.default_rng(0).normal(size=(3, 1, len(found), 3))
    mapped = map_joints(frames, found, body)
    for joint in ("knee_left", "elbow_right", "hip_left"):
        np.testing.assert_allclose(mapped[:, :, body.index(joint)], frames[:, :, found.index(joint)])


def test_the_spine_of_other_programs_is_not_that_of_smpl() -> None:
    names = [
        "Hips",
        "Spine",
        "Spine1",
        "Spine2",
        "LeftShoulder",
        "LeftArm",
        "LeftUpLeg",
        "LeftLeg",
        "LeftFoot",
        "LeftToes",
    ]
    assert canonical_joints(names)[1:4] == ["spine", "spine1", "spine2"]
    assert canonical_joints(names)[-2:] == ["ankle_left", "foot_left"]
