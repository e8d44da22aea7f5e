"""A loss that is not finite: what is needed to compute that very step again is saved, and can be replayed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from halp.dropout import begin_step, dropouts, replace_dropout
from halp.errors import InputError
from halp.files import atomic_path, read_json, write_json
from halp.methods.base import Method, StepContext
from halp.sampling import generator
from halp.tensor_files import save_tensors
from halp.training.run import Run, build_method, open_run


def dump_step(
    run: Run,
    method: Method,
    views: Mapping[str, Tensor],
    clips: Tensor,
    names: Sequence[str],
    epoch: int,
    index: int,
) -> Path:
    """Save the method's state, the views and the clips of one step, by index and by name."""
    tensors = {f"model/{name}": value for name, value in method.state_dict().items()}
    tensors |= {f"views/{name}": view for name, view in views.items()}
    with atomic_path(run.diverged / "step.safetensors") as partial:
        save_tensors(tensors, partial)
    write_json(
        run.diverged / "step.json", {"epoch": epoch, "index": index, "clips": list(names), "rows": clips.tolist()}
    )
    return run.diverged


def replay_step(path: str | os.PathLike[str]) -> Tensor:
    """The loss of the step that a run dumped, computed again."""
    run = open_run(path)
    facts = read_json(run.diverged / "step.json")
    try:
        tensors = load_file(run.diverged / "step.safetensors")
    except OSError as error:
        raise InputError(f"run '{run.path}' has no dump of a step with a non-finite loss ({error})") from error
    method = build_method(run.recipe, run.topology, run.info["data"]["persons"])
    replace_dropout(method)
    method.load_state_dict(
        {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
    )
    method.rewind()
    views = {name.removeprefix("views/"): value for name, value in tensors.items() if name.startswith("views/")}
    views |= {
        new: tensors[old] for new, old in (("query", "first"), ("key", "second")) if old in tensors
    }  # by halp 0.1
    count = len(next(iter(views.values())))
    begin_step(list(dropouts(method)), run.recipe.seed, facts["epoch"], facts["index"], slice(0, count), count)
    context = StepContext(
        facts["epoch"],
        generator(run.recipe.seed, "terms", facts["epoch"], facts["index"]),
        log_metrics=False,
        clips=torch.tensor(facts["rows"]) if "rows" in facts else None,
    )
    with torch.no_grad():
        return method.train()(views, context).loss
