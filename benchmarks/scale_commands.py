"""Commands over stores of 1,000 to 1,000,000 clips, each in a process of its own: CPU seconds and peak memory.

`python -m benchmarks.scale_commands FOLDER [LARGEST]` makes the stores and a small encoder in a folder, runs what is
not yet in `FOLDER/commands.json`, prints rows and saves them in `results/bench-scale.json`. Processes are forked
from one that has imported the libraries. Start-up is the time of the smallest store: exponents are those of what
more clips add, between steps of ten.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from benchmarks.harness import RESULTS, Row, origin, table
from benchmarks.scale_store import make_store
from halp import open_store
from halp.cli import main as halp
from halp.core.files import sha256

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SMALL = "encoder.hidden=8 encoder.layers=1 views.frames=8 views.crop_frames=4 contrast.queue=512".split()
LIBRARIES = (
    "torch._dynamo",
    "lightning_fabric",
    "sklearn.cluster",
    "scipy.stats",
    "pyarrow.parquet",
    "faiss",
    "tyro",
)
Action = Callable[[], object]


def commands(home: Path, store: Path) -> dict[str, Action]:
    """What is run over a store, in this order: later commands find what earlier ones keep."""
    run, out, source = str(home / "encoder"), home / f"{store.name}-collection", str(store)
    segment = ["segment", run, source, "--groups", "6", "--workers", "1"]
    asked = ["search", run, "p000/c0000000", "--in", source]
    return {
        "open": partial(open_store, store),
        "open, again": partial(open_store, store),
        "inspect": partial(halp, ["inspect", source]),
        "embed": partial(halp, ["embed", run, source, str(out), "--workers", "1"]),
        "search": partial(halp, asked),
        "search --where": partial(halp, [*asked, "--where", "subject = 3"]),
        "cluster": partial(halp, ["cluster", run, source, "--groups", "6"]),
        "pretrain, one epoch": pretrain(store, home / "epoch"),
        "segment": partial(halp, segment),
        "segment, again": partial(halp, segment),
        "motifs": partial(halp, ["motifs", run, source, "--motifs", "4", "--no-stability", "--workers", "1"]),
    }


def pretrain(store: Path, run: Path) -> Action:
    """One epoch of a small encoder, both terms on."""
    settings = [*SMALL, "epochs=1", "batch_size=512", "halp.start_epoch=0", "optimiser.milestones=[]"]
    return partial(halp, ["pretrain", "small", "--data", str(store), "--run", str(run), "--set", *settings])


def used(action: Action, told: Path) -> dict[str, float]:
    """CPU seconds and peak memory of an action in a forked process, with its children; what it prints is kept."""
    process = os.fork()
    if not process:
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        code = 1
        try:
            action()
            code = 0
        except SystemExit as left:
            code = 0 if left.code is None else 1
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"a command failed: {told.read_text(errors='replace')[-2000:]}")
    return {"cpu_s": round(usage.ru_utime + usage.ru_stime, 2), "peak_mb": round(usage.ru_maxrss / 1024)}


def exponent(seconds: dict[int, float]) -> float:
    """The largest exponent of what clips add to the start, between sizes where that is 0.2 s or more."""
    sizes = sorted(seconds)
    added = {size: seconds[size] - seconds[sizes[0]] for size in sizes[1:]}
    steps = [
        math.log(added[many] / added[few]) / math.log(many / few)
        for few, many in pairwise(added)
        if added[few] >= 0.2 and added[many] >= 0.2
    ]
    return max(steps, default=0.0)


def rows(found: dict[str, dict[str, dict[str, float]]]) -> list[Row]:
    """Exponents and memory of every command up to the largest store."""
    shown = []
    for name, sizes in found.items():
        seconds = {int(size): one["cpu_s"] for size, one in sizes.items()}
        largest = max(seconds)
        told = f"{seconds[largest]:.1f} CPU s, {sizes[str(largest)]['peak_mb']:.0f} MB for {largest:,}"
        start = f"{seconds[min(seconds)]:.1f} CPU s for {min(seconds):,}"
        grown = exponent(seconds)
        shown.append(Row(f"{name}: exponent", told, start, grown, 1.1 if grown else None, True))
    return shown


def measure(home: Path, largest: int) -> dict[str, dict[str, dict[str, float]]]:
    """Run what is not yet in `commands.json`: its content, by command and size."""
    os.environ["HALP_CACHE"], kept = str(home / "cache"), home / "commands.json"
    home.mkdir(parents=True, exist_ok=True)
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for library in LIBRARIES:
        import_module(library)
    for size in (size for size in SIZES if size <= largest):
        store = home / f"s{size}"
        if not store.exists():
            make_store(store, size)
            time.sleep(2.5)  # a store that was just written is read whole each time it is opened
        if str(size) not in found.get("open", {}):
            sha256(store / "frames.npy")  # the first opening reads it from memory, at every size
        if not (home / "encoder").exists():
            used(pretrain(store, home / "encoder"), home / "told")
        for name, command in commands(home, store).items():
            if str(size) not in found.setdefault(name, {}):
                shutil.rmtree(home / "epoch", ignore_errors=True)
                found[name][str(size)] = used(command, home / "told")
                kept.write_text(json.dumps(found, indent=1))
                print(name, size, found[name][str(size)], file=sys.stderr, flush=True)
    return found


def save(found: dict[str, dict[str, dict[str, float]]]) -> None:
    """Add what was found to the results of `benchmarks scale`."""
    result = RESULTS / "bench-scale.json"
    whole = json.loads(result.read_text()) if result.exists() else {}
    shown = [{**asdict(row), "met": row.met} for row in rows(found)]
    made = origin("python -m benchmarks.scale_commands FOLDER")
    whole["commands"] = {**made, "rows": shown, "measured": found}
    result.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")


def main(folder: str, largest: str = "1000000") -> None:
    found = measure(Path(folder).absolute(), int(largest))
    save(found)
    Console().print(table(rows(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
