"""Checkpoints: folders of safetensors and JSON, written atomically, each with a manifest of its parts."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import Precision
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.core.files import put_in_place, read_json, save_tensors, sha256, sync_folder, write_json
from halp.methods.base import Method
from halp.training.run_folder import RunFolder

FORMAT = 2
MANIFEST, STATE = "manifest.json", "state.json"
PARTS = ("model.safetensors", "optimiser.safetensors", STATE)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Identity:
    """The run that a checkpoint belongs to; unknown fields are None and not compared."""

    run: str | None = None
    recipe: str | None = None
    data: str | None = None


def identity_of(run: Path) -> Identity:
    """The identity of the run in a folder: its number, and fingerprints of its recipe and store."""
    folder = RunFolder(run)
    if not folder.holds_run():
        return Identity()
    info = read_json(folder.info_file)
    data = info.get("data") if isinstance(info, dict) else None
    recipe = sha256(folder.recipe_file) if folder.recipe_file.exists() else None
    return Identity(_text(info, "id"), recipe, _text(data, "hash"))


def _text(table: Any, name: str) -> str | None:
    value = table.get(name) if isinstance(table, dict) else None
    return value if isinstance(value, str) else None


def write_manifest(folder: Path, name: str, state: Mapping[str, Any], identity: Identity) -> None:
    """Write the hashes of the parts in `folder`, which will be renamed to `name`."""
    manifest = {
        "format": FORMAT,
        "folder": name,
        "step": state["step"],
        **asdict(identity),
        "files": {part: sha256(folder / part) for part in PARTS},
    }
    write_json(folder / MANIFEST, {**manifest, "manifest": _own_hash(manifest)})


def _own_hash(manifest: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != "manifest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_manifest(path: Path, expected: Identity) -> dict[str, Any]:
    """Verify everything about a checkpoint and return its state; raises at the first difference."""
    if not (path / MANIFEST).exists():
        raise _damaged(path, f"{MANIFEST} is missing")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _damaged(path, f"{MANIFEST} has a format other than {FORMAT}")
    if manifest.get("manifest") != _own_hash(manifest):
        raise _damaged(path, f"{MANIFEST} was changed after it was written")
    if manifest["folder"] != path.name:
        raise _damaged(path, f"it was written as '{manifest['folder']}'")
    for name, value in asdict(expected).items():
        if value is not None and manifest[name] is not None and manifest[name] != value:
            raise _damaged(path, f"it belongs to another {name} (fingerprint {str(manifest[name])[:12]}…)")
    _check_parts(path, manifest["files"])
    state = _state(path)
    if state["step"] != manifest["step"] or (manifest["data"] or state["data"]) != state["data"]:
        raise _damaged(path, f"{STATE} and {MANIFEST} differ in step or data")
    return state


def _check_parts(path: Path, files: Any) -> None:
    if not isinstance(files, dict) or sorted(files) != sorted(PARTS):
        raise _damaged(path, "the list of its parts is not that of a checkpoint")
    for name, fingerprint in files.items():
        if not isinstance(fingerprint, str) or not _HASH.fullmatch(fingerprint):
            raise _damaged(path, f"{name} has no fingerprint")
        try:
            digest = sha256(path / name)
        except OSError as error:
            raise _damaged(path, f"{name} cannot be read ({error.strerror})") from error
        if digest != fingerprint:
            raise _damaged(path, f"{name} was changed after it was written")


def _state(path: Path) -> dict[str, Any]:
    """Read `state.json`: every entry must have its type, and the step that of the folder's name."""
    state = read_json(path / STATE)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise _damaged(path, f"{STATE} has a format other than {FORMAT}")
    for name in ("step", "epoch"):
        if type(state.get(name)) is not int or not 0 <= state[name] < 2**53:
            raise _damaged(path, f"{STATE}: '{name}' is not a number of steps or epochs")
    if not isinstance(state.get("data"), str) or not isinstance(state.get("scaler", {}), dict):
        raise _damaged(path, f"{STATE}: 'data' or 'scaler' is damaged")
    if path.name.startswith("step-") and path.name != folder_name(state["step"]):
        raise _damaged(path, f"its state is that of step {state['step']}")
    return state


def folder_name(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:09d}"


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"checkpoint '{path}' is damaged: {what}; use an earlier one")


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to resume: tensors of model and optimiser, and its position."""

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
            warnings.warn(f"{error}; trying the one before", stacklevel=2)
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
    """The scale of half-precision gradients and its growth, as an entry of `state`; empty if unscaled."""
    numbers = precision.state_dict()
    return {"scaler": numbers} if numbers else {}


def restore(
    checkpoint: Checkpoint,
    method: Method,
    optimiser: torch.optim.Optimizer,
    precision: Precision,
    *,
    strict: bool,
) -> int:
    """Load weights, queue, optimiser and scaler (optional parts may differ in a fork); returns the step."""
    try:
        missing, unexpected = method.load_state_dict(checkpoint.model, strict=False)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"the checkpoint does not fit the recipe: {reason}") from error
    optional = () if strict else method.fork_optional
    differing = [name for name in (*missing, *unexpected) if not name.startswith(optional or ("\0",))]
    if differing:
        raise InputError(f"the checkpoint does not fit the recipe: {', '.join(differing[:4])} …")
    restore_optimiser(method, optimiser, checkpoint.optimiser)
    if "scaler" in checkpoint.state:
        precision.load_state_dict(checkpoint.state["scaler"])
    return int(checkpoint.state["step"])
