"""Labels and events: what fits and statistics cost, and how that grows; CPU seconds of whole processes.

Fits of `halp-base` are those of `halp classify fit` from start to end. For growth the libraries are loaded and the
encoder is small, so that time goes to labels and events. How large: `HALP_BENCH_LABELS` (100,000) and
`HALP_BENCH_EVENTS` (1,000,000).
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from benchmarks.harness import Row
from benchmarks.scale_commands import LIBRARIES, exponent, pretrain, used
from benchmarks.scale_store import make_store
from halp.cli import main as halp
from halp.data.synthetic import make_synthetic_store

LABELS = int(os.environ.get("HALP_BENCH_LABELS", "100000"))
EVENTS = int(os.environ.get("HALP_BENCH_EVENTS", "1000000"))
Measure = Callable[[int], dict[str, float]]


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["HALP_CACHE"], os.environ["OMP_NUM_THREADS"] = str(home / "cache"), "1"
        found = _fits(home)
        for library in LIBRARIES:
            import_module(library)
        make_store(home / "few", 1000)
        used(pretrain(home / "few", home / "encoder"), home / "told")
        found += _growth("classify fit, labels", partial(_fit_small, home), LABELS)
        return found + _growth("stats, events", partial(_stats, home), EVENTS, most=1024)


def _fits(home: Path) -> list[Row]:
    for name, count in (("thousand", 1000), ("fifty", 50), ("unlabelled", 5000)):
        make_synthetic_store(home / name, count=count, repetitions=4, seed=count)
    time.sleep(2.5)  # a store that was just written is read whole each time it is opened
    found = []
    for name, labelled, further in (
        ("fit of 1,000 labels in 24 classes, CPU s", "thousand", []),
        (
            "fit of 50 labels and 5,000 clips without, CPU s",
            "fifty",
            ["--unlabelled", str(home / "unlabelled")],
        ),
    ):
        fit = [
            "classify",
            "fit",
            "halp-base",
            str(home / labelled),
            str(home / f"model-{labelled}"),
            *further,
        ]
        command = partial(subprocess.run, [sys.executable, "-m", "halp", *fit], check=True)
        spent = used(command, home / "told")
        told = f"{spent['peak_mb']:.0f} MB, {os.getloadavg()[0]:.0f} processes at work"
        found.append(Row(name, told, "", spent["cpu_s"], 10, True))
    return found


def _fit_small(home: Path, count: int) -> dict[str, float]:
    store = home / f"labels-{count}"
    make_store(store, count)
    time.sleep(2.5)
    fit = ["classify", "fit", str(home / "encoder"), str(store), str(home / f"model-{count}")]
    return used(partial(halp, fit), home / "told")


def _stats(home: Path, count: int) -> dict[str, float]:
    """Events of half a minute on average, 200 in each recording, of eight kinds."""
    draw, table = np.random.default_rng(0), home / f"events-{count}.csv"
    ends = np.cumsum(draw.uniform(1, 60, (-(-count // 200), 200)), axis=1).round(2)
    kinds = draw.integers(0, 8, ends.shape)
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recording", "start", "stop", "label"])
        for number in range(count):
            place = divmod(number, 200)
            start = ends[place[0], place[1] - 1] if place[1] else 0.0
            writer.writerow([f"r{place[0]:05}", start, ends[place], f"kind {kinds[place]}"])
    return used(partial(halp, ["stats", str(table)]), home / "told")


def _growth(name: str, measure: Measure, largest: int, most: float | None = None) -> list[Row]:
    """The exponent of what more of them add, and the memory of the most where there is a limit."""
    found = {count: measure(count) for count in (10**power for power in range(3, 9)) if count <= largest}
    seconds = {count: one["cpu_s"] for count, one in found.items()}
    told = "; ".join(f"{count:,}: {spent:.1f} s" for count, spent in seconds.items())
    grown = exponent(seconds)
    shown = [Row(f"{name}: exponent", told, "", grown, 1.1 if grown else None, True)]
    if most is not None:
        peak = found[max(found)]["peak_mb"]
        shown.append(Row(f"{name}: MB for {max(found):,}", "", "", peak, most, True))
    return shown
