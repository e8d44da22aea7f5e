"""The training loop: draw a batch, cut two views, one step; watch, save, go on exactly where it stopped."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.profiler import record_function

from halp.clips.store import Store
from halp.contrast.parallel import anywhere, leave_in_order, noticing_loss, rank, share, synchronised, wait, world
from halp.errors import InputError
from halp.methods import ContrastiveModel
from halp.methods.terms import Metrics, Moment
from halp.progress import Bar, console
from halp.sampling import epoch_batches, generator, steps_in_epoch
from halp.training.checkpoint import (
    Checkpoint,
    list_checkpoints,
    optimiser_tensors,
    restore,
    save_checkpoint,
    scaler_state,
)
from halp.training.devices import launch, make_pool, reuse_memory
from halp.training.profiling import StepProfile
from halp.training.recipe import Recipe
from halp.training.run import Run, build_model, check_same, create_run, find_checkpoint, open_run, peak_memory
from halp.training.stopping import Interrupted, asked_to_stop
from halp.training.watch import Diverged, Watch, dump, forget_after
from halp.views import ClipPool, random_views

OnEpoch = Callable[[Run, int, ContrastiveModel], Mapping[str, float] | None]


def pretrain(
    recipe: Recipe,
    store: Store,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    fork: str | os.PathLike[str] | None = None,
    until: int | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    strategy: str = "auto",
    precision: str = "32-true",
    compile: bool = False,
    loggers: Sequence[str] = (),
    progress: bool = True,
    on_epoch: OnEpoch | None = None,
    profile: StepProfile | None = None,
) -> Run:
    """Train by a recipe on a store; everything goes to the run folder `path`.

    `resume` goes on from the newest whole checkpoint and ends in the same bits as a run that never stopped. `fork`
    starts from another run's checkpoint (its weights, queue, optimiser and epoch), as HaLP starts from a MoCo warm-up.
    `until` stops after that epoch. `on_epoch(run, epochs done, model)` is called on rank 0 after every epoch; figures it
    returns go to `online.jsonl`. On several `devices` the batch is split and the result is that of one.
    In 16-mixed a step whose scaled gradient overflows is skipped; only a loss that is no number ends a run.
    """
    reuse_memory()
    clips = torch.from_numpy(_training_clips(recipe, store))
    steps = steps_in_epoch(len(clips), recipe.batch_size)
    fabric = launch(accelerator, devices, nodes, strategy, precision)
    batch_size = min(recipe.batch_size, len(clips))
    if batch_size < world():
        raise InputError(f"a batch of {batch_size} clips cannot be split over {world()} processes; use fewer devices")
    model = build_model(recipe, store.topology, store.persons)
    optimiser = _optimiser(recipe, model)
    run, step = _open(Path(path), recipe, store, model, optimiser, steps, resume, fork, fabric)
    pool = make_pool(store, fabric)
    synchronised(model, fabric.device)
    if compile:
        model.compile()
    wrapped, fabric_optimiser = fabric.setup(model, optimiser)
    wrapped.train()
    last_epoch = min(recipe.epochs, until or recipe.epochs)
    first_rank = fabric.is_global_zero

    def save() -> None:
        watch.flush()
        if first_rank:
            state = {"step": step, "epoch": step // steps, "data": store.hash} | scaler_state(fabric.strategy.precision)
            checkpoint = Checkpoint(model.state_dict(), optimiser_tensors(model, optimiser), state)
            save_checkpoint(run.checkpoints, checkpoint, recipe.saving.keep)
        wait()

    started = time.monotonic()
    with (
        asked_to_stop() as stopping,
        noticing_loss(),
        Watch(run, loggers, active=first_rank, step=step) as watch,
        Bar(recipe.name, last_epoch * steps, done=step, shown=progress and first_rank) as bar,
    ):
        for epoch in range(step // steps, last_epoch):
            batches = epoch_batches(len(clips), recipe.batch_size, recipe.seed, epoch)
            rate = recipe.optimiser.rate(epoch)
            for group in optimiser.param_groups:
                group["lr"] = rate
            began, seen = time.monotonic(), 0
            for index in range(step % steps, steps):
                watched = step % recipe.saving.watch == 0
                batch = clips[batches[index]]
                with record_function("halp: views"):
                    views = _two_views(pool, batch, recipe, epoch, index)
                draws = generator(recipe.seed, "terms", epoch, index)
                loss, metrics = wrapped(*views, Moment(epoch, draws, watched, len(batch)))
                if not bool(torch.isfinite(loss)):
                    views = _two_views(pool, batch, recipe, epoch, index, whole=True)
                    _give_up(run, store, model, views, batch, (epoch, index, step))
                with record_function("halp: backward"):
                    fabric_optimiser.zero_grad(set_to_none=True)
                    fabric.backward(loss)
                if watched:
                    metrics |= _gradient_norm(fabric, wrapped, fabric_optimiser)
                with record_function("halp: optimiser"):
                    fabric_optimiser.step()
                step, seen = step + 1, seen + len(batch)
                if watched:
                    line = watch.step(step, epoch, rate, metrics)
                    pace = seen / (time.monotonic() - began)
                    bar.advance(0, f"epoch {epoch + 1} loss {line['loss']:.3f}{_kept(line)} {pace:.0f} clips/s")
                bar.advance()
                if profile is not None:
                    profile.step()
                if anywhere(stopping(), fabric.device):
                    save()
                    leave_in_order()
                    if not first_rank:
                        raise SystemExit(0)  # a launcher takes any other code of a helper for a crash
                    raise Interrupted(f"stopped at step {step} as asked; go on with `halp pretrain … --resume`")
                if recipe.saving.steps and step % recipe.saving.steps == 0 and step % steps:
                    save()
            watch.epoch(epoch, began, seen)
            if on_epoch is not None and first_rank:
                watch.online(step, epoch + 1, on_epoch(run, epoch + 1, model))
                wrapped.train()
            if (epoch + 1) % recipe.saving.every == 0 or epoch + 1 == last_epoch:
                save()
    leave_in_order()
    if first_rank:
        seconds = round(time.monotonic() - started, 3)
        run.add_info(finished={"step": step, "seconds": seconds, "peak_memory": peak_memory(), "processes": world()})
    return run


def _open(
    path: Path,
    recipe: Recipe,
    store: Store,
    model: ContrastiveModel,
    optimiser: torch.optim.Optimizer,
    steps: int,
    resume: bool,
    fork: str | os.PathLike[str] | None,
    fabric: Fabric,
) -> tuple[Run, int]:
    """The run folder, made by rank 0 alone, and the step to begin with; weights and queue are loaded into the model."""
    if resume:
        run = open_run(path)
        check_same(run, recipe, store)
        if list_checkpoints(run.checkpoints):
            step = restore(find_checkpoint(path), model, optimiser, fabric.strategy.precision, strict=True)
        else:  # it was killed before it had saved anything
            step = _start(run.info.get("forked"), model, optimiser, steps, fabric)
        if fabric.is_global_zero:
            forget_after(run.path, step)
        return run, step
    forked = {} if fork is None else {"forked": {"from": str(fork)}}
    if fabric.is_global_zero:
        if recipe.contrast.queue > (number := len(_training_clips(recipe, store))):
            console.print(
                f"[yellow]warning:[/] the queue ({recipe.contrast.queue}) is larger than the data set ({number} clips): "
                "it will hold older keys of the same clips as negatives; consider a smaller contrast.queue"
            )
        create_run(path, recipe, store, **forked)
    wait()
    run = open_run(path)
    step = _start(run.info.get("forked"), model, optimiser, steps, fabric)
    if fork is not None and fabric.is_global_zero:
        run.add_info(forked={"from": str(fork), "step": step})
    return run, step


def _start(
    forked: Mapping[str, Any] | None,
    model: ContrastiveModel,
    optimiser: torch.optim.Optimizer,
    steps: int,
    fabric: Fabric,
) -> int:
    """Where a run begins: at step 0, or where the run stood that it is a fork of."""
    if forked is None:
        return 0
    warm = find_checkpoint(forked["from"])
    step = restore(warm, model, optimiser, fabric.strategy.precision, strict=False)
    # the authors count epochs only
    return int(warm.state["epoch"]) * steps if warm.state.get("converted") else step


def _optimiser(recipe: Recipe, model: ContrastiveModel) -> torch.optim.Optimizer:
    settings = recipe.optimiser
    return torch.optim.SGD(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )


def _two_views(
    pool: ClipPool, batch: Tensor, recipe: Recipe, epoch: int, step: int, whole: bool = False
) -> tuple[Tensor, Tensor]:
    """Two random views of this rank's share of the clips, or of all; the draws are those of the whole batch."""
    mine = torch.arange(len(batch))[slice(None) if whole else share(len(batch))]
    draws = generator(recipe.seed, "views", epoch, step)
    views = random_views(pool, batch.repeat(2), recipe.views, draws, torch.cat([mine, mine + len(batch)]))
    first, second = views.chunk(2)
    return first, second


