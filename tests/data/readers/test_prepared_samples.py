"""Every sample and every real set goes the whole way: recognised, read, normalised, stored, opened."""

from pathlib import Path

import numpy as np
import pytest
from reader_samples import (
    OPTIONS,
    SAMPLES,
    SETS,
    shared,
    write_bvh,
    write_coco17,
    write_mediapipe,
    write_nwucla,
)

from halp.core.errors import InputError
from halp.data.ingest.prepare import prepare
from halp.data.store import open_store
from halp.skeleton import get_topology


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_becomes_a_store_with_format_auto(sample: str, tmp_path: Path) -> None:
    reader, write = SAMPLES[sample]
    (tmp_path / "in").mkdir()
    options = OPTIONS.get(reader, {})
    prepare("auto", write(tmp_path / "in"), tmp_path / "store", workers=1, options=options, progress=False)
    store = open_store(tmp_path / "store")
    assert len(store) >= 1
    assert np.isfinite(store.frames).all()
    assert store.topology.dimensions == store.frames.shape[3]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.heavy
def test_a_real_set_becomes_a_store_with_its_splits(name: str, tmp_path: Path) -> None:
    prepare("auto", shared("data", f"{name}.npz"), tmp_path / "store", workers=1, progress=False)
    store = open_store(tmp_path / "store")
    counts = {"nw-ucla": 1484, "utd-mhad": 861, "msr-action3d": 566, "utkinect": 199}
    assert len(store) == counts[name]
    assert sum(map(len, store.split("xsub"))) == len(store)


def test_clips_of_pose_estimators_are_mapped_onto_kinect_joints(tmp_path: Path) -> None:
    write_mediapipe(tmp_path)
    prepare(
        "auto", tmp_path / "wave.json", tmp_path / "store", topology="kinect-v1", workers=1, progress=False
    )
    assert open_store(tmp_path / "store").topology == get_topology("kinect-v1")
    with pytest.raises(InputError, match="has 2 coordinates a joint and 'kinect-v1' has 3"):
        prepare(
            "auto",
            write_coco17(tmp_path),
            tmp_path / "other",
            topology="kinect-v1",
            workers=1,
            progress=False,
        )
    with pytest.raises(InputError, match=r"it has no .*hip_right"):
        prepare(
            "auto", write_bvh(tmp_path), tmp_path / "other", topology="kinect-v1", workers=1, progress=False
        )


def test_one_bad_clip_among_good_ones_is_named_unless_strict(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_nwucla(tmp_path / "in")
    write_nwucla(tmp_path / "in", "a01_s01_e00_v02").write_text("{")
    manifest = prepare("auto", tmp_path / "in", tmp_path / "store", workers=1, progress=False)
    assert len(open_store(tmp_path / "store")) == 1
    assert "a01_s01_e00_v02" in str(vars(manifest))
    with pytest.raises(InputError, match="a01_s01_e00_v02"):
        prepare("auto", tmp_path / "in", tmp_path / "other", strict=True, workers=1, progress=False)
