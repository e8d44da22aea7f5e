"""Files that once did harm, as fuzzing found them: each gives clips, dropped clips or one sentence from then
on.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz.blind import BlindFuzz, mutated
from fuzz.guided import GuidedFuzz
from fuzz.samples import REGRESSIONS, read_in_child, samples

from halp.data import sandbox

KEPT = sorted(folder for reader in REGRESSIONS.glob("*") if reader.is_dir() for folder in reader.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("folder", KEPT, ids=[folder.name for folder in KEPT])
def test_file_that_once_did_harm_is_read_or_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_SECONDS", 1.0)  # of an endless walk
    assert read_in_child(folder.parent.name, folder)[0] in ("clips", "refused")


def test_fuzzing_knows_every_format_and_tells_good_from_bad(tmp_path: Path) -> None:
    made = samples()
    assert {"pyskl", "authors", "ntu", "utd-mhad", "interchange"} <= set(made)
    reader, folder = made["nw-ucla"]
    assert read_in_child(reader, folder) == ("clips", "1")
    assert read_in_child(reader, tmp_path / "nowhere")[0] == "refused"
    assert read_in_child("no such reader", folder)[0] == "refused"
    assert mutated(b"0123456789", random.Random(1)) != b"0123456789"


@pytest.mark.slow
def test_guided_fuzzing_counts_files_and_keeps_its_corpus(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="coverage-guided fuzzing needs the extra halp-motion[fuzz]")
    reader, folder = samples()["nw-ucla"]
    fuzz = GuidedFuzz("nw-ucla", reader, folder, tmp_path)
    fuzz.run(2)
    assert fuzz.counts["refused"] > 0
    assert not fuzz.kept
    assert fuzz.covered > 50
    assert len(list((tmp_path / "nw-ucla" / "0").iterdir())) > 1


def test_blind_fuzzing_keeps_what_does_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.json").write_text("{}")
    monkeypatch.setattr("fuzz.samples.REGRESSIONS", tmp_path / "kept")
    fuzz = BlindFuzz("odd", "nw-ucla", folder, random.Random(0))
    fuzz.step()
    assert sum(fuzz.counts.values()) == 1
    monkeypatch.setattr("fuzz.samples.reader_of", lambda name: 1 / 0)
    fuzz.step()
    assert fuzz.counts["bad"] == 1
    assert len(list((tmp_path / "kept" / "nw-ucla").iterdir())) == 1
    assert (folder / "a.json").read_text() == "{}"
