"""A store gives back what was written, opens fast, and damaged parts are named."""

from __future__ import annotations

import contextlib
import errno
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_samples import as_json_store, columns_of, make_store, reseal, write_columns

from halp.core.errors import InputError
from halp.core.locks import InUse
from halp.data import store_check
from halp.data.clip import Clip
from halp.data.splits import Split
from halp.data.store import open_store
from halp.data.store_index import read_index
from halp.data.store_writer import StoreWriter, add_split
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
    with (
        pytest.raises(InputError, match="25 joints"),
        StoreWriter(tmp_path / "s", KINECT_V1, persons=1) as writer,
    ):
        writer.add(Clip(np.ones((2, 1, 25, 3)), "a"))
    with (
        pytest.raises(InputError, match="no clip was left"),
        StoreWriter(tmp_path / "s", KINECT_V1, persons=1),
    ):
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
        ("index.parquet", None, "is not a store"),
        ("index.parquet", "PAR1 and nothing", "cannot be read"),
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


@pytest.mark.parametrize("text", ['{"length": [1]}', '{"length": "x"}', "[1]", "{"])
def test_a_damaged_index_in_json_is_refused(text: str, tmp_path: Path) -> None:
    path = as_json_store(make_store(tmp_path / "store").path)
    (path / "index.json").write_text(text)
    with pytest.raises(InputError, match=r"damaged|cannot be read|not part of a store"):
        open_store(path)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("name", None, "'name' is missing"),
        ("length", [1.0] * 12, "another type"),
        ("name", list(range(12)), "another type"),
        ("name", ["same"] * 12, "the same name"),
        ("length", [0, *range(4, 15)], "without frames"),
        ("setup", [None, *range(11)], "not a list of numbers or of texts"),
        ("setup", [[1]] * 12, "not a list of numbers or of texts"),
        ("setup", [b"1"] * 12, "not a list of numbers or of texts"),
        ("setup", [float("inf")] * 12, "not a list of numbers or of texts"),
        ("label", list(range(1, 13)), "fingerprint differs"),
    ],
)
def test_columns_of_other_kinds_or_values_are_refused(
    column: str, values: list[Any] | None, message: str, tmp_path: Path
) -> None:
    path = make_store(tmp_path / "store").path
    columns = columns_of(path)
    del columns[column]
    write_columns(path, columns if values is None else {**columns, column: values})
    with pytest.raises(InputError, match=message):
        open_store(path)


def test_an_index_of_more_clips_than_frames_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store").path
    names = {"name": [f"{number}" for number in range(1_000_000)]}
    write_columns(path, names | {name: [1] * 1_000_000 for name in ("length", "label", "subject", "camera")})
    with pytest.raises(InputError, match="1000000 clips in 102 frames"):
        open_store(path)


def test_a_store_with_an_index_in_json_is_the_same_store(tmp_path: Path) -> None:
    new = make_store(tmp_path / "new")
    old = make_store(tmp_path / "old")
    as_json_store(old.path)
    old = open_store(old.path)
    assert (old.hash, old.header["format"], new.header["format"]) == (new.hash, 1, 3)
    assert {name: values.tolist() for name, values in old.columns.items()} == {
        name: values.tolist() for name, values in new.columns.items()
    }
    assert {name: values.dtype for name, values in old.columns.items()} == {
        name: values.dtype for name, values in new.columns.items()
    }


@pytest.mark.parametrize("value", [2**70, "\ud800", None, [1], True, float("nan")])
def test_values_that_no_column_holds_are_refused_when_a_store_is_written(value: Any, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="columns of a store hold"),
        StoreWriter(tmp_path / "store", KINECT_V1, persons=1) as writer,
    ):
        writer.add(Clip(FRAMES, "one", extra={"odd": value}))
    assert not (tmp_path / "store").exists()


