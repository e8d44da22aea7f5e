"""`python -m benchmarks [name …] [--cpu-time]`: run every `bench_*.py` beside this file, or only the named
ones.

`--cpu-time` counts the processor time of one thread, which other work on the machine does not disturb much.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.harness import RESULTS, Row, measure_cpu_time, save, table
from halp.training.devices import reuse_memory


def main(names: list[str]) -> int:
    """Write the rows of every module to `results/bench-NAME.json` and print them all in one table."""
    if "--cpu-time" in names:
        names = [name for name in names if name != "--cpu-time"]
        measure_cpu_time()
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = [name for name in names if name not in known]
    if unknown:
        Console(stderr=True).print(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    reuse_memory()  # as training does; references profit as well
    rows: list[Row] = []
    for name in names or known:
        Console(stderr=True).print(f"measuring {name} …")
        torch.manual_seed(0)
        found = importlib.import_module(f"benchmarks.bench_{name}").rows()
        save(found, RESULTS / f"bench-{name}.json")
        rows += found
    Console().print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
