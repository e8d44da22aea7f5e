"""Pose estimators from ONNX files, tried on tiny networks that have the inputs and outputs of RTMO and
RTMPose.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halp.core.errors import InputError

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install halp-motion[onnx])")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install halp-motion[onnx])")
pytest.importorskip("cv2", reason="OpenCV is not installed (pip install halp-motion[video])")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from halp.video.networks import open_network  # noqa: E402
from halp.video.onnx_poses import OnnxPoses, is_one_stage, onnx_topology  # noqa: E402
from halp.video.pose_model import describe_pose_model  # noqa: E402


def write_network(path: Path, size: tuple[int, int], outputs: dict[str, Any], nodes: list[Any]) -> Path:
    width, height = size
    image = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, height, width])
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in outputs.items()
    ]
    constants = [
        numpy_helper.from_array(value.astype(np.float32), f"{name}_value") for name, value in outputs.items()
    ]
    graph = helper.make_graph(nodes, "pose", [image], infos, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def constant_network(path: Path, size: tuple[int, int], outputs: dict[str, Any]) -> Path:
    """A network whose answers do not depend on the picture, which it reads all the same."""
    nodes = [
        helper.make_node("ReduceMean", ["input"], ["mean"], keepdims=0),
        helper.make_node("Sub", ["mean", "mean"], ["zero"]),
        *(helper.make_node("Add", [f"{name}_value", "zero"], [name]) for name in outputs),
    ]
    return write_network(path, size, outputs, nodes)


def rtmo(path: Path, joints: int) -> Path:
    """Three boxes: two people, the first of them twice."""
    points = np.zeros((1, 3, joints, 3))
    points[0, :, :, 0] = np.linspace(100, 140, joints)
    points[0, 1, :, 0] += 200
    points[0, 2, :, 0] += 1
    points[0, :, :, 1] = np.linspace(50, 250, joints)
    points[..., 2] = 0.9
    boxes = np.array([[[100, 50, 140, 250, 0.95], [300, 50, 340, 250, 0.8], [101, 50, 141, 250, 0.7]]])
    return constant_network(path, (640, 640), {"dets": boxes, "keypoints": points})


@pytest.mark.parametrize(("joints", "name"), [(17, "coco-17"), (26, "halpe-26"), (133, "coco-wholebody-133")])
def test_people_of_a_one_stage_network_are_found_in_pixels_of_the_picture(
    tmp_path: Path, joints: int, name: str
) -> None:
    model = rtmo(tmp_path / "rtmo.onnx", joints)
    assert is_one_stage(model)
    assert (onnx_topology(model).name, len(onnx_topology(model))) == (name, joints)
    with open_network(model) as network:
        image, world = network.find(
            np.zeros((960, 1280, 3), dtype=np.uint8)
        )  # twice the size of the network's input
        assert not network.follows
    assert image.shape == (2, joints, 4)
    assert not world.any()
    np.testing.assert_allclose(image[0, [0, -1], :2], [[200, 100], [280, 500]], atol=1e-3)
    np.testing.assert_allclose(image[1, 0], [600, 100, 0, 0.9], atol=1e-3)
    assert describe_pose_model(model)["estimator"].startswith("onnxruntime ")


def test_a_network_of_boxes_places_its_classified_coordinates_into_the_box(tmp_path: Path) -> None:
    across, down = np.zeros((1, 17, 2 * 192)), np.zeros((1, 17, 2 * 256))
    across[0, :, 192], down[0, :, 256] = 0.8, 0.6  # the middle of the crop
    across[0, 3, 0], down[0, 3, 0] = 0.9, 0.9  # its corner
    model = constant_network(tmp_path / "rtmpose.onnx", (192, 256), {"simcc_x": across, "simcc_y": down})
    assert not is_one_stage(model)
    with ExitStack() as opened:
        poses = OnnxPoses(model, opened)
        marks = poses.in_box(
            np.zeros((400, 400, 3), dtype=np.uint8), np.array([100.0, 100]), np.array([200.0, 300])
        )
    np.testing.assert_allclose(marks[0], [150, 200, 0, 0.6], atol=0.5)
    np.testing.assert_allclose(marks[3], [150 - 125 * 0.75, 75, 0, 0.9], atol=0.5)


def test_other_networks_are_refused_with_what_is_expected(tmp_path: Path) -> None:
    other = constant_network(tmp_path / "other.onnx", (64, 64), {"one": np.zeros((1, 5))})
    with pytest.raises(InputError, match=r"outputs of .2. dimensions; a pose model has boxes and key points"):
        is_one_stage(other)
    odd = rtmo(tmp_path / "odd.onnx", 19)
    with pytest.raises(InputError, match="19 key points; layouts of 17, 26 and 133 are known"):
        onnx_topology(odd)
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is not an ONNX file"):
        is_one_stage(tmp_path / "broken.onnx")


def test_a_video_is_read_with_an_onnx_file_as_two_people_in_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av", reason="PyAV is not installed (pip install halp-motion[video])")
    from halp.features.opening import open_source
    from halp.video.film import FilmWriter

    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    model = rtmo(tmp_path / "rtmo.onnx", 133)
    with FilmWriter(tmp_path / "film.mp4", 640, 480, 10) as writer:
        for number in range(12):
            writer.write(np.zeros((480, 640, 3), dtype=np.uint8), number / 10)
    source = open_source(tmp_path / "film.mp4", options={"pose_model": str(model)})
    with pytest.warns(UserWarning, match="2 people are seen"):
        clips = list(source.clips())
    assert [clip.frames.shape for clip in clips] == [(12, 1, 133, 2)] * 2
    assert source.topology.name == "coco-wholebody-133"
