"""Collections: vectors of a source as Parquet rows and mapped float16, searched, filtered, brought up to
date.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.data.store import Store, open_store
from halp.features import collection
from halp.features import embed as embedding

OPTIONS = ("--option", "topology=kinect-v2")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("halp.features.shards.FILES", 4)
    monkeypatch.setattr("halp.engine.Engine.processes", 1)


@pytest.fixture
def files(store: Store, tmp_path: Path) -> Path:
    for number in range(10):
        folder = tmp_path / "files" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{number}.npy", store.clip(number))
    return tmp_path / "files"


def found(capsys: pytest.CaptureFixture[str], *command: object) -> list[dict[str, object]]:
    capsys.readouterr()
    main([*map(str, command), "--json"])
    return json.loads(capsys.readouterr().out)


def test_a_collection_is_searched_like_its_source_and_nothing_is_embedded(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = ("--window", "1", "--stride", "0.5", "--fps", "30")
    main(["embed", "halp-base", str(files), str(tmp_path / "all"), *windows, *OPTIONS])
    plain = found(capsys, "search", "halp-base", "a/2", "--in", files, "-k", "5", *windows, *OPTIONS)
    monkeypatch.setattr("halp.features.encode.embed_blocks", None)  # would fail
    kept = found(capsys, "search", "halp-base", "a/2", "--in", tmp_path / "all", "-k", "5")
    assert [(hit["name"], hit["start"]) for hit in kept] == [(hit["name"], hit["start"]) for hit in plain]
    np.testing.assert_allclose([h["similarity"] for h in kept], [h["similarity"] for h in plain], atol=2e-3)
    some = found(capsys, "search", "halp-base", "a/2", "--in", tmp_path / "all", "--where", "label = 'b'")
    assert {str(hit["name"])[0] for hit in some} == {"b"}


def test_other_programs_read_the_rows_and_the_vectors(files: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    main(["embed", "halp-base", str(files), str(tmp_path / "all"), *OPTIONS])
    rows = pandas.read_parquet(tmp_path / "all" / "shards")
    assert sorted(rows["recording"]) == sorted(f"{'ab'[number % 2]}/{number}" for number in range(10))
    assert set(rows["label"]) == {"a", "b"}
    parts = sorted((tmp_path / "all" / "vectors").iterdir())
    vectors = np.concatenate([np.load(part, mmap_mode="r") for part in parts])
    assert (vectors.dtype, vectors.shape) == (np.float16, (10, 256))


def test_writing_again_adds_what_is_new_and_removes_what_is_gone(
    files: Path, tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    embed = ["embed", "halp-base", str(files), str(tmp_path / "all"), *OPTIONS]
    main(embed)
    shards = tmp_path / "all" / "shards"
    before = {path.name: path.stat().st_mtime_ns for path in shards.iterdir()}
    np.save(files / "b" / "new.npy", store.clip(40))
    (files / "a" / "0.npy").unlink()
    with pytest.warns(UserWarning, match="recordings changed after"):
        hits = halp.search("halp-base", "b/new", tmp_path / "all", k=20, progress=False)
    assert len(hits) == 9
    notes = tmp_path / "all" / "vectors" / "notes.txt"
    notes.write_text("not written by halp")
    main(embed)
    assert notes.exists()
    notes.unlink()
    after = {path.name: path.stat().st_mtime_ns for path in shards.iterdir()}
    assert len(set(before.items()) & set(after.items())) == 2, (
        "the shard that lost a recording was written again"
    )
    assert len(after) == 4
    assert (
        len(
            {path.stem for path in (tmp_path / "all" / "vectors").iterdir()}
            ^ {path.stem for path in shards.iterdir()}
        )
        == 0
    )
    hits = halp.search("halp-base", "b/new", tmp_path / "all", k=20, progress=False)
    assert "a/0" not in {hit.recording for hit in hits}


def test_a_collection_of_a_store_is_a_store_and_every_source(store: Store, tmp_path: Path) -> None:
    main(["embed", "halp-base", str(store.path), str(tmp_path / "all")])
    assert open_store(tmp_path / "all").hash == store.hash
    table = halp.embed_table("halp-base", tmp_path / "all", compact=True, progress=False)
    wanted = halp.embed("halp-base", store, compact=True, progress=False)
    np.testing.assert_allclose(table.vectors, wanted, rtol=2e-3, atol=2e-3)
    assert table.names == store.names.tolist()
    full = halp.embed_table("halp-base", tmp_path / "all", progress=False)
    assert full.vectors.shape == (len(store), 4176), "other vectors are computed as ever"


def test_what_is_not_a_collection_or_damaged_is_one_sentence(files: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["embed", "halp-base", str(files), str(tmp_path / "files"), *OPTIONS])
    main(["embed", "halp-base", str(files), str(tmp_path / "all"), *OPTIONS])
    with pytest.raises(InputError, match="is of recordings, not of a store"):
        open_store(tmp_path / "all")
    next((tmp_path / "all" / "vectors").iterdir()).write_bytes(b"")
    with pytest.raises(InputError, match="is damaged: shard"):
        halp.search("halp-base", "a/0", tmp_path / "all", progress=False)


def test_a_full_disk_leaves_nothing_and_an_interrupt_what_the_same_command_completes(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "all"
    embed, save = ["embed", "halp-base", str(files), str(out), *OPTIONS], np.save
    saved: list[object] = []
    main([*embed[:3], str(tmp_path / "cached"), *OPTIONS])

    def failing(error: BaseException) -> None:
        def full(*given: object, **more: object) -> None:
            saved.append(given)
            if len(saved) == 2:
                raise error
            save(*given, **more)

        saved.clear()
        monkeypatch.setattr("halp.features.collection.np.save", full)
        with pytest.raises(SystemExit):
            main(embed)

    failing(OSError("3040 requested and 0 written"))
    assert not out.exists()
    failing(KeyboardInterrupt())
    assert len(list((out / "shards").iterdir())) == 1
    monkeypatch.setattr("halp.features.collection.np.save", save)
    main(embed)
    assert len(halp.open_source(out)) == 10


def test_another_encoder_in_the_same_folder_replaces_the_vectors(files: Path, tmp_path: Path) -> None:
    vectors = {}
    for name in ("halp-base", "halp-base-adapted"):
        encoder = halp.load_encoder("halp-base")
        if name != "halp-base":
            with torch.no_grad():
                next(iter(encoder.parameters())).mul_(1.5)
        reading = halp.Reading(options={"topology": "kinect-v2"})
        source = halp.open_source(files, reading)
        table = embedding.embed_table(encoder, source, compact=True, progress=False)
        embedding.write_embedded(tmp_path / "all", encoder, source, reading, name)
        kept = embedding.embed_table(encoder, tmp_path / "all", compact=True, progress=False)
        np.testing.assert_allclose(kept.vectors, table.vectors, rtol=2e-3, atol=1e-3)
        vectors[name] = np.asarray(table.vectors)
    assert not np.allclose(*vectors.values(), rtol=1e-2)


def test_duckdb_reads_rows_of_a_collection_and_of_a_store(files: Path, tmp_path: Path, store: Store) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    main(["embed", "halp-base", str(files), str(tmp_path / "all"), *OPTIONS])
    rows = duckdb.read_parquet(str(tmp_path / "all" / "shards" / "*.parquet"))
    assert rows.aggregate("label, count(*)", "label").order("label").fetchall() == [("a", 5), ("b", 5)]
    clips = duckdb.read_parquet(str(store.path / "index.parquet"))
    frames = {int(label): int(store.lengths[store.labels == label].sum()) for label in store.labels}
    assert clips.aggregate("label, sum(length)", "label").order("label").fetchall() == sorted(frames.items())


def test_only_shards_of_an_unfinished_collection_are_removed(tmp_path: Path) -> None:
    shard, own = tmp_path / "shards" / f"{'a' * 32}.parquet", tmp_path / "vectors" / "mine.npy"
    for file in (shard, own):
        file.parent.mkdir()
        file.write_bytes(b"")
    collection._remove_shards(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.npy", "vectors"]
    own.unlink()
    collection._remove_shards(tmp_path)
    assert not tmp_path.exists()
