"""Training jobs as real processes, for tests that kill them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import forked as subprocess
import torch
from ports import free_port
from safetensors.torch import load_file

from halp.data.store import Store
from halp.training.checkpoint import list_checkpoints
from halp.training.run import read_lines

# trains by the arguments store, run and settings; the environment says how slowly, and where processes leave
# their ids
TRAIN = """
import os, sys, time
from pathlib import Path
import torch
from halp.augment import ViewMaker
from halp.cli import main
torch.set_num_threads(1)
pause, pids = float(os.environ.get("PAUSE", 0)), os.environ.get("PIDS")
if "LIMIT" in os.environ:  # no file may grow larger: what a full disk looks like from inside
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LIMIT"]),) * 2)
if pids:
    Path(f"{pids}-{os.environ.get('RANK', 0)}").write_text(str(os.getpid()))
make = ViewMaker.make
def slowly(*given):
    time.sleep(pause)
    return make(*given)
ViewMaker.make = slowly
store, run, *settings = sys.argv[1:]
more = ["--resume"] if os.environ.get("RESUME") else []
main(["pretrain", "small", "--data", store, "--run", run, "--accelerator", "cpu", *more, "--set", *settings])
"""


def launched(count: int) -> list[str]:
    """The command that starts this many processes."""
    options = [
        "--nproc-per-node",
        str(count),
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(free_port()),
    ]
    return [sys.executable, "-m", "torch.distributed.run", *options]


def start(
    folder: Path,
    store: Store,
    run: str,
    settings: tuple[str, ...],
    *,
    ranks: int = 1,
    pause: float = 0.0,
    resume: bool = False,
    keep_pids: bool = False,
    program: str = TRAIN,
) -> subprocess.Popen[bytes]:
    """Start a job that trains into `folder/run`."""
    script = folder / "train.py"
    script.write_text(program)
    environment = {**os.environ, "PAUSE": str(pause), "OMP_NUM_THREADS": "1"}
    if resume:
        environment["RESUME"] = "1"
    if keep_pids:
        environment["PIDS"] = str(folder / f"pid-{run}")
    command = [sys.executable, str(script)]
    if ranks > 1:
        command = [*launched(ranks), str(script)]
    given = [str(store.path), str(folder / run), *settings]
    return subprocess.Popen([*command, *given], env=environment, stderr=subprocess.DEVNULL)


def wait_for_steps(run: Path, job: subprocess.Popen[bytes], steps: int) -> None:
    """Until the run has noted this many steps; lines reach the file with each checkpoint."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if job.poll() is not None:
            raise AssertionError(f"the run ended early with {job.returncode}")
        if len(read_lines(run / "metrics.jsonl")) >= steps:
            return
        time.sleep(0.02)
    raise AssertionError("the run does not get on")


def final_files(run: Path) -> dict[str, bytes]:
    """What must be equal to the bit: newest checkpoint and metrics."""
    newest = list_checkpoints(run / "checkpoints")[-1]
    files = {
        name: (newest / name).read_bytes()
        for name in ("model.safetensors", "optimiser.safetensors", "state.json")
    }
    return {**files, "metrics": (run / "metrics.jsonl").read_bytes()}


def compare_whole_killed_and_two_processes(
    folder: Path, store: Store, recipe: str, settings: tuple[str, ...]
) -> None:
    """Train `whole`, `killed` (with kill -9, then resumed: equal to the bit) and `two` (on two processes) in
    a folder.
    """
    program = TRAIN.replace('"small"', f'"{recipe}"')
    assert start(folder, store, "whole", settings, program=program).wait(timeout=300) == 0
    killed = start(folder, store, "killed", settings, pause=0.1, program=program)
    wait_for_steps(folder / "killed", killed, 4)
    killed.kill()
    killed.wait()
    assert start(folder, store, "killed", settings, resume=True, program=program).wait(timeout=300) == 0
    assert final_files(folder / "whole") == final_files(folder / "killed")
    assert start(folder, store, "two", settings, ranks=2, program=program).wait(timeout=300) == 0


def assert_whole_and_two_are_close(folder: Path, tolerance: float) -> None:
    """The weights that the same training ended with on one process and on two."""
    newest = [list_checkpoints(folder / run / "checkpoints")[-1] for run in ("whole", "two")]
    one, two = (load_file(path / "model.safetensors") for path in newest)
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], atol=tolerance, rtol=tolerance, msg=name)
