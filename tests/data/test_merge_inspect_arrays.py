"""Pooling stores by joint name, counting what is in them, and making them from arrays."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from clip_samples import bodies, make_store, write_skeleton
from rich.console import Console

from halp.cli.present import present
from halp.core.errors import InputError
from halp.data.arrays import store_from_arrays
from halp.data.ingest.prepare import prepare
from halp.data.inspect import inspect
from halp.data.merge import merge
from halp.data.splits import FewLabels, Split
from halp.skeleton import KINECT_V1, KINECT_V2, get_topology


def test_stores_of_different_layouts_are_pooled_by_joint_name(tmp_path: Path) -> None:
    xsub = Split("xsub", "subject", (1, 3))
    lists = Split("list", "name", ("clip01",), ("clip02",))
    splits = (xsub, lists, FewLabels("few", xsub, 0.5))
    one = make_store(tmp_path / "one", topology=KINECT_V1, splits=splits)
    two = make_store(
        tmp_path / "two", clips=5, topology=KINECT_V2, persons=2, class_names=("sit", "wave", "jump")
    )
    merged = merge([one.path, two.path], tmp_path / "both", progress=False)
    assert (len(merged), merged.persons, merged.topology) == (17, 2, KINECT_V1)
    np.testing.assert_array_equal(merged.clip(3)[:, :1], one.clip(3))
    np.testing.assert_array_equal(
        merged.clip(13), two.clip(1)[:, :, [KINECT_V2.index(joint) for joint in KINECT_V1.joints]]
    )
    assert merged.names[0] == "one/clip00"
    assert sorted(merged.class_names) == ["jump", "sit", "walk", "wave"]
    assert merged.class_names[merged.labels[12]] == "sit"
    assert merged.columns["source"].tolist() == [0] * 12 + [1] * 5
    for name in ("xsub", "list", "few"):
        for part, same in zip(one.split(name), merged.split(f"one/{name}"), strict=True):
            assert len(part)
            assert [f"one/{clip}" for clip in one.names[part]] == merged.names[same].tolist()
    assert [part.tolist() for part in merged.split("source-two")] == [list(range(12)), list(range(12, 17))]


def test_stores_that_do_not_go_together_say_why(tmp_path: Path) -> None:
    one = make_store(tmp_path / "one", normalisation=["centre"])
    two = make_store(tmp_path / "two", topology=KINECT_V2)
    flat = make_store(tmp_path / "flat", topology=get_topology("coco-17"), normalisation=["centre"])
    with pytest.raises(InputError, match="same steps"):
        merge([one.path, two.path], tmp_path / "both")
    with pytest.raises(InputError, match="2 coordinates"):
        merge([one.path, flat.path], tmp_path / "both", progress=False)
    plain = make_store(tmp_path / "plain")
    with pytest.raises(InputError, match="hand_tip_left"):
        merge([plain.path, two.path], tmp_path / "both", topology="kinect-v2", progress=False)
    with pytest.raises(InputError, match="at least two"):
        merge([one.path], tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_inspect_counts_what_is_there(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    joints = bodies(6, 2)
    joints[2:4, 0, 7] = 0
    write_skeleton(tree, "S001C001P001R001A001", joints)
    write_skeleton(tree, "S001C002P003R001A002", bodies(4, 1))
    (tree / "S001C002P003R001A003.skeleton").write_text("garbage")
    prepare("ntu", tree, tmp_path / "store", normalisation=(), progress=False)
    found = inspect(tmp_path / "store")
    assert (found.clips, found.frames, found.persons) == (2, 10, 2)
    assert found.lengths == {"shortest": 4, "median": 5, "mean": 5, "longest": 6}
    assert found.classes == {"drink water": 1, "eat meal": 1}
    assert found.columns["camera"] == {1: 1, 2: 1}
    assert found.columns["setup"] == {1: 2}
    assert found.splits["xview"]["train"] == found.splits["xview"]["test"] == 1
    assert len(found.splits["xsub"]["hash"]) == 16
    assert found.missing_joints["hand_left"] == pytest.approx(2 / 16)
    assert found.missing_joints["spine"] == 0
    assert found.clips_with_persons == {1: 1, 2: 1}
    assert (found.dropped, list(found.dropped_reasons)) == (1, ["'garbage' is no number of frames"])
    json.dumps(found.to_json())
    console = Console(file=io.StringIO(), width=160)
    console.print(*present(found).tables)
    assert "xview" in console.file.getvalue()


def test_a_centred_store_does_not_count_its_centre_as_missing(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "tree")
    prepare("ntu", tmp_path / "tree", tmp_path / "store", normalisation=("centre",), progress=False)
    assert inspect(tmp_path / "store").missing_joints["spine"] == 0


def test_arrays_in_memory_become_a_store(tmp_path: Path) -> None:
    arrays = [np.ones((4, 25, 3)), np.ones((2, 2, 25, 3), dtype=np.float64).tolist()]
    store = store_from_arrays(
        tmp_path / "store",
        arrays,
        topology="kinect-v2",
        labels=[0, 1],
        class_names=["a", "b"],
        names=["x", "y"],
    )
    assert (store.persons, store.lengths.tolist(), store.labels.tolist()) == (2, [4, 2], [0, 1])
    assert store.names.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("arrays", "settings", "message"),
    [
        ([], {}, "at least one"),
        ([np.ones((4, 20, 3))], {}, r"shape \(4, 20, 3\)"),
        ([np.ones((4, 25, 2))], {}, "kinect-v2"),
        ([np.ones((0, 25, 3))], {}, "shape"),
        ([[["a"]]], {}, "not an array of numbers"),
        ([np.full((4, 25, 3), np.nan)], {}, "not finite"),
        ([np.ones((4, 25, 3))], {"labels": [1, 2]}, "2 labels"),
        ([np.ones((4, 25, 3))], {"labels": [3], "class_names": ["a"]}, "class 3"),
        ([np.ones((4, 25, 3))] * 2, {"names": ["a", "a"]}, "two clips are called"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_and_leave_nothing(
    arrays, settings, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        store_from_arrays(tmp_path / "store", arrays, topology="kinect-v2", **settings)
    assert list(tmp_path.iterdir()) == []
