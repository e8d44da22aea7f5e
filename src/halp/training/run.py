"""A run: everything a training produced, and how to read an encoder back (layout: `run_folder.py`)."""

from __future__ import annotations

import json
import os
import platform
import secrets
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from halp._version import __version__, revision
from halp.augment import AUGMENTATIONS
from halp.core.errors import InputError, check_choice
from halp.core.files import read_json, write_json, write_text
from halp.core.locks import locked_folder
from halp.core.packages import find_encoder, is_package
from halp.core.registry import plugins_of, require_plugins
from halp.core.sampling import generator
from halp.data.store import Store, topology_from_json
from halp.encoders import ENCODERS, EncoderSettings, has_setting
from halp.encoders.pretrained import PretrainedEncoder, load_package
from halp.methods import METHODS, TERMS, BuildContext, Method
from halp.skeleton import Topology
from halp.skeleton.streams import split_stream
from halp.training.checkpoint import Checkpoint, list_checkpoints, load_checkpoint, newest_checkpoint
from halp.training.recipe import Recipe, load_recipe
from halp.training.run_folder import RunFolder

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Run(RunFolder):
    """A run folder that exists."""

    recipe: Recipe
    info: dict[str, Any]

    @property
    def topology(self) -> Topology:
        return topology_from_json(self.info["data"]["topology"])

    def metrics(self, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
        """Lines of metrics in order."""
        return read_lines(self.path / file)

    def timing(self) -> list[dict[str, Any]]:
        """Seconds and peak memory of every epoch in order."""
        return read_lines(self.timing_file)

    def add_info(self, **entries: Any) -> None:
        """Record further facts about the run."""
        self.info.update(entries)
        write_json(self.info_file, self.info)

    def model(self) -> Method:
        """The whole method (queue and prototypes too, if it has them) as last saved."""
        method = build_method(self.recipe, self.topology, self.info["data"]["persons"])
        method.load_state_dict(newest_checkpoint(self.checkpoints).model)
        return method

    def encoder(self, stream: str = "joint", *, trained: bool = True) -> PretrainedEncoder:
        """The encoder of a stream, in evaluation mode; with `trained=False` as before the first step."""
        check_choice(f"stream of run '{self.path}'", stream, self.recipe.streams)
        method, step = build_method(self.recipe, self.topology, self.info["data"]["persons"]), 0
        if trained:
            checkpoint = newest_checkpoint(self.checkpoints)
            method.load_state_dict(checkpoint.model)
            step = checkpoint.state["step"]
        return self.package(method, stream, {"trained": trained, "step": step})

    def package(self, method: Method, stream: str, origin: dict[str, Any]) -> PretrainedEncoder:
        """The encoder of a stream of a method in memory, which shares its weights, in evaluation mode."""
        data = self.info["data"]
        return PretrainedEncoder(
            method.encoders()[stream],
            self.topology,
            stream=stream,
            persons=data["persons"],
            frames=self.recipe.views.frames,
            normalisation=data["normalisation"],
            architecture=self.recipe.encoder_of(stream).to_plain(),
            origin={
                "run": str(self.path),
                "recipe": self.recipe.name,
                "split": self.recipe.split,
                "data": data["hash"],
                **({"initialised": self.info["initialised"]["origin"]} if "initialised" in self.info else {}),
                **origin,
            },
        ).eval()


def build_method(recipe: Recipe, topology: Topology, persons: int) -> Method:
    """The method of a recipe with the initial weights of its seed."""
    entry = METHODS[recipe.method]
    context = BuildContext(
        topology,
        persons,
        recipe.views.frames,
        {stream: recipe.encoder_of(stream) for stream in recipe.streams},
        recipe.term_settings,
        generator(recipe.seed, "queue"),
        recipe.optimiser.encode_chunks,
    )
    with seeded(recipe.seed):
        return entry.build(recipe.method_settings, context)


def create_run(path: Path, recipe: Recipe, store: Store, **more: Any) -> Run:
    """Create a run folder and record `more` in it; an existing run is refused."""
    if RunFolder(path).holds_run():
        raise InputError(
            f"'{path}' holds a run already; continue it with --resume, or choose another folder with --run"
        )
    info = {
        "halp": __version__,
        "id": secrets.token_hex(8),
        "command": sys.argv,
        "versions": {
            name: metadata.version(name) for name in ("torch", "numpy", "lightning-fabric", "safetensors")
        },
        "python": platform.python_version(),
        "revision": revision(),
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "data": data_facts(store),
        "plugins": plugins_of(recipe.components()),
        **more,
    }
    return start_folder(path, recipe, info)


def data_facts(store: Store) -> dict[str, Any]:
    """Facts of the store that a run was trained on."""
    return {
        "path": str(store.path),
        "hash": store.hash,
        "clips": len(store),
        "persons": store.persons,
        "normalisation": store.normalisation,
        "topology": json.loads(json.dumps(asdict(store.topology))),
    }


def start_folder(path: Path, recipe: Recipe, info: dict[str, Any]) -> Run:
    """Write the initial files of a run folder; `run.json` last, since it makes the folder a run."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_text(RunFolder(path).recipe_file, recipe.to_toml())
        write_json(RunFolder(path).info_file, info)
    except OSError as error:
        raise InputError(
            f"the run folder '{path}' cannot be written ({error}); choose another with --run"
        ) from error
    return Run(path, recipe, info)


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open a run folder.

    Parameters
    ----------
    path : path
        What `pretrain` wrote.

    Returns
    -------
    Run
        Its recipe, metrics, checkpoints and encoders.

    Raises
    ------
    InputError
        If it is not a run folder, or needs a plugin that is not loaded.

    Examples
    --------
    >>> import halp
    >>> halp.open_run("nowhere")
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: 'nowhere' is not a run folder (it has no run.json); make one with `halp
    pretrain`
    """
    folder = RunFolder(Path(path))
    if not folder.holds_run():
        raise InputError(f"'{path}' is not a run folder (it has no run.json); make one with `halp pretrain`")
    info = read_json(folder.info_file)
    _check_info(folder.path, info)
    require_plugins(info.get("plugins", {}), (METHODS, TERMS, ENCODERS, AUGMENTATIONS), f"run '{path}'")
    return Run(folder.path, load_recipe(folder.recipe_file), info)


def _check_info(path: Path, info: Any) -> None:
    """Raise if `run.json` lacks anything needed to rebuild the run."""
    data = info.get("data") if isinstance(info, dict) else None
    sound = (
        isinstance(data, dict)
        and isinstance(data.get("hash"), str)
        and type(data.get("persons")) is int
        and isinstance(data.get("normalisation"), list)
        and isinstance(data.get("topology"), dict)
        and isinstance(info.get("plugins", {}), dict)
    )
    if not sound:
        raise InputError(
            f"run '{path}' is damaged: run.json does not say what it was trained on; restore it from a copy"
        )


def check_same(run: Run, recipe: Recipe, store: Store) -> None:
    """Refuse to resume with other settings or data than the run began with, naming the difference."""
    before, now = run.recipe.flat(), recipe.flat()
    # what it is called, what is expected of the store and how dropout draws are the run's own, whatever the
    # recipe says today
    for key in ("name", "description", "normalisation", "dropout_draws"):
        now[key] = before[key]
    changed = [
        f"{key} was {before.get(key)!r}, now {now.get(key)!r}"
        for key in now
        if before.get(key) != now.get(key)
    ]
    if changed:
        raise InputError(f"run '{run.path}' cannot be resumed with a changed recipe: {'; '.join(changed)}")
    if run.info["data"]["hash"] != store.hash:
        raise InputError(
            f"run '{run.path}' was trained on other data: its store had hash"
            f" {run.info['data']['hash'][:12]}…, '{store.path}' has {store.hash[:12]}…"
        )


def find_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint a path means: a run's newest whole one, or that very folder."""
    path = Path(path)
    if (path / "state.json").exists():
        return load_checkpoint(path)
    checkpoints = RunFolder(path).checkpoints
    if list_checkpoints(checkpoints):
        return newest_checkpoint(checkpoints)
    raise InputError(f"'{path}' is neither a run with checkpoints nor a checkpoint")


def locked_run(path: Path, first_rank: bool) -> AbstractContextManager[None]:
    """Own the run folder `path` while the body trains it; other processes of the same job are let through."""
    return locked_folder(path, f"run '{path}'") if first_rank else nullcontext()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """In this context weights depend on the seed alone; the global generator is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, "weights").initial_seed())
        yield


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Complete lines of a JSON-lines file; a truncated last line is skipped."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines if line]
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' is damaged ({error}); restore it from a copy or remove it") from error


def peak_memory() -> int:
    """Peak memory of this process so far, in bytes; 0 if unknown."""
    if resource is None:
        return 0
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(usage * (1 if sys.platform == "darwin" else 1024))


def initialise_encoders(
    method: Method, recipe: Recipe, store: Store, source: str | os.PathLike[str]
) -> list[dict[str, Any]]:
    """Give every encoder of a method the source's weights for its stream; returns their origins."""
    origins, path = [], find_encoder(source)
    run = None if is_package(path) else open_run(path)
    for stream, encoder in method.encoders().items():
        pretrained = load_package(path, stream) if run is None else run.encoder(stream)
        _refuse_other_encoder(pretrained, recipe, stream, source)
        weights = pretrained.encoder.state_dict()
        # an encoder that reads every person alone has the same weights for any number of them
        shapes = {name: value.shape for name, value in encoder.state_dict().items()}
        any_persons = shapes == {name: value.shape for name, value in weights.items()}
        _refuse_other_clips(pretrained, store, source, any_persons=any_persons)
        encoder.load_state_dict(weights)
        origins.append(pretrained.origin)
    method.encoders_replaced()
    return origins


def _refuse_other_clips(
    pretrained: PretrainedEncoder, store: Store, source: str | os.PathLike[str], *, any_persons: bool
) -> None:
    """Refuse weights learned from clips of another kind than the store's."""
    facts = {
        "topology": (pretrained.topology.name, store.topology.name),
        "joints": (list(pretrained.topology.joints), list(store.topology.joints)),
        **({} if any_persons else {"persons": (pretrained.persons, store.persons)}),
        "normalisation": (pretrained.normalisation, list(store.normalisation)),
    }
    for name, (theirs, ours) in facts.items():
        if theirs != ours:
            raise InputError(
                f"the encoder of '{source}' was trained on clips of {name} {theirs}, and store '{store.path}'"
                f" has {name} {ours}; prepare the clips as they were there, or start from another run"
            )


def _refuse_other_encoder(
    pretrained: PretrainedEncoder, recipe: Recipe, stream: str, source: str | os.PathLike[str]
) -> None:
    """Refuse weights of another encoder than the recipe's, naming the settings that would make them fit."""
    ours, theirs = recipe.encoder_of(stream), EncoderSettings(**pretrained.architecture)
    if ours == theirs:
        return
    label = split_stream(stream)[1]
    section = f"encoders.{label}" if label else "encoder"
    same_kind = ours.to_plain() if ours.name == theirs.name else {}
    wanted = {
        f"{section}.{key}": value for key, value in theirs.to_plain().items() if same_kind.get(key) != value
    }
    if has_setting(theirs.name, "frames"):
        wanted["views.frames"] = pretrained.frames
    plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in wanted.items()}
    shown = " ".join(quote(f"{key}={value}") for key, value in plain.items())
    raise InputError(
        f"the encoder of '{source}' differs from the recipe's of stream '{stream}'; to start from it,"
        f" add --set {shown}"
    )
