"""Shards of a source: keys from their own files, what is computed again, warnings of every answer, any number
of workers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from use_samples import fresh_encoder

import halp
from halp.core.errors import InputError
from halp.core.job_parts import PartDone
from halp.data.ingest.pipeline import Pipeline
from halp.data.ingest.shards import FileHashes
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.features import encode as embedding
from halp.features import shards
from halp.features.content import StoredClips
from halp.features.opening import open_source
from halp.features.source import Source

LAYOUT = {"options": {"topology": "kinect-v2"}}


@pytest.fixture(scope="module")
def encoder(store: Store) -> PretrainedEncoder:
    return fresh_encoder(store)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty recordings in folders named after their classes, three to a shard, old enough to be trusted."""
    monkeypatch.setattr(shards, "FILES", 3)
    path = tmp_path / "files"
    for number in range(20):
        (path / "ab"[number % 2]).mkdir(exist_ok=True, parents=True)
        np.save(path / "ab"[number % 2] / f"{number:02}.npy", store.clip(number))
    return settled(path)


def settled(path: Path) -> Path:
    """Files last changed a while ago; the change time cannot be set, so the clock of the rule is turned
    instead.
    """
    for file in path.rglob("*.npy"):
        os.utime(file, (1e9, 1e9))
    return path


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once: what they are compared by is what a test changes."""
    monkeypatch.setattr("halp.data.ingest.shards._SETTLED", -(10**12))


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many recordings every embedding went through."""
    counts: list[int] = []
    blocks = embedding.embed_blocks

    def counted(encoder: PretrainedEncoder, source: Source, **options: object) -> object:
        counts.append(source.content.items)
        return blocks(encoder, source, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(embedding, "embed_blocks", counted)
    return counts


def table_of(encoder: PretrainedEncoder, folder: Path, **options: object) -> halp.FeatureTable:
    return halp.embed_table(encoder, folder, progress=False, **{**LAYOUT, "workers": 1, **options})  # type: ignore[arg-type]


def test_shards_together_are_what_reading_all_at_once_gives(encoder: PretrainedEncoder, folder: Path) -> None:
    for cutting in ({}, {"window": 0.5, "stride": 0.25, "fps": 30.0}):
        at_once = table_of(encoder, folder, cache=False, **cutting)
        for _ in range(2):  # computed, then kept
            kept = table_of(encoder, folder, **cutting)
            np.testing.assert_array_equal(kept.vectors, at_once.vectors)
            np.testing.assert_array_equal(kept.rows, at_once.rows)
            assert (kept.recordings, kept.class_names) == (at_once.recordings, at_once.class_names)


def test_a_vector_depends_on_its_clip_alone(store: Store) -> None:
    """Whatever else is in its batch: how recordings fall into shards, and on which workers, changes no
    bit.
    """
    clips = [np.asarray(store.clip(number)) for number in range(40)]
    flat = [clip[:, :, :17, :2] for clip in clips]
    for name, source, layout in (
        ("halp-base", clips, "kinect-v2"),
        ("halp-view", flat, "coco-17"),
        (fresh_encoder(store), clips, "kinect-v2"),
    ):
        together = halp.embed(name, source, topology=layout, progress=False)
        for few in (1, 7, 33):
            apart = halp.embed(name, source[:few], topology=layout, progress=False)
            np.testing.assert_array_equal(apart, together[:few])


def test_only_new_and_changed_files_are_embedded_and_removed_ones_are_gone(
    encoder: PretrainedEncoder, folder: Path, embedded: list[int], store: Store
) -> None:
    table_of(encoder, folder)
    assert (sum(embedded), max(embedded)) == (20, 3)
    embedded.clear()
    np.save(folder / "a" / "07-new.npy", store.clip(50))
    settled(folder)
    table_of(encoder, folder)
    assert embedded == [1]
    embedded.clear()
    np.save(folder / "b" / "05.npy", store.clip(60))
    (folder / "a" / "02.npy").unlink()
    (folder / "c").mkdir()
    (folder / "a" / "04.npy").rename(folder / "c" / "04.npy")
    settled(folder)
    table = table_of(encoder, folder)
    assert embedded == [2]
    fresh = table_of(encoder, folder, cache=False)
    np.testing.assert_array_equal(table.vectors, fresh.vectors)
    np.testing.assert_array_equal(table.rows, fresh.rows)
    assert (table.recordings, table.class_names) == (fresh.recordings, ("a", "b", "c"))


def test_files_are_read_again_only_where_they_changed_and_always_with_verify(
    encoder: PretrainedEncoder, folder: Path, store: Store
) -> None:
    def read(**options: bool) -> int:
        files = open_source(folder, **LAYOUT).content
        hashes = FileHashes(folder, **options)
        hashes.of(item.path for item in files.files)  # type: ignore[attr-defined]
        return hashes.read

    assert (read(), read(), read(verify=True)) == (20, 0, 20)
    one = folder / "a" / "06.npy"
    times = os.stat(one)
    content = bytearray(one.read_bytes())
    content[-1] ^= 1
    one.write_bytes(content)
    os.utime(
        one, ns=(times.st_atime_ns, times.st_mtime_ns)
    )  # same size, inode and modification time: the change time tells
    assert (read(), read()) == (1, 0)


def test_a_young_file_is_read_again_every_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halp.data.ingest.shards._SETTLED", 10**12)
    files = sorted(folder.rglob("*.npy"))
    for _ in range(2):
        hashes = FileHashes(folder)
        hashes.of(files)
        assert hashes.read == 20


def test_vectors_are_bit_identical_for_any_number_of_workers(
    store: Store, folder: Path, tmp_path: Path
) -> None:
    tables = []
    for workers in (1, 2, 3):
        os.environ["HALP_CACHE"] = str(tmp_path / f"cache-{workers}")
        tables.append(halp.embed_table("halp-base", folder, workers=workers, progress=False, **LAYOUT))
        again = halp.embed_table("halp-base", folder, workers=1, progress=False, **LAYOUT)
        np.testing.assert_array_equal(again.vectors, tables[-1].vectors)
    for table in tables[1:]:
        assert np.asarray(table.vectors).tobytes() == np.asarray(tables[0].vectors).tobytes()
        np.testing.assert_array_equal(table.rows, tables[0].rows)


def test_parts_of_a_job_array_make_the_whole(
    encoder: PretrainedEncoder, folder: Path, embedded: list[int]
) -> None:
    for number in (3, 1, 2):
        with pytest.raises(PartDone, match=f"part {number}/3 is done"):
            table_of(encoder, folder, shard=f"{number}/3")
    assert sum(embedded) == 20
    embedded.clear()
    table = table_of(encoder, folder)
    assert embedded == []
    np.testing.assert_array_equal(table.vectors, table_of(encoder, folder, cache=False).vectors)


def test_a_file_that_changes_while_it_is_read_is_never_kept_under_its_old_content(
    encoder: PretrainedEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = folder / "a" / "06.npy", folder / "b" / "07.npy"
    before, work = one.read_bytes(), Pipeline.work

    def changed(pipeline: Pipeline, items: Any) -> Any:
        if items[0].path == one:
            one.write_bytes(other.read_bytes())
        return work(pipeline, items)

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "work", changed)
        with pytest.raises(InputError, match=r"06\.npy' changed while .* run the command again"):
            table_of(encoder, folder)
    one.write_bytes(before)  # the content that the key was made of
    table = table_of(encoder, folder)
    np.testing.assert_array_equal(table.vectors, table_of(encoder, folder, cache=False).vectors)


@pytest.mark.parametrize("cache", ["", "file/cache"])
def test_a_job_array_without_a_cache_is_refused(
    encoder: PretrainedEncoder, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HALP_CACHE", cache and str(tmp_path / cache))
    with pytest.raises(InputError, match="set HALP_CACHE to a folder"):
        table_of(encoder, folder, shard="1/3")


def test_a_part_whose_shards_cannot_be_written_is_not_done(
    encoder: PretrainedEncoder, folder: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("halp.features.cache.VectorFile.__exit__", full)
    with pytest.raises(InputError, match="set HALP_CACHE to a folder"):
        table_of(encoder, folder, shard="1/3")
    assert sum(embedded) == 8  # its three shards once, and nothing in memory instead


def test_stores_go_through_shards_too(
    encoder: PretrainedEncoder, store: Store, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "CLIPS", 50)
    for cutting in ({}, {"window": 0.5, "fps": 30.0}):
        embedded.clear()
        kept = halp.embed_table(encoder, store, workers=1, progress=False, **cutting)  # type: ignore[arg-type]
        assert embedded == [50, 50, 50, 42]
        at_once = halp.embed_table(encoder, store, cache=False, progress=False, **cutting)  # type: ignore[arg-type]
        np.testing.assert_array_equal(kept.vectors, at_once.vectors)
        np.testing.assert_array_equal(kept.rows, at_once.rows)
        assert (kept.recordings, kept.absences) == (at_once.recordings, at_once.absences)


def test_a_killed_embedding_resumes_with_the_shards_that_were_done(
    encoder: PretrainedEncoder, folder: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = embedding.embed_blocks

    def stopped(*given: object, **options: object) -> object:
        if len(embedded) == 4:
            raise KeyboardInterrupt
        return blocks(*given, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(embedding, "embed_blocks", stopped)
        with pytest.raises(KeyboardInterrupt):
            table_of(encoder, folder)
    assert len(embedded) == 4
    embedded.clear()
    table_of(encoder, folder)
    assert sum(embedded) == 20 - 4 * 3


BROKEN = {"empty.npy": b"", "cut.npy": b"\x93NUMPY\x01\x00", "text.npy": b"not an array"}


@pytest.fixture
def mixed(folder: Path) -> Path:
    """Recordings, three that are broken, and two files of another type."""
    for number in range(4, 20):
        (folder / "ab"[number % 2] / f"{number:02}.npy").unlink()
    for name, content in BROKEN.items():
        (folder / name).write_bytes(content)
    (folder / "wrongext.c3d").write_bytes(b"text")
    (folder / "table.xlsx").write_bytes(b"PK")
    return folder


def test_every_answer_names_the_recordings_that_were_left_out(
    encoder: PretrainedEncoder, mixed: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(mixed, tmp_path / "copy")
    for source in (mixed, mixed, copy, copy):
        with pytest.warns(UserWarning, match="left out") as told:
            table = table_of(encoder, source)
        assert len(table) == 4
        sentences = [str(warning.message) for warning in told]
        assert list(table.warnings) == sentences
        assert all(f"'{name}'" in sentences[0] for name in BROKEN), sentences
        assert sentences[0].startswith("3 recordings were left out: ")
        (unread,) = (sentence for sentence in sentences if sentence.startswith("2 files of "))
        assert "'table.xlsx', 'wrongext.c3d'" in unread
        assert sorted(drop.name for drop in table.left_out) == sorted(BROKEN)


def test_left_out_recordings_are_listed_in_a_file_with_their_reasons(
    encoder: PretrainedEncoder, mixed: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        with warnings.catch_warnings(record=True):
            table_of(encoder, mixed, left_out=tmp_path / "left.csv")
        lines = (tmp_path / "left.csv").read_text().splitlines()
        assert lines[0] == "name,reason"
        assert sorted(line.split(",")[0] for line in lines[1:]) == sorted(BROKEN)
        (tmp_path / "left.csv").unlink()


def test_the_table_of_what_was_left_out_covers_every_source_that_is_read(
    encoder: PretrainedEncoder, mixed: Path, tmp_path: Path
) -> None:
    query, left_out = tmp_path / "query.npy", tmp_path / "left.csv"
    query.write_bytes((mixed / "a" / "00.npy").read_bytes())
    with pytest.warns(UserWarning, match="3 recordings were left out"):
        halp.search(encoder, query, mixed, cache=False, progress=False, left_out=left_out, **LAYOUT)  # type: ignore[arg-type]
    assert sorted(line.split(",")[0] for line in left_out.read_text().splitlines()[1:]) == sorted(BROKEN)


def test_long_recordings_are_mentioned_every_time(
    encoder: PretrainedEncoder, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "long").mkdir()
    np.save(tmp_path / "long" / "one.npy", np.tile(store.clip(0), (40, 1, 1, 1)))
    for _ in range(2):
        with pytest.warns(UserWarning, match="squeezed into one vector"):
            table = table_of(encoder, tmp_path / "long")
        assert "squeezed into one vector" in table.warnings[-1]


def test_the_second_command_names_all_of_them_again(mixed: Path) -> None:
    for _ in range(2):
        command = [
            "-m",
            "halp",
            "cluster",
            "halp-base",
            str(mixed),
            "--option",
            "topology=kinect-v2",
            "--json",
        ]
        told = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stderr
        assert all(f"'{name}'" in told for name in (*BROKEN, "table.xlsx", "wrongext.c3d")), told


def test_recordings_that_were_embedded_do_not_stay_in_memory(
    encoder: PretrainedEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond what is kept on purpose; a shard that is done held its last recording until all were done."""
    monkeypatch.setattr("halp.features.content._KEPT", 0)
    read: list[weakref.ref[Any]] = []
    most, work = 0, Pipeline.work

    def counted(pipeline: Pipeline, items: Any) -> Any:
        nonlocal most
        outcomes = work(pipeline, items)
        most = max(most, sum(frames() is not None for frames in read))
        read.extend(weakref.ref(outcome.frames) for outcome in outcomes)
        return outcomes

    monkeypatch.setattr(Pipeline, "work", counted)
    table_of(encoder, folder)
    assert len(read) == 20
    assert most <= 2


def resident(file: Path) -> int:
    """Kilobytes of a mapped file that this process holds in memory."""
    held, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0] and ":" not in line.split(" ")[0]:
            inside = line.endswith(str(file))
        elif inside and line.startswith("Rss:"):
            held += int(line.split()[1])
    return held


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_clips_of_a_store_that_were_embedded_do_not_stay_in_memory(
    encoder: PretrainedEncoder, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "CLIPS", 16)
    opened = halp.open_store(shutil.copytree(store.path, tmp_path / "own"))  # nobody else maps these frames
    float(opened.frames.sum())
    before = resident(opened.path / "frames.npy")
    halp.embed_table(encoder, opened, workers=1, progress=False)
    assert resident(opened.path / "frames.npy") < before / 4
    known = StoredClips(opened, None, 5, 9)
    assert known._spans.recording.tolist() == StoredClips(opened, None)._spans.recording[5:9].tolist()
