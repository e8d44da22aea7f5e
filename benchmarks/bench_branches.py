"""What a training step of the two-branch encoder costs beside that of the GRU, by the recipes for one
core.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.harness import Row, interleaved, milliseconds
from halp.methods import StepContext
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.training.run import build_method


def rows() -> list[Row]:
    """The recipe's width, and the default."""
    return [step_row(128), step_row(256)]


def step_row(width: int) -> Row:
    """Whole steps without making views."""
    settings = (f"encoder.width={width}", f"encoder.feed={2 * width}")
    ours, gru = interleaved(step("cpu-branches", settings), step("cpu-moco"), repeats=15)
    name = f"training step of cpu-branches, width {width} ÷ that of cpu-moco"
    return Row(name, milliseconds(ours), milliseconds(gru), ours / gru)


def step(recipe: str, settings: tuple[str, ...] = ()) -> Callable[[], None]:
    """Forward and backward pass of both views and the optimiser."""
    chosen = load_recipe(recipe, settings)
    method = build_method(chosen, KINECT_V1, 1)
    optimiser = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=1e-4, momentum=0.9)
    query, key = torch.randn(2, chosen.batch_size, chosen.views.frames, 1, len(KINECT_V1), 3)

    def take() -> None:
        optimiser.zero_grad()
        method({"query": query, "key": key}, StepContext(0, torch.Generator())).loss.backward()
        optimiser.step()

    return take
