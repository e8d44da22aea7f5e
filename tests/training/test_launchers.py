"""The documented ways to start several processes, with real ones: torchrun, SLURM's variables, processes that
are lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
import torch
from ports import free_port

from halp.data.store import Store
from halp.training import load_recipe, open_run, pretrain
from halp.training.checkpoint import list_checkpoints, newest_checkpoint

pytestmark = pytest.mark.slow  # real processes

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


def test_documented_line_of_torchrun_takes_the_run_folder(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
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
    done = forked.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert open_run(tmp_path / "run").info["finished"]["processes"] == 2


def test_variables_of_slurm_make_one_job_of_two_processes(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    port, jobs = str(free_port()), []
    command = [
        sys.executable,
        "-m",
        "halp",
        *arguments(store, tmp_path / "run", (*tiny, "epochs=1")),
        "--devices",
        "2",
    ]
    for rank in ("0", "1"):
        slurm = {
            "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2",
            "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost",
            "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        }  # fmt: skip
        jobs.append(forked.Popen(command, env=environment(**slurm), stderr=forked.PIPE, text=True))
    answers = [job.communicate(timeout=300)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], answers
    assert open_run(tmp_path / "run").info["finished"]["processes"] == 2


def test_restart_that_one_process_alone_knows_of_resumes_the_whole_job(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    """Launchers of several machines count restarts each for itself: whoever saw others join again counts
    none.
    """
    pretrain(load_recipe("small", tiny), store, tmp_path / "run", until=1, accelerator="cpu", progress=False)
    port, jobs = str(free_port()), []
    for rank, restarts in (("0", "0"), ("1", "1")):
        given = {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1",
            "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": restarts,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        }  # fmt: skip
        command = [sys.executable, "-m", "halp", *arguments(store, tmp_path / "run", tiny)]
        jobs.append(forked.Popen(command, env=environment(**given), stderr=forked.PIPE, text=True))
    answers = [job.communicate(timeout=300)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], answers
    assert open_run(tmp_path / "run").info["finished"]["processes"] == 2


class Elastic:
    """Launchers that restart what they lose, each with some processes of one job, and which processes they
    started.
    """

    def __init__(self, folder: Path, store: Store, settings: tuple[str, ...], alone: str = "0") -> None:
        self.alone = alone  # whether every start has a store of its own
        self.folder, self.run, self.pids = folder, folder / "run", folder / "pids"
        self.pids.mkdir()
        (folder / "slow.py").write_text(SLOW)
        self.given = [str(folder / "slow.py"), *arguments(store, self.run, settings)]
        self.launchers: list[subprocess.Popen[bytes]] = []

    def launch(self, *options: str) -> None:
        """Start one launcher."""
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--max-restarts",
            "3",
            "--monitor-interval",
            "0.2",
        ]
        with open(self.folder / f"errors-{len(self.launchers)}", "wb") as errors:
            begin = (
                subprocess.Popen if self.alone == "1" else forked.Popen
            )  # machines that meet are real processes
            job = begin(
                [*command, *options, "--", *self.given],
                env=environment(
                    PIDS=str(self.pids),
                    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=self.alone,
                    PYTHON_EXEC=str(Path(forked.commands(), "python")),
                ),
                stderr=errors,
            )
        self.launchers.append(job)

    def wait_for_step(self, step: int, processes: int) -> None:
        """Until this many processes have come and the run has a checkpoint of that step."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            saved = list_checkpoints(self.run / "checkpoints") if self.run.exists() else []
            if (
                saved
                and int(saved[-1].name.removeprefix("step-")) >= step
                and len(self.started()) >= processes
            ):
                return
            assert all(job.poll() is None for job in self.launchers), self.said()
            time.sleep(0.05)
        raise AssertionError(f"the run does not get on: {self.said()}")

    def started(self) -> list[tuple[int, int]]:
        """Rank and number of every process so far."""
        found = [path.name.split("-") for path in sorted(self.pids.iterdir())]
        return [(int(rank), int(process)) for rank, process in found]

    def said(self) -> str:
        return " ".join(path.read_text()[-1000:] for path in sorted(self.folder.glob("errors-*")))

    def __enter__(self) -> Elastic:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.launchers:
            job.terminate()
        for job in self.launchers:
            job.wait(timeout=300)


def same_up_to_the_order_of_sums(run: Path, other: Path) -> None:
    first, second = (newest_checkpoint(path / "checkpoints") for path in (run, other))
    assert first.state["step"] == second.state["step"]
    for name, value in first.model.items():
        torch.testing.assert_close(value, second.model[name], atol=5e-3, rtol=5e-3, msg=name)
    assert [line["step"] for line in open_run(run).metrics()] == [
        line["step"] for line in open_run(other).metrics()
    ]


@pytest.mark.parametrize("rank", [0, 1])
def test_lost_process_is_started_again_and_the_job_resumes_by_itself(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], rank: int
) -> None:
    settings = (*tiny, "saving.checkpoint_steps=2")
    pretrain(load_recipe("small", settings), store, tmp_path / "one", accelerator="cpu", progress=False)
    with Elastic(tmp_path, store, settings) as job:
        job.launch("--nproc-per-node", "2", "--master-port", str(free_port()))
        job.wait_for_step(4, processes=2)
        os.kill(dict(job.started())[rank], signal.SIGKILL)
        assert job.launchers[0].wait(timeout=300) == 0, job.said()
        assert len(job.started()) == 4
    assert open_run(job.run).info["finished"]["processes"] == 2
    same_up_to_the_order_of_sums(job.run, tmp_path / "one")


def test_job_that_loses_a_machine_continues_with_the_remaining_one(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    settings = (*tiny, "saving.checkpoint_steps=2")
    pretrain(load_recipe("small", settings), store, tmp_path / "one", accelerator="cpu", progress=False)
    times = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=8"
    meeting = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "job")
    with Elastic(tmp_path, store, settings, alone="1") as job:
        for host in ("true", "false"):  # the first holds the meeting point, and is the one that stays
            conf = ("--rdzv-conf", f"{times},is_host={host}")
            job.launch("--nnodes", "1:2", "--nproc-per-node", "1", *meeting, *conf)
        job.wait_for_step(4, processes=2)
        lost = job.launchers[1]
        for process in [*children(lost.pid), lost.pid]:
            os.kill(process, signal.SIGKILL)
        assert job.launchers[0].wait(timeout=300) == 0, job.said()
    assert open_run(job.run).info["finished"]["processes"] == 1
    same_up_to_the_order_of_sums(job.run, tmp_path / "one")


def children(process: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
