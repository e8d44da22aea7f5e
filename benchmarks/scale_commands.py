"""Commands over stores of 1,000 to 1,000,000 clips, each in a process of its own: CPU seconds and peak memory.

`python -m benchmarks.scale_commands FOLDER [LARGEST]` makes the stores and a small encoder in a folder, runs what is
not yet in `FOLDER/commands.json`, and prints rows. Start-up is the time of the smallest store: exponents are those
of what more clips add, between steps of ten.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from benchmarks.harness import Row, table
from benchmarks.scale_store import make_store

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SMALL = "encoder.hidden=8 encoder.layers=1 views.frames=8 views.crop_frames=4 contrast.queue=512".split()
OPEN = "import halp, sys; print(len(halp.open_store(sys.argv[1])))"


def commands(home: Path, store: Path) -> dict[str, list[str]]:
    """What is run over a store, in this order: later commands find what earlier ones keep."""
    run, out = str(home / "encoder"), home / f"{store.name}-collection"
    shutil.rmtree(out, ignore_errors=True)
    source, settled = str(store), ["--groups", "6"]
    return {
        "open": ["-c", OPEN, source],
        "inspect": ["-m", "halp", "inspect", source],
        "embed": ["-m", "halp", "embed", run, source, str(out), "--workers", "1"],
        "search": ["-m", "halp", "search", run, "p000/c0000000", "--in", source],
        "search --where": ["-m", "halp", "search", run, "p000/c0000000", "--in", source, "--where", "subject = 3"],
        "cluster": ["-m", "halp", "cluster", run, source, *settled],
        "segment": ["-m", "halp", "segment", run, source, *settled, "--workers", "1"],
        "pretrain, one epoch": pretrain(store, home / "epoch"),
        "motifs": ["-m", "halp", "motifs", run, source, "--motifs", "4", "--no-stability", "--workers", "1"],
    }  # fmt: skip


def pretrain(store: Path, run: Path) -> list[str]:
    """One epoch of a small encoder, both terms on."""
    shutil.rmtree(run, ignore_errors=True)
    settings = [*SMALL, "epochs=1", "batch_size=512", "halp.start_epoch=0", "optimiser.milestones=[]"]
    return ["-m", "halp", "pretrain", "small", "--data", str(store), "--run", str(run), "--set", *settings]


def used(command: list[str]) -> dict[str, float]:
    """CPU seconds and peak memory of a command, with its children."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    told = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: {told[-2000:]}")
    return {"cpu_s": round(usage.ru_utime + usage.ru_stime, 2), "peak_mb": round(usage.ru_maxrss / 1024)}


def exponent(seconds: dict[int, float]) -> float:
    """The largest exponent of what clips add to the start, between sizes where that is two seconds or more."""
    sizes = sorted(seconds)
    added = {size: seconds[size] - seconds[sizes[0]] for size in sizes[1:]}
    steps = [
        math.log(added[many] / added[few]) / math.log(many / few)
        for few, many in pairwise(added)
        if added[few] >= 2 and added[many] >= 2
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
        shown.append(Row(f"{name}: exponent", told, start, exponent(seconds), 1.1, True))
    return shown


def measure(home: Path, largest: int) -> list[Row]:
    """Run what is not yet in `commands.json`; rows of all."""
    os.environ["HALP_CACHE"], kept = str(home / "cache"), home / "commands.json"
    home.mkdir(parents=True, exist_ok=True)
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for size in (size for size in SIZES if size <= largest):
        store = home / f"s{size}"
        if not store.exists():
            make_store(store, size)
            time.sleep(2.5)  # a store that was just written is read whole each time it is opened
        if not (home / "encoder").exists():
            used(pretrain(store, home / "encoder"))
        for name, command in commands(home, store).items():
            if str(size) not in found.setdefault(name, {}):
                found[name][str(size)] = used(command)
                kept.write_text(json.dumps(found, indent=1))
                print(name, size, found[name][str(size)], file=sys.stderr, flush=True)
    return rows(found)


def main(folder: str, largest: str = "1000000") -> None:
    Console().print(table(measure(Path(folder).absolute(), int(largest))))


if __name__ == "__main__":
    main(*sys.argv[1:])
