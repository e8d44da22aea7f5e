"""The start of a training: method, optimiser and clips; a new, forked or resumed run folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from halp.core.distributed import world_size
from halp.core.errors import InputError
from halp.core.sampling import steps_in_epoch
from halp.data.choose_splits import ALL, Indices, training_clips
from halp.data.store import Store
from halp.methods import Method
from halp.training.checkpoint import Checkpoint, list_checkpoints, restore
from halp.training.recipe import Recipe
from halp.training.records import truncate_records, writing
from halp.training.run import (
    Run,
    build_method,
    check_same,
    create_run,
    find_checkpoint,
    initialise_encoders,
    open_run,
)


@dataclass(frozen=True)
class Start:
    """What a new run begins with: another run's whole state, its encoders' weights, or neither."""

    fork: str | os.PathLike[str] | None = None
    init: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.fork is not None and self.init is not None:
            raise InputError(
                "fork takes the whole state of a run and init its encoders alone; give one of the two"
            )

    @classmethod
    def recorded(cls, info: Mapping[str, Any]) -> Start:
        """The recorded start of a run."""
        return cls(*((info.get(entry) or {}).get("from") for entry in ("forked", "initialised")))


@dataclass(frozen=True)
class Learner:
    """A method with its optimiser, and the clips `(N,)` of a store to train on."""

    recipe: Recipe
    store: Store
    clips: Tensor
    method: Method
    optimiser: torch.optim.Optimizer

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return steps_in_epoch(len(self.clips), self.recipe.batch_size)


def fitted_recipe(recipe: Recipe, store: Store) -> tuple[Recipe, Indices, str]:
    """A recipe as a run records it, its training clips, and notes about them."""
    clips, remark = training_clips(store, recipe.split)
    if remark:
        # What was learned from is recorded, so that a split made later does not pass for the one trained on.
        recipe = replace(recipe, split=ALL)
    return recipe.fitted_to(len(clips)), clips, remark


def build_learner(recipe: Recipe, store: Store, fabric: Fabric) -> Learner:
    """The method of a recipe as its seed gives it, and the clips it learns from."""
    recipe, clips, remark = fitted_recipe(recipe, store)
    if (batch := min(recipe.batch_size, len(clips))) < world_size():
        raise InputError(f"{batch} clips cannot be split over {world_size()} processes; use fewer")
    method = build_method(recipe, store.topology, store.persons)
    if remark and fabric.is_global_zero:
        _warn([remark])
    return Learner(recipe, store, torch.from_numpy(clips), method, recipe.optimiser.build(method))


@dataclass(frozen=True)
class Begun:
    """The state before the first step: what is trained, its run, the next step, the folder's maker."""

    learner: Learner
    run: Run
    step: int
    made_folder: bool


def begin(
    learner: Learner, path: Path, fabric: Fabric, start: Start, *, resume: bool, last_epoch: int | None = None
) -> Begun:
    """Find or make the run folder (rank 0 alone makes it), and load the state to begin with."""
    if resume:
        return _resume(learner, path, fabric)
    # before the folder is made: a start that fails must not leave one that blocks the next try
    step, facts = _load(learner, fabric, start)
    last = learner.recipe.epochs if last_epoch is None else last_epoch
    if step >= last * learner.steps:
        raise InputError(
            f"'{start.fork}' has trained {step / learner.steps:g} epochs already, and this run ends after"
            f" {last}: nothing is left to train; raise epochs above {step // learner.steps}, or fork an"
            " earlier checkpoint"
        )
    if fabric.is_global_zero:
        _warn(_doubts(learner))
        if learner.method.tunes and not facts:
            _warn(["an untrained encoder is tuned; start from a trained one with --init RUN"])
        create_run(path, learner.recipe, learner.store, **facts)
    fabric.barrier()
    return Begun(learner, open_run(path), step, made_folder=True)


def _resume(learner: Learner, path: Path, fabric: Fabric) -> Begun:
    run = open_run(path)
    check_same(run, learner.recipe, learner.store)
    learner = replace(learner, recipe=run.recipe)
    if list_checkpoints(run.checkpoints):
        step = _restore(learner, fabric, find_checkpoint(path), strict=True)
    else:  # it was killed before it had saved anything
        step, _ = _load(learner, fabric, Start.recorded(run.info))
    if fabric.is_global_zero:
        _warn(_other_threads(run))
        with writing(run):
            truncate_records(run.path, step)
    return Begun(learner, run, step, made_folder=False)


def _load(learner: Learner, fabric: Fabric, start: Start) -> tuple[int, dict[str, Any]]:
    """Load the initial state of the run; returns its step and the record for its folder."""
    if start.fork is not None:
        warm = find_checkpoint(start.fork)
        step = _restore(learner, fabric, warm, strict=False)
        if warm.state.get("converted"):  # the authors count epochs only
            step = int(warm.state["epoch"]) * learner.steps
        return step, {"forked": {"from": str(start.fork), "step": step}}
    if start.init is not None:
        origins = initialise_encoders(learner.method, learner.recipe, learner.store, start.init)
        return 0, {"initialised": {"from": str(start.init), "origin": origins[0]}}
    return 0, {}


def _restore(learner: Learner, fabric: Fabric, checkpoint: Checkpoint, *, strict: bool) -> int:
    return restore(checkpoint, learner.method, learner.optimiser, fabric.strategy.precision, strict=strict)


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=4)


def _other_threads(run: Run) -> Iterator[str]:
    """Warn about another number of threads: sums are then added in another order, equal only up to rounding."""
    before, now = (run.info.get("hardware") or {}).get("threads"), torch.get_num_threads()
    if before not in (None, now):
        yield (
            f"this run began with {before} threads per process and resumes with {now}: results agree up to"
            f" rounding, not to the bit (set OMP_NUM_THREADS={before})"
        )


def _doubts(learner: Learner) -> Iterator[str]:
    """Warnings about the recipe for this store."""
    queue, clips = learner.method.queue_size, len(learner.clips)
    if queue > clips:
        yield (
            f"the queue ({queue}) is larger than the data set ({clips} clips): it will hold older keys of the"
            " same clips as negatives; consider a smaller contrast.queue"
        )
    expected, steps = list(learner.recipe.normalisation), list(learner.store.normalisation)
    if expected and expected != steps:
        yield (
            f"recipe '{learner.recipe.name}' expects a store normalised by {' '.join(expected)}, and"
            f" '{learner.store.path}' has {' '.join(steps) or 'no steps'}: figures will not be those of the"
            f" published system; prepare it again with --normalise {' '.join(expected)}"
        )
