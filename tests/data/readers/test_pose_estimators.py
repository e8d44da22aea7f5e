"""MediaPipe, OpenPose and COCO-17: every shape in which the programs write them, persons followed, unsure
joints missing.
"""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reader_samples import (
    body,
    landmarks,
    read_all,
    rounded,
    write_mediapipe,
    write_mediapipe_csv,
    write_openpose,
)

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.ingest.pipeline import plan_reading
from halp.data.readers import Dropped, get_reader
from halp.data.readers.coco17 import Coco17Reader
from halp.data.readers.detections import OpenPoseReader
from halp.data.readers.mediapipe import MediaPipeReader
from halp.data.tracking import Detection, follow

TURNED = body(2, 33) * np.array([-1, -1, 1], np.float32)
IMAGE = {"x": 0.5, "y": 0.5, "z": 0.1, "visibility": 1.0}


def frames_of(reader: str, path: Path) -> np.ndarray:
    (clip,) = read_all(reader, path)
    return clip.frames


@pytest.mark.parametrize(
    "shape", ["tasks", "solutions", "web", "bare lists", "dictionary of frames", "plain landmarks"]
)
def test_mediapipe_json_gives_the_same_clip_in_every_shape(shape: str, tmp_path: Path) -> None:
    world = landmarks()
    data: Any = {
        "tasks": [{"pose_landmarks": [[IMAGE] * 33], "pose_world_landmarks": frame} for frame in world],
        "solutions": [{"pose_world_landmarks": {"landmark": frame[0]}} for frame in world],
        "web": {
            "frames": [{"poseWorldLandmarks": frame[0], "poseLandmarks": [IMAGE] * 33} for frame in world]
        },
        "bare lists": rounded(body(2, 33)),
        "dictionary of frames": {"frames": [{"landmarks": frame[0]} for frame in world]},
        "plain landmarks": [frame[0] for frame in world],
    }[shape]
    path = tmp_path / "wave.json"
    path.write_text(json.dumps(data))
    assert np.array_equal(frames_of("mediapipe", path)[:, 0], TURNED)
    assert get_reader("mediapipe").info(path).topology.name == "mediapipe-33"


def test_mediapipe_turns_y_up_and_the_left_side_to_smaller_x(tmp_path: Path) -> None:
    # In MediaPipe's own axes a person who faces the camera has the left shoulder at larger x and the head at
    # smaller y.
    person = [dict(IMAGE) for _ in range(33)]
    for index, (x, y) in {11: (0.2, -0.4), 12: (-0.2, -0.4), 23: (0.1, 0.01), 24: (-0.1, 0.01)}.items():
        person[index] |= {"x": x, "y": y}
    (tmp_path / "a.json").write_text(json.dumps([{"pose_world_landmarks": person}]))
    frame = frames_of("mediapipe", tmp_path / "a.json")[0, 0]
    assert frame[11, 0] < frame[12, 0]
    assert frame[11, 1] > frame[23, 1]


def test_frames_without_a_person_stay_as_empty_frames(tmp_path: Path) -> None:
    world = landmarks()
    data = [
        {"pose_world_landmarks": world[0]},
        {"pose_world_landmarks": []},
        None,
        {},
        {"pose_world_landmarks": world[1]},
    ]
    (tmp_path / "a.json").write_text(json.dumps(data))
    frames = frames_of("mediapipe", tmp_path / "a.json")
    assert frames.any(axis=(1, 2, 3)).tolist() == [True, False, False, False, True]


def test_landmarks_without_depth_are_two_dimensional(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([[{"x": 0.2, "y": 0.4}] * 33]))
    assert get_reader("mediapipe").info(tmp_path).topology.name == "mediapipe-33-2d"
    assert frames_of("mediapipe", tmp_path / "a.json").shape == (1, 1, 33, 2)
    write_mediapipe(tmp_path, "b")
    with pytest.raises(InputError, match="3 coordinates per joint, unlike the first file"):
        read_all("mediapipe", tmp_path)


def _wide(names: list[str]) -> list[list[str]]:
    rows = [[str(value) for point in frame for value in (*point, 0.9)] for frame in body(2, 33)]
    return [names, *rows]


