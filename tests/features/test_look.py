"""The second look at a folder: one pass over names and times, and nothing else, as long as no file changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from use_samples import fresh_encoder

import halp
from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.content import RecordingFiles
from halp.features.opening import open_source

LAYOUT = {"options": {"topology": "kinect-v2"}}


@pytest.fixture(scope="module")
def encoder(store: Store) -> PretrainedEncoder:
    return fresh_encoder(store)


@pytest.fixture(autouse=True)
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("halp.data.ingest.shards._SETTLED", -(10**12))


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    for number in range(12):
        (tmp_path / "files" / "ab"[number % 2]).mkdir(exist_ok=True, parents=True)
        np.save(tmp_path / "files" / "ab"[number % 2] / f"{number:02}.npy", store.clip(number))
    (tmp_path / "files" / "notes.txt").write_text("not a recording")
    return tmp_path / "files"


def refuse(*given: object, **named: object) -> NoReturn:
    raise AssertionError("the folder was listed again")


def table_of(encoder: PretrainedEncoder, folder: Path, **options: object) -> halp.FeatureTable:
    return halp.embed_table(encoder, folder, progress=False, workers=1, **{**LAYOUT, **options})  # type: ignore[arg-type]


def looked_up(folder: Path, **options: object) -> bool:
    """Whether the folder is known, so that nothing is listed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halp.features.opening.plan_reading", refuse)
        try:
            open_source(folder, **{**LAYOUT, **options})  # type: ignore[arg-type]
        except AssertionError:
            return False
        return True


def test_a_second_answer_lists_nothing_and_is_the_same(
    encoder: PretrainedEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = table_of(encoder, folder)
    hits = halp.search(encoder, "a/04", folder, k=4, workers=1, progress=False, **LAYOUT)
    assert [clip.name for clip in hits.query] == ["a/04"]
    monkeypatch.setattr("halp.features.opening.plan_reading", refuse)
    again = table_of(encoder, folder)
    np.testing.assert_array_equal(again.vectors, first.vectors)
    np.testing.assert_array_equal(again.rows, first.rows)
    assert (again.recordings, again.class_names, again.warnings) == (
        first.recordings,
        first.class_names,
        first.warnings,
    )
    assert any("notes.txt" in sentence for sentence in again.warnings)
    warm = halp.search(encoder, "a/04", folder, k=4, workers=1, progress=False, **LAYOUT)
    assert warm.to_json() == hits.to_json()
    with pytest.raises(AssertionError, match="listed again"):
        warm.query  # noqa: B018  reading a recording lists the items


def test_recordings_of_a_known_folder_are_those_of_a_listed_one(
    encoder: PretrainedEncoder, folder: Path
) -> None:
    table_of(encoder, folder)
    listed = open_source(folder, verify=True, **LAYOUT)
    known = open_source(folder, **LAYOUT)
    assert isinstance(known.content, RecordingFiles)
    assert isinstance(listed.content, RecordingFiles)
    assert looked_up(folder)
    assert (known.hash, known.how, known.topology) == (listed.hash, listed.how, listed.topology)
    both = list(zip(known.clips(), listed.clips(), strict=True))
    assert len(both) == 12
    for one, other in both:
        np.testing.assert_array_equal(one.frames, other.frames)
        assert (one.name, one.label, one.source) == (other.name, other.label, other.source)


@pytest.mark.parametrize("change", ["new", "gone", "moved", "same size and time", "hidden"])
def test_every_change_of_a_file_is_seen(
    encoder: PretrainedEncoder, folder: Path, store: Store, change: str
) -> None:
    table_of(encoder, folder)
    assert looked_up(folder)
    one = folder / "a" / "06.npy"
    if change == "new":
        np.save(folder / "b" / "new.npy", store.clip(40))
    elif change == "gone":
        one.unlink()
    elif change == "moved":
        one.rename(folder / "b" / "06.npy")
    elif change == "hidden":
        (folder / ".hidden").write_text("as `walk`, the look passes over it")
    else:
        times, content = os.stat(one), bytearray(one.read_bytes())
        content[-1] ^= 1
        one.write_bytes(content)
        os.utime(one, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert looked_up(folder) == (change == "hidden")
    table, fresh = table_of(encoder, folder), table_of(encoder, folder, cache=False, verify=True)
    np.testing.assert_array_equal(table.vectors, fresh.vectors)
    assert (table.recordings, table.labels.tolist()) == (fresh.recordings, fresh.labels.tolist())


def test_what_file_times_do_not_show_is_listed_every_time(
    encoder: PretrainedEncoder, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(encoder, folder)
    assert looked_up(folder)
    assert not looked_up(folder, verify=True)
    assert not looked_up(folder, options={"topology": "kinect-v2", "persons": 1}), "another question"
    labels = tmp_path / "labels.csv"
    labels.write_text("name,label\na/00,walk\n")
    assert not looked_up(folder, labels=labels)
    (folder / "link.npy").symlink_to(folder / "a" / "00.npy")
    table_of(encoder, folder)
    assert not looked_up(folder), "a link does not show when what it leads to changes"
    (folder / "link.npy").unlink()
    monkeypatch.setattr("halp.data.ingest.shards._SETTLED", 10**12)
    shutil.rmtree(tmp_path / "cache")
    table_of(encoder, folder)
    assert not looked_up(folder), "files that are younger than the look may change unseen"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"asked": 1}'])
def test_a_damaged_record_is_as_good_as_none(
    encoder: PretrainedEncoder, folder: Path, tmp_path: Path, content: str
) -> None:
    first = table_of(encoder, folder)
    (record,) = (tmp_path / "cache" / "looks").glob("*.json")
    record.write_text(content)
    np.testing.assert_array_equal(table_of(encoder, folder).vectors, first.vectors)


def test_a_folder_that_changes_while_it_is_read_is_refused(
    encoder: PretrainedEncoder, folder: Path, store: Store
) -> None:
    table_of(encoder, folder)
    source = open_source(folder, **LAYOUT)
    np.save(folder / "a" / "late.npy", store.clip(50))
    with pytest.raises(InputError, match="changed while it was read"):
        next(source.clips())
