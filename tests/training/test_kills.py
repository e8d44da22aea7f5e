"""Runs that are killed at any moment, and disks that are full: nothing is lost and the words are clear."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path

import forked as subprocess
import pytest
from jobs import TRAIN, final_files, start, wait_for_steps

from halp.core.errors import InputError
from halp.data.store import Store
from halp.training import checkpoint, load_recipe, open_run, pretrain
from halp.training.checkpoint import list_checkpoints, newest_checkpoint

pytestmark = pytest.mark.slow  # real processes

# A parent that has torch loaded forks a child for every attempt, so that an attempt costs no start-up. `fault
# n` makes the child kill itself at its n-th file operation; otherwise the parent kills it after a random
# time, within which the child makes 10 steps at most: on no machine is it fast enough to end before it is
# killed.
KILLER = """
import os, random, shutil, signal, sys, time
from pathlib import Path
import torch
from halp.augment import ViewMaker
from halp.data.store import open_store
from halp.training import load_recipe, pretrain
torch.set_num_threads(1)
store_path, run, mode, count, *settings = sys.argv[1:]
run, recipe = Path(run), load_recipe("small", settings)
chance = random.Random(7)

def train(fault):
    if fault:
        left = [fault]
        def deadly(action):
            def wrapped(*given, **more):
                left[0] -= 1
                if left[0] == 0 and chance.random() < 0.5:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = action(*given, **more)
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result
            return wrapped
        os.replace, os.fsync, shutil.rmtree = deadly(os.replace), deadly(os.fsync), deadly(shutil.rmtree)
    pretrain(recipe, open_store(store_path), run, resume=(run / "run.json").exists(), accelerator="cpu", progress=False)

def pause_after(steps):
    left, make = [steps], ViewMaker.make
    def bounded(*given):
        left[0] -= 1
        if left[0] < 0:
            time.sleep(60)
        return make(*given)
    ViewMaker.make = bounded

def attempt(fault=0, patience=None):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if patience is not None:
                pause_after(10)
            train(fault)
            code = 0
        finally:
            os._exit(code)
    if patience is not None:
        time.sleep(patience)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status)

killed = 0
for number in range(int(count)):
    killed += attempt(fault=number + 1) if mode == "fault" else attempt(patience=chance.uniform(0.02, 0.5))
assert not attempt(), "the last attempt must end well"
print(killed)
"""


def kill(folder: Path, store: Store, mode: str, count: int, settings: tuple[str, ...]) -> int:
    """Kill a run `count` times in a row, let it end, and return how many kills landed before its end."""
    (folder / "killer.py").write_text(KILLER)
    command = [
        sys.executable,
        str(folder / "killer.py"),
        str(store.path),
        str(folder / "killed"),
        mode,
        str(count),
    ]
    done = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


def compare(folder: Path, store: Store, settings: tuple[str, ...]) -> None:
    (folder / "train.py").write_text(TRAIN)
    job = start(folder, store, "whole", settings)
    assert job.wait(timeout=300) == 0
    assert final_files(folder / "whole") == final_files(folder / "killed")
    assert not list((folder / "killed" / "checkpoints").glob(".*")), "nothing half-written may stay"


def test_run_killed_at_every_file_operation_ends_in_the_same_bytes(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    settings = (*tiny, "saving.checkpoint_steps=2")
    assert kill(tmp_path, store, "fault", 24, settings) >= 12
    compare(tmp_path, store, settings)


def test_a_dozen_kills_in_a_row_lose_nothing(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    settings = (*tiny, "epochs=24", "saving.checkpoint_epochs=1", "saving.checkpoint_steps=2")
    assert kill(tmp_path, store, "time", 12, settings) == 12
    compare(tmp_path, store, settings)


def test_second_signal_ends_the_run_at_once(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    settings = (*tiny, "epochs=1", "saving.checkpoint_steps=1")
    # after the first checkpoint a step that cannot have ended between two signals, however busy the machine
    program = TRAIN.replace("sleep(pause)", 'sleep(pause * Path(run, "checkpoints").exists())')
    job = start(tmp_path, store, "run", settings, pause=300, program=program)
    wait_for_steps(tmp_path / "run", job, 1)
    job.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert job.poll() is None
    deadline = time.monotonic() + 300
    while job.poll() is None:  # two that wait to be delivered are one
        assert time.monotonic() < deadline
        job.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    assert job.returncode == -signal.SIGTERM
    again = start(tmp_path, store, "run", settings, resume=True)
    assert again.wait(timeout=300) == 0


@pytest.mark.parametrize("limit", [20_000, 3_000])
def test_full_disk_keeps_the_last_good_state_in_clear_words(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], limit: int
) -> None:
    chosen = load_recipe("small", tiny)
    whole = pretrain(chosen, store, tmp_path / "whole", progress=False)
    run = pretrain(chosen, store, tmp_path / "run", until=1, progress=False)
    before = newest_checkpoint(run.checkpoints).state["step"]
    (tmp_path / "train.py").write_text(TRAIN)
    given = [str(store.path), str(run.path), *tiny]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "train.py"), *given],
        env={**os.environ, "RESUME": "1", "LIMIT": str(limit)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = " ".join(done.stderr.split())
    assert done.returncode == 2, said
    assert "Traceback" not in said
    assert "make room and resume with --resume" in said
    assert newest_checkpoint(run.checkpoints).state["step"] == before
    pretrain(chosen, store, run.path, resume=True, progress=False)
    assert final_files(whole.path) == final_files(run.path)


def test_no_space_left_is_reported_and_nothing_half_written_stays(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pretrain(load_recipe("small", tiny), store, tmp_path / "run", until=1, progress=False)
    kept = list_checkpoints(run.checkpoints)

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "sync_folder", full)
        with pytest.raises(InputError, match="No space left on device"):
            pretrain(load_recipe("small", tiny), store, run.path, resume=True, progress=False)
    assert list_checkpoints(run.checkpoints) == kept
    assert not list(run.checkpoints.glob(".*"))


def test_folder_that_cannot_be_written_is_refused_in_one_sentence(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    chosen = load_recipe("small", tiny)
    (tmp_path / "file").write_text("")
    for place in (Path("/proc/halp/run"), tmp_path / "file" / "run"):
        with pytest.raises(InputError, match=r"cannot be (written|locked)"):
            pretrain(chosen, store, place, progress=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").write_text("in the way")
    with pytest.raises(InputError, match="could not be written"):
        pretrain(chosen, store, tmp_path / "run", progress=False)
    assert open_run(tmp_path / "run").recipe == chosen
