"""The training loop: draw a batch, make the views, one step; record, save, resume exactly where it stopped."""

from __future__ import annotations

import math
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.profiler import record_function

from halp.augment import ViewMaker
from halp.clips.splits import ALL, training_clips
from halp.clips.store import Store
from halp.distributed import (
    any_rank,
    destroy_group_at_exit,
    explain_lost_process,
    rank_rows,
    synchronise_batch_norm,
    world_size,
)
from halp.dropout import begin_step, dropouts, replace_dropout
from halp.errors import Diverged, InputError, Interrupted
from halp.methods import Method, StepContext, StepOutput
from halp.progress import Bar
from halp.sampling import epoch_batches, generator, steps_in_epoch
from halp.training.checkpoint import (
    Checkpoint,
    list_checkpoints,
    optimiser_tensors,
    restore,
    save_checkpoint,
    scaler_state,
)
from halp.training.devices import launch, make_pool, restarted, reuse_memory
from halp.training.recipe import Recipe
from halp.training.records import RunRecords, StepProfile, dump_step, truncate_records, writing
from halp.training.run import (
    Run,
    build_method,
    check_same,
    create_run,
    find_checkpoint,
    initialise_encoders,
    locked_run,
    open_run,
    peak_memory,
)

OnEpoch = Callable[[Run, int, Method], Mapping[str, float] | None]


def pretrain(
    recipe: Recipe,
    store: Store,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    fork: str | os.PathLike[str] | None = None,
    init: str | os.PathLike[str] | None = None,
    until: int | None = None,
    compile: bool = False,
    loggers: Sequence[str] = (),
    progress: bool = True,
    on_epoch: OnEpoch | None = None,
    profile: StepProfile | None = None,
    **devices: Any,
) -> Run:
    """Train an encoder without labels; everything goes to the run folder.

    Parameters
    ----------
    recipe : Recipe
        All settings, see `load_recipe`.
    store : Store
        What to learn from.
    path : path
        The run folder.
    resume : bool
        Continue from the newest whole checkpoint; the end is the same to the bit as of a run that never stopped. A launcher
        that starts lost processes again (torchrun `--max-restarts`) resumes by itself.
    fork : path, optional
        Start from another run's checkpoint (weights, queue, optimiser, epoch), as HaLP starts from a MoCo warm-up.
    init : path or str, optional
        Take the encoders' weights alone, of a run of any method, a package or a shipped encoder; starts at epoch 0.
    until : int, optional
        Stop after that epoch.
    compile : bool
        Compile the model with torch.compile.
    loggers : sequence of str
        `tensorboard`, `wandb`, beside metrics.jsonl.
    progress : bool
        Whether progress is shown.
    on_epoch : callable, optional
        `(run, epochs done, method)`, called on rank 0 after every epoch; metrics that it returns go to `online.jsonl`.
    profile : StepProfile, optional
        Where the time of steps goes; ends the training after a few.
    **devices
        Of `halp.training.devices.launch`: accelerator, devices, nodes, strategy, precision. On several devices the batch is split
        and the result is that of one; in 16-mixed a step whose scaled gradient overflows is skipped.

    Returns
    -------
    Run
        The finished run; a loss that is not a number ends it with an error.

    Examples
    --------
    >>> import tempfile, halp
    >>> from halp.clips.synthetic import make_synthetic_store
    >>> tiny = ["epochs=1", "encoder.hidden=8", "views.frames=8", "contrast.queue=32"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = make_synthetic_store(f"{folder}/store", count=48)
    ...     run = halp.pretrain(halp.load_recipe("cpu-moco", tiny), store, f"{folder}/run", progress=False)
    ...     halp.open_run(run.path).encoder().frames
    8
    """
    reuse_memory()
    trainer = Trainer(recipe, store, Path(path), launch(**devices), tuple(loggers), progress, on_epoch, profile)
    with locked_run(Path(path), trainer.first_rank), explain_lost_process():
        trainer.open(resume or restarted(Path(path), trainer.fabric), Start(fork, init))
        trainer.set_up(compile)
        trainer.train(min(recipe.epochs, until or recipe.epochs))
    return trainer.run