def _long(world: bool) -> list[list[str]]:
    header = ["frame", "landmark_id", "x", "y", "z", "visibility"] + ["world_x", "world_y", "world_z"] * world
    rows = [header]
    for t, frame in enumerate(body(2, 33)):
        for joint, point in enumerate(frame):
            place = [*map(str, point)]
            rows.append(
                [str(t), str(joint), *(["0.5", "0.5", "0.1", "0.9", *place] if world else [*place, "0.9"])]
            )
    return rows


@pytest.mark.parametrize(
    "rows",
    [
        _wide([f"{axis}{joint}" for joint in range(33) for axis in "xyzv"]),
        _wide([f"{axis}{joint}" for joint in range(1, 34) for axis in "xyzv"]),
        _wide([f"landmark_{joint}_{axis}" for joint in range(33) for axis in ("x", "y", "z", "visibility")]),
        _long(world=False),
        _long(world=True),
    ],
    ids=["x0", "x1 to x33", "landmark_0_x", "long", "long with world"],
)
def test_mediapipe_csv_gives_the_same_clip_in_every_shape(rows: list[list[str]], tmp_path: Path) -> None:
    with open(tmp_path / "wave.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert np.array_equal(frames_of("mediapipe", tmp_path / "wave.csv")[:, 0], TURNED)


def test_mediapipe_csv_columns_may_carry_the_official_names(tmp_path: Path) -> None:
    sides = "LEFT_{0} RIGHT_{0}"
    parts = ["NOSE"] + [
        f"{side}_EYE{part}" for side in ("LEFT", "RIGHT") for part in ("_INNER", "", "_OUTER")
    ]
    parts += [*sides.format("EAR").split(), "MOUTH_LEFT", "MOUTH_RIGHT"]
    for part in "SHOULDER ELBOW WRIST PINKY INDEX THUMB HIP KNEE ANKLE HEEL FOOT_INDEX".split():
        parts += sides.format(part).split()
    rows = _wide([f"{part}_{axis}" for part in parts for axis in ("x", "y", "z", "visibility")])
    with open(tmp_path / "wave.csv", "w", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    assert np.array_equal(frames_of("mediapipe", tmp_path / "wave.csv")[:, 0], TURNED)


def test_empty_cells_are_missing_and_letters_are_refused_with_line_and_column(tmp_path: Path) -> None:
    path = write_mediapipe_csv(tmp_path)
    lines = path.read_text().split("\n")
    cells = lines[1].split(",")
    path.write_text("\n".join([lines[0], ",".join([cells[0], "", *cells[2:]]), *lines[2:]]))
    frames = frames_of("mediapipe", path)
    assert not frames[0, 0, 0].any()
    assert frames[1].all()
    path.write_text("\n".join([lines[0], ",".join([cells[0], "x", *cells[2:]]), *lines[2:]]))
    with pytest.raises(InputError, match="line 2, column 'x0': 'x' is not a number"):
        read_all("mediapipe", path)


@pytest.mark.parametrize("threshold", [0.5, 0.95])
def test_joints_below_the_threshold_become_missing(threshold: float, tmp_path: Path) -> None:
    path = write_mediapipe(tmp_path)
    reader = replace(MediaPipeReader("mediapipe", ""), min_score=threshold)
    (clip,) = (reader.read(item)[0] for item in reader.items(path))
    assert isinstance(clip, Dropped) == (threshold > 0.9)


@pytest.mark.parametrize(("joints", "name"), [(25, "openpose-25"), (18, "openpose-18")])
def test_openpose_persons_keep_their_place_though_their_order_changes(
    joints: int, name: str, tmp_path: Path
) -> None:
    source = write_openpose(tmp_path, frames=5, joints=joints)
    (clip,) = read_all("openpose", source)
    assert get_reader("openpose").info(source).topology.name == name
    assert clip.name == "walk"
    assert clip.shape == (5, 2, joints, 2)
    steps = np.diff(clip.frames, axis=0)
    np.testing.assert_allclose(steps, 2, atol=1e-3)


def labelled(format: str, source: Path) -> tuple[tuple[str, ...], list[Clip]]:
    """Classes of a source and its clips with their labels."""
    pipeline, items = plan_reading(source, format)
    return pipeline.info.class_names, [clip for clip in pipeline.work(items) if isinstance(clip, Clip)]


def test_openpose_clips_are_folders_or_beginnings_and_folders_above_are_classes(tmp_path: Path) -> None:
    for kind in ("walk", "run"):
        for number in (1, 2):
            folder = tmp_path / kind / f"clip{number}"
            folder.mkdir(parents=True)
            write_openpose(folder, prefix="")
    classes, clips = labelled("openpose", tmp_path)
    assert classes == ("run", "walk")
    assert [(clip.label, clip.name.split("/")[-2:]) for clip in clips] == [
        (0, ["run", "clip1"]), (0, ["run", "clip2"]), (1, ["walk", "clip1"]), (1, ["walk", "clip2"]),
    ]  # fmt: skip


def test_openpose_frames_without_people_are_empty_and_older_keys_are_read(tmp_path: Path) -> None:
    write_openpose(tmp_path, frames=3, people=1)
    (tmp_path / "walk_000000000001_keypoints.json").write_text('{"version": 1.0, "people": []}')
    last = tmp_path / "walk_000000000002_keypoints.json"
    last.write_text(last.read_text().replace("pose_keypoints_2d", "pose_keypoints"))
    (clip,) = read_all("openpose", tmp_path)
    assert clip.frames.any(axis=(2, 3)).tolist() == [[True, False], [False, False], [True, False]]


def test_openpose_without_anybody_says_so(tmp_path: Path) -> None:
    write_openpose(tmp_path, people=0)
    with pytest.raises(InputError, match="key 'people': nobody is in it, nor in the files that follow"):
        get_reader("openpose").info(tmp_path)


def test_more_persons_than_asked_for_are_left_out_and_reported(tmp_path: Path) -> None:
    write_openpose(tmp_path, frames=3, people=4)
    (clip,) = read_all("openpose", tmp_path)
    assert clip.repairs == ("2 of 4 tracked persons left out",)
    one = replace(OpenPoseReader("openpose", ""), persons=1)
    assert one.read(next(iter(one.items(tmp_path))))[0].shape[1] == 1


def _person(points: np.ndarray, style: str) -> dict[str, Any]:
    if style == "ultralytics":
        axes = {"x": rounded(points[:, 0]), "y": rounded(points[:, 1]), "visible": [0.9] * 17}
        return {"name": "person", "class": 0, "confidence": 0.9, "box": {}, "keypoints": axes}
    if style == "mmpose":
        return {
            "keypoints": rounded(points),
            "keypoint_scores": [0.9] * 17,
            "bbox": [[0, 0, 9, 9]],
            "bbox_score": 0.9,
        }
    return {
        "keypoints": [value for point in points for value in (*rounded(point), 0.9)],
        "score": 3.0,
        "category_id": 1,
    }


@pytest.mark.parametrize(
    "shape",
    [
        "mmpose video",
        "mmpose list",
        "ultralytics frames",
        "coco results",
        "alphapose",
        "coco annotations",
        "people",
    ],
)
def test_coco17_gives_the_same_clip_in_every_shape(shape: str, tmp_path: Path) -> None:
    joints = 100 * body(3, 17, 2)
    mmpose = [{"frame_id": t, "instances": [_person(one, "mmpose")]} for t, one in enumerate(joints)]
    flat = [_person(one, "coco") for one in joints]
    data: Any = {
        "mmpose video": {"meta_info": {"dataset_name": "coco"}, "instance_info": mmpose},
        "mmpose list": mmpose,
        "ultralytics frames": [[_person(one, "ultralytics")] for one in joints],
        # Results come in any order; the number of the picture counts.
        "coco results": [one | {"image_id": t + 9} for t, one in enumerate(flat)][::-1],
        "alphapose": [one | {"image_id": f"{t + 9}.jpg", "idx": [1.0]} for t, one in enumerate(flat)][::-1],
        "coco annotations": {
            "images": [],
            "annotations": [one | {"image_id": t} for t, one in enumerate(flat)],
        },
        "people": [{"frame_index": t, "people": [one]} for t, one in enumerate(flat)],
    }[shape]
    path = tmp_path / "walk.json"
    path.write_text(json.dumps(data))
    frames = frames_of("coco17", path)
    assert frames.shape == (3, 2, 17, 2)
    np.testing.assert_array_equal(frames[:, 0], joints)
    assert not frames[:, 1].any()


@pytest.mark.parametrize("style", ["ultralytics", "mmpose"])
def test_one_file_a_frame_is_joined_to_one_clip(style: str, tmp_path: Path) -> None:
    joints = 100 * body(12, 17, 2)
    for t, one in enumerate(joints):
        (tmp_path / f"walk_{t}.json").write_text(json.dumps([_person(one, style)]))
    (clip,) = read_all("coco17", tmp_path)
    assert clip.name == "walk"
    np.testing.assert_array_equal(clip.frames[:, 0], joints)


def test_whole_body_keypoints_give_their_first_seventeen(tmp_path: Path) -> None:
    joints = 100 * body(1, 133, 2)
    (tmp_path / "a.json").write_text(json.dumps([{"instances": [{"keypoints": rounded(joints[0])}]}]))
    np.testing.assert_array_equal(frames_of("coco17", tmp_path / "a.json")[:, 0], joints[:, :17])


def test_another_number_of_keypoints_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"instances": [{"keypoints": [[1, 2]] * 21}]}]))
    with pytest.raises(InputError, match="frame 0, person 0, key 'keypoints': 21 keypoints of 2 numbers"):
        read_all("coco17", tmp_path)


