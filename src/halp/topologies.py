"""Joint layouts as plain data: names, bones, centre and axes of every known skeleton, and how missing joints derive.

`halp.skeleton` turns these tables into topologies. One vocabulary holds for all of them, so that mapping goes by name:
`PART_left`, `PART_right` and `PART_center`; y of 3D layouts points up unless the recording says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """Words of a topology: joints in order, a {child: parent} table by name (absent = root), centre and the two axes."""

    name: str
    joints: tuple[str, ...]
    bones: dict[str, str] = field(hash=False)
    centre: str
    up: tuple[str, str] | None
    across: tuple[str, str]
    dimensions: int = 3


def _both_sides(words: str) -> dict[str, str]:
    """A table from pairs `one:other` of words without a side: `{one_left: other_left, one_right: other_right, …}`."""
    pairs = [pair.split(":") for pair in words.split()]
    return {f"{one}_{side}": f"{other}_{side}" for side in ("left", "right") for one, other in pairs}


_ACROSS = ("shoulder_left", "shoulder_right")
_ARMS_AND_LEGS = {
    "elbow_left": "shoulder_left",
    "wrist_left": "elbow_left",
    "elbow_right": "shoulder_right",
    "wrist_right": "elbow_right",
    "knee_left": "hip_left",
    "ankle_left": "knee_left",
    "knee_right": "hip_right",
    "ankle_right": "knee_right",
}
_LIMBS = _ARMS_AND_LEGS | {
    "hand_left": "wrist_left",
    "hand_right": "wrist_right",
    "foot_left": "ankle_left",
    "foot_right": "ankle_right",
    "hip_left": "hip_center",
    "hip_right": "hip_center",
    "shoulder_left": "shoulder_center",
    "shoulder_right": "shoulder_center",
}
_FACE = {"eye_left": "nose", "ear_left": "eye_left", "eye_right": "nose", "ear_right": "eye_right"}

# The order of NTU RGB+D and PKU-MMD; joint 21 (here `shoulder_center`, index 20) is the root of the bones.
_KINECT_V2 = (
    "hip_center spine neck head "
    "shoulder_left elbow_left wrist_left hand_left shoulder_right elbow_right wrist_right hand_right "
    "hip_left knee_left ankle_left foot_left hip_right knee_right ankle_right foot_right "
    "shoulder_center hand_tip_left thumb_left hand_tip_right thumb_right"
)
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
)
_KINECT_V1_BONES = _LIMBS | {"spine": "hip_center", "shoulder_center": "spine", "head": "shoulder_center"}

# The joints that every body layout has or can derive: what an encoder for any skeleton reads.
_BODY_16 = (
    "hip_center spine shoulder_center head "
    "shoulder_left elbow_left wrist_left shoulder_right elbow_right wrist_right "
    "hip_left knee_left ankle_left hip_right knee_right ankle_right"
)

_MEDIAPIPE = (
    "nose eye_inner_left eye_left eye_outer_left eye_inner_right eye_right eye_outer_right ear_left ear_right "
    "mouth_left mouth_right shoulder_left shoulder_right elbow_left elbow_right wrist_left wrist_right "
    "pinky_left pinky_right index_left index_right thumb_left thumb_right "
    "hip_left hip_right knee_left knee_right ankle_left ankle_right heel_left heel_right foot_index_left foot_index_right"
)
# MediaPipe has no joint in the middle of the body; the left hip is the root and ties the two sides together.
_MEDIAPIPE_BONES = _ARMS_AND_LEGS | {
    "hip_right": "hip_left",
    "shoulder_left": "hip_left",
    "shoulder_right": "shoulder_left",
    "nose": "shoulder_left",
    "mouth_left": "nose",
    "mouth_right": "nose",
    **{
        child.format(side): parent.format(side)
        for side in ("left", "right")
        for child, parent in {
            "eye_inner_{}": "nose",
            "eye_{}": "eye_inner_{}",
            "eye_outer_{}": "eye_{}",
            "ear_{}": "eye_outer_{}",
            "pinky_{}": "wrist_{}",
            "index_{}": "wrist_{}",
            "thumb_{}": "wrist_{}",
            "heel_{}": "ankle_{}",
            "foot_index_{}": "heel_{}",
        }.items()
    },
}

# What OpenPose calls neck is the middle between the shoulders, and its mid hip the middle between the hips.
_OPENPOSE_ARMS = "nose shoulder_center shoulder_right elbow_right wrist_right shoulder_left elbow_left wrist_left "
_OPENPOSE_FACE = "eye_right eye_left ear_right ear_left"
_OPENPOSE_25 = (
    _OPENPOSE_ARMS
    + "hip_center hip_right knee_right ankle_right hip_left knee_left ankle_left "
    + _OPENPOSE_FACE
    + " toe_big_left toe_small_left heel_left toe_big_right toe_small_right heel_right"
)
_OPENPOSE_25_BONES = (
    _LIMBS
    | _FACE
    | {"shoulder_center": "hip_center", "nose": "shoulder_center"}
    | {f"{part}_{side}": f"ankle_{side}" for part in ("toe_big", "toe_small", "heel") for side in ("left", "right")}
)
_OPENPOSE_18 = _OPENPOSE_ARMS + "hip_right knee_right ankle_right hip_left knee_left ankle_left " + _OPENPOSE_FACE
_OPENPOSE_18_BONES = (
    _LIMBS
    | _FACE
    | {
        "nose": "shoulder_center",
        "hip_left": "shoulder_center",
        "hip_right": "shoulder_center",
    }  # no middle of the hips
)
_COCO_17 = (
    "nose eye_left eye_right ear_left ear_right shoulder_left shoulder_right elbow_left elbow_right wrist_left wrist_right "
    "hip_left hip_right knee_left knee_right ankle_left ankle_right"
)
_COCO_17_BONES = (
    _ARMS_AND_LEGS
    | _FACE
    | {"shoulder_left": "nose", "shoulder_right": "nose", "hip_left": "shoulder_left", "hip_right": "shoulder_right"}
)

# Azure Kinect's own order; its neck lies between the collar bones, at the height of the shoulders.
_AZURE = (
    "hip_center spine chest neck "
    "clavicle_left shoulder_left elbow_left wrist_left hand_left hand_tip_left thumb_left "
    "clavicle_right shoulder_right elbow_right wrist_right hand_right hand_tip_right thumb_right "
    "hip_left knee_left ankle_left foot_left hip_right knee_right ankle_right foot_right "
    "head nose eye_left ear_left eye_right ear_right"
)
_COLLARS = {
    f"{child}_{side}": parent.format(side)
    for side in ("left", "right")
    for child, parent in {"clavicle": "chest", "shoulder": "clavicle_{}"}.items()
}
_AZURE_BONES = (
    _LIMBS
    | _COLLARS
    | {"spine": "hip_center", "chest": "spine", "neck": "chest", "head": "neck", "nose": "head"}
    | {
        f"{child}_{side}": parent.format(side)
        for side in ("left", "right")
        for child, parent in {"hand_tip": "hand_{}", "thumb": "wrist_{}", "eye": "head", "ear": "head"}.items()
    }
)
# The 17 joints that most work on Human3.6M keeps of its 32, and the body joints of SMPL.
_H36M = (
    "hip_center hip_right knee_right ankle_right hip_left knee_left ankle_left spine shoulder_center neck head "
    "shoulder_left elbow_left wrist_left shoulder_right elbow_right wrist_right"
)
_H36M_BONES = _LIMBS | {
    "spine": "hip_center",
    "shoulder_center": "spine",
    "neck": "shoulder_center",
    "head": "neck",
}
_SMPL = (
    "hip_center hip_left hip_right spine_lower knee_left knee_right spine ankle_left ankle_right chest foot_left foot_right "
    "neck clavicle_left clavicle_right head shoulder_left shoulder_right elbow_left elbow_right wrist_left wrist_right"
)
_SMPL_BONES = (
    _LIMBS
    | _COLLARS
    | {"spine_lower": "hip_center", "spine": "spine_lower", "chest": "spine", "neck": "chest", "head": "neck"}
)


def _layout(
    name: str, joints: str, bones: dict[str, str], centre: str, up: tuple[str, str] | None, dimensions: int = 3
) -> Layout:
    names = tuple(joints.split())
    return Layout(
        name, names, {child: bones[child] for child in names if child in bones}, centre, up, _ACROSS, dimensions
    )


_TRUNK = ("hip_center", "shoulder_center")
_SIDE = ("hip_left", "shoulder_left")
LAYOUTS = (
    _layout("kinect-v2", _KINECT_V2, _KINECT_V2_BONES, "spine", ("hip_center", "spine")),
    _layout("kinect-v1", _KINECT_V1, _KINECT_V1_BONES, "hip_center", _TRUNK),
    _layout("body-16", _BODY_16, _KINECT_V1_BONES, "hip_center", _TRUNK),
    _layout("kinect-v1-2d", _KINECT_V1, _KINECT_V1_BONES, "hip_center", _TRUNK, 2),
    _layout("mediapipe-33", _MEDIAPIPE, _MEDIAPIPE_BONES, "hip_left", _SIDE),
    _layout("mediapipe-33-2d", _MEDIAPIPE, _MEDIAPIPE_BONES, "hip_left", _SIDE, 2),
    _layout("openpose-25", _OPENPOSE_25, _OPENPOSE_25_BONES, "hip_center", _TRUNK, 2),
    _layout("openpose-18", _OPENPOSE_18, _OPENPOSE_18_BONES, "shoulder_center", None, 2),
    _layout("azure-kinect-32", _AZURE, _AZURE_BONES, "hip_center", ("hip_center", "chest")),
    _layout("h36m-17", _H36M, _H36M_BONES, "hip_center", _TRUNK),
    _layout("h36m-17-2d", _H36M, _H36M_BONES, "hip_center", _TRUNK, 2),
    _layout("smpl-22", _SMPL, _SMPL_BONES, "hip_center", ("hip_center", "chest")),
    _layout("coco-17", _COCO_17, _COCO_17_BONES, "hip_left", _SIDE, 2),
)

# A joint that a layout lacks is the mean of others; the first line whose joints can all be had counts. A wrist stands
# for a hand and an ankle for a foot only where nothing nearer is known.
DERIVED: dict[str, tuple[tuple[str, ...], ...]] = {
    "hip_center": (("hip_left", "hip_right"),),
    "shoulder_center": (("shoulder_left", "shoulder_right"),),
    "spine": (("hip_center", "shoulder_center"),),
    "head": (("ear_left", "ear_right"), ("eye_left", "eye_right"), ("nose",)),
    "neck": (("shoulder_center", "head"),),
    **{
        f"{part}_{side}": tuple(tuple(f"{other}_{side}" for other in others) for others in ways)
        for side in ("left", "right")
        for part, ways in {
            "hand": (("index", "pinky"), ("wrist",)),
            "hand_tip": (("index",),),
            "wrist": (("hand",),),
            "ankle": (("foot",), ("heel",)),
            "foot": (("foot_index",), ("toe_big", "toe_small"), ("ankle",)),
            "foot_index": (("toe_big", "toe_small"),),
        }.items()
    },
}

# Other words for the same joint, after sides have been moved to the end and capitals split (`LShoulder` → `shoulder_left`).
SYNONYMS = {
    "hip": "hip_center",
    "hips": "hip_center",
    "mid_hip": "hip_center",
    "pelvis": "hip_center",
    "spine_base": "hip_center",
    "spine_mid": "spine",
    "mid_spine": "spine",
    "spine_naval": "spine",
    "spine_navel": "spine",
    "spine_chest": "chest",
    "thorax": "shoulder_center",
    "hip_centre": "hip_center",
    "shoulder_centre": "shoulder_center",
    "spine_shoulder": "shoulder_center",
    "mid_shoulder": "shoulder_center",
    **_both_sides(
        "big_toe:toe_big small_toe:toe_small handtip:hand_tip tip:hand_tip index_finger:index pinky_finger:pinky"
    ),
}
# Motion capture names the bone, not the joint it starts from; used for files that have arms and upper legs.
BONE_NAMES = _both_sides(
    "shoulder:clavicle arm:shoulder upper_arm:shoulder fore_arm:elbow lower_arm:elbow hand:wrist "
    "up_leg:hip upper_leg:hip thigh:hip leg:knee lower_leg:knee shin:knee foot:ankle toe_base:foot "
    "toe:foot"
)
