"""Checkpoints: folders of safetensors and JSON, whole or absent, each with a manifest of its parts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import Precision
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from halp.clips.partial import put_in_place
from halp.errors import InputError
from halp.files import sync_folder, write_json
from halp.methods.base import Method
from halp.progress import console
from halp.tensor_files import save_tensors
from halp.training.manifest import FORMAT, STATE, check_manifest, folder_name, identity_of, write_manifest


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to resume: tensors of model and optimiser, and where it stood."""

    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write `folder/step-…`, flushed and renamed into place, then drop all but the newest `keep`."""
    name = folder_name(int(checkpoint.state["step"]))
    final, partial = folder / name, folder / f".{name}.partial"
    try:
        for leftover in folder.glob(".step-*.partial"):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir(parents=True)
        parts = {"model.safetensors": checkpoint.model, "optimiser.safetensors": checkpoint.optimiser}
        for part, tensors in parts.items():
            save_tensors(tensors, partial / part)
        write_json(partial / STATE, {**checkpoint.state, "format": FORMAT})
        write_manifest(partial, name, checkpoint.state, identity_of(folder.parent))
        sync_folder(partial)
        put_in_place(partial, final)
        sync_folder(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise InputError(
            f"the checkpoint '{final}' could not be written ({error}); earlier ones are untouched: "
            "make room and resume with --resume"
        ) from error
    for old in list_checkpoints(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def list_checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoints, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint after its manifest was compared with its parts and with the run that it lies in."""
    state = check_manifest(path, identity_of(path.parent.parent))
    tensors = {}
    for name in ("model.safetensors", "optimiser.safetensors"):
        try:
            tensors[name] = load_file(path / name)
        except (OSError, SafetensorError) as error:
            raise InputError(f"checkpoint '{path}' is damaged: {name} cannot be read ({error})") from error
    return Checkpoint(tensors["model.safetensors"], tensors["optimiser.safetensors"], state)


def newest_checkpoint(folder: Path) -> Checkpoint:
    """The newest checkpoint that is whole; corrupt ones are skipped with a warning."""
    for path in reversed(list_checkpoints(folder)):
        try:
            return load_checkpoint(path)
        except InputError as error:
            console.print(f"[yellow]warning:[/] {error}; trying the one before")
    raise InputError(f"there is no whole checkpoint in '{folder}'; start the run again without --resume")


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter name, so that it does not depend on the order of parameters."""
    return {
        f"{name}/{entry}": value
        for name, parameter in model.named_parameters()
        for entry, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put saved state back where `optimiser_tensors` took it from."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        if name in parameters:
            # counters of steps (Adam) stay on the CPU, as torch keeps them
            home = "cpu" if entry == "step" else parameters[name].device
            optimiser.state[parameters[name]][entry] = value.to(home)


def scaler_state(precision: Precision) -> dict[str, Any]:
    """The scale of half-precision gradients and how it grows, as an entry of `state`; none where nothing is scaled."""
    numbers = precision.state_dict()
    return {"scaler": numbers} if numbers else {}


def restore(
    checkpoint: Checkpoint, method: Method, optimiser: torch.optim.Optimizer, precision: Precision, *, strict: bool
) -> int:
    """Load weights, queue, optimiser and scaler; a fork may differ in what the method calls optional. Returns the step."""
    try:
        missing, unexpected = method.load_state_dict(checkpoint.model, strict=False)
    except RuntimeError as error:
        raise InputError(f"the checkpoint does not fit the recipe: {str(error).splitlines()[-1].strip()}") from error
    optional = () if strict else method.fork_optional
    differing = [name for name in (*missing, *unexpected) if not name.startswith(optional or ("\0",))]
    if differing:
        raise InputError(f"the checkpoint does not fit the recipe: {', '.join(differing[:4])} …")
    restore_optimiser(method, optimiser, checkpoint.optimiser)
    if "scaler" in checkpoint.state:
        precision.load_state_dict(checkpoint.state["scaler"])
    return int(checkpoint.state["step"])
