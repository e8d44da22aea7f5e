"""The training loop: draw a batch, cut two views, one step; watch, save, go on exactly where it stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from halp.clips.store import Store
from halp.errors import InputError
from halp.files import write_text
from halp.methods import ContrastiveModel
from halp.methods.terms import Moment
from halp.progress import Bar, console
from halp.sampling import epoch_batches, generator, steps_in_epoch
from halp.training.checkpoint import Checkpoint, optimiser_tensors, restore_optimiser, save_checkpoint
from halp.training.recipe import Recipe
from halp.training.run import (
    Run,
    build_model,
    check_same,
    create_run,
    find_checkpoint,
    open_run,
    peak_memory,
    read_lines,
)
from halp.views import ClipPool, random_views


class Interrupted(Exception):
    """The run was asked to stop, has saved its state and can be resumed."""


class Diverged(Exception):
    """The loss is no longer a number."""


def pretrain(
    recipe: Recipe,
    store: Store,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    fork: str | os.PathLike[str] | None = None,
    until: int | None = None,
    accelerator: str = "auto",
    precision: Any = "32-true",
    progress: bool = True,
    on_epoch: Callable[[Run, int], None] | None = None,
) -> Run:
    """Train by a recipe on a store; everything goes to the run folder `path`.

    `resume` goes on from the newest whole checkpoint and ends in the same bits as a run that never stopped. `fork`
    starts from another run's checkpoint (its weights, queue, optimiser and epoch), as HaLP starts from a MoCo warm-up.
    `until` stops after that epoch. `on_epoch(run, epochs done)` is called after every epoch.
    """
    fabric = Fabric(accelerator=accelerator, devices=1, precision=precision)
    clips = torch.from_numpy(_training_clips(recipe, store))
    steps = steps_in_epoch(len(clips), recipe.batch_size)
    if recipe.contrast.queue > len(clips):
        console.print(
            f"[yellow]warning:[/] the queue ({recipe.contrast.queue}) is larger than the data set ({len(clips)} clips): "
            "it will hold older keys of the same clips as negatives; consider a smaller contrast.queue"
        )
    model = build_model(recipe, store.topology, store.persons)
    settings = recipe.optimiser
    optimiser = torch.optim.SGD(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    step = 0
    if resume:
        run = open_run(path)
        check_same(run, recipe, store)
        step = _restore(find_checkpoint(path), model, optimiser, strict=True)
        _forget_after(run.path, step)
    else:
        run = create_run(Path(path), recipe, store)
        if fork is not None:
            warm = find_checkpoint(fork)
            step = _restore(warm, model, optimiser, strict=False)
            if warm.state.get("converted"):  # the authors count epochs only
                step = int(warm.state["epoch"]) * steps
            run.add_info(forked={"from": str(fork), "step": step})
    pool = ClipPool.from_store(store, fabric.device)
    wrapped, fabric_optimiser = fabric.setup(model, optimiser)
    wrapped.train()
    last_epoch = min(recipe.epochs, until or recipe.epochs)

    def save() -> None:
        state = {"step": step, "epoch": step // steps, "data": store.hash}
        checkpoint = Checkpoint(model.state_dict(), optimiser_tensors(model, optimiser), state)
        save_checkpoint(run.checkpoints, checkpoint, recipe.saving.keep)

    started = time.monotonic()
    with (
        _asked_to_stop() as stopping,
        open(run.path / "metrics.jsonl", "a", encoding="utf-8") as metrics_file,
        Bar(recipe.name, last_epoch * steps, done=step, shown=progress) as bar,
    ):
        for epoch in range(step // steps, last_epoch):
            batches = epoch_batches(len(clips), recipe.batch_size, recipe.seed, epoch)
            for group in optimiser.param_groups:
                group["lr"] = settings.rate(epoch)
            clock, seen = time.monotonic(), 0
            for index in range(step % steps, steps):
                watched = step % recipe.saving.watch == 0
                batch = clips[batches[index]]
                first, second = _two_views(pool, batch, recipe, epoch, index)
                moment = Moment(epoch, generator(recipe.seed, "terms", epoch, index), watched)
                loss, metrics = wrapped(first, second, moment)
                if not bool(torch.isfinite(loss)):
                    names = ", ".join(str(store.names[clip]) for clip in batch[:5].tolist())
                    raise Diverged(
                        f"the loss of run '{run.path}' is {float(loss)} at step {step} (clips {names}, …); "
                        "the last checkpoint is intact: lower the learning rate or look at these clips"
                    )
                fabric_optimiser.zero_grad(set_to_none=True)
                fabric.backward(loss)
                fabric_optimiser.step()
                step, seen = step + 1, seen + len(batch)
                if watched:
                    line = {name: round(float(value), 6) for name, value in metrics.items()}
                    line = {"step": step, "epoch": epoch, "learning_rate": settings.rate(epoch), **line}
                    metrics_file.write(json.dumps(line) + "\n")
                    bar.advance(0, f"epoch {epoch + 1} loss {line['loss']:.3f}{_kept(line)}")
                bar.advance()
                if stopping():
                    metrics_file.flush()
                    save()
                    raise Interrupted(f"stopped at step {step} as asked; go on with `halp pretrain … --resume`")
            metrics_file.flush()
            _note_time(run, epoch, time.monotonic() - clock, seen)
            if (epoch + 1) % recipe.saving.every == 0 or epoch + 1 == last_epoch:
                save()
            if on_epoch is not None:
                on_epoch(run, epoch + 1)
                wrapped.train()
    run.add_info(finished={"step": step, "seconds": round(time.monotonic() - started, 3), "peak_memory": peak_memory()})
    return run


def _two_views(pool: ClipPool, batch: Tensor, recipe: Recipe, epoch: int, step: int) -> tuple[Tensor, Tensor]:
    """Two random views of the same clips, cut together."""
    views = random_views(pool, batch.repeat(2), recipe.views, generator(recipe.seed, "views", epoch, step))
    first, second = views.chunk(2)
    return first, second


def _training_clips(recipe: Recipe, store: Store) -> Any:
    if recipe.split == "all":
        return np.arange(len(store))
    return store.split(recipe.split)[0]


def _restore(checkpoint: Checkpoint, model: ContrastiveModel, optimiser: torch.optim.Optimizer, *, strict: bool) -> int:
    """Load weights, queue and optimiser; a fork may have terms that the warm-up had not. Returns the step."""
    try:
        missing, unexpected = model.load_state_dict(checkpoint.model, strict=False)
    except RuntimeError as error:
        raise InputError(f"the checkpoint does not fit the recipe: {str(error).splitlines()[-1].strip()}") from error
    missing = [name for name in missing if strict or not name.startswith("terms.")]
    unexpected = [name for name in unexpected if strict or not name.startswith("terms.")]
    if missing or unexpected:
        raise InputError(f"the checkpoint does not fit the recipe: {', '.join([*missing, *unexpected][:4])} …")
    restore_optimiser(model, optimiser, checkpoint.optimiser)
    return int(checkpoint.state["step"])


def _forget_after(path: Path, step: int) -> None:
    """Metrics of steps that a resumed run will take again are dropped."""
    lines = [line for line in read_lines(path / "metrics.jsonl") if line["step"] <= step]
    write_text(path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def _kept(line: dict[str, Any]) -> str:
    kept = [value for name, value in line.items() if name.endswith("/kept")]
    return f" kept {100 * kept[0]:.0f} %" if kept else ""


def _note_time(run: Run, epoch: int, seconds: float, clips: int) -> None:
    line = {"epoch": epoch, "seconds": round(seconds, 3), "clips_per_second": round(clips / max(seconds, 1e-9), 1)}
    with open(run.path / "timing.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({**line, "peak_memory": peak_memory()}) + "\n")


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """The first SIGINT or SIGTERM lets the step finish and the state be saved; a second one ends the process at once."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, signal.SIG_DFL)

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:
        before = {}  # not the main thread: nobody can signal us
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
