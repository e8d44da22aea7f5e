"""Every file-system call of the writers may fail, tear or be the last one: readers find the old content or the new.

`make faults` tries every fault at every call; without `HALP_FAULTS=all` each writer meets a sample spread over all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SAMPLE = 12
WRITERS = (
    "a new store",
    "a store that replaces another",
    "a split added to a store",
    "an interchange file",
    "a report",
    "a checkpoint",
    "the only checkpoint written again",
    "a run folder",
    "records of a resumed run",
    "cached features",
)


@pytest.mark.parametrize("writer", WRITERS)
def test_readers_find_the_old_or_the_new_content_after_any_fault(writer: str) -> None:
    number = "all" if os.environ.get("HALP_FAULTS") == "all" else str(SAMPLE)
    command = [sys.executable, "-m", "faults.worker", writer, number]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False, cwd=TESTS)
    assert answer.returncode == 0, answer.stderr[-2000:]
    found = json.loads(answer.stdout.splitlines()[-1])
    sys.stdout.write(f"{writer}: {found['calls']} calls, {found['tried']} of {found['points']} faults tried\n")
    assert found["wrong"] == []
    assert found["tried"] >= min(SAMPLE, found["points"])