def _training_clips(recipe: Recipe, store: Store) -> Any:
    if recipe.split == "all":
        return np.arange(len(store))
    return store.split(recipe.split)[0]


def _gradient_norm(fabric: Fabric, module: Any, optimiser: Any) -> Metrics:
    """Length of the whole gradient; clipping at infinity leaves it as it is, and undoes the scaling of half precision.

    A scaled gradient that overflowed has no length: the scaler skips that step and lowers the scale.
    """
    norm = torch.as_tensor(fabric.clip_gradients(module, optimiser, max_norm=math.inf, error_if_nonfinite=False))
    skipped = not bool(torch.isfinite(norm)) and bool(scaler_state(fabric.strategy.precision))
    return {} if skipped else {"gradient_norm": norm}


def _give_up(
    run: Run,
    store: Store,
    model: ContrastiveModel,
    views: tuple[Tensor, Tensor],
    batch: Tensor,
    moment: tuple[int, int, int],
) -> None:
    """The loss is no number: say which clips it was and leave what reproduces it."""
    epoch, index, step = moment
    names = [str(store.names[clip]) for clip in batch.tolist()]
    if rank() == 0:
        dump(run, model, views, names, epoch, index)
    wait()
    raise Diverged(
        f"the loss of run '{run.path}' is not finite at step {step} (clips {', '.join(names[:5])}, …); "
        f"'{run.path / 'diverged'}' holds what reproduces it, the last checkpoint is intact: lower the learning rate or "
        "look at these clips"
    )


def _kept(line: dict[str, Any]) -> str:
    kept = [value for name, value in line.items() if name.endswith("/kept")]
    return f" kept {100 * kept[0]:.0f} %" if kept else ""
