"""Checkpoints in the authors' format (HaLP, or CMD with three modalities) become runs, and back.

Their file is a pickled dictionary of `epoch`, `state_dict` and `optimizer`; it is read with torch's
restricted unpickler, which builds tensors and nothing else. One run of ours holds all of it: both encoders,
queue, optimiser and epoch.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halp._version import __version__
from halp.augment import ViewSettings
from halp.core.errors import InputError, check_choice
from halp.core.files import atomic_path, building
from halp.data.normalise import AUTHORS
from halp.data.text_files import shown
from halp.encoders import EncoderSettings
from halp.methods import ContrastSettings
from halp.skeleton import Topology, get_topology
from halp.training.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint
from halp.training.recipe import Recipe
from halp.training.run import Run, build_method, open_run, start_folder

SUFFIXES = {"joint": "", "motion": "_motion", "bone": "_bone"}
SIDES = {"query": "q", "key": "k"}
_MOST_TENSORS, _MOST_LAYERS = 10_000, 64
_HEAD = {"fc.0": "projector.0", "fc.2": "projector.2"}


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    from_format: str = "auto",
    to: str = "auto",
    topology: str = "kinect-v2",
    frames: int = 64,
) -> Path:
    """Convert the authors' checkpoint (HaLP, or CMD with three modalities) into a run, or back.

    Parameters
    ----------
    source : path
        The authors' file, or a run folder.
    out : path
        The run folder to make, or the file.
    from_format, to : str
        run or authors (default: by what the source is).
    topology : str
        The joint layout that the authors' encoder reads.
    frames : int
        How many frames it reads.

    Returns
    -------
    path
        What was written.
    """
    source, out = Path(source), Path(out)
    if not source.exists():
        raise InputError(f"there is no checkpoint or run at '{source}'")
    if out.exists():
        raise InputError(f"'{out}' exists already; choose another name")
    kinds = ("run", "authors") if source.is_dir() else ("authors", "run")
    for asked, kind in zip((from_format, to), kinds):
        if check_choice("format", asked, ("auto", "run", "authors")) not in ("auto", kind):
            raise InputError(f"'{source}' is in format {kinds[0]} and converts to {kinds[1]}, not '{asked}'")
    if source.is_dir():
        return to_authors(open_run(source), out)
    return from_authors(source, out, get_topology(topology), frames).path


def from_authors(source: Path, out: Path, topology: Topology, frames: int = 64) -> Run:
    """A run folder with the weights, queue, optimiser state and epoch of the authors' checkpoint."""
    saved, tensors = _read(source)
    streams = [stream for stream, suffix in SUFFIXES.items() if f"encoder_q{suffix}.fc.2.weight" in tensors]
    if not streams or streams[0] != "joint":
        raise InputError(
            f"'{source}' holds no encoder in the authors' layout (encoder_q.fc.2.weight is missing); "
            f"its first tensors are {', '.join(map(shown, list(tensors)[:3]))}"
        )
    inputs, encoder, contrast = _sizes(tensors, source)
    persons, rest = divmod(inputs, len(topology) * topology.dimensions)
    if rest or not persons:
        raise InputError(
            f"the encoder of '{source}' reads {inputs} numbers per frame, which is not a number of persons of"
            f" topology '{topology.name}' ({len(topology)} joints × {topology.dimensions}); name another with"
            " --topology"
        )
    recipe = Recipe(
        name=re.sub(r"[^\w.-]+", "-", source.name.removesuffix(".tar").removesuffix(".pth")),
        description="converted from a checkpoint in the authors' format",
        streams=tuple(streams),
        terms=("infonce",),
        views=ViewSettings(frames=frames),
        encoder=encoder,
        sections={"contrast": contrast},
    )
    epoch = saved["epoch"] if isinstance(saved.get("epoch"), int) and 0 <= saved["epoch"] < 1 << 31 else 0
    model = build_method(recipe, topology, persons)
    wanted = {name: value.shape for name, value in model.state_dict().items()}
    converted = _rename(tensors, wanted) | _queues(tensors, streams, epoch, source)
    for name, size in wanted.items():
        if name not in converted or converted[name].shape != size:
            have = tuple(converted[name].shape) if name in converted else "missing"
            raise InputError(f"'{source}' is inconsistent: {name} is {have}, it should be {tuple(size)}")
    model.load_state_dict({name: converted[name] for name in wanted})
    data = {"path": "unknown", "hash": "unknown", "clips": 0, "persons": persons}
    data |= {"normalisation": list(AUTHORS), "topology": asdict(topology)}
    info = {"halp": __version__, "command": sys.argv, "data": data}
    state = {"step": 0, "epoch": epoch, "data": "unknown", "converted": True}
    momentum = _rename(_momentum(saved.get("optimizer"), tensors), dict(model.named_parameters()))
    buffers = {f"{name}/momentum_buffer": value for name, value in momentum.items()}
    try:
        with building(out) as partial:
            run = start_folder(partial, recipe, {**info, "converted": {"from": source.name, "epoch": epoch}})
            save_checkpoint(
                run.checkpoints, Checkpoint(model.state_dict(), buffers, state), recipe.saving.keep
            )
    except (OSError, InputError) as error:
        raise InputError(
            f"the run '{out}' cannot be written ({error.__cause__ or error}); choose another path"
        ) from error
    return replace(run, path=out)


