"""The training loop: draw a batch, make the views, one step; record, save, resume exactly where it
stopped.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.profiler import record_function

from halp.augment import ViewMaker
from halp.core.distributed import (
    any_rank,
    destroy_group_at_exit,
    explain_lost_process,
    rank_rows,
    synchronise_batch_norm,
    world_size,
)
from halp.core.dropout import StepDropout, begin_step, dropouts, replace_dropout
from halp.core.errors import Diverged, InputError, Interrupted
from halp.core.progress import Bar, log
from halp.core.sampling import epoch_batches, generator
from halp.core.urls import check_local
from halp.data.store import Store, open_store
from halp.methods import Method, StepContext, StepOutput
from halp.methods.queue import KeyQueue
from halp.training.checkpoint import (
    Checkpoint,
    list_checkpoints,
    optimiser_tensors,
    save_checkpoint,
    scaler_state,
)
from halp.training.devices import launch, make_pool, restarted, reuse_memory
from halp.training.recipe import Recipe, load_recipe
from halp.training.records import RunRecords, StepProfile, dump_step
from halp.training.run import Run, locked_run, peak_memory
from halp.training.start import Begun, Learner, Start, begin, build_learner

OnEpoch = Callable[[Run, int, Method], Mapping[str, float] | None]


def pretrain(
    recipe: Recipe | str | os.PathLike[str],
    store: Store | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    fork: str | os.PathLike[str] | None = None,
    init: str | os.PathLike[str] | None = None,
    until: int | None = None,
    compile_model: bool = False,
    loggers: Sequence[str] = (),
    progress: bool = True,
    on_epoch: OnEpoch | None = None,
    profile: StepProfile | None = None,
    **devices: Any,
) -> Run:
    """Train an encoder without labels; everything goes to the run folder.

    Parameters
    ----------
    recipe : Recipe, path or str
        All settings: a recipe, a TOML file, or the name of one that comes with halp, see `load_recipe`.
    store : Store or path
        What to learn from.
    path : path
        The run folder.
    resume : bool
        Continue from the newest whole checkpoint; the end is the same to the bit as of a run that never
        stopped. A launcher that starts lost processes again (torchrun `--max-restarts`) resumes by itself.
    fork : path, optional
        Start from another run's checkpoint (weights, queue, optimiser, epoch), as HaLP starts from a MoCo
        warm-up.
    init : path or str, optional
        Take the encoders' weights alone, of a run of any method, a package or a shipped encoder; starts at
        epoch 0.
    until : int, optional
        Stop after that epoch.
    compile_model : bool
        Compile the model with torch.compile.
    loggers : sequence of str
        `tensorboard`, `wandb`, beside metrics.jsonl.
    progress : bool
        Whether progress is shown.
    on_epoch : callable, optional
        `(run, epochs done, method)`, called on rank 0 after every epoch; metrics that it returns go to
        `online.jsonl`.
    profile : StepProfile, optional
        Where the time of steps goes; ends the training after a few.
    **devices
        Of `halp.training.devices.launch`: accelerator, devices, nodes, strategy, precision. On several
        devices the batch is split and the result is that of one; in 16-mixed a step whose scaled gradient
        overflows is skipped, and on a CPU only one thread gives the same bits in every run.

    Returns
    -------
    Run
        The finished run; a loss that is not a number ends it with an error.

    Examples
    --------
    >>> import tempfile, halp
    >>> from halp.data.synthetic import make_synthetic_store
    >>> tiny = ["epochs=1", "encoder.hidden=8", "views.frames=8", "contrast.queue=32"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = make_synthetic_store(f"{folder}/store", count=48)
    ...     run = halp.pretrain(halp.load_recipe("cpu-moco", tiny), f"{folder}/store", f"{folder}/run", progress=False)
    ...     halp.open_run(run.path).encoder().frames
    8
    """
    check_local(path)
    reuse_memory()
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(os.fspath(recipe))
    clips = store if isinstance(store, Store) else open_store(store)
    fabric, path, started = launch(**devices), Path(path), time.monotonic()
    last_epoch, start = min(chosen.epochs, until or chosen.epochs), Start(fork, init)

    def train(*, resume: bool, check_every_loss: bool = False) -> Trainer:
        learner = build_learner(chosen, clips, fabric)
        begun = begin(learner, path, fabric, start, resume=resume, last_epoch=last_epoch)
        with ExitStack() as stack:
            trainer = _open_trainer(begun, fabric, stack, last_epoch, compile_model, loggers, progress)
            trainer.on_epoch, trainer.profile, trainer.check_every_loss = on_epoch, profile, check_every_loss
            trainer.train(last_epoch)
        return trainer

    with locked_run(path, fabric.is_global_zero), explain_lost_process():
        try:
            trainer = train(resume=resume or restarted(path, fabric))
        except LossNotFinite as found:
            log.info(f"{found}: computing the steps since the last checkpoint again, to find its clips")
            trainer = train(resume=True, check_every_loss=True)
        destroy_group_at_exit()
        if fabric.is_global_zero:
            facts = {"step": trainer.step, "seconds": round(time.monotonic() - started, 3)}
            trainer.run.add_info(finished={**facts, "peak_memory": peak_memory(), "processes": world_size()})
    return trainer.run


def _open_trainer(
    begun: Begun,
    fabric: Fabric,
    stack: ExitStack,
    last_epoch: int,
    compile_model: bool,
    loggers: Sequence[str],
    progress: bool,
) -> Trainer:
    """A training that is about to begin, with everything that `stack` closes after it."""
    learner, first_rank = begun.learner, fabric.is_global_zero
    engine, total = set_up(learner, fabric, compile_model), last_epoch * learner.steps
    stack.enter_context(torch.random.fork_rng(devices=[]))  # leave the caller's generator as it was
    stopping = stack.enter_context(graceful_shutdown())
    records = stack.enter_context(open_records(begun, loggers, first_rank))
    bar = stack.enter_context(Bar(learner.recipe.name, total, done=begun.step, shown=progress and first_rank))
    return Trainer(learner, begun.run, begun.step, fabric, engine, records, bar, stopping)


class LossNotFinite(Exception):
    """A loss since the last look at one was not finite."""


@dataclass(frozen=True)
class Engine:
    """A learner on its device, prepared for one or several processes."""

    views: ViewMaker
    dropouts: list[StepDropout]
    method: Any  # as Fabric wraps it
    optimiser: Any


def set_up(learner: Learner, fabric: Fabric, compile_model: bool) -> Engine:
    """Move everything to the device and prepare it for several processes."""
    recipe, method = learner.recipe, learner.method
    pool = make_pool(learner.store, fabric)
    topology, block = learner.store.topology, recipe.draw_block
    views = ViewMaker(recipe.views, method.views, topology, pool, recipe.seed, block)
    replace_dropout(method)
    synchronise_batch_norm(method, fabric.device)
    dropped = list(dropouts(method))
    if dropped and recipe.optimiser.encode_chunks > 1:
        raise InputError(
            "optimiser.encode_chunks computes activations twice, which dropout would make different; set it"
            " to 1"
        )
    if compile_model:
        method.compile()
    wrapped, optimiser = fabric.setup(method, learner.optimiser)
    wrapped.train()
    return Engine(views, dropped, wrapped, optimiser)


def open_records(begun: Begun, loggers: Sequence[str], first_rank: bool) -> RunRecords:
    """The records of a run; a folder that was made for nothing goes."""
    try:
        return RunRecords(begun.run, loggers, active=first_rank, step=begun.step)
    except InputError:
        if begun.made_folder and first_rank:  # it would block the next try; whatever else lies there stays
            for file in (begun.run.info_file, begun.run.recipe_file):
                file.unlink(missing_ok=True)
            with suppress(OSError):
                begun.run.path.rmdir()
        raise


@dataclass
class Trainer:
    """A training that is under way: what is trained and with what, and the step that is next."""

    learner: Learner
    run: Run
    step: int
    fabric: Fabric
    engine: Engine
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
        """Begin a few steps before the end, with full queues: a profile is of a step with everything that is
        trained.
        """
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
            if (
                log_metrics or world_size() == 1
            ):  # several processes have to ask each other, which takes a look
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
        """Look at the losses since the last look; where that of this step's `clips` is the first not finite,
        give up.
        """
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
        """Refuse draws from torch's global generator: they would depend on threads and processes and not
        resume.
        """
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
        """Shorten the whole gradient to `optimiser.clip`, where that is set, and return the length that it
        had.

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
        """The loss is not finite: say which clips it was and leave what reproduces it."""
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


@contextmanager
def graceful_shutdown() -> Iterator[Callable[[], bool]]:
    """Inside, a first signal is noted and the given function tells of it; afterwards the handlers are as
    before, and a signal that the function has told nobody of is sent again.
    """
    asked: list[int] = []
    told = False

    def tell() -> bool:
        nonlocal told
        told = bool(asked)
        return told

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:
        before = {}  # not the main thread: nobody can signal us
    try:
        yield tell
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked and not told:  # it came after the last step: what follows has to stop as well
        signal.raise_signal(asked[0])
