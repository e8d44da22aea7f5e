"""The shipped encoder of 2D poses: any layout, pixel size, direction of y and frame rate, and above all any camera."""

from __future__ import annotations

import numpy as np
import pytest
from encoders.test_shipped import likeness, walker

import halp
from halp.encoders.pretrained import PretrainedEncoder
from halp.packages import list_shipped
from halp.skeleton import get_topology

BODY = get_topology("body-16")
LAYOUTS = ("coco-17", "openpose-18", "openpose-25", "mediapipe-33-2d", "h36m-17-2d", "halpe-26")


@pytest.fixture(scope="module")
def encoder() -> PretrainedEncoder:
    return halp.load_encoder("halp-view")


def seen_from(degrees: float, clip: np.ndarray) -> np.ndarray:
    """Pixels `(T, 1, 16, 2)`, y down, of a body in space, from an angle about the vertical."""
    turn = np.deg2rad(degrees)
    x = clip @ np.array([np.cos(turn), 0, np.sin(turn)], dtype=np.float32)
    return np.stack([900 + 300 * x, 800 - 300 * clip[..., 1]], axis=-1).astype(np.float32)


def in_layout(name: str, points: np.ndarray) -> np.ndarray:
    """The same body with the joints of another layout; what a layout has more lies at the head or the nearest limb."""
    near = {"nose": "head", "eye": "head", "ear": "head", "mouth": "head", "neck": "shoulder_center"}
    stand_in = {"pinky": "wrist", "index": "wrist", "thumb": "wrist", "heel": "ankle", "foot": "ankle", "toe": "ankle"}
    chosen = []
    for joint in get_topology(name).joints:
        word, side = joint.split("_")[0], joint.rpartition("_")[2]
        found = joint if joint in BODY.joints else near.get(word, f"{stand_in.get(word, '')}_{side}")
        chosen.append(points[:, :, BODY.index(found)])
    return np.stack(chosen, axis=2)


def test_the_package_is_whole_small_and_gives_few_numbers(encoder: PretrainedEncoder) -> None:
    assert sum(path.stat().st_size for path in list_shipped()["halp-view"].iterdir()) < 6e6
    assert encoder.topology.name == "body-16-2d"
    assert encoder.output_size <= 256
    assert "Made by" in (list_shipped()["halp-view"] / "README.md").read_text(encoding="utf-8")


def test_pixel_size_place_and_the_direction_of_y_do_not_matter(encoder: PretrainedEncoder) -> None:
    points = seen_from(20, walker())
    changes = [points, 0.25 * points, points + 300, points * np.array([1, -1], dtype=np.float32)]
    vectors = halp.embed(encoder, [change.astype(np.float32) for change in changes], progress=False)
    assert all(likeness(vectors[0], other) > 0.98 for other in vectors[1:])


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_estimators_are_read_by_joint_names(encoder: PretrainedEncoder, name: str) -> None:
    points, other = seen_from(20, walker()), seen_from(20, walker(seed=3))
    expected, different = halp.embed(encoder, [points, other], progress=False)
    (vector,) = halp.embed(encoder, [in_layout(name, points)], topology=name, progress=False)
    assert likeness(vector, expected) > max(0.7, likeness(vector, different))


def test_the_same_movement_from_another_camera_is_nearer_than_another_movement(encoder: PretrainedEncoder) -> None:
    seeds, angles = range(6), (0, 60)
    first, second = (
        halp.embed(encoder, [seen_from(angle, walker(seed=seed)) for seed in seeds], progress=False) for angle in angles
    )
    mean = np.concatenate([first, second]).mean(0)
    similar = np.array([[likeness(a - mean, b - mean) for b in second] for a in first])
    assert (similar.argmax(1) == np.arange(len(seeds))).mean() >= 0.8


def test_missing_legs_and_gaps_are_defined(encoder: PretrainedEncoder) -> None:
    points = seen_from(0, walker())
    gaps, upper = points.copy(), points.copy()
    gaps[10:14, :, BODY.index("wrist_left")] = 0
    upper[:, :, [BODY.index(f"{joint}_{side}") for joint in ("knee", "ankle") for side in ("left", "right")]] = 0
    whole, gap, legless = halp.embed(encoder, [points, gaps, upper], progress=False)
    assert np.isfinite(legless).all()
    assert likeness(whole, gap) > 0.95


def test_auto_chooses_by_the_number_of_coordinates() -> None:
    flat, space = seen_from(0, walker()), walker()
    assert halp.embed("auto", [flat], topology="body-16-2d", progress=False).shape[1] == 256
    assert halp.embed("auto", [space], topology="body-16", progress=False).shape[1] == 4176