@dataclass(frozen=True)
class Start:
    """What a new run begins with: another run's whole state, or the weights of its encoders; neither is from scratch."""

    fork: str | os.PathLike[str] | None = None
    init: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.fork is not None and self.init is not None:
            raise InputError("fork takes the whole state of a run and init its encoders alone; give one of the two")

    @classmethod
    def recorded(cls, info: Mapping[str, Any]) -> Start:
        """What a run says that it began with."""
        return cls(*((info.get(entry) or {}).get("from") for entry in ("forked", "initialised")))


@dataclass
class Trainer:
    """One training: what it trains, with what, and where it stands."""

    recipe: Recipe
    store: Store
    path: Path
    fabric: Fabric
    loggers: tuple[str, ...] = ()
    progress: bool = True
    on_epoch: OnEpoch | None = None
    profile: StepProfile | None = None
    step: int = 0
    run: Run = field(init=False)

    def __post_init__(self) -> None:
        clips, remark = training_clips(self.store, self.recipe.split)
        if remark:
            # What was learned from is recorded, so that a split made later does not pass for the one trained on.
            self.recipe = replace(self.recipe, split=ALL)
        self.clips = torch.from_numpy(clips)
        self.steps = steps_in_epoch(len(clips), self.recipe.batch_size)
        if (batch := min(self.recipe.batch_size, len(clips))) < world_size():
            raise InputError(
                f"a batch of {batch} clips cannot be split over {world_size()} processes; use fewer devices"
            )
        self.method = build_method(self.recipe, self.store.topology, self.store.persons)
        self.optimiser = self.recipe.optimiser.build(self.method)
        self.first_rank = self.fabric.is_global_zero
        if remark and self.first_rank:
            warnings.warn(remark, stacklevel=4)

    def open(self, resume: bool, start: Start) -> None:
        """Find or make the run folder (rank 0 alone makes it), and load the state to begin with."""
        self.made_folder = not resume
        if resume:
            self.run = open_run(self.path)
            check_same(self.run, self.recipe, self.store)
            self.recipe = self.run.recipe
            if list_checkpoints(self.run.checkpoints):
                self.step = self._restore(find_checkpoint(self.path), strict=True)
            else:  # it was killed before it had saved anything
                self._begin(Start.recorded(self.run.info))
            if self.first_rank:
                self._warn(self._other_threads())
                with writing(self.run):
                    truncate_records(self.run.path, self.step)
            return
        # before the folder is made: a start that fails must not leave one that blocks the next try
        begun = self._begin(start)
        if self.first_rank:
            self._warn(self._doubts())
            if self.method.tunes and not begun:
                self._warn(["an untrained encoder is tuned; start from a trained one with --init RUN"])
            create_run(self.path, self.recipe, self.store, **begun)
        self.fabric.barrier()
        self.run = open_run(self.path)

    @staticmethod
    def _warn(sentences: Iterable[str]) -> None:
        for sentence in sentences:
            warnings.warn(sentence, stacklevel=4)

    def _other_threads(self) -> Iterator[str]:
        """Sums of several threads are added in another order: equal up to rounding, not to the bit."""
        before, now = (self.run.info.get("hardware") or {}).get("threads"), torch.get_num_threads()
        if before not in (None, now):
            yield (
                f"this run began with {before} threads per process and resumes with {now}: results agree up to rounding, not to "
                f"the bit (set OMP_NUM_THREADS={before})"
            )

    def _begin(self, start: Start) -> dict[str, Any]:
        """Load what the run begins with; returns what its folder records about that."""
        if start.fork is not None:
            warm = find_checkpoint(start.fork)
            self.step = self._restore(warm, strict=False)
            if warm.state.get("converted"):  # the authors count epochs only
                self.step = int(warm.state["epoch"]) * self.steps
            return {"forked": {"from": str(start.fork), "step": self.step}}
        if start.init is not None:
            origins = initialise_encoders(self.method, self.recipe, self.store, start.init)
            return {"initialised": {"from": str(start.init), "origin": origins[0]}}
        return {}

    def _restore(self, checkpoint: Checkpoint, *, strict: bool) -> int:
        return restore(checkpoint, self.method, self.optimiser, self.fabric.strategy.precision, strict=strict)

    def _doubts(self) -> Iterator[str]:
        """What speaks against the recipe on this store."""
        if self.method.queue_size > len(self.clips):
            yield (
                f"the queue ({self.method.queue_size}) is larger than the data set ({len(self.clips)} clips): it will hold older "
                "keys of the same clips as negatives; consider a smaller contrast.queue"
            )
        expected, steps = list(self.recipe.normalisation), list(self.store.normalisation)
        if expected and expected != steps:
            yield (
                f"recipe '{self.recipe.name}' expects a store normalised by {' '.join(expected)}, and '{self.store.path}' has "
                f"{' '.join(steps) or 'no steps'}: figures will not be those of the published system; prepare it again with "
                f"--normalise {' '.join(expected)}"
            )

    def set_up(self, compile: bool) -> None:
        """Move everything to the device and prepare it for several processes."""
        pool = make_pool(self.store, self.fabric)
        self.views = ViewMaker(self.recipe.views, self.method.views, self.store.topology, pool, self.recipe.seed)
        replace_dropout(self.method)
        synchronise_batch_norm(self.method, self.fabric.device)
        self.dropouts = list(dropouts(self.method))
        if self.dropouts and self.recipe.optimiser.encode_chunks > 1:
            raise InputError(
                "optimiser.encode_chunks computes activations twice, which dropout would make different; set it to 1"
            )
        if compile:
            self.method.compile()
        self.wrapped, self.fabric_optimiser = self.fabric.setup(self.method, self.optimiser)
        self.wrapped.train()

    def train(self, last_epoch: int) -> None:
        """Train up to the end of an epoch; a signal saves the state and raises `Interrupted`."""
        started = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[]))  # leave the caller's generator as it was
            self.stopping = stack.enter_context(graceful_shutdown())
            self.records = stack.enter_context(self._open_records())
            total = last_epoch * self.steps
            self.bar = stack.enter_context(
                Bar(self.recipe.name, total, done=self.step, shown=self.progress and self.first_rank)
            )
            for epoch in range(self.step // self.steps, last_epoch):
                self._train_epoch(epoch)
                if (epoch + 1) % self.recipe.saving.checkpoint_epochs == 0 or epoch + 1 == last_epoch:
                    self.save()
        destroy_group_at_exit()
        if self.first_rank:
            facts = {"step": self.step, "seconds": round(time.monotonic() - started, 3), "peak_memory": peak_memory()}
            self.run.add_info(finished={**facts, "processes": world_size()})

    def _open_records(self) -> RunRecords:
        try:
            return RunRecords(self.run, self.loggers, active=self.first_rank, step=self.step)
        except InputError:
            if self.made_folder and self.first_rank:  # it would block the next try; whatever else lies there stays
                for file in (self.run.info_file, self.run.recipe_file):
                    file.unlink(missing_ok=True)
                with suppress(OSError):
                    self.run.path.rmdir()
            raise

    def _train_epoch(self, epoch: int) -> None:
        batches = epoch_batches(len(self.clips), self.recipe.batch_size, self.recipe.seed, epoch)
        began, seen = time.monotonic(), 0
        for index in range(self.step % self.steps, self.steps):
            log_metrics = self.step % self.recipe.saving.log_every == 0
            rate = self._set_learning_rate(epoch + index / self.steps)
            output = self._train_step(self.clips[batches[index]], epoch, index, log_metrics)
            self.step, seen = self.step + 1, seen + len(batches[index])
            if log_metrics:
                line = self.records.step(self.step, epoch, rate, output)
                pace = seen / (time.monotonic() - began)
                self.bar.advance(0, f"epoch {epoch + 1} loss {line['loss']:.3f}{_kept(line)} {pace:.0f} clips/s")
            self.bar.advance()
            if self.profile is not None:
                self.profile.step()
            self._stop_if_asked()
            often = self.recipe.saving.checkpoint_steps
            if often and self.step % often == 0 and self.step % self.steps:
                self.save()
        self.records.epoch(epoch, began, seen)
        if self.on_epoch is not None and self.first_rank:
            self.records.online(self.step, epoch + 1, self.on_epoch(self.run, epoch + 1, self.method))
            self.wrapped.train()

    def _train_step(self, clips: Tensor, epoch: int, index: int, log_metrics: bool) -> StepOutput:
        """Forward and backward pass of one batch, and the optimiser's step."""
        with record_function("halp: views"):
            rows = rank_rows(len(clips))
            views = self.views.make(clips, epoch, index, rows)
        begin_step(self.dropouts, self.recipe.seed, epoch, index, rows, len(clips), self.recipe.dropout_draws)
        context = StepContext(epoch, generator(self.recipe.seed, "terms", epoch, index), log_metrics, len(clips), clips)
        before = self._seed_global_generator(epoch, index)
        output: StepOutput = self.wrapped(views, context)
        self._refuse_global_draws(before)
        if not bool(torch.isfinite(output.loss)):
            self._give_up(clips, epoch, index)
        with record_function("halp: backward"):
            self.fabric_optimiser.zero_grad(set_to_none=True)
            self.fabric.backward(output.loss)
        if log_metrics or self.recipe.optimiser.clip:
            norm = self._clip_gradient()
            output = output._replace(metrics={**output.metrics, **norm})
        with record_function("halp: optimiser"):
            self.fabric_optimiser.step()
        return output

    def _set_learning_rate(self, time_in_epochs: float) -> float:
        rate = self.recipe.optimiser.rate(time_in_epochs, self.recipe.epochs)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        return rate

    def _seed_global_generator(self, epoch: int, index: int) -> Tensor | None:
        """Draws from torch's own generator, which foreign code may make, are a function of the step too."""
        torch.default_generator.manual_seed(generator(self.recipe.seed, "global", epoch, index).initial_seed())
        return torch.default_generator.get_state() if world_size() > 1 or torch.get_num_threads() > 1 else None

    def _refuse_global_draws(self, before: Tensor | None) -> None:
        """With several processes or threads the order of such draws is not defined: refuse instead of differing."""
        if before is not None and not torch.equal(before, torch.default_generator.get_state()):
            raise InputError(
                f"method '{self.recipe.method}' or its encoder draws from torch's global random generator, which several "
                "processes or threads do not share; use nn.Dropout modules or draw from the step context's generator"
            )

    def _stop_if_asked(self) -> None:
        if any_rank(self.stopping(), self.fabric.device):
            self.save()
            destroy_group_at_exit()
            if not self.first_rank:
                raise SystemExit(0)  # a launcher takes any other code of a helper for a crash
            raise Interrupted(f"stopped at step {self.step} as asked; resume with `halp pretrain … --resume`")

    def save(self) -> None:
        """Write a checkpoint; the records of all its steps reach the disk first."""
        self.records.flush()
        if self.first_rank:
            state = {"step": self.step, "epoch": self.step // self.steps, "data": self.store.hash}
            state |= scaler_state(self.fabric.strategy.precision)
            tensors = optimiser_tensors(self.method, self.optimiser)
            checkpoint = Checkpoint(self.method.state_dict(), tensors, state)
            save_checkpoint(self.run.checkpoints, checkpoint, self.recipe.saving.keep)
        self.fabric.barrier()

    def _clip_gradient(self) -> dict[str, Tensor]:
        """Shorten the whole gradient to `optimiser.clip`, where that is set, and return the length that it had.

        Clipping at infinity leaves it as it is, and undoes the scaling of half precision.

        A scaled gradient that overflowed has no length: the scaler skips that step and lowers the scale.
        """
        norm = torch.as_tensor(
            self.fabric.clip_gradients(
                self.wrapped,
                self.fabric_optimiser,
                max_norm=self.recipe.optimiser.clip or math.inf,
                error_if_nonfinite=False,
            )
        )
        skipped = not bool(torch.isfinite(norm)) and bool(scaler_state(self.fabric.strategy.precision))
        return {} if skipped else {"gradient_norm": norm}

    def _give_up(self, clips: Tensor, epoch: int, index: int) -> None:
        """The loss is not finite: say which clips it was and leave what reproduces it."""
        names = [str(self.store.names[clip]) for clip in clips.tolist()]
        if self.first_rank:
            dump_step(self.run, self.method, self.views.make(clips, epoch, index), clips, names, epoch, index)
        self.fabric.barrier()
        saved = list_checkpoints(self.run.checkpoints)
        remedy = "the last checkpoint is intact" if saved else "no checkpoint had been written yet"
        raise Diverged(
            f"the loss of run '{self.run.path}' is not finite at step {self.step} (clips {', '.join(names[:5])}, …); "
            f"'{self.run.diverged}' holds what reproduces it, {remedy}: look at these clips with `halp inspect`, or lower the "
            "learning rate"
        )


def _kept(line: dict[str, Any]) -> str:
    kept = [value for name, value in line.items() if name.endswith("/kept")]
    return f" kept {100 * kept[0]:.0f} %" if kept else ""


@contextmanager
def graceful_shutdown() -> Iterator[Callable[[], bool]]:
    """Inside, a first signal is noted and the given function tells of it; afterwards the handlers are as before."""
    asked: list[int] = []

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
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
