"""How long a training step takes on 1 to 1,024 ranks: a formula, and its check against local processes whose
collective operations are slowed down.

`python -m benchmarks.rank_model` prints the table; `… check 2 4 8` starts 2, 4 and 8 gloo processes, and writes
`results/rank-model.json`.

A step of `n` ranks is the longest of its parts in a row: drawing and loss of the whole batch, the encoders on
this rank's share, gradients in a ring, queries and keys from all ranks, and a latency for every collective
operation.
"""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import RESULTS

RANKS = (1, 2, 8, 64, 256, 1024)
EPOCHS, LATENCY = 3, 0.3  # seconds by which each operation of the last epoch is delayed


@dataclass(frozen=True)
class Machine:
    """What a step is computed on; estimates, which nobody has measured on such a machine."""

    flops: float = 30e12  # of a rank, in the encoder
    inside: float = 200e9  # bytes a second between ranks of a node
    between: float = 20e9  # bytes a second between nodes
    node: int = 8  # ranks of a node
    latency: float = 20e-6  # seconds of a hop
    draws: float = 5e-6  # seconds of a clip's draws, on one core


@dataclass(frozen=True)
class Model:
    """A step of the paper's size."""

    clips: int = 64  # per rank
    step: float = 23e9  # floating-point operations of a clip, forwards and backwards
    parameters: int = 49_500_000
    dimension: int = 128
    queue: int = 16_384
    buckets: int = 8  # DDP sends gradients in pieces of 25 MB
    draw_block: int = 512  # rows that are drawn at a time


def operations(buckets: int, refresh: bool = False) -> Counter[str]:
    """Collective operations of a step: two sums of BatchNorm each for query and key, queries and keys,
    gradients; every few steps the prototypes (a flag, the centres, the random state).
    """
    found = Counter(all_reduce=4, all_gather=2, gradients=buckets)
    return found + Counter(all_reduce=1, broadcast=2) if refresh else found


def parts(ranks: int, model: Model, machine: Machine) -> dict[str, float]:
    """Seconds of the parts of a step, by name; of the gradients what takes longer than the backward pass."""
    batch = model.clips * ranks
    drawn = min(batch, model.draw_block)
    nodes = math.ceil(ranks / machine.node)
    width = machine.inside if nodes == 1 else machine.between
    ring = 2 * (ranks - 1) / ranks * 4 * model.parameters / width
    gathered = 2 * 4 * batch * model.dimension * (ranks - 1) / ranks / width
    hops = math.ceil(math.log2(ranks)) if ranks > 1 else 0
    encoder = model.clips * model.step / machine.flops
    return {
        "draws": drawn * machine.draws,
        "encoder": encoder,
        "loss": 2 * 2 * batch * model.dimension * model.queue / machine.flops,
        "gradients": max(0.0, ring - encoder / 2),
        "queries and keys": gathered,
        "latency": operations(model.buckets).total() * hops * machine.latency,
    }


def table(model: Model, machine: Machine) -> Table:
    """Milliseconds of the parts for every number of ranks, and the efficiency."""
    shown = Table("ranks", "batch", *parts(1, model, machine), "step", "efficiency", title="milliseconds")
    alone = sum(parts(1, model, machine).values())
    for ranks in RANKS:
        taken = parts(ranks, model, machine)
        whole = sum(taken.values())
        cells = [f"{1e3 * value:.1f}" for value in (*taken.values(), whole)]
        shown.add_row(str(ranks), str(model.clips * ranks), *cells, f"{alone / whole:.0%}")
    return shown


def check(ranks: int) -> dict[str, Any]:
    """Train a tiny model on several local processes, first as it is and then with slow operations.

    The formula says how many operations a step waits for; the time that the slow epoch takes longer, over the
    latency, is how many it did wait for.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        command += ["--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        command += ["-m", "benchmarks.rank_model", "worker", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=1800)
        told = json.loads((Path(folder) / "told.json").read_text())
    steps, refreshes = told["steps"], told["refreshes"]
    one, more = operations(1), operations(1, refresh=True)
    expected = (steps - refreshes) * one.total() + refreshes * more.total()
    waited = (told["seconds"][-1] - told["seconds"][-2]) / LATENCY
    return {
        "ranks": ranks,
        "steps": steps,
        "operations by the formula": expected,
        "operations counted": told["operations"],
        "operations waited for": round(waited, 1),
        "epoch, seconds": [round(value, 2) for value in told["seconds"]],
    }


def _work(folder: Path) -> None:
    """One rank: count collective operations and, on the first rank, sleep before each in the last epoch."""
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    from halp.data.synthetic import make_synthetic_store
    from halp.training import load_recipe, pretrain

    first = os.environ["RANK"] == "0"
    latency, counted, seconds = [0.0], [0], [time.monotonic()]
    counts: list[int] = []

    def slow(function: Any) -> Any:
        @functools.wraps(function)
        def call(*given: Any, **more: Any) -> Any:
            counted[0] += 1
            if first:
                time.sleep(latency[0])
            return function(*given, **more)

        return call

    for name in ("all_reduce", "all_gather", "broadcast"):
        setattr(distributed, name, slow(getattr(distributed, name)))
    build = DistributedDataParallel.__init__

    def with_hook(self: Any, *given: Any, **more: Any) -> None:
        build(self, *given, **more)
        self.register_comm_hook(None, allreduce_hook)  # which calls all_reduce of above

    DistributedDataParallel.__init__ = with_hook  # type: ignore[method-assign]

    def after_epoch(_: Any, epoch: int, __: Any) -> None:
        seconds.append(time.monotonic())
        counts.append(counted[0])
        latency[0] = LATENCY if epoch == EPOCHS - 1 else 0.0

    store, done = folder / "store", folder / "done"
    if first:
        make_synthetic_store(store, count=192, subjects=6)
        done.touch()
    while not done.exists():
        time.sleep(0.05)
    tiny = [f"epochs={EPOCHS}", "batch_size=16", "views.frames=12", "encoder.hidden=8", "encoder.layers=1"]
    tiny += ["contrast.queue=32", "contrast.dimension=16", "halp.start_epoch=0", "halp.prototypes=4"]
    tiny += [
        "halp.count=6",
        "halp.recent=32",
        f"saving.checkpoint_epochs={EPOCHS}",
        "saving.log_every=1000000",
    ]
    recipe = load_recipe("demo-halp", tiny)
    run = pretrain(recipe, store, folder / "run", progress=False, on_epoch=after_epoch)
    if first:
        steps = run.info["finished"]["step"] // EPOCHS
        last = range((EPOCHS - 1) * steps, EPOCHS * steps)
        told = {
            "steps": steps,
            "refreshes": sum(step % recipe.halp.refresh == 0 for step in last),
            "operations": counts[-1] - counts[-2],
            "seconds": [after - before for before, after in pairwise(seconds)],
        }
        (folder / "told.json").write_text(json.dumps(told))


def main(words: list[str]) -> None:
    if words[:1] == ["worker"]:
        return _work(Path(words[1]))
    if words[:1] == ["check"]:
        rows = [check(int(ranks)) for ranks in words[1:] or ("2", "4", "8")]
        (RESULTS / "rank-model.json").write_text(
            json.dumps({"latency": LATENCY, "rows": rows}, indent=1) + "\n"
        )
        return Console().print_json(data=rows)
    return Console().print(table(Model(), Machine()))


if __name__ == "__main__":
    main(sys.argv[1:])
