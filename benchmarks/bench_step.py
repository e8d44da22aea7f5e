"""The training step in float32 and bfloat16 against the authors' way, in processor time of one thread each: for
machines that are busy with other work.

`python -m benchmarks step`. The kinds take turns step by step; ratios are medians over stretches of steps.
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
    256: (2, REFRESH),
    512: (1, 2),
    1024: (1, 1),
}  # units: how many of how many steps


def rows() -> list[Row]:
    """Steps of 128, 256, 512 and 1,024 units."""
    os.environ["OMP_NUM_THREADS"] = "1"
    half = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    found = []
    for hidden, (stretches, steps) in STRETCHES.items():
        found += step_rows(hidden, stretches, steps, ["half"] if half else [])
        Console(stderr=True).print(found)
    return found


def step_rows(hidden: int, stretches: int, steps: int, more: list[str]) -> list[Row]:
    """Ratios to the authors' way, and the share of the matrix-multiply peak of one large product."""
    kinds = {kind: [0.0] * stretches for kind in ("ours", *more, "authors")}
    products = []
    with ExitStack() as stack:
        apart = {kind: stack.enter_context(Apart(kind, hidden)) for kind in kinds}
        large = stack.enter_context(Apart("product", 2048))
        for one in (*apart.values(), large):
            one()
        for stretch in range(stretches):
            for _ in range(steps):
                for kind, one in apart.items():
                    one()
                    kinds[kind][stretch] += one.seconds / steps
                large()
                products.append(large.seconds)
    theirs, peak = kinds.pop("authors"), 2 * 2048**3 / statistics.median(products)
    found = []
    for kind, taken in kinds.items():
        ratio = statistics.median(reference / own for own, reference in zip(taken, theirs))
        name = f"{'bfloat16' if kind == 'half' else 'float32'} step vs the authors' way, {hidden} units"
        found.append(
            Row(
                name,
                milliseconds(statistics.median(taken)),
                milliseconds(statistics.median(theirs)),
                ratio,
                3.0 if kind == "half" else 2.0,
            )
        )
    reached = flops(hidden) / statistics.median(kinds["ours"])
    name = f"share of the matrix-multiply peak, float32 step, {hidden} units"
    found.append(Row(name, f"{reached / 1e9:.0f} GFLOP/s", f"{peak / 1e9:.0f} GFLOP/s", reached / peak))
    return found
