"""A store gives back what was written, opens fast, and damaged parts are named."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from clip_samples import make_store, reseal

from halp.clips.clip import Clip
from halp.clips.store import StoreWriter, open_store
from halp.errors import InputError
from halp.skeleton import KINECT_V1


def test_clips_come_back_as_they_were_written(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).normal(size=(5, 1, 20, 3)).astype(np.float32)
    with StoreWriter(tmp_path / "store", KINECT_V1, persons=2, class_names=["a"]) as writer:
        writer.add(Clip(frames, "one", 0, 3, 2, {"setup": 4}))
        writer.add(Clip(frames[:2], "two"))
    store = open_store(tmp_path / "store")
    np.testing.assert_array_equal(store.clip(0)[:, :1], frames)
    assert not store.clip(0)[:, 1].any()
    assert store.clip(-1).shape == (2, 2, 20, 3)
    assert (store.names.tolist(), store.subjects.tolist()) == (["one", "two"], [3, -1])
    assert store.columns["setup"].tolist() == [4, -1]
    assert store.manifest() == {}
    with pytest.raises(IndexError):
        store.clip(2)


def test_the_fingerprint_follows_frames_and_index(tmp_path: Path) -> None:
    one, same = (make_store(tmp_path / name) for name in ("a", "b"))
    other = make_store(tmp_path / "c", clips=11)
    assert one.hash == same.hash != other.hash


def test_further_columns_keep_the_order_of_the_clips_so_that_the_fingerprint_is_the_same_everywhere(
    tmp_path: Path,
) -> None:
    names = [f"column-{number}" for number in (3, 1, 2, 0, 4)]
    with StoreWriter(tmp_path / "store", KINECT_V1, persons=1) as writer:
        writer.add(Clip(np.ones((2, 1, 20, 3)), "one", extra=dict.fromkeys(names, 1)))
    assert list(open_store(tmp_path / "store").columns)[5:] == names


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    frames = np.ones((2, 1, 20, 3), dtype=np.float32)
    with (
        pytest.raises(InputError, match="two clips are called 'a'"),
        StoreWriter(tmp_path / "s", KINECT_V1, persons=1) as writer,
    ):
        list(map(writer.add, [Clip(frames, "a")] * 2))
    with pytest.raises(InputError, match="25 joints"), StoreWriter(tmp_path / "s", KINECT_V1, persons=1) as writer:
        writer.add(Clip(np.ones((2, 1, 25, 3)), "a"))
    with pytest.raises(InputError, match="no clip was left"), StoreWriter(tmp_path / "s", KINECT_V1, persons=1):
        pass
    assert list(tmp_path.iterdir()) == []


def test_overwriting_replaces_the_old_store_in_one_step(tmp_path: Path) -> None:
    make_store(tmp_path / "s", clips=3)
    with pytest.raises(InputError, match="exists already"):
        make_store(tmp_path / "s")
    assert len(make_store(tmp_path / "s", clips=5, overwrite=True)) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("store.json", None, "is not a store"),
        ("store.json", "{", "cannot be read"),
        ("store.json", "[]", "not part of a store"),
        ("store.json", '{"format": 99}', "format 99"),
        ("store.json", '{"format": 1}', "damaged"),
        ("index.json", None, "is not a store"),
        ("index.json", '{"length": [1]}', "damaged"),
        ("index.json", '{"length": "x"}', "damaged"),
        ("frames.npy", None, "damaged"),
        ("frames.npy", "no array", "damaged"),
    ],
)
def test_a_damaged_store_is_refused_with_the_remedy(
    name: str, content: str | None, message: str, tmp_path: Path
) -> None:
    path = make_store(tmp_path / "store").path
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        open_store(path)


def test_frames_cut_short_are_noticed(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store").path
    whole = (path / "frames.npy").read_bytes()
    (path / "frames.npy").write_bytes(whole[:-100])
    with pytest.raises(InputError, match="damaged"):
        open_store(path)


@pytest.mark.slow
def test_opening_a_store_of_a_hundred_thousand_clips_costs_little_more_than_reading_its_index(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", clips=1).path
    count = 100_000
    index = {
        "name": [f"S001C001P001R001A{number:06}" for number in range(count)],
        "length": [1] * count,
        **{column: [number % 60 for number in range(count)] for column in ("label", "subject", "camera", "setup")},
    }
    (path / "index.json").write_text(json.dumps(index))
    np.save(path / "frames.npy", np.zeros((count, 1, 20, 3), dtype=np.float32))
    reseal(path)

    def cost(action: Callable[[], object]) -> float:
        began = time.process_time()
        action()
        return time.process_time() - began

    assert len(open_store(path)) == count
    reading = min(cost(lambda: json.loads((path / "index.json").read_text())) for _ in range(3))
    opening = min(cost(lambda: open_store(path)) for _ in range(3))
    assert opening < 12 * reading, (opening, reading)