def test_pandas_reads_the_index_of_a_store(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    store = make_store(tmp_path / "store")
    rows = pandas.read_parquet(store.path / "index.parquet")
    assert rows["name"].tolist() == store.names.tolist()
    assert rows.groupby("label")["length"].sum().tolist() == [
        int(store.lengths[store.labels == label].sum()) for label in range(3)
    ]


def test_frames_cut_short_are_noticed(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store").path
    whole = (path / "frames.npy").read_bytes()
    (path / "frames.npy").write_bytes(whole[:-100])
    with pytest.raises(InputError, match="damaged"):
        open_store(path)


@pytest.mark.slow
def test_opening_a_store_of_a_hundred_thousand_clips_costs_little_more_than_reading_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        store_check, "_SETTLED", -1.0
    )  # files as young as these are checked once, like others
    path = make_store(tmp_path / "store", clips=1).path
    count = 100_000
    index = {
        "name": [f"S001C001P001R001A{number:06}" for number in range(count)],
        "length": [1] * count,
        **{
            column: [number % 60 for number in range(count)]
            for column in ("label", "subject", "camera", "setup")
        },
    }
    write_columns(path, index)
    np.save(path / "frames.npy", np.zeros((count, 1, 20, 3), dtype=np.float32))
    reseal(path)

    def cost(action: Callable[[], object]) -> float:
        began = time.process_time()
        action()
        return time.process_time() - began

    assert len(open_store(path)) == count
    reading = min(cost(lambda: read_index(path, count)) for _ in range(3))
    opening = min(cost(lambda: open_store(path)) for _ in range(3))
    assert opening < 2 * reading, (opening, reading)


FRAMES = np.ones((4, 1, 20, 3), dtype=np.float32)


def test_clips_are_counted_from_both_ends(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", clips=3)
    for index in range(3):
        np.testing.assert_array_equal(store.clip(index - 3), store.clip(index))
    for index in (-4, 3):
        with pytest.raises(IndexError, match=f"clip {index} of a store with 3 clips"):
            store.clip(index)


def test_frames_have_the_times_of_the_recording_and_those_left_out_keep_theirs(tmp_path: Path) -> None:
    known = {"recording": "long", "start": 1.5, "end": 3.5, "fps": 2.0}
    unknown_rate = {"recording": "other", "start": -1.0, "end": 4.0, "fps": -1.0}
    slow = {"recording": "slow", "start": 0.0, "end": 8.0, "fps": 0.5}
    still = {"recording": "still", "start": 0.0, "end": 4.0, "fps": 0.0}
    with StoreWriter(tmp_path / "store", KINECT_V1, persons=1) as writer:
        writer.add(Clip(FRAMES, "timed", extra=known, absent=((1, 2),)))
        writer.add(Clip(FRAMES, "untimed", extra=unknown_rate))
        writer.add(Clip(FRAMES, "slow", extra=slow))
        writer.add(Clip(FRAMES, "still", extra=still))
    store = open_store(tmp_path / "store")
    assert store.timed
    assert store.times(0).tolist() == [1.5, 3.0, 3.5, 4.0]
    assert store.times(1).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert store.times(-2).tolist() == [0.0, 2.0, 4.0, 6.0]
    assert store.times(-1).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert (store.spans.tolist(), store.lengths.tolist()) == ([6, 4, 4, 4], [4, 4, 4, 4])


@pytest.mark.parametrize(
    "extra", [{}, {"recording": 3, "start": 7, "end": 9}, {"recording": "a", "start": 7.0}]
)
def test_words_of_earlier_versions_are_not_taken_for_times(extra: dict, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", KINECT_V1, persons=1) as writer:
        writer.add(Clip(FRAMES, "one", extra=extra))
    store = open_store(tmp_path / "store")
    assert not store.timed
    assert (store.fps.tolist(), store.times(0).tolist()) == ([-1.0], [0.0, 1.0, 2.0, 3.0])


def test_store_says_what_it_was_made_of(tmp_path: Path) -> None:
    with StoreWriter(
        tmp_path / "a", KINECT_V1, persons=2, normalisation=["centre"], origin={"by": "hand"}
    ) as writer:
        writer.add(Clip(FRAMES, "one"))
        writer.manifest = {"kept": ["é"]}
    with StoreWriter(tmp_path / "b", KINECT_V1, persons=1) as writer:
        writer.add(Clip(FRAMES, "one"))
    one, other = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    assert (one.origin_joint, other.origin_joint) == (KINECT_V1.centre, "")
    assert (one.persons, other.persons) == (2, 1)
    assert (one.header["origin"], one.header["format"]) == ({"by": "hand"}, 3)
    assert (one.manifest(), other.manifest()) == ({"kept": ["é"]}, {})
    assert "é" in (tmp_path / "a" / "manifest.json").read_text(encoding="utf-8")
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [
        "frames.npy",
        "index.parquet",
        "store.json",
    ]
    (tmp_path / "a" / "manifest.json").write_text('{"dropped": 3}')
    with pytest.raises(InputError, match=r"manifest\.json"):
        one.manifest()


def test_classes_without_clips_are_left_out_and_the_others_renumbered(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", KINECT_V1, persons=1, class_names=["a", "b", "c", "d"]) as writer:
        for name, label in (("one", 3), ("two", -1), ("three", 0), ("four", 3)):
            writer.add(Clip(FRAMES, name, label))
        writer.leave_out_empty_classes()
    store = open_store(tmp_path / "store")
    assert (store.class_names, store.labels.tolist()) == (["a", "d"], [1, -1, 0, 1])


def test_values_that_only_some_clips_have_are_unknown_for_the_others(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", KINECT_V1, persons=1) as writer:
        writer.add(Clip(FRAMES, "one", extra={"word": "x"}))
        writer.add(Clip(FRAMES, "two", extra={"number": 2}))
    columns = open_store(tmp_path / "store").columns
    assert (columns["word"].tolist(), columns["number"].tolist()) == (["x", ""], [-1, 2])


def test_places_that_hold_no_store_are_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no store at .*halp prepare FORMAT SOURCE"):
        open_store(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file, not a store; make one"):
        open_store(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    for place in ("file", "folder"):
        with pytest.raises(InputError, match="exists already; it is not a store, remove it yourself"):
            StoreWriter(tmp_path / place, KINECT_V1, persons=1, overwrite=True)
    make_store(tmp_path / "store")
    with pytest.raises(InputError, match="exists already; replace the store with --overwrite"):
        StoreWriter(tmp_path / "store", KINECT_V1, persons=1)


def test_store_that_was_moved_aside_by_a_killed_process_is_brought_back(tmp_path: Path) -> None:
    make_store(tmp_path / "store", clips=3)
    (tmp_path / "store").rename(tmp_path / ".store.partial-12345678-old")
    assert len(open_store(tmp_path / "store")) == 3


def test_changed_header_and_index_that_does_not_fit_the_frames_are_noticed(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", clips=3).path
    header = json.loads((path / "store.json").read_text())
    (path / "store.json").write_text(json.dumps({**header, "origin": {"by": "somebody else"}}))
    with pytest.raises(InputError, match="damaged"):
        open_store(path)
    (path / "store.json").write_text(json.dumps(header))
    index = columns_of(path)
    index["length"][0] += 1
    write_columns(path, index)
    with pytest.raises(InputError, match="its index states"):
        open_store(path)


def test_two_cannot_write_one_store_at_once(tmp_path: Path) -> None:
    first, second, late = (StoreWriter(tmp_path / "store", KINECT_V1, persons=1) for _ in range(3))
    with first:
        first.add(Clip(FRAMES, "one"))
        with pytest.raises(InUse), second:
            pass
    with pytest.raises(InputError, match="exists already"), late:
        pass
    assert open_store(tmp_path / "store").names.tolist() == ["one"]


class FullDisk:
    """A file that takes this many writes, then has no room."""

    def __init__(self, file: object, writes: int) -> None:
        self.file, self.writes, self.closed = file, writes, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        self.writes -= 1
        if self.writes < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        self.closed += 1
        self.file.close()
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("writes", "words"),
    [(0, "nothing was left behind"), (1, "could not be written"), (9, "could not be written")],
)
def test_full_disk_is_reported_and_leaves_nothing(writes: int, words: str, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", KINECT_V1, persons=1)
    with pytest.raises(InputError, match=words), writer:  # noqa: PT012
        writer._file = full = FullDisk(writer._file, writes)
        writer.add(Clip(FRAMES, "one"))
    assert full.closed == 1
    assert list(tmp_path.iterdir()) == []


def test_place_where_nothing_can_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> contextlib.AbstractContextManager[Path]:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("halp.data.store_writer.building", refuse)
    writer = StoreWriter(tmp_path / "store", KINECT_V1, persons=1)
    with pytest.raises(InputError, match=r"cannot be written \(.*Read-only.*choose another path"), writer:
        pass


def test_names_given_twice_are_named(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="two clips are called 'b'"),
        StoreWriter(tmp_path / "s", KINECT_V1, persons=1) as writer,
    ):
        list(map(writer.add, [Clip(FRAMES, name) for name in "abcb"]))


def test_too_many_persons_are_refused_and_as_many_as_there_is_room_for_are_not(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", KINECT_V1, persons=2) as writer:
        writer.add(Clip(FRAMES.repeat(2, 1), "two"))
        with pytest.raises(InputError, match="'three' has 3 persons"):
            writer.add(Clip(FRAMES.repeat(3, 1), "three"))
    assert open_store(tmp_path / "s").names.tolist() == ["two"]


def test_split_is_saved_once_replaced_when_asked_and_refused_where_a_part_is_empty(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", clips=4, splits=()).path
    with pytest.raises(InputError, match="has no splits, so no 'mine'"):
        open_store(path).split("mine")
    first, other = (Split("mine", "subject", (subject,)) for subject in (1, 2))
    add_split(path, first)
    add_split(path, first)
    assert open_store(path).splits == {"mine": first}
    with pytest.raises(InputError, match="has another split 'mine'"):
        add_split(path, other)
    add_split(path, other, replace=True)
    assert open_store(path).splits == {"mine": other}
    with pytest.raises(InputError):
        add_split(path, Split("empty", "subject", (99,)))
    with pytest.raises(InputError, match="did you mean 'mine'"):
        open_store(path).split("mien")
    with pytest.raises(InputError, match="there is no store"):
        add_split(tmp_path / "nothing", first)
    assert not [
        item for item in tmp_path.iterdir() if "nothing" in item.name
    ]  # no lock beside what is not a store


def test_split_that_cannot_be_saved_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_store(tmp_path / "store", splits=()).path

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("halp.data.store_writer.write_text", refuse)
    with pytest.raises(InputError, match=r"split 'mine' cannot be saved in .*No space left"):
        add_split(path, Split("mine", "subject", (1,)))
