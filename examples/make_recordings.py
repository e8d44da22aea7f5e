"""Generate a folder of BVH files, as a motion capture suit would give them: three movements of four people.

    python examples/make_recordings.py recordings

writes `recordings/{wave,squat,march}/*.bvh` and beside them `long.bvh`, in which the movements follow each
other, `day.bvh`, a minute with three falls, and `fall.bvh`, a fall of somebody else.
"""

import sys
from pathlib import Path

import numpy as np

FPS = 30
# joint, its parent, offset from it in metres
BONES = [
    ("Hips", None, (0, 0, 0)),
    ("Spine", "Hips", (0, 0.25, 0)),
    ("Neck", "Spine", (0, 0.28, 0)),
    ("Head", "Neck", (0, 0.15, 0.02)),
    ("LeftArm", "Spine", (0.18, 0.24, 0)),
    ("LeftForeArm", "LeftArm", (0.28, 0, 0)),
    ("LeftHand", "LeftForeArm", (0.25, 0, 0)),
    ("RightArm", "Spine", (-0.18, 0.24, 0)),
    ("RightForeArm", "RightArm", (-0.28, 0, 0)),
    ("RightHand", "RightForeArm", (-0.25, 0, 0)),
    ("LeftUpLeg", "Hips", (0.1, -0.05, 0)),
    ("LeftLeg", "LeftUpLeg", (0, -0.42, 0)),
    ("LeftFoot", "LeftLeg", (0, -0.42, 0)),
    ("RightUpLeg", "Hips", (-0.1, -0.05, 0)),
    ("RightLeg", "RightUpLeg", (0, -0.42, 0)),
    ("RightFoot", "RightLeg", (0, -0.42, 0)),
]
NAMES = [name for name, _, _ in BONES]
MOVEMENTS = ("wave", "squat", "march")


def angles(movement: str, seconds: float, draw: np.random.Generator) -> np.ndarray:
    """Rotations (frames, joints, 3) about z, x and y in degrees: the movement, on a posture and at a pace of
    its own.

    Every take has another posture: how the arms are held, how far the trunk leans, where the head looks, with
    which arm it waves. These say nothing about the movement and are larger than what does, so that positions
    alone do not tell it.
    """
    time = np.arange(round(seconds * FPS)) / FPS
    turns = np.zeros((len(time), len(BONES), 3))
    speed, size, phase = draw.uniform(0.7, 1.4), draw.uniform(0.7, 1.2), draw.uniform(0, 2 * np.pi)
    swing = np.sin(2 * np.pi * speed * time + phase)
    for side, way in (("Left", -1), ("Right", 1)):  # between hanging and stretched out, bent or straight
        turns[:, NAMES.index(f"{side}Arm"), 0] = way * draw.uniform(0, 80)
        turns[:, NAMES.index(f"{side}Arm"), 2] = draw.uniform(-30, 30)
        turns[:, NAMES.index(f"{side}ForeArm"), 0] = way * draw.uniform(-60, 0)
    turns[:, NAMES.index("Spine"), 1:] = draw.uniform(-10, 20), draw.uniform(-20, 20)
    turns[:, NAMES.index("Neck"), 1:] = draw.uniform(-20, 20), draw.uniform(-40, 40)
    if movement == "wave":
        side = draw.choice(["Left", "Right"])
        turns[:, NAMES.index(f"{side}ForeArm"), 0] += 40 * size * swing
        turns[:, NAMES.index(f"{side}Arm"), 2] += 12 * size * swing
    elif movement == "squat":
        bend = 45 * size * (1 - np.cos(np.pi * speed * time + phase)) / 2
        for side in ("Left", "Right"):
            turns[:, NAMES.index(f"{side}UpLeg"), 1] = -1.6 * bend
            turns[:, NAMES.index(f"{side}Leg"), 1] = 2.2 * bend
        turns[:, NAMES.index("Spine"), 1] += 0.6 * bend
    elif movement == "fall":  # to the ground within a second, there for a while, and up again
        down = np.interp(time, [0.5, 1.3, seconds - 1.5, seconds - 0.2], [0, 1, 1, 0])
        turns[:, NAMES.index("Hips"), 1] = 80 * down
        for side, way in (("Left", -1), ("Right", 1)):
            turns[:, NAMES.index(f"{side}Arm"), 0] += way * 60 * size * down
            turns[:, NAMES.index(f"{side}Leg"), 1] += 50 * size * down
    else:
        for side, way in (("Left", 1), ("Right", -1)):
            turns[:, NAMES.index(f"{side}UpLeg"), 1] = -35 * size * np.maximum(way * swing, 0)
            turns[:, NAMES.index(f"{side}Leg"), 1] = 60 * size * np.maximum(way * swing, 0)
            turns[:, NAMES.index(f"{side}Arm"), 1] -= 25 * size * way * swing
    return turns + draw.normal(0, 1.0, turns.shape)