def test_a_trackers_number_decides_who_is_who(tmp_path: Path) -> None:
    near = 100 * body(4, 17, 2)
    data = []
    for t in range(4):
        # The two change places, which distance alone would read the other way round.
        people = [
            _person(near[t] + 500 * ((t + one) % 2), "ultralytics") | {"track_id": one + 1} for one in (0, 1)
        ]
        data.append(people)
    (tmp_path / "a.json").write_text(json.dumps(data))
    (clip,) = read_all("coco17", tmp_path)
    np.testing.assert_allclose(
        clip.frames[:, 0] - near, np.array([0, 500, 0, 500])[:, None, None] * np.ones((17, 2)), atol=1e-3
    )


def test_unsure_keypoints_are_missing_and_zero_scores_always(tmp_path: Path) -> None:
    person = _person(100 * body(1, 17, 2)[0], "mmpose")
    person["keypoint_scores"] = [0.0, 0.3] + [0.9] * 15
    (tmp_path / "a.json").write_text(json.dumps([{"instances": [person]}]))
    for threshold, missing in ((0.0, 1), (0.5, 2)):
        reader = replace(Coco17Reader("coco17", ""), min_score=threshold)
        (clip,) = reader.read(next(iter(reader.items(tmp_path))))
        assert int((~clip.frames[0, 0].any(axis=1)).sum()) == missing


