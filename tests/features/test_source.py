"""Sources: opened once, read once, at random access; encoders by object, path, name or `auto`."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from use_samples import fresh_encoder

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.core.files import cache_home
from halp.core.progress import Bar
from halp.data.ingest.pipeline import Pipeline
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.loading import as_encoder
from halp.features.opening import open_source
from halp.skeleton import Topology
from halp.tasks.export import export


@pytest.fixture(scope="module")
def encoder(store: Store) -> PretrainedEncoder:
    return fresh_encoder(store)


@pytest.fixture(scope="module")
def folder(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight recordings in folders named after their classes."""
    path = tmp_path_factory.mktemp("files")
    for number in range(8):
        (path / "ab"[number % 2]).mkdir(exist_ok=True)
        np.save(path / "ab"[number % 2] / f"{number}.npy", store.clip(number))
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))


def test_a_search_with_a_page_reads_each_file_once(
    encoder: PretrainedEncoder, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()
    read = Pipeline.work

    def counted(self: Pipeline, items: object) -> object:
        reads.update(str(item) for item in items)  # type: ignore[attr-defined]
        return read(self, items)  # type: ignore[arg-type]

    monkeypatch.setattr(Pipeline, "work", counted)
    package = export(encoder, tmp_path / "package")
    search = [
        "search",
        str(package),
        "a/0",
        "--in",
        str(folder),
        "-k",
        "3",
        "--option",
        "topology=kinect-v2",
        "--json",
    ]
    main([*search, "--html", str(tmp_path / "page.html")])
    assert len(reads) == 8
    assert set(reads.values()) == {1}
    reads.clear()
    main([*search, "--html", str(tmp_path / "again.html")])
    assert set(reads.values()) == {1}
    assert len(reads) == 4, "with kept vectors only the query and the hits are read"


def test_files_beyond_memory_are_read_again_when_they_are_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"options": {"topology": "kinect-v2"}, "window": 1.0, "fps": 30.0}
    whole = open_source(folder, **options)
    monkeypatch.setattr("halp.features.content._KEPT", 0)
    bare = open_source(folder, **options)
    assert np.array_equal(whole.rows, bare.rows)
    for row in (len(whole) - 1, 0, 3):
        np.testing.assert_array_equal(whole.clip(row).frames, bare.clip(row).frames)


def test_a_file_that_broke_after_it_was_listed_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setattr("halp.features.content._KEPT", 0)
    source = open_source(copy, options={"topology": "kinect-v2"})
    assert len(source.recordings) == 8
    (copy / "a" / "0.npy").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"0\.npy' changed after it was read \(.*; open it again"):
        source.recording(0)
    assert len(source.recording(1).frames)


def test_rows_of_a_source_say_what_and_when(folder: Path) -> None:
    source = open_source(folder, options={"topology": "kinect-v2"}, window=1.0, stride=0.5, fps=30.0)
    assert source.class_names == ("a", "b")
    assert [source.class_names[label] for label in source.labels] == [name[0] for name in source.names]
    np.testing.assert_allclose(source.stops - source.starts, 1.0)
    for row, clip in zip(range(len(source.names)), source.clips(), strict=True):
        assert (clip.recording, clip.start) == (source.names[row], source.starts[row])
        np.testing.assert_array_equal(clip.frames, source.clip(row).frames)
    part = source.select(source.labels == 1)
    assert set(part.names) == {name for name in source.names if name.startswith("b")}
    np.testing.assert_array_equal(
        part.clip(2).frames, source.clip(int(np.flatnonzero(source.labels == 1)[2])).frames
    )
    assert part.hash != source.hash


def test_labels_of_a_table_do_not_recompute_vectors(
    encoder: PretrainedEncoder, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "labels.csv").write_text("name,label,subject\n0,x,3\n1,y,4\n")
    layout = {"options": {"topology": "kinect-v2"}}
    first = halp.embed_table(encoder, folder, progress=False, **layout)
    with pytest.warns(UserWarning, match="6 of 8 clips are not in"):
        table = halp.embed_table(encoder, folder, labels=tmp_path / "labels.csv", progress=False, **layout)
    assert (table.folder, table.class_names) == (first.folder, ("x", "y"))
    named = dict(zip(table.names, zip(table.labels.tolist(), table.subjects.tolist())))
    assert (named["a/0"], named["b/1"], named["a/2"]) == ((0, 3), (1, 4), (-1, -1))


def test_labels_given_to_rows_stay_out_of_what_is_kept_for_the_source(
    encoder: PretrainedEncoder, folder: Path
) -> None:
    layout = {"options": {"topology": "kinect-v2"}}
    source = open_source(folder, **layout)
    given = source.with_labels(np.arange(8), list("abcdefgh"))
    assert halp.embed_table(encoder, given, progress=False).labels.tolist() == list(range(8))
    assert (
        halp.embed_table(encoder, folder, progress=False, **layout).labels.tolist() == source.labels.tolist()
    )


