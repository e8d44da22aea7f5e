"""`halp doctor` says what is missing with the line that brings it."""

from __future__ import annotations

import json

import pytest

from halp.cli import doctor, main


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