def test_folders_are_classes_when_every_file_lies_in_one(tmp_path: Path) -> None:
    for kind in ("wave", "bow"):
        (tmp_path / kind).mkdir()
        write_mediapipe(tmp_path / kind, "anna")
    classes, clips = labelled("mediapipe", tmp_path)
    assert classes == ("bow", "wave")
    assert [(clip.name, clip.label) for clip in clips] == [("bow/anna", 0), ("wave/anna", 1)]
    write_mediapipe(tmp_path, "loose")
    assert labelled("mediapipe", tmp_path)[0] == ()


def test_a_folder_for_each_run_of_frames_is_not_a_class(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"clip{number}").mkdir()
        write_openpose(tmp_path / f"clip{number}", prefix="")
    classes, clips = labelled("openpose", tmp_path)
    assert classes == ()
    assert [clip.label for clip in clips] == [-1, -1]


def test_following_is_bounded_in_a_crowd_and_restarts_far_away() -> None:
    here = body(1, 17, 2)[0]
    frames, notes = follow([[Detection(here)], [Detection(here + 100)]], 2, 17, 2)
    assert frames.any(axis=(2, 3)).tolist() == [[True, False], [False, True]]
    crowd = [[Detection(here + 10 * one) for one in range(200)] for _ in range(3)]
    frames, notes = follow(crowd, 2, 17, 2)
    assert frames.shape == (3, 2, 17, 2)
    assert notes == ("28 of 30 tracked persons left out",)