def test_encoders_are_taken_by_object_path_and_name(
    encoder: PretrainedEncoder, store: Store, tmp_path: Path
) -> None:
    package = export(encoder, tmp_path / "package")
    clips = [store.clip(0), store.clip(1)]
    expected = halp.embed(encoder, clips, progress=False)
    np.testing.assert_array_equal(halp.embed(package, clips, progress=False), expected)
    np.testing.assert_allclose(halp.embed(str(package), clips[0], progress=False), expected[:1], atol=1e-6)
    assert halp.embed("halp-base", clips, topology="kinect-v2", progress=False).shape == (2, 4176)
    with pytest.raises(halp.InputError, match=r"no encoder '/nowhere'.*`halp encoders`"):
        halp.embed("/nowhere", clips)
    with pytest.raises(halp.InputError, match="an encoder is needed, not int"):
        halp.embed(3, clips, topology="kinect-v2")


def test_auto_is_the_shipped_encoder_that_reads_the_joints(caplog: pytest.LogCaptureFixture) -> None:
    body = open_source(np.ones((10, 33, 3)), topology="mediapipe-33")
    with caplog.at_level("INFO", logger="halp"):
        assert as_encoder("auto", body).topology.dimensions == 3
    assert "chosen by the joints" in caplog.text
    animal = Topology("animal", ("nose", "tail"), (0, 0))
    with pytest.raises(halp.InputError, match="no shipped encoder reads the 3D joints"):
        as_encoder("auto", open_source(np.ones((10, 2, 3)), topology=animal))


def test_progress_never_runs_beyond_its_end(
    encoder: PretrainedEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    class Watched(Bar):
        def advance(self, steps: int = 1, note: str | None = None) -> None:
            super().advance(steps, note)
            seen.append((self.done, self.total))

    monkeypatch.setattr("halp.features.encode.Bar", Watched)
    options = {
        "options": {"topology": "kinect-v2"},
        "window": 0.5,
        "stride": 0.1,
        "fps": 30.0,
        "batch_size": 8,
    }
    for path in (folder, folder / "a" / "0.npy"):
        seen.clear()
        vectors = halp.embed(encoder, path, progress=False, **options)
        own = [(done, total) for done, total in seen if total > 8]  # the bar of all, not that of a block
        assert all(done <= total for done, total in own)
        assert own[-1] == (len(vectors), len(vectors))


def test_evaluate_takes_packages_and_names(
    encoder: PretrainedEncoder, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = export(encoder, tmp_path / "small")
    main(
        [
            "evaluate",
            str(package),
            "--data",
            str(store.path),
            "--split",
            "xsub",
            "--protocol",
            "knn",
            "--json",
        ]
    )
    rows = json.loads(capsys.readouterr().out)
    assert list(rows) == ["raw coordinates", "untrained", "halp-base", "small"]
    for same, data in ((encoder, store), (package, store.path)):
        assert (
            rows["small"][0]["accuracy"] == halp.evaluate(same, data, "knn", "xsub", progress=False).accuracy
        )
    with pytest.raises(SystemExit):
        main(["evaluate", "halp-base", "--protocol", "knn"])
    assert "--data STORE" in capsys.readouterr().err


def test_the_transformer_of_scikit_learn_takes_any_layout(store: Store) -> None:
    clips = [np.asarray(store.clip(number)) for number in range(3)]
    steps = halp.SkeletonEncoder("halp-base", topology="kinect-v2").fit(clips)
    np.testing.assert_allclose(
        steps.transform(clips),
        halp.embed("halp-base", clips, topology="kinect-v2", progress=False),
        atol=1e-5,
    )


def test_the_cache_folder_has_one_meaning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_home() == tmp_path / "cache"
    monkeypatch.setenv("HALP_CACHE", "")
    assert cache_home() is None
    monkeypatch.delenv("HALP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = cache_home()
    assert home is not None
    assert home.name == "halp"


def test_nothing_is_kept_where_the_cache_is_off(
    encoder: PretrainedEncoder, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HALP_CACHE", "")
    table = halp.embed_table(encoder, [store.clip(0)], progress=False)
    assert table.folder is None
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "arguments", [["embed", "halp-base", "nowhere", "v.npz"], ["embed", "nobody", ".", "v.npz"]]
)
def test_a_missing_file_is_reported_before_torch_is_loaded(arguments: list[str]) -> None:
    import subprocess
    import sys

    code = f"import sys, halp.cli\ntry: halp.cli.main({arguments})\nfinally: print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout.strip()) == (2, "False")
    assert "halp:" in answer.stderr


def test_file_names_that_are_not_utf_8_are_spelled_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "recordings"
    folder.mkdir()
    clip = np.random.default_rng(0).normal(size=(20, 25, 3)).astype(np.float32)
    try:
        with open(os.fsencode(folder) + b"/caf\xe9.npy", "wb") as file:
            np.save(file, clip)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    np.save(folder / "plain.npy", clip)
    for _ in range(2):  # computed, and from the cache
        table = halp.embed_table("halp-base", folder, options={"topology": "kinect-v2"}, progress=False)
        assert sorted(table.recordings) == ["caf\\xe9", "plain"]
