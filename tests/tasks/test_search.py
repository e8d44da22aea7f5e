"""Search finds what a brute-force comparison finds; vectors are computed once; files hold what the encoder
says.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reader_samples import write_bvh
from use_samples import fresh_encoder

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.data.arrays import store_from_arrays
from halp.data.store import Store
from halp.data.windows import cut_windows
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.embed import embed_table
from halp.features.encode import ready_clips
from halp.features.table import write_vectors
from halp.tasks import search as searching
from halp.tasks.search import search


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_search_equals_brute_force(encoder: PretrainedEncoder, store: Store) -> None:
    vectors = halp.embed(encoder, store, progress=False)
    hits = search(encoder, str(store.names[7]), store, k=5, progress=False)
    similar = sorted(
        ((cosine(vectors[7], vectors[i]), i) for i in range(len(store)) if i != 7), reverse=True
    )[:5]
    assert [hit.recording for hit in hits] == [store.names[i] for _, i in similar]
    assert np.allclose([hit.score for hit in hits], [value for value, _ in similar], atol=1e-5)
    assert all(
        hit.start == 0 and hit.stop == store.lengths[i] for hit, (_, i) in zip(hits, similar, strict=True)
    )


def test_arrays_find_themselves_and_several_queries_their_best(
    encoder: PretrainedEncoder, store: Store
) -> None:
    arrays = [np.array(store.clip(i)) for i in range(12)]
    # clips of a store went through the normalisation already, which leaves them as they are when it is
    # repeated
    first = search(encoder, arrays[3], arrays, k=1, progress=False)[0]
    assert first.recording == "clip-000003"
    assert first.score == pytest.approx(1, abs=1e-4)
    hits = search(encoder, [arrays[3], arrays[9]], arrays, k=4, progress=False)
    assert {hit.recording for hit in hits[:2]} == {"clip-000003", "clip-000009"}
    assert len({hit.recording for hit in hits}) == 4


def test_a_file_is_not_among_its_own_hits(tmp_path: Path) -> None:
    (tmp_path / "recordings").mkdir()
    for name in ("one", "other"):
        write_bvh(tmp_path / "recordings", name)
    source = halp.open_source(tmp_path / "recordings")
    encoder = fresh_encoder(SimpleNamespace(topology=source.topology, persons=1, normalisation=[]))
    hits = search(encoder, tmp_path / "recordings" / "one.bvh", source, progress=False)
    assert [(hit.recording, round(hit.score, 4)) for hit in hits] == [("other", 1.0)]


def test_windows_are_found_with_their_times(encoder: PretrainedEncoder, store: Store) -> None:
    found = search(
        encoder, str(store.names[0]), store, k=1000, window=1.0, stride=0.5, fps=30.0, progress=False
    )
    clips = ready_clips(encoder, found.source, found.rows[:3])
    assert len(found.hits) > 3
    for hit, clip in zip(found.hits[:3], clips, strict=True):
        assert (hit.recording, hit.start) == (clip.recording or clip.name, clip.start)
        assert hit.stop - hit.start == pytest.approx(1.0)
    windows = sum(len(cut_windows(int(length), 30.0, 1.0, 0.5)) for length in store.lengths)
    assert len(found.table) == windows
    assert store.names[0] not in {hit.recording for hit in found.hits}


def test_vectors_are_computed_once_and_again_for_other_weights_or_windows(
    encoder: PretrainedEncoder, store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = embed_table(encoder, store, progress=False)
    assert len(list(cache.glob("*/*/entry.json"))) == 1

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    with monkeypatch.context() as changed:
        changed.setattr("halp.features.encode.embed_blocks", refuse)
        again = embed_table(encoder, store, progress=False)
        assert np.array_equal(first.vectors, again.vectors)
        assert first.recordings == again.names == list(store.names)
    embed_table(encoder, store, fps=25.0, progress=False)
    assert len(list(cache.glob("*/*/entry.json"))) == 2
    monkeypatch.setattr("halp.features.encode.embed_blocks", refuse)
    other = fresh_encoder(store, hidden=8)
    with pytest.raises(AssertionError, match="computed again"):
        embed_table(other, store, progress=False)
    assert not list(cache.rglob(".*")), "nothing unfinished is left behind"


@pytest.mark.heavy
def test_large_sources_are_searched_by_the_index(
    encoder: PretrainedEncoder, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    exact = search(encoder, str(store.names[7]), store, k=5, progress=False)
    monkeypatch.setattr(searching, "EXACT", 100)
    found = search(encoder, str(store.names[7]), store, k=5, progress=False)
    assert found.facts is not None
    assert found.facts.vectors == len(store)
    assert exact.facts is None
    assert len({hit.recording for hit in found.hits} & {hit.recording for hit in exact.hits}) >= 4
    assert search(encoder, str(store.names[7]), store, k=5, exact=True, progress=False).hits == exact.hits


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_files_of_vectors_hold_names_times_and_numbers(
    encoder: PretrainedEncoder, store: Store, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"out.{ending}"
    write_vectors(path, embed_table(encoder, store, batch_size=50, cache=False, progress=False))
    wanted = halp.embed(encoder, store, progress=False)
    if ending == "npz":
        with np.load(path, allow_pickle=False) as file:
            names, ends, vectors = file["names"], file["ends"], file["vectors"]
    elif ending == "csv":
        table = [line.split(",") for line in path.read_text().splitlines()]
        assert table[0][:4] == ["name", "start", "end", "v0"]
        names, ends = [row[0] for row in table[1:]], [float(row[2]) for row in table[1:]]
        vectors = np.array([row[3:] for row in table[1:]], dtype=np.float32)
    else:
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
        found = parquet.read_table(path).to_pydict()
        names, ends, vectors = found["name"], found["end"], np.array(found["vector"], dtype=np.float32)
    assert list(names) == list(store.names)
    assert np.array_equal(ends, store.lengths)
    assert np.allclose(vectors, wanted, atol=1e-6)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_files_are_whole_or_absent(encoder: PretrainedEncoder, store: Store, tmp_path: Path) -> None:
    table = embed_table(encoder, store, cache=False, progress=False)
    words = np.array([["nonsense"] * 3] * 5)
    with pytest.raises(ValueError, match="format code"):
        write_vectors(tmp_path / "out.csv", replace(table, rows=table.rows[:5], vectors=words))
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"did you mean '\.csv'"):
        write_vectors(tmp_path / "out.csvv", table)


def test_commands_print_json_and_nothing_else(
    package: Path, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["search", str(package), str(store.names[5]), "--in", str(store.path), "-k", "3", "--json"])
    hits = json.loads(capsys.readouterr().out)
    assert [list(hit)[:4] for hit in hits] == [["name", "similarity", "start", "end"]] * 3
    assert hits[0]["similarity"] >= hits[1]["similarity"] >= hits[2]["similarity"]
    main(["embed", str(package), str(store.path), str(tmp_path / "v.npz"), "--json"])
    assert json.loads(capsys.readouterr().out)["vectors"] == len(store)
    main(["export", str(package), str(tmp_path / "again"), "--json"])
    assert "config.json" in json.loads(capsys.readouterr().out)["files"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["search", "PACKAGE", "nobody", "--in", "STORE"], "no recording of that name"),
        (["search", "PACKAGE", "CLIP", "--in", "STORE", "-k", "0"], "k = 0"),
        (["search", "PACKAGE", "CLIP", "--in", "nowhere"], "nowhere"),
        (["search", "nothing", "CLIP", "--in", "STORE"], "no encoder 'nothing'"),
        (["search", "PACKAGE", "CLIP", "--in", "STORE", "--window", "1"], "--fps"),
        (["embed", "PACKAGE", "STORE", "out.xlsx"], "unknown ending"),
        (["embed", "PACKAGE", "STORE", os.devnull + "/out.csv"], "cannot be written"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(
    package: Path, store: Store, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    known = {"PACKAGE": str(package), "STORE": str(store.path), "CLIP": str(store.names[0])}
    with pytest.raises(SystemExit) as stopped:
        main([known.get(argument, argument) for argument in arguments])
    assert stopped.value.code == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("halp:")]
    assert len(said) == 1
    assert words in said[0]


def test_public_names_are_the_words_of_the_command_line() -> None:
    for name in halp.__all__:
        assert getattr(halp, name) is not None
    for name in (
        "search",
        "segment",
        "cluster",
        "compare",
        "export",
        "finetune",
        "classify_fit",
        "classify_predict",
    ):
        assert name in halp.__all__


@pytest.mark.parametrize("spans", [{}, {"window": 0.7, "stride": 0.3, "fps": 30.0}], ids=["clips", "windows"])
def test_vectors_of_a_store_are_the_same_by_index_as_clip_by_clip(
    encoder: PretrainedEncoder, store: Store, spans: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**spans, "cache": False, "batch_size": 100, "progress": False}
    quick = embed_table(encoder, store, **options)
    monkeypatch.setattr("halp.features.ready.Preparation.is_identity", lambda *_: False)
    slow = embed_table(encoder, store, **options)
    assert np.array_equal(quick.rows, slow.rows)
    assert quick.names == slow.names
    assert np.allclose(quick.vectors, slow.vectors, atol=1e-5)


def test_times_in_frames_are_called_so(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clips = [np.random.default_rng(seed).normal(size=(30, 25, 3)) for seed in range(3)]
    plain = store_from_arrays(tmp_path / "plain", clips, topology="kinect-v2", names=["a", "b", "c"])
    main(["search", str(package), "a", "--in", str(plain.path), "--json"])
    assert (
        "are frames, not seconds: the recordings do not state a rate; give --fps" in capsys.readouterr().err
    )
    main(["search", str(package), "a", "--in", str(plain.path), "--fps", "30", "--json"])
    assert "frames, not seconds" not in capsys.readouterr().err
