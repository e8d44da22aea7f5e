"""The shipped encoder of 2D poses: any layout, pixel size, direction of y and frame rate, and above all any
camera.
"""

from __future__ import annotations

import numpy as np
import pytest
from encoders.test_shipped import likeness, walker
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline

import halp
from halp.core.packages import list_shipped
from halp.encoders.pretrained import PretrainedEncoder, compacted
from halp.skeleton import get_topology
from halp.tasks.estimators import SkeletonEncoder

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
    """The same body with the joints of another layout; what a layout has more lies at the head or the nearest
    limb.
    """
    near = {"nose": "head", "eye": "head", "ear": "head", "mouth": "head", "neck": "shoulder_center"}
    stand_in = {
        "pinky": "wrist",
        "index": "wrist",
        "thumb": "wrist",
        "heel": "ankle",
        "foot": "ankle",
        "toe": "ankle",
    }
    chosen = []
    for joint in get_topology(name).joints:
        word, side = joint.split("_")[0], joint.rpartition("_")[2]
        found = joint if joint in BODY.joints else near.get(word, f"{stand_in.get(word, '')}_{side}")
        chosen.append(points[:, :, BODY.index(found)])
    return np.stack(chosen, axis=2)


def test_the_package_is_whole_and_small_and_search_reads_few_numbers(encoder: PretrainedEncoder) -> None:
    assert sum(path.stat().st_size for path in list_shipped()["halp-view"].iterdir()) < 8e6
    assert encoder.topology.name == "body-16-2d"
    assert (encoder.output_size, compacted(encoder).output_size) == (5184, 256)
    assert "Made by" in (list_shipped()["halp-view"] / "README.md").read_text(encoding="utf-8")


def test_pixel_size_place_and_the_direction_of_y_do_not_matter(encoder: PretrainedEncoder) -> None:
    points = seen_from(20, walker())
    changes = [points, 0.25 * points, points + 300, points * np.array([1, -1], dtype=np.float32)]
    vectors = halp.embed(encoder, [change.astype(np.float32) for change in changes], progress=False)
    assert len(vectors) == 4
    assert all(likeness(vectors[0], other) > 0.98 for other in vectors[1:])


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_estimators_are_read_by_joint_names(encoder: PretrainedEncoder, name: str) -> None:
    points, other = seen_from(20, walker()), seen_from(20, walker(seed=3))
    expected, different = halp.embed(encoder, [points, other], progress=False)
    (vector,) = halp.embed(encoder, [in_layout(name, points)], topology=name, progress=False)
    assert likeness(vector, expected) > max(0.6, likeness(vector, different) + 0.25)


def test_the_same_movement_from_another_camera_is_nearer_than_another_movement(
    encoder: PretrainedEncoder,
) -> None:
    seeds, angles = range(6), (0, 60)
    first, second = (
        halp.embed(
            encoder, [seen_from(angle, walker(seed=seed)) for seed in seeds], compact=True, progress=False
        )
        for angle in angles
    )
    mean = np.concatenate([first, second]).mean(0)
    similar = np.array([[likeness(a - mean, b - mean) for b in second] for a in first])
    assert (similar.argmax(1) == np.arange(len(seeds))).mean() >= 0.8


def test_missing_legs_and_gaps_are_defined(encoder: PretrainedEncoder) -> None:
    points = seen_from(0, walker())
    gaps, upper = points.copy(), points.copy()
    gaps[10:14, :, BODY.index("wrist_left")] = 0
    upper[
        :, :, [BODY.index(f"{joint}_{side}") for joint in ("knee", "ankle") for side in ("left", "right")]
    ] = 0
    whole, gap, legless = halp.embed(encoder, [points, gaps, upper], progress=False)
    assert np.isfinite(legless).all()
    assert likeness(whole, gap) > 0.95


def test_auto_chooses_by_the_number_of_coordinates() -> None:
    clips = {"halp-view": (seen_from(0, walker()), "body-16-2d"), "halp-base": (walker(), "body-16")}
    for name, (clip, layout) in clips.items():
        chosen, named = (halp.embed(word, [clip], topology=layout, progress=False) for word in ("auto", name))
        assert np.array_equal(chosen, named)


def test_scikit_learn_tells_two_movements_apart_from_another_camera() -> None:
    train, test = (
        [seen_from(angle, walker(seconds, seed=seed)) for seed in (0, 1) for seconds in (1.8, 2.0, 2.2)]
        for angle in (0, 40)
    )
    labels = [0] * 3 + [1] * 3
    model = make_pipeline(SkeletonEncoder("halp-view", topology="body-16-2d"), RidgeClassifier())
    assert model.fit(train, labels).score(test, labels) == 1
