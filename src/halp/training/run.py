"""A run: everything one training produced, and how to read an encoder back out of it (layout: `run_folder.py`)."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from halp._version import __version__
from halp.augment import AUGMENTATIONS
from halp.clips.store import Store, topology_from_json
from halp.encoders import ENCODERS
from halp.encoders.packaged import PackagedEncoder, find_package, list_shipped, load_package
from halp.errors import InputError, choose
from halp.files import read_json, write_json, write_text
from halp.locks import locked_folder
from halp.methods import METHODS, TERMS, BuildContext, Method
from halp.plugins import plugins_of, require_plugins
from halp.sampling import generator
from halp.skeleton import Topology
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
        """The whole method (queue and prototypes too, where it has them) as last saved."""
        method = build_method(self.recipe, self.topology, self.info["data"]["persons"])
        method.load_state_dict(newest_checkpoint(self.checkpoints).model)
        return method

    def encoder(self, stream: str = "joint", *, trained: bool = True) -> PackagedEncoder:
        """The encoder of a stream, in evaluation mode; `trained=False` gives it as it was before the first step."""
        choose(f"stream of run '{self.path}'", stream, self.recipe.streams)
        method, step = build_method(self.recipe, self.topology, self.info["data"]["persons"]), 0
        if trained:
            checkpoint = newest_checkpoint(self.checkpoints)
            method.load_state_dict(checkpoint.model)
            step = checkpoint.state["step"]
        return self.package(method, stream, {"trained": trained, "step": step})

    def package(self, method: Method, stream: str, origin: dict[str, Any]) -> PackagedEncoder:
        """The encoder of a stream of a method in memory, which shares its weights, in evaluation mode."""
        data = self.info["data"]
        return PackagedEncoder(
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
    """The method of a recipe with the weights that its seed gives."""
    entry = METHODS[recipe.method]
    context = BuildContext(
        topology,
        persons,
        recipe.views.frames,
        {stream: recipe.encoder_of(stream) for stream in recipe.streams},
        recipe.term_settings,
        generator(recipe.seed, "queue"),
        recipe.optimiser.accumulate,
    )
    with seeded(recipe.seed):
        return entry.build(recipe.method_settings, context)


def create_run(path: Path, recipe: Recipe, store: Store, **more: Any) -> Run:
    """Make a new run folder that records `more` as well; one that holds a run already is refused."""
    if RunFolder(path).holds_run():
        raise InputError(
            f"'{path}' holds a run already; continue it with --resume, or choose another folder with --run"
        )
    info = {
        "halp": __version__,
        "id": secrets.token_hex(8),
        "command": sys.argv,
        "versions": {name: metadata.version(name) for name in ("torch", "numpy", "lightning-fabric", "safetensors")},
        "python": platform.python_version(),
        "revision": _git_revision(),
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "data": {
            "path": str(store.path),
            "hash": store.hash,
            "clips": len(store),
            "persons": store.persons,
            "normalisation": store.normalisation,
            "topology": asdict(store.topology),
        },
        "plugins": plugins_of(recipe.components()),
        **more,
    }
    return start_folder(path, recipe, info)


def start_folder(path: Path, recipe: Recipe, info: dict[str, Any]) -> Run:
    """Write what a run folder begins with: `run.json` last, since its presence makes the folder a run."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_text(RunFolder(path).recipe_file, recipe.to_toml())
        write_json(RunFolder(path).info_file, info)
    except OSError as error:
        raise InputError(f"the run folder '{path}' cannot be written ({error}); choose another with --run") from error
    return Run(path, recipe, info)


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open a run folder."""
    folder = RunFolder(Path(path))
    if not folder.holds_run():
        raise InputError(f"'{path}' is not a run folder (it has no run.json); make one with `halp pretrain`")
    info = read_json(folder.info_file)
    _check_info(folder.path, info)
    require_plugins(info.get("plugins", {}), (METHODS, TERMS, ENCODERS, AUGMENTATIONS), f"run '{path}'")
    return Run(folder.path, load_recipe(folder.recipe_file, saved=True), info)


def _check_info(path: Path, info: Any) -> None:
    """Raise where `run.json` lacks what a run is rebuilt from."""
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
    """Refuse to resume with other settings or other data than the run began with, naming the difference."""
    before, now = run.recipe.flat(), recipe.flat()
    changed = [f"{key} was {before.get(key)!r}, now {now.get(key)!r}" for key in now if before.get(key) != now.get(key)]
    if changed:
        raise InputError(f"run '{run.path}' cannot be resumed with a changed recipe: {'; '.join(changed)}")
    if run.info["data"]["hash"] != store.hash:
        raise InputError(
            f"run '{run.path}' was trained on other data: its store had hash {run.info['data']['hash'][:12]}…, "
            f"'{store.path}' has {store.hash[:12]}…"
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


def load_encoder(run_or_package: str | os.PathLike[str], stream: str | None = None) -> PackagedEncoder:
    """The encoder of a run, of a package or of a name that comes with halp, in evaluation mode.

    It knows its topology, stream and frames. A run is read at its joint stream unless told otherwise.
    """
    package = find_package(run_or_package)
    if package is not None:
        return load_package(package, stream)
    if not Path(run_or_package).exists():
        shipped = ", ".join(list_shipped()) or "none"
        raise InputError(
            f"there is no encoder '{run_or_package}': give a run folder, a package, or a name that comes with halp ({shipped})"
        )
    run = open_run(run_or_package)
    return run.encoder(stream or ("joint" if "joint" in run.recipe.streams else run.recipe.streams[0]))


@contextmanager
def locked_run(path: Path, first_rank: bool) -> Iterator[None]:
    """Own the run folder `path` while the body trains it; other processes of the same job are let through."""
    with locked_folder(path, f"run '{path}'") if first_rank else nullcontext():
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Weights drawn inside depend on the seed alone, and the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, "weights").initial_seed())
        yield


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a JSON-lines file; a last line that was cut off is passed over."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines if line]
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' is damaged ({error}); restore it from a copy or remove it") from error


def peak_memory() -> int:
    """Most memory this process has held so far, in bytes; 0 where the system does not say."""
    if resource is None:
        return 0
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(usage * (1 if sys.platform == "darwin" else 1024))


def _git_revision() -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    answer = subprocess.run(  # noqa: S603
        [git, "-C", str(Path(__file__).parent), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or None
