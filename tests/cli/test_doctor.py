"""`halp doctor` says what is missing with the line that brings it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from halp.cli import doctor, main
from halp.video import pose_model


def test_missing_extra_is_named_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = doctor._version
    monkeypatch.setattr(
        doctor, "_version", lambda name: None if name in ("umap-learn", "scipy") else version(name)
    )
    main(["doctor"])
    shown = capsys.readouterr().out
    assert "without umap-learn" in shown
    assert "pip install 'halp-motion[umap]'" in shown
    assert "pip install scipy" in shown


def test_cache_is_counted_or_said_to_be_switched_off(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    (folder / "a").write_bytes(b"12345")
    monkeypatch.setenv("HALP_CACHE", str(folder))
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["cache"] == {"folder": str(folder), "bytes": 5, "files": 1}
    monkeypatch.setenv("HALP_CACHE", "")
    main(["doctor"])
    assert "switched off" in capsys.readouterr().out


def test_the_unrelated_package_of_the_same_import_name_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "1.0.0" if name == "halp" else version(name))
    main(["doctor"])
    assert "the package 'halp' 1.0.0 is another project" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "halp" else version(name))
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["conflict"] is None


def test_service_without_websockets_names_the_extra_before_it_prints_an_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)  # of the extra `serve`, not of `explore`
    monkeypatch.delitem(sys.modules, "halp.serve.server", raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["serve", "models/mine"])
    shown = capsys.readouterr()
    assert (stop.value.code, shown.out) == (2, "")
    assert "needs websockets" in shown.err
    assert "halp-motion[serve]" in shown.err


def test_pose_model_without_its_extra_downloads_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path))
    monkeypatch.setattr(pose_model, "find_spec", lambda name: None)
    monkeypatch.setattr(pose_model, "_download", lambda folder: pytest.fail("downloaded"))
    with pytest.raises(SystemExit) as stop:
        main(["pose-model"])
    assert stop.value.code == 2
    assert "halp-motion[video]" in capsys.readouterr().err
