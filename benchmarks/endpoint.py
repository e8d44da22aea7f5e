"""`python -m benchmarks.endpoint train STORE --out FOLDER`: the registered endpoint (docs/appendix/preregistration.md).

STORE holds the classes A001 to A010 of NTU-60, as `halp prepare ntu` makes it. Runs that are finished are kept and a stopped
one is resumed, so the same command continues. One process, one thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from halp.clips.store import Store, open_store
from halp.reproduce.runner import SweepRunner
from halp.reproduce.scales import get_scale
from halp.reproduce.scheduler import DataSource, Schedule, make_schedule
from halp.reproduce.tables import get_table

SPLITS = ("xsub", "xview")
SEEDS = range(10)
PAIRS = {"ntu10": ("MoCo", "HaLP"), "ntu10-streams": ("CMD", "HaLP + CMD")}  # table → base and the same with HaLP


def schedules(store: Store, seeds: range = SEEDS) -> Iterator[tuple[str, str, int, Schedule]]:
    """Base, split, seed and schedule of each pair, in the registered order."""
    for name, pair in PAIRS.items():
        table = get_table(name)
        table = replace(table, rows=tuple(row for row in table.rows if row.name in pair))
        for seed in seeds:
            for split in SPLITS:
                source = DataSource("ntu10", store)
                yield (
                    pair[0],
                    split,
                    seed,
                    make_schedule(table, get_scale("ntu10"), [source], splits=[split], seeds=(seed,)),
                )


def train(store: Store, out: Path) -> None:
    """Train what is not finished, in the registered order."""
    runner = SweepRunner(out, progress=True)
    for base, split, seed, schedule in schedules(store):
        print(f"{base} {split} seed {seed}", flush=True)
        runner.train(schedule.jobs.values())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["train"])
    parser.add_argument("store", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    train(open_store(options.store), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
