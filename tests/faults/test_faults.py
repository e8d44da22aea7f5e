"""Every file-system call of the writers may fail, tear or be the last one: readers find the old content or
the new.

`make faults` tries every fault at every call; here each writer meets a sample, the same every time, spread
over all of them.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from faults.__main__ import try_faults

pytestmark = pytest.mark.slow  # real processes

SAMPLE = 3
WRITERS = (
    "a new store",
    "a store that replaces another",
    "a store that replaces another in two steps",
    "a split added to a store",
    "a report",
    "a checkpoint",
    "the only checkpoint written again",
    "a run folder",
    "records of a resumed run",
    "cached features",
    "a result of a sweep",
    "a result of a run",
    "an exported package",
    "a classifier",
    "a run converted from the authors' file",
    "an authors' file converted from a run",
    "kept vectors",
    "tables of a sweep",
)


@pytest.fixture(scope="module")
def tried() -> dict[str, dict[str, Any]]:
    """One process for all writers: each fault is a fork of it."""
    if not sys.platform.startswith("linux"):
        pytest.skip("faults are tried in forked processes, and open files are named by /proc")
    return try_faults(str(SAMPLE))


@pytest.mark.parametrize("writer", WRITERS)
def test_readers_find_the_old_or_the_new_content_after_any_fault(
    writer: str, tried: dict[str, dict[str, Any]]
) -> None:
    found = tried[writer]
    assert found["wrong"] == []
    assert found["tried"] >= min(SAMPLE, found["points"])
    assert set(tried) == set(WRITERS)
