"""The training step in float32 and bfloat16 against the authors' way, in processor time of one thread each: for
machines that are busy with other work.

`python -m benchmarks step`. The kinds take turns step by step; ratios are medians over stretches of steps, with the
lowest and the highest beside them. The ceiling is the ratio of a step that does nothing but its matrix products, at
the rate of one large product in the same precision. Where that leaves room for the target in float32, the products
are also timed in their own shapes, with σ of the gates and nothing else.
"""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack

import torch
from rich.console import Console

from benchmarks.bench_engine import REFRESH, Apart, flops
from benchmarks.harness import Row, milliseconds

STRETCHES = {
    128: (3, REFRESH),
    256: (3, REFRESH),
    512: (3, 1),
    1024: (2, 1),
}  # units: how many of how many steps
PRODUCTS = {"ours": "product", "half": "half product"}


def rows() -> list[Row]:
    """Steps of 128, 256, 512 and 1,024 units."""
    os.environ["OMP_NUM_THREADS"] = "1"
    half = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    found = []
    for hidden, (stretches, steps) in STRETCHES.items():
        found += step_rows(hidden, stretches, steps, ["ours", "half"] if half else ["ours"])
        Console(stderr=True).print(found)
    return found


def step_rows(hidden: int, stretches: int, steps: int, kinds: list[str]) -> list[Row]:
    """For every kind of step: its ratio to the authors' way, and the ceiling of that."""
    taken = {kind: [0.0] * stretches for kind in (*kinds, "authors")}
    products: dict[str, list[float]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        timed = [*taken, "least"] if hidden == min(STRETCHES) else [*taken]
        least: list[float] = []
        apart = {kind: stack.enter_context(Apart(kind, hidden)) for kind in timed}
        large = {kind: stack.enter_context(Apart(PRODUCTS[kind], 2048)) for kind in kinds}
        for one in (*apart.values(), *large.values()):
            one()
        for stretch in range(stretches):
            for _ in range(steps):
                for kind, one in apart.items():
                    one()
                    if kind == "least":
                        least.append(one.seconds)
                    else:
                        taken[kind][stretch] += one.seconds / steps
                for kind, one in large.items():
                    one()
                    products[kind].append(one.seconds)
    found, theirs = [], taken["authors"]
    for kind in kinds:
        ratios = [reference / own for own, reference in zip(taken[kind], theirs)]
        peak = 2 * 2048**3 / statistics.median(products[kind])
        floor = flops(hidden) / peak
        reached = flops(hidden) / statistics.median(taken[kind]) / peak
        precision, target = ("bfloat16", 3.0) if kind == "half" else ("float32", 2.0)
        own = f"{milliseconds(statistics.median(taken[kind]))}; ratios {min(ratios):.2f} to {max(ratios):.2f}"
        reference = milliseconds(statistics.median(theirs))
        name = f"{precision} step vs the authors' way, {hidden} units"
        found.append(Row(name, own, reference, statistics.median(ratios), target))
        told = f"{milliseconds(floor)} at {peak / 1e9:.0f} GFLOP/s, of which {reached:.0%} are reached"
        found.append(Row("… ceiling", told, reference, statistics.median(theirs) / floor))
    if least:
        in_shape = statistics.median(least)
        ratio = statistics.median(theirs) / in_shape
        found.append(Row("… ceiling, products in their own shapes", milliseconds(in_shape), reference, ratio))
    return found
