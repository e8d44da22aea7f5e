"""A running training: one step after the other, recorded, checked and saved."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.profiler import record_function

from halp.augment import ViewMaker
from halp.core.distributed import any_rank, destroy_group_at_exit, rank_rows, world_size
from halp.core.dropout import StepDropout, begin_step
from halp.core.errors import Diverged, InputError, Interrupted
from halp.core.progress import Bar
from halp.core.sampling import epoch_batches, generator
from halp.methods import Method, StepContext, StepOutput
from halp.methods.queue import KeyQueue
from halp.training.checkpoint import (
    Checkpoint,
    list_checkpoints,
    optimiser_tensors,
    save_checkpoint,
    scaler_state,
)
from halp.training.recipe import Recipe
from halp.training.records import RunRecords, StepProfile, dump_step
from halp.training.run import Run
from halp.training.start import Learner

OnEpoch = Callable[[Run, int, Method], Mapping[str, float] | None]


class LossNotFinite(Exception):
    """A loss since the last check was not finite."""


@dataclass(frozen=True)
class PreparedLearner:
    """A learner on its device, prepared for one or several processes."""

    views: ViewMaker
    dropouts: list[StepDropout]
    method: Any  # as Fabric wraps it
    optimiser: Any


@dataclass
class Trainer:
    """A running training: the method, its data, and the next step."""

    learner: Learner
    run: Run
    step: int
    fabric: Fabric
    engine: PreparedLearner
    records: RunRecords
    bar: Bar
    stopping: Callable[[], bool]
    on_epoch: OnEpoch | None = None
    profile: StepProfile | None = None
    check_every_loss: bool = False  # otherwise losses are looked at where metrics are logged
    finite: Tensor | None = None  # whether all losses since the last look are
    earlier: Tensor | None = None  # the same without this step's

    @property
    def recipe(self) -> Recipe:
        return self.learner.recipe

    @property
    def first_rank(self) -> bool:
        return self.fabric.is_global_zero

    def train(self, last_epoch: int) -> None:
        """Train up to the end of an epoch; a signal saves the state and raises `Interrupted`."""
        if self.profile is not None:
            self._skip_warm_up(last_epoch)
        for epoch in range(self.step // self.learner.steps, last_epoch):
            self._train_epoch(epoch)
            if (epoch + 1) % self.recipe.saving.checkpoint_epochs == 0 or epoch + 1 == last_epoch:
                self.save()

    def _skip_warm_up(self, last_epoch: int) -> None:
        """Start a few steps before the end, when queues are full and every term is active."""
        wanted = 0 if self.profile is None else self.profile.skip + self.profile.steps
        self.step = max(self.step, last_epoch * self.learner.steps - wanted)
        for module in self.learner.method.modules():
            if isinstance(module, KeyQueue):
                module.pretend_full()

    def _train_epoch(self, epoch: int) -> None:
        clips, steps = self.learner.clips, self.learner.steps
        batches = epoch_batches(len(clips), self.recipe.batch_size, self.recipe.seed, epoch)
        began, seen = time.monotonic(), 0
        for index in range(self.step % steps, steps):
            log_metrics = self.step % self.recipe.saving.log_every == 0
            rate = self._set_learning_rate(epoch + index / steps)
            output = self._train_step(clips[batches[index]], epoch, index, log_metrics)
            self.step, seen = self.step + 1, seen + len(batches[index])
            if log_metrics:
                line = self.records.step(self.step, epoch, rate, output)
                pace = seen / (time.monotonic() - began)
                self.bar.advance(
                    0, f"epoch {epoch + 1} loss {line['loss']:.3f}{_kept(line)} {pace:.0f} clips/s"
                )
            self.bar.advance()
            if self.profile is not None:
                self.profile.step()
            # several processes have to ask each other, which takes a look
            if log_metrics or world_size() == 1:
                self._stop_if_asked()
            often = self.recipe.saving.checkpoint_steps
            if often and self.step % often == 0 and self.step % steps:
                self.save()
        self.records.epoch(epoch, began, seen)
        if self.on_epoch is not None and self.first_rank:
            self.records.online(self.step, epoch + 1, self.on_epoch(self.run, epoch + 1, self.learner.method))
            self.engine.method.train()

    def _train_step(self, clips: Tensor, epoch: int, index: int, log_metrics: bool) -> StepOutput:
        """Forward and backward pass of one batch, and the optimiser's step."""
        with record_function("halp: views"):
            rows = rank_rows(len(clips))
            views = self.engine.views.make(clips, epoch, index, rows)
        begin_step(
            self.engine.dropouts, self.recipe.seed, epoch, index, rows, len(clips), self.recipe.dropout_draws
        )
        check = log_metrics or self.check_every_loss
        draws = generator(self.recipe.seed, "terms", epoch, index)
        context = StepContext(epoch, draws, log_metrics, len(clips), clips, check_loss=check)
        before = torch.default_generator.get_state()
        try:
            output: StepOutput = self.engine.method(views, context)
        except InputError:
            self._check_losses()  # what fails after a loss that was not finite fails because of it
            raise
        self._refuse_global_draws(before)
        self._note_loss(output.loss)
        if check:
            self._check_losses(clips, epoch, index)
        with record_function("halp: backward"):
            self.engine.optimiser.zero_grad(set_to_none=True)
            self.fabric.backward(output.loss)
        if log_metrics or self.recipe.optimiser.clip:
            norm = self._clip_gradient()
            output = output._replace(metrics={**output.metrics, **norm})
        with record_function("halp: optimiser"):
            self.engine.optimiser.step()
        return output

    def _note_loss(self, loss: Tensor) -> None:
        """Remember whether the loss is finite, without waiting for its value."""
        finite = torch.isfinite(loss.detach())
        self.earlier, self.finite = self.finite, finite if self.finite is None else self.finite & finite

    def _check_losses(self, clips: Tensor | None = None, epoch: int = 0, index: int = 0) -> None:
        """Check the losses since the last check; stop at the first that is not finite."""
        if self.finite is not None and not bool(self.finite):
            if clips is not None and (self.earlier is None or bool(self.earlier)):
                self._give_up(clips, epoch, index)
            raise LossNotFinite(f"a loss of run '{self.run.path}' before step {self.step} is not finite")
        self.finite = None

    def _set_learning_rate(self, time_in_epochs: float) -> float:
        rate = self.recipe.optimiser.rate(time_in_epochs, self.recipe.epochs)
        for group in self.learner.optimiser.param_groups:
            group["lr"] = rate
        return rate

    def _refuse_global_draws(self, before: Tensor) -> None:
        """Refuse draws from torch's global generator: they would depend on threads and not resume."""
        if before.numpy().tobytes() != torch.default_generator.get_state().numpy().tobytes():
            raise InputError(
                f"method '{self.recipe.method}' or its encoder draws from torch's global random generator,"
                " whose numbers are not resumable; use nn.Dropout modules or draw from the step context's"
                " generator"
            )

    def _stop_if_asked(self) -> None:
        if any_rank(self.stopping(), self.fabric.device):
            self.save()
            destroy_group_at_exit()
            if not self.first_rank:
                raise SystemExit(0)  # a launcher takes any other code of a helper for a crash
            raise Interrupted(f"stopped at step {self.step} as asked; resume with `halp pretrain … --resume`")

    def save(self) -> None:
        """Write a checkpoint of steps whose losses were finite; their records reach the disk first."""
        self._check_losses()
        self.records.flush()
        if self.first_rank:
            state = {
                "step": self.step,
                "epoch": self.step // self.learner.steps,
                "data": self.learner.store.hash,
            }
            state |= scaler_state(self.fabric.strategy.precision)
            tensors = optimiser_tensors(self.learner.method, self.learner.optimiser)
            checkpoint = Checkpoint(self.learner.method.state_dict(), tensors, state)
            save_checkpoint(self.run.checkpoints, checkpoint, self.recipe.saving.keep)
        self.fabric.barrier()

    def _clip_gradient(self) -> dict[str, Tensor]:
        """Shorten the whole gradient to `optimiser.clip`, if set; returns its length before.

        Clipping at infinity leaves it as it is, and undoes the scaling of half precision.

        A scaled gradient that overflowed has no length: the scaler skips that step and lowers the scale.
        """
        norm = torch.as_tensor(
            self.fabric.clip_gradients(
                self.engine.method,
                self.engine.optimiser,
                max_norm=self.recipe.optimiser.clip or math.inf,
                error_if_nonfinite=False,
            )
        )
        skipped = bool(scaler_state(self.fabric.strategy.precision)) and not bool(torch.isfinite(norm))
        return {} if skipped else {"gradient_norm": norm}

    def _give_up(self, clips: Tensor, epoch: int, index: int) -> None:
        """Raise because the loss is not finite, name the clips and leave what reproduces it."""
        names = [str(self.learner.store.names[clip]) for clip in clips.tolist()]
        if self.first_rank:
            dump_step(
                self.run,
                self.learner.method,
                self.engine.views.make(clips, epoch, index),
                clips,
                names,
                epoch,
                index,
            )
        self.fabric.barrier()
        saved = list_checkpoints(self.run.checkpoints)
        remedy = "the last checkpoint is intact" if saved else "no checkpoint had been written yet"
        raise Diverged(
            f"the loss of run '{self.run.path}' is not finite at step {self.step} (clips"
            f" {', '.join(names[:5])}, …); '{self.run.diverged}' holds what reproduces it, {remedy}: look at"
            " these clips with `halp inspect`, or lower the learning rate"
        )


def _kept(line: dict[str, Any]) -> str:
    kept = [value for name, value in line.items() if name.endswith("/kept")]
    return f" kept {100 * kept[0]:.0f} %" if kept else ""
