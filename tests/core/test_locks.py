"""Locks with real processes: one owner at a time, the dead are replaced, the second hears who is first."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from halp.core.errors import InputError
from halp.core.locks import InUse, locked

fcntl = pytest.importorskip("fcntl")

HOLD = """
import sys, time
from pathlib import Path
from halp.core.locks import locked
with locked(Path(sys.argv[1]), "the run 'x'", wait=float(sys.argv[2])):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""

COUNT = """
import sys
from pathlib import Path
from halp.core.locks import locked
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
            assert f"process {os.getpid()} on " in path.read_text()
        assert not list(path.parent.iterdir())
    finally:
        first.kill()
        first.communicate()


def test_many_processes_never_hold_a_lock_together(tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    (tmp_path / "lock").write_text(
        "process 1 on here since 1970"
    )  # all of them find a file that a dead owner left
    command = [sys.executable, "-c", COUNT, str(tmp_path / "lock"), str(number), "25"]
    workers = [subprocess.Popen(command) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    assert number.read_text() == "100"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["number"]


def test_lock_of_a_process_that_ended_and_was_not_asked_how_is_free(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with locked(tmp_path / "lock", "it"):
            os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", "it"):
        pass
    os.waitpid(child, 0)


def test_a_copy_of_a_process_does_not_free_its_lock(tmp_path: Path) -> None:
    with ExitStack() as held:
        held.enter_context(locked(tmp_path / "lock", "it"))
        child = os.fork()
        if child == 0:
            held.close()
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(InUse), locked(tmp_path / "lock", "it"):
            pass


@pytest.mark.parametrize("content", ["", "{}", "process 1 on far-away since 1970"])
def test_a_file_that_nobody_holds_is_not_a_lock(content: str, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(content)
    with locked(tmp_path / "lock", "it"):
        assert f"process {os.getpid()} on " in (tmp_path / "lock").read_text()
    assert not (tmp_path / "lock").exists()


def test_waiting_for_a_lock_ends_when_it_is_free(tmp_path: Path) -> None:
    first = hold(tmp_path / "lock", seconds=0.5)
    assert first.stdout is not None
    first.stdout.readline()
    with locked(tmp_path / "lock", "it", wait=300):
        assert f"process {os.getpid()} on " in (tmp_path / "lock").read_text()
    first.communicate()


def test_place_without_locks_of_the_system_has_locks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path / "lock", "it"), pytest.raises(InUse), locked(tmp_path / "lock", "it"):
        pass
    assert not list(tmp_path.iterdir())


def test_place_that_cannot_be_written_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="it cannot be locked"), locked(tmp_path / "file" / "lock", "it"):
        pass
