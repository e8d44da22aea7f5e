"""Soak: kill and resume trainings at random instants, many times, and see that nothing is lost and nothing
grows.

`python -m benchmarks.soak --kills 1000` trains a single stream, three streams, masked prediction and two
processes, kills each at random instants (SIGKILL to every process of the job) and resumes it until it ends;
the end is compared with a run that was never killed, and the next one begins. `--steps 100000` then watches
memory and open files of one training. Processes are forked from one that has torch loaded, so that a kill
costs a second and not ten. With `--json` the counts go to a record, to which a later call adds: a soak that
was stopped goes on. It is not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from halp.data.store import Store
from halp.data.synthetic import make_synthetic_store
from halp.training import load_recipe, pretrain
from halp.training.checkpoint import list_checkpoints, newest_checkpoint

_SMALL = ("batch_size=16", "views.frames=12", "saving.log_every=1", "saving.checkpoint_steps=2", "epochs=20")
_HALP = (
    "encoder.hidden=8", "encoder.layers=1", "contrast.queue=32", "contrast.dimension=16", "halp.start_epoch=1",
    "halp.prototypes=4", "halp.count=6", "halp.recent=32",
)  # fmt: skip
_MASKED = ("encoder.frames=12", "encoder.patch=4", "encoder.width=16", "encoder.layers=1", "encoder.heads=2")
#: Jobs by name: recipe, settings, processes.
JOBS: dict[str, tuple[str, tuple[str, ...], int]] = {
    "single stream": ("small", _HALP, 1),
    "three streams": ("small-halp-cmd", _HALP, 1),
    "masked prediction": ("small-masked", _MASKED, 1),
    "two processes": ("small", _HALP, 2),
}
#: The run whose memory is watched: as many steps a second as possible, a checkpoint now and then.
GROWTH = (
    *_HALP, "encoder.hidden=4", "batch_size=8", "views.frames=4", "halp.refresh=20", "saving.log_every=10",
    "saving.checkpoint_steps=0",
    "saving.checkpoint_epochs=50", "epochs=1000000",
)  # fmt: skip


def start(job: str, store: Store, run: Path, settings: tuple[str, ...] = ()) -> list[int]:
    """Fork the processes of a job that begins or resumes a run; their numbers."""
    recipe, own, processes = JOBS[job]
    chosen = load_recipe(recipe, (*_SMALL, *own, *settings))
    resume = (run / "run.json").exists()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _silence()
                if processes > 1:
                    _set_rank(rank, processes, port)
                pretrain(chosen, store, run, resume=resume, accelerator="cpu", progress=False)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return children


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _set_rank(rank: int, processes: int, port: int) -> None:
    """What torchrun tells its processes."""
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
    os.environ.update(
        {name: str(processes) for name in names} | {name: str(rank) for name in ("RANK", "LOCAL_RANK")}
    )
    os.environ.update(GROUP_RANK="0", GROUP_WORLD_SIZE="1", TORCHELASTIC_RUN_ID="soak")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def wait(children: list[int], seconds: float) -> bool:
    """Whether all of them ended well in time; whoever is left then is killed."""
    end, left = time.monotonic() + seconds, set(children)
    codes: list[int] = []
    while left and time.monotonic() < end and not any(codes):
        for child in list(left):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                left.discard(child)
                codes.append(os.waitstatus_to_exitcode(status))
        time.sleep(0.005)
    for child in left:
        os.kill(child, signal.SIGKILL)
    for child in left:
        os.waitpid(child, 0)
    if any(codes):
        raise SystemExit(f"soak: a process ended with {max(codes, key=abs)}")
    return not left


def soak(
    job: str, store: Store, folder: Path, row: dict[str, Any], longest: float, chance: random.Random
) -> None:
    """Kill one run at random instants until it ends, and add what was seen to the row of its job."""
    whole, run = folder / "whole", folder / "killed"
    if not whole.exists() and not wait(start(job, store, whole), 3600):
        raise SystemExit(f"soak: '{job}' does not end by itself")
    shutil.rmtree(run, ignore_errors=True)
    kills = 0
    while not wait(start(job, store, run), chance.uniform(0.0, longest)):
        kills += 1
        row["kills"] += 1
        row["half-written checkpoints"] += bool(list((run / "checkpoints").glob(".*")))
        if kills % 20 == 0:
            longest *= 1.5  # a busy machine: it hardly begins before it is killed
    row["runs"] += 1
    row["runs that differ"] += not _same(run, whole)


def _same(one: Path, other: Path) -> bool:
    """Whether weights, optimiser and metrics are equal to the bit and nothing was left behind."""
    first, second = (newest_checkpoint(path / "checkpoints") for path in (one, other))
    tensors = [(first.model, second.model), (first.optimiser, second.optimiser)]
    same = all(a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in tensors)
    metrics = (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    left = [
        path.name
        for path in (one / "checkpoints").iterdir()
        if path not in list_checkpoints(one / "checkpoints")
    ]
    return same and metrics and first.state == second.state and not left


def growth(store: Store, folder: Path, steps: int) -> dict[str, Any]:
    """Memory and open files of one training, at a tenth of its steps and at its end."""
    (child,) = start("single stream", store, folder / "long", GROWTH)
    marks: list[tuple[int, int, int]] = []
    while not marks or marks[-1][0] < steps:
        time.sleep(1)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            raise SystemExit(f"soak: the long run ended with {status}")
        lines = Path(f"/proc/{child}/status").read_text().splitlines()
        memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        files = len(os.listdir(f"/proc/{child}/fd"))
        if saved := list_checkpoints(folder / "long" / "checkpoints"):
            marks.append((int(saved[-1].name.removeprefix("step-")), memory, files))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    early = next(mark for mark in marks if mark[0] >= steps / 10)
    return {
        "steps": marks[-1][0],
        "memory kB at a tenth and at the end": [early[1], marks[-1][1]],
        "open files at a tenth and at the end": [early[2], marks[-1][2]],
        "most open files": max(mark[2] for mark in marks),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, default=1000, help="kills over all jobs, those on record included"
    )
    parser.add_argument("--steps", type=int, default=100_000, help="steps of the run whose memory is watched")
    parser.add_argument(
        "--longest", type=float, default=1.5, help="seconds that a job lives at most before it is killed"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", type=Path, help="the record")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chance = random.Random(chosen.seed)  # noqa: S311
    names = ("kills", "runs", "runs that differ", "half-written checkpoints")
    record: dict[str, Any] = {"command": "make soak", "jobs": {job: dict.fromkeys(names, 0) for job in JOBS}}
    if chosen.json and chosen.json.exists():
        record |= json.loads(chosen.json.read_text())

    def note() -> None:
        record["kills"] = sum(row["kills"] for row in record["jobs"].values())
        if chosen.json:
            chosen.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        store = make_synthetic_store(Path(folder) / "store", count=192, subjects=6)
        note()
        while record["kills"] < chosen.kills:
            job = min(JOBS, key=lambda name: int(record["jobs"][name]["kills"]))
            place = Path(folder) / job.replace(" ", "-")
            place.mkdir(exist_ok=True)
            soak(job, store, place, record["jobs"][job], chosen.longest, chance)
            note()
            print(job, json.dumps(record["jobs"][job]), flush=True)
        if chosen.steps and record.get("growth", {}).get("steps", 0) < chosen.steps:
            record["growth"] = growth(store, Path(folder), chosen.steps)
            note()
            print(json.dumps(record["growth"]), flush=True)
    return int(any(row["runs that differ"] for row in record["jobs"].values()))


if __name__ == "__main__":
    sys.exit(main())
