"""Soak: kill and resume trainings at random instants, many times, and see that nothing is lost and nothing grows.

`python -m benchmarks.soak --kills 1000` trains a single stream, three streams and two processes, kills each at random
instants (SIGKILL to every process of the job), resumes, and compares the end with a run that was never killed. A run of
`--steps` steps then watches memory and open files. It is not part of the tests: a thousand kills take an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from halp.clips.store import Store
from halp.clips.synthetic import make_synthetic_store
from halp.training.checkpoint import list_checkpoints, newest_checkpoint

TINY = (
    "batch_size=16", "views.frames=12", "encoder.hidden=8", "encoder.layers=1", "contrast.queue=32",
    "contrast.dimension=16", "halp.start_epoch=1", "halp.prototypes=4", "halp.count=6", "halp.recent=32",
    "saving.watch=1", "saving.steps=2",
)  # fmt: skip
#: Jobs by name: recipe, further settings, processes.
JOBS: dict[str, tuple[str, tuple[str, ...], int]] = {
    "single stream": ("small", (), 1),
    "three streams": ("small-halp-cmd", (), 1),
    "two processes": ("small", (), 2),
}


def command(job: str, store: Store, run: Path, epochs: int) -> list[str]:
    recipe, settings, processes = JOBS[job]
    given = ["-m", "halp", "pretrain", recipe, "--data", str(store.path), "--run", str(run), "--accelerator", "cpu"]
    resume = ["--resume"] if (run / "run.json").exists() else []
    return [
        sys.executable, *given, "--devices", str(processes), *resume, "--set", *TINY, *settings, f"epochs={epochs}"
    ]  # fmt: skip


def start(job: str, store: Store, run: Path, epochs: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command(job, store, run, epochs), env=environment, start_new_session=True, **silent)


def soak(
    job: str, store: Store, folder: Path, kills: int, epochs: int, longest: float, chance: random.Random
) -> dict[str, Any]:
    """Kill one job so many times and compare its end with that of an undisturbed one."""
    run, landed, halves = folder / "killed", 0, 0
    while landed < kills:
        process = start(job, store, run, epochs)
        try:
            process.wait(timeout=chance.uniform(0.5, longest))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            landed += 1
        else:
            if process.returncode != 0:
                raise SystemExit(f"soak: '{job}' ended with {process.returncode}")
            break  # it reached its end before all kills
        halves += bool(list((run / "checkpoints").glob(".*")))
    for path in (run, folder / "whole"):
        if start(job, store, path, epochs).wait() != 0:
            raise SystemExit(f"soak: '{job}' does not end")
    return {"job": job, "kills": landed, "half-written checkpoints": halves, **_compare(run, folder / "whole")}


def _compare(one: Path, other: Path) -> dict[str, Any]:
    first, second = (newest_checkpoint(path / "checkpoints") for path in (one, other))
    same = all(torch.equal(value, second.model[name]) for name, value in first.model.items())
    metrics = (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    left = [path.name for path in (one / "checkpoints").iterdir() if path not in list_checkpoints(one / "checkpoints")]
    return {"same weights": same, "same metrics": metrics, "left behind": left, "step": first.state["step"]}


def growth(store: Store, folder: Path, steps: int) -> dict[str, Any]:
    """Memory and open files of one training, at a tenth of its steps and at its end."""
    epochs = max(2, steps // 5)
    process = start("single stream", store, folder / "long", epochs)
    marks: list[tuple[int, int, int]] = []
    while process.poll() is None:
        time.sleep(0.2)
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
            files = len(os.listdir(f"/proc/{process.pid}/fd"))
            saved = list_checkpoints(folder / "long" / "checkpoints")
        except (OSError, StopIteration):
            continue
        if saved:
            marks.append((int(saved[-1].name.removeprefix("step-")), memory, files))
    last = marks[-1]
    early = next(mark for mark in marks if mark[0] >= last[0] / 10)
    return {
        "steps": last[0],
        "memory kB": [early[1], last[1]],
        "open files": [early[2], last[2]],
        "most open files": max(mark[2] for mark in marks),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="kills over all jobs")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--steps", type=int, default=100_000, help="steps of the run whose memory is watched")
    parser.add_argument(
        "--longest", type=float, default=15, help="seconds that a job lives at most before it is killed"
    )
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    chance, rows = random.Random(chosen.seed), []  # noqa: S311
    with tempfile.TemporaryDirectory() as folder:
        store = make_synthetic_store(Path(folder) / "store", count=192, subjects=6)
        for job in JOBS:
            place = Path(folder) / job.replace(" ", "-")
            place.mkdir()
            rows.append(soak(job, store, place, chosen.kills // len(JOBS), chosen.epochs, chosen.longest, chance))
            print(json.dumps(rows[-1]), flush=True)
        print(json.dumps(growth(store, Path(folder), chosen.steps)), flush=True)
    return int(not all(row["same weights"] and row["same metrics"] and not row["left behind"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
