"""Locks with real processes: one owner at a time, the dead are replaced, the second hears who is first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from halp import locks
from halp.errors import InputError
from halp.locks import InUse, locked, read_owner

HOLD = """
import sys, time
from pathlib import Path
from halp.locks import locked
with locked(Path(sys.argv[1]), "the run 'x'", wait=float(sys.argv[2])):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""

COUNT = """
import sys
from pathlib import Path
from halp.locks import locked
lock, number = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(int(sys.argv[3])):
    with locked(lock, "the counter", wait=60):
        number.write_text(str(int(number.read_text()) + 1))
"""


def hold(path: Path, wait: float = 0, seconds: float = 60) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path), str(wait), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_second_process_hears_who_is_first_and_takes_over_when_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "run" / ".lock"
    first = hold(path)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with (
            pytest.raises(InUse, match=rf"the run 'x' is in use by process {first.pid} on ") as caught,
            locked(path, "the run 'x'"),
        ):
            pass
        assert "wait until it ends or stop it" in str(caught.value)
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert path.exists()
        with locked(path, "the run 'x'"):
            owner = read_owner(path)
            assert owner is not None
            assert owner.pid == os.getpid()
        assert not list(path.parent.iterdir())
    finally:
        first.kill()
        first.communicate()


def test_many_processes_never_hold_a_lock_together(tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    dead = replace(locks._myself(), pid=2**22 - 3, started="1")
    (tmp_path / "lock").write_text(json.dumps(asdict(dead)))  # all of them find a dead owner first
    command = [sys.executable, "-c", COUNT, str(tmp_path / "lock"), str(number), "25"]
    workers = [subprocess.Popen(command) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    assert number.read_text() == "100"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["number"]


def test_lock_of_a_reused_process_number_is_stale(tmp_path: Path) -> None:
    other = replace(locks._myself(), started="12345")
    (tmp_path / "lock").write_text(json.dumps(asdict(other)))
    if sys.platform != "linux":
        pytest.skip("only Linux tells when a process started")
    with locked(tmp_path / "lock", "it"):
        pass


def test_lock_of_a_process_that_ended_and_was_not_asked_how_is_stale(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux tells such processes from others")
    child = os.fork()
    if child == 0:
        with locked(tmp_path / "lock", "it"):
            os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", "it"):
        pass
    os.waitpid(child, 0)


def test_lock_from_before_a_restart_is_stale(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux tells boots apart")
    before = replace(locks._myself(), place="another-boot " + locks._place().split(" ", 1)[1])
    (tmp_path / "lock").write_text(json.dumps(asdict(before)))
    with locked(tmp_path / "lock", "it"):
        pass


@pytest.mark.parametrize("change", [{"host": "far-away"}, {"place": "boot pid:[1]"}])
def test_lock_of_another_machine_or_container_is_respected(change: dict, tmp_path: Path) -> None:
    far = replace(locks._myself(), pid=2**22 - 3, **change)
    (tmp_path / "lock").write_text(json.dumps(asdict(far)))
    with (
        pytest.raises(InUse, match=r"if that process no longer runs, remove '.*lock'"),
        locked(tmp_path / "lock", "it"),
    ):
        pass
    assert (tmp_path / "lock").exists()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"pid": "x"}', "\x00"])
def test_lock_that_says_nothing_is_respected(content: str, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(content)
    with pytest.raises(InUse, match="cannot be read"), locked(tmp_path / "lock", "it"):
        pass


def test_waiting_for_a_lock_ends_when_it_is_free(tmp_path: Path) -> None:
    first = hold(tmp_path / "lock", seconds=0.5)
    assert first.stdout is not None
    first.stdout.readline()
    began = time.monotonic()
    with locked(tmp_path / "lock", "it", wait=30):
        assert time.monotonic() - began < 30
    first.communicate()


def test_place_without_hard_links_has_locks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with locked(tmp_path / "lock", "it"), pytest.raises(InUse), locked(tmp_path / "lock", "it"):
        pass
    assert not list(tmp_path.iterdir())


def test_place_that_cannot_be_written_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="it cannot be locked"), locked(tmp_path / "file" / "lock", "it"):
        pass
