"""The documented ways to start several processes, with real ones: torchrun, SLURM's variables, processes that are lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from halp.clips.store import Store
from halp.training import open_run
from halp.training.checkpoint import list_checkpoints

# the command with a pause in every step, and each process leaving its number
SLOW = """
import os, sys, time
from pathlib import Path
import halp.training.loop as loop
from halp.cli import main
Path(os.environ["PIDS"], f"{os.environ['RANK']}-{os.getpid()}").write_text("")
step = loop.Trainer._train_step
def slowly(*given):
    time.sleep(0.15)
    return step(*given)
loop.Trainer._train_step = slowly
main(sys.argv[1:])
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def arguments(store: Store, run: Path, settings: tuple[str, ...]) -> list[str]:
    return [
        "pretrain",
        "small",
        "--data",
        str(store.path),
        "--run",
        str(run),
        "--accelerator",
        "cpu",
        "--set",
        *settings,
    ]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


@pytest.mark.slow
def test_documented_line_of_torchrun_takes_the_run_folder(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    ]
    command = [*launcher, "-m", "--", "halp", *arguments(store, tmp_path / "run", (*tiny, "epochs=1"))]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert open_run(tmp_path / "run").info["finished"]["processes"] == 2


@pytest.mark.slow
def test_variables_of_slurm_make_one_job_of_two_processes(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    port, jobs = str(free_port()), []
    command = [sys.executable, "-m", "halp", *arguments(store, tmp_path / "run", (*tiny, "epochs=1")), "--devices", "2"]
    for rank in ("0", "1"):
        slurm = {
            "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2",
            "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost",
            "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        }  # fmt: skip
        jobs.append(subprocess.Popen(command, env=environment(**slurm), stderr=subprocess.PIPE, text=True))
    answers = [job.communicate(timeout=240)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], answers
    assert open_run(tmp_path / "run").info["finished"]["processes"] == 2


def lost(pids: Path, rank: int, run: Path, steps: int) -> int:
    """Kill the first process of a rank once the run has checkpoints; returns its number."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        found = sorted(pids.glob(f"{rank}-*"))
        saved = list_checkpoints(run / "checkpoints") if run.exists() else []
        if found and saved and int(saved[-1].name.removeprefix("step-")) >= steps:
            process = int(found[0].name.partition("-")[2])
            os.kill(process, signal.SIGKILL)
            return process
        time.sleep(0.05)
    raise AssertionError("the run does not get on")