def to_authors(run: Run, out: Path) -> Path:
    """Write the newest checkpoint of a run in the authors' format, if their encoder can compute it."""
    encoder = run.recipe.encoder
    if foreign := [stream for stream in run.recipe.streams if stream not in SUFFIXES]:
        raise InputError(f"run '{run.path}' has streams {foreign}, not in the authors' format")
    if (encoder.name, encoder.direction, encoder.pooling) != ("gru", "causal", "last"):
        raise InputError(
            f"run '{run.path}' has encoder '{encoder.name}' with direction '{encoder.direction}' and pooling "
            f"'{encoder.pooling}'; the authors' code computes gru, causal and last only"
        )
    checkpoint = newest_checkpoint(run.checkpoints)
    branches = [f"pairs.{stream}.{side}." for stream in run.recipe.streams for side in SIDES]
    ordered = [name for branch in branches for name in checkpoint.model if name.startswith(branch)]
    state = {_theirs(name): checkpoint.model[name] for name in ordered}
    for stream in run.recipe.streams:
        suffix = SUFFIXES[stream]
        state[f"queue{suffix}"] = checkpoint.model[f"queue.keys_{stream}"].T.contiguous()
        state[f"queue_ptr{suffix}"] = checkpoint.model["queue.pointer"].view(1)
    buffers = {
        _theirs(key.removesuffix("/momentum_buffer")): value for key, value in checkpoint.optimiser.items()
    }
    parameters = _parameters(state)
    settings = run.recipe.optimiser
    group = {"lr": settings.rate(max(0, checkpoint.state["epoch"] - 1)), "momentum": settings.momentum}
    group |= {"dampening": 0, "weight_decay": settings.weight_decay, "nesterov": False}
    optimiser = {
        "state": {
            i: {"momentum_buffer": buffers[name]} for i, name in enumerate(parameters) if name in buffers
        },
        "param_groups": [{**group, "params": list(range(len(parameters)))}],
    }
    try:
        with atomic_path(out) as partial:
            torch.save(
                {"epoch": checkpoint.state["epoch"], "state_dict": state, "optimizer": optimiser}, partial
            )
    except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
        raise InputError(f"'{out}' cannot be written ({_reason(error)}); choose another path") from error
    return out


def _read(source: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The file's dictionary and its tensors by name, without the `module.` of parallel training."""
    try:
        with warnings.catch_warnings():
            # about unusual pickles: they are refused or read, nothing between
            warnings.simplefilter("ignore")
            saved = torch.load(source, map_location="cpu", weights_only=True)
    # a damaged or hostile file can fail in any way, and none of them is our user's business
    except Exception as error:
        raise InputError(
            f"'{source}' cannot be loaded as tensors alone ({_reason(error)}); it is damaged, not a"
            " checkpoint, or contains code"
        ) from error
    state = saved.get("state_dict", saved) if isinstance(saved, dict) else None
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise InputError(f"'{source}' holds no state_dict; it is not a checkpoint in the authors' format")
    tensors = {
        name.removeprefix("module."): value for name, value in state.items() if isinstance(value, Tensor)
    }
    if len(state) > _MOST_TENSORS:
        raise InputError(f"'{source}' holds {len(state)} tensors, too many for the authors' format")
    for name, value in tensors.items():
        if value.layout != torch.strided or not 0 < value.nbytes <= value.untyped_storage().nbytes():
            raise InputError(f"'{source}' is damaged: {shown(name)} is empty or larger than its numbers")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"'{source}' is unusable: {shown(name)} holds numbers that are not finite")
    return saved, tensors


