"""A store that lists others: opened without copying, read, embedded and trained on like a store of its
own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from clip_samples import as_json_store

import halp
from halp.augment import ClipPool
from halp.core.errors import InputError
from halp.data.inspect import inspect
from halp.data.merge import merge
from halp.data.store import Store, open_store
from halp.data.synthetic import make_synthetic_store


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Store, Path]:
    """Two stores copied into one, and the same two listed, twice over each other."""
    folder = tmp_path_factory.mktemp("listing")
    for seed, name in enumerate(("one", "two", "three")):
        make_synthetic_store(folder / name, count=48, subjects=4, seed=seed)
    copied = merge([folder / "one", folder / "two"], folder / "copied", progress=False)
    return copied, merge([folder / "one", folder / "two"], folder / "listed", link=True), folder


def test_a_listing_equals_a_copy_and_holds_no_frames(pair: tuple[Store, Store, Path]) -> None:
    copied, listed, folder = pair
    assert [path.name for path in (folder / "listed").iterdir()] == ["store.json"]
    assert copied.columns.keys() == listed.columns.keys()
    for name, values in copied.columns.items():
        np.testing.assert_array_equal(listed.columns[name], values)
    assert (listed.class_names, listed.splits, listed.absent) == (
        copied.class_names,
        copied.splits,
        copied.absent,
    )
    np.testing.assert_array_equal(np.asarray(listed.frames), copied.frames)
    for index in (0, 47, 48, 95):
        np.testing.assert_array_equal(listed.clip(index), copied.clip(index))
    np.testing.assert_array_equal(listed.frames[100:9000], copied.frames[100:9000])
    assert listed.split("source-two")[1].tolist() == list(range(48, 96))
    assert inspect(listed).frames == inspect(copied).frames


def test_clips_of_a_listing_are_embedded_and_pooled_like_copied_ones(
    pair: tuple[Store, Store, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path))
    copied, listed, _ = pair
    wanted = halp.embed("halp-base", copied, compact=True, progress=False)
    np.testing.assert_array_equal(halp.embed("halp-base", listed, compact=True, progress=False), wanted)
    for _ in range(2):
        table = halp.embed_table("halp-base", listed, compact=True, progress=False)
        np.testing.assert_array_equal(table.vectors, wanted)
        assert table.names == listed.names.tolist()
    np.testing.assert_array_equal(ClipPool.from_store(listed).frames, ClipPool.from_store(copied).frames)
    with pytest.raises(InputError, match="without --link"):
        ClipPool.from_store(listed, keep=False)


def test_a_listing_may_list_listings_old_and_new(pair: tuple[Store, Store, Path]) -> None:
    _, listed, folder = pair
    nested = merge([folder / "listed", folder / "three"], folder / "nested", link=True)
    assert len(open_store(folder / "nested")) == 144
    np.testing.assert_array_equal(nested.clip(100), open_store(folder / "three").clip(4))
    assert nested.names[0] == f"listed/{listed.names[0]}"


def test_stores_with_an_index_in_json_and_in_parquet_are_listed_and_copied_together(
    pair: tuple[Store, Store, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    for name in ("one", "two"):
        shutil.copytree(pair[2] / name, tmp_path / name)
    as_json_store(tmp_path / "one")
    for name, link in (("listed", True), ("copied", False)):
        mixed = merge([tmp_path / "one", tmp_path / "two"], tmp_path / name, link=link, progress=False)
        assert mixed.names.tolist() == pair[0].names.tolist()
        np.testing.assert_array_equal(np.asarray(mixed.frames), pair[0].frames)
    hits, wanted = (
        halp.search(
            "halp-base", "one/" + str(open_store(tmp_path / "one").names[0]), store, k=5, progress=False
        )
        for store in (tmp_path / "listed", pair[0])
    )
    assert [hit.to_json() for hit in hits] == [hit.to_json() for hit in wanted]


def test_what_changed_after_it_was_listed_is_refused(tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two")):
        make_synthetic_store(tmp_path / name, count=8, subjects=2, seed=seed)
    merge([tmp_path / "one", tmp_path / "two"], tmp_path / "listed", link=True)
    make_synthetic_store(tmp_path / "two", count=8, subjects=2, seed=7, overwrite=True)
    with pytest.raises(InputError, match=r"changed after .* listed it"):
        open_store(tmp_path / "listed")
    (tmp_path / "listed" / "store.json").write_text('{"format": 2, "stores": []}')
    with pytest.raises(InputError, match="is damaged"):
        open_store(tmp_path / "listed")
