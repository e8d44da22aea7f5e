"""Clips per second of the shipped encoders on one core, beside MiniRocket of the same inputs and the core's
own speed.

64 clips of 64 frames with one person at once. The graph of torch operations that training and export use is
what the vectors are compared with; `python -m benchmarks shipped --cpu-time` on a busy machine.
"""

from __future__ import annotations

import numpy as np
import torch

import halp
from benchmarks.harness import Row, interleaved
from benchmarks.minirocket import MiniRocket
from halp.core.packages import list_shipped

CLIPS = 64
GOAL = 1000.0  # clips per second
SIDE = 1024  # of the matrices that tell how fast the core multiplies


def rows() -> list[Row]:
    """Rates of all shipped encoders, and how far their vectors are from those of the graph."""
    torch.set_num_threads(1)
    return [row for name in list_shipped() for row in _rates(name)]


def _rates(name: str) -> list[Row]:
    encoder = halp.load_encoder(name)
    batch = _clips(encoder.frames, len(encoder.topology), encoder.topology.dimensions)
    series = np.ascontiguousarray(batch.flatten(2).transpose(1, 2).numpy())
    rocket = MiniRocket().fit(series)
    square = torch.randn(SIDE, SIDE)

    def encode() -> torch.Tensor:
        with torch.inference_mode():
            return encoder(batch)

    ours, reference, product = interleaved(
        encode, lambda: rocket.transform(series), lambda: square @ square, repeats=9, warm_up=2
    )
    expected = encoder(batch).detach()
    apart = float((encode() - expected).abs().max() / expected.abs().max())
    speed = 2 * SIDE**3 / product / 1e9
    return [
        Row(
            f"{name}, clips per second on one core",
            f"{CLIPS / ours:.0f} clips/s, matrix products at {speed:.0f} GFLOP/s",
            f"{CLIPS / reference:.0f} clips/s, MiniRocket",
            CLIPS / ours,
            GOAL,
        ),
        Row(
            f"{name}, difference to the graph, of the largest number",
            f"{apart:.1e}",
            "0",
            apart,
            1e-4,
            at_most=True,
        ),
    ]


def _clips(frames: int, joints: int, coordinates: int) -> torch.Tensor:
    """Smooth movements `(CLIPS, T, 1, V, C)`."""
    steps = torch.randn(CLIPS, frames, 1, joints, coordinates, generator=torch.Generator().manual_seed(0))
    return steps.cumsum(1) / frames**0.5