def _reason(error: Exception) -> str:
    """A library's message on one line, without colour codes, shortened between words."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", str(error))
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return textwrap.shorten("".join(sign for sign in first if sign.isprintable()), 120, placeholder=" …")


def _sizes(tensors: dict[str, Tensor], source: Path) -> tuple[int, EncoderSettings, ContrastSettings]:
    """Facts from tensors of the first branch: numbers per frame, encoder, dimension and queue."""
    try:
        hidden = tensors["encoder_q.encoder.gru.weight_hh_l0"].shape[1]
        layers = sum(
            re.fullmatch(r"encoder_q\.encoder\.gru\.weight_hh_l\d+", name) is not None for name in tensors
        )
        inputs = tensors["encoder_q.encoder.gru.weight_ih_l0"].shape[1]
        dimension, queue = tensors["encoder_q.fc.2.weight"].shape[0], tensors["queue"].shape[1]
    except (KeyError, IndexError) as error:
        raise InputError(
            f"'{source}' is not a whole checkpoint in the authors' format: {error} is missing"
        ) from error
    # What a checkpoint declares must not cost more than the numbers it holds: each side holds all of these.
    needed = max(6 * hidden * hidden * layers, 6 * hidden * inputs, dimension * hidden, dimension * queue)
    if layers > _MOST_LAYERS or needed > 4 * sum(value.numel() for value in tensors.values()):
        raise InputError(
            f"'{source}' does not fit together: {layers} layers of {hidden} units with {dimension} outputs"
            f" and a queue of {queue} are more than its tensors hold"
        )
    norm = "encoder_q.input_norm.weight" in tensors
    encoder = EncoderSettings(hidden=hidden, layers=layers, direction="causal", input_norm=norm)
    return inputs, encoder, ContrastSettings(dimension=dimension, queue=queue)


def _theirs(name: str) -> str:
    """The authors' name of one of our tensors; empty outside encoders and heads."""
    match = re.fullmatch(r"pairs\.(\w+)\.(query|key)\.(?:encoder\.)?(.+)", name)
    if match is None:
        return ""
    stream, side, rest = match.groups()
    if layer := re.fullmatch(r"layers\.(\d+)\.([01])\.(.+)_l0", rest):
        rest = f"encoder.gru.{layer[3]}_l{layer[1]}{'_reverse' if layer[2] == '1' else ''}"
    for theirs, ours in _HEAD.items():
        rest = rest.replace(ours, theirs)
    return f"encoder_{SIDES[side]}{SUFFIXES[stream]}.{rest}"


def _rename(tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """The authors' tensors under our names, if they have one."""
    return {ours: tensors[theirs] for ours in names if (theirs := _theirs(ours)) in tensors}


def _queues(
    tensors: Mapping[str, Tensor], streams: Iterable[str], epoch: int, source: Path
) -> dict[str, Tensor]:
    """The queues under our names, transposed; they count as filled if an epoch was finished."""
    state: dict[str, Tensor] = {}
    pointers = set()
    for stream in streams:
        queue = tensors.get(f"queue{SUFFIXES[stream]}")
        if queue is not None and queue.ndim == 2:
            state[f"queue.keys_{stream}"] = queue.T.contiguous()
            pointer = tensors.get(f"queue_ptr{SUFFIXES[stream]}", torch.zeros(1, dtype=torch.long)).reshape(
                -1
            )[0]
            pointers.add(int(pointer) % max(queue.shape[1], 1))
            state["queue.filled"] = torch.tensor(queue.shape[1] if epoch else int(pointer))
    if len(pointers) > 1:
        raise InputError(f"the queues of '{source}' have different pointers {sorted(pointers)}")
    state["queue.pointer"] = torch.tensor(next(iter(pointers), 0))
    return state


def _parameters(tensors: dict[str, Tensor]) -> list[str]:
    """Names of the parameters in their order: everything but queues and running statistics."""
    no_parameter = re.compile(r"queue.*|.*\.(running_mean|running_var|num_batches_tracked)")
    return [name for name in tensors if not no_parameter.fullmatch(name)]


def _momentum(optimiser: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Momentum buffers under the names of their parameters; empty if the file has none that fit."""
    names = _parameters(tensors)
    try:
        order = [index for group in optimiser["param_groups"] for index in group["params"]]
        buffers = {index: entry["momentum_buffer"] for index, entry in optimiser["state"].items()}
    except (TypeError, KeyError, AttributeError):
        return {}
    if len(order) != len(names):  # the optimiser was given the trained encoders alone
        names = [name for name in names if name.startswith("encoder_q")]
    places = dict(zip(order, names)) if len(order) == len(names) else {}
    return {
        places[index]: value
        for index, value in buffers.items()
        if index in places and isinstance(value, Tensor) and value.shape == tensors[places[index]].shape
    }