def bvh(turns: np.ndarray, height: float) -> str:
    """A BVH file of these rotations for a person of this size."""

    def joint(name: str, depth: int) -> list[str]:
        pad, (x, y, z) = "  " * depth, next(offset for bone, _, offset in BONES if bone == name)
        children = [bone for bone, parent, _ in BONES if parent == name]
        channels = "Zrotation Xrotation Yrotation"
        channels = f"6 Xposition Yposition Zposition {channels}" if not depth else f"3 {channels}"
        lines = [f"{pad}{'JOINT' if depth else 'ROOT'} {name}", f"{pad}{{"]
        lines += [
            f"{pad}  OFFSET {height * x:.4f} {height * y:.4f} {height * z:.4f}",
            f"{pad}  CHANNELS {channels}",
        ]
        lines += [line for child in children for line in joint(child, depth + 1)]
        if not children:
            lines += [
                f"{pad}  End Site",
                f"{pad}  {{",
                f"{pad}    OFFSET 0 {-0.05 * height:.4f} 0",
                f"{pad}  }}",
            ]
        return [*lines, f"{pad}}}"]

    def order(name: str) -> list[int]:
        below = [bone for bone, parent, _ in BONES if parent == name]
        return [NAMES.index(name), *(place for child in below for place in order(child))]

    rows = turns[:, order("Hips")].reshape(len(turns), -1)
    hips = height * np.where(rows[:, 1] > 10, 0.1 + 0.85 * np.cos(np.radians(rows[:, 1])), 0.95)
    frames = [f"0 {at:.4f} 0 " + " ".join(f"{value:.3f}" for value in row) for at, row in zip(hips, rows)]
    head = ["HIERARCHY", *joint("Hips", 0), "MOTION", f"Frames: {len(rows)}", f"Frame Time: {1 / FPS:.6f}"]
    return "\n".join([*head, *frames]) + "\n"


def main(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for movement in MOVEMENTS:
        (folder / movement).mkdir(parents=True, exist_ok=True)
        for person in range(4):
            for take in range(3):
                text = bvh(angles(movement, draw.uniform(2.5, 3.5), draw), 0.9 + 0.06 * person)
                (folder / movement / f"person{person + 1}_{take + 1}.bvh").write_text(text)
    parts = [angles(movement, 5.0, draw) for movement in ("march", "wave", "squat", "wave", "march")]
    day = [
        angles(movement, 5.0, draw)
        for movement in "march fall wave march fall squat march fall march".split()
    ]
    fall = angles("fall", 4.0, draw)
    for name, turns in {"long": np.concatenate(parts), "day": np.concatenate(day), "fall": fall}.items():
        (folder.parent / f"{name}.bvh").write_text(bvh(turns, 1.0))
    print(f"written: {folder} with {3 * 4 * 3} recordings, long.bvh, day.bvh and fall.bvh")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "recordings"))
