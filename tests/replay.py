"""The loss of a step that a diverged run dumped, from the dump alone."""

from __future__ import annotations

import os

import torch
from safetensors.torch import load_file
from torch import Tensor

from halp.core.dropout import begin_step, dropouts, replace_dropout
from halp.core.files import read_json
from halp.core.sampling import generator
from halp.methods.base import StepContext
from halp.training.run import build_method, open_run


def replay_step(path: str | os.PathLike[str]) -> Tensor:
    """Recompute the loss of a step that a run dumped."""
    run = open_run(path)
    facts = read_json(run.diverged / "step.json")
    tensors = load_file(run.diverged / "step.safetensors")
    method = build_method(run.recipe, run.topology, run.info["data"]["persons"])
    replace_dropout(method)
    method.load_state_dict(
        {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
    )
    method.rewind()
    views = {
        name.removeprefix("views/"): value for name, value in tensors.items() if name.startswith("views/")
    }
    count = len(next(iter(views.values())))
    begin_step(
        list(dropouts(method)),
        run.recipe.seed,
        facts["epoch"],
        facts["index"],
        slice(0, count),
        count,
        run.recipe.dropout_draws,
    )
    context = StepContext(
        facts["epoch"],
        generator(run.recipe.seed, "terms", facts["epoch"], facts["index"]),
        log_metrics=False,
        clips=torch.tensor(facts["rows"]) if "rows" in facts else None,
    )
    with torch.no_grad():
        return method.train()(views, context).loss
