"""Files that once did harm, as fuzzing found them: each gives clips, dropped clips or one sentence from then on."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.__main__ import REGRESSIONS, mutated, read_in_child, samples

KEPT = sorted(folder for reader in REGRESSIONS.glob("*") if reader.is_dir() for folder in reader.iterdir())


@pytest.mark.parametrize("folder", KEPT, ids=[folder.name for folder in KEPT])
def test_file_that_once_did_harm_is_read_or_refused(folder: Path) -> None:
    assert read_in_child(folder.parent.name, folder)[0] in ("clips", "refused")


def test_fuzzing_knows_every_format_and_tells_good_from_bad(tmp_path: Path) -> None:
    made = samples()
    assert {"pyskl", "authors", "ntu", "utd-mhad", "interchange"} <= set(made)
    reader, folder = made["nw-ucla"]
    assert read_in_child(reader, folder) == ("clips", "1")
    assert read_in_child(reader, tmp_path / "nowhere")[0] == "refused"
    assert read_in_child("no such reader", folder)[0] == "refused"
    import random

    assert mutated(b"0123456789", random.Random(1)) != b"0123456789"
