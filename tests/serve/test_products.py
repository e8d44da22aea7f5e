"""What programs rely on: threads, one encoder per process, vectors that name their encoder, and a cache that
can be cleared.
"""

from __future__ import annotations

import csv
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from clip_samples import moving_clips

import halp
from halp.cli import main
from halp.core.progress import Bar
from halp.features.cache import module_fingerprint
from halp.features.loading import as_encoder
from halp.skeleton import get_topology

BODY = get_topology("body-16")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_predicts_from_many_threads_as_from_one(tmp_path: Path) -> None:
    clips = moving_clips(BODY, 12)
    source = halp.open_source(clips, topology="body-16").with_labels(np.arange(12) % 3, ["a", "b", "c"])
    model = halp.classify_fit("halp-base", source, kind="prototypes", progress=False)
    loaded = halp.load_model(model.save(tmp_path / "model"))
    alone = [loaded.predict(clip).to_json() for clip in clips]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda clip: loaded.predict(clip).to_json(), clips * 2)) == alone * 2


def test_a_package_is_loaded_once_until_its_files_change(tmp_path: Path) -> None:
    package = halp.export("halp-base", tmp_path / "mine")
    first = as_encoder(package)
    assert as_encoder(str(package)) is first
    with ThreadPoolExecutor(4) as threads:
        assert {id(one) for one in threads.map(as_encoder, [package] * 8)} == {id(first)}
    config = json.loads((package / "config.json").read_text())
    (package / "config.json").write_text(json.dumps({**config, "normalisation": ["centre"]}))
    assert as_encoder(package).normalisation == ["centre"]
    assert halp.load_encoder(package) is not halp.load_encoder(package)


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_files_of_vectors_name_their_encoder(ending: str, tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    np.save(tmp_path / "clips" / "one.npy", moving_clips(BODY, 1)[0])
    out = tmp_path / f"vectors.{ending}"
    main(["embed", "halp-base", str(tmp_path / "clips"), str(out), "--option", "topology=body-16"])
    if ending == "npz":
        stated = str(np.load(out)["encoder"])
    elif ending == "csv":
        stated = next(csv.DictReader(out.open()))["encoder"]
    else:
        stated = pytest.importorskip("pyarrow.parquet").read_schema(out).metadata[b"encoder"].decode()
    sha256 = module_fingerprint(halp.load_encoder("halp-base"))
    assert json.loads(stated) == {"name": "halp-base", "release": "2", "sha256": sha256}


def test_the_cache_is_shown_and_cleared_and_nothing_else_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path))
    (tmp_path / "mine.txt").write_text("kept")
    halp.embed_table("halp-base", moving_clips(BODY, 2), progress=False)
    main(["cache", "show", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["folder"] == str(tmp_path)
    assert shown["entries"]["vectors"] >= 1
    assert shown["bytes"]["vectors"] > 2 * 4 * 4176
    main(["cache", "clear", "--json"])
    assert json.loads(capsys.readouterr().out) == shown
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    monkeypatch.setenv("HALP_CACHE", "")
    main(["cache", "show", "--json"])
    assert json.loads(capsys.readouterr().out)["folder"] is None


def test_progress_off_a_terminal_goes_to_the_logger(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "halp")
    monkeypatch.setattr(logging.getLogger("halp"), "propagate", True)
    with Bar("embedding", 10) as bar:
        bar._said -= 60
        bar.advance()
    assert "embedding: 1/10" in caplog.text
