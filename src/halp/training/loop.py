"""The training loop: draw a batch, make views, step; record, save, resume exactly where it stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

import torch
from lightning_fabric import Fabric
from typing_extensions import Unpack

from halp.augment import ViewMaker
from halp.core.distributed import (
    destroy_group_at_exit,
    explain_lost_process,
    synchronise_batch_norm,
    world_size,
)
from halp.core.dropout import dropouts, replace_dropout
from halp.core.errors import InputError
from halp.core.progress import Bar, log
from halp.core.urls import check_local
from halp.data.store import Store, open_store
from halp.training.devices import DeviceKeywords, launch, make_pool, restarted, reuse_memory
from halp.training.recipe import Recipe, load_recipe
from halp.training.records import RunRecords, StepProfile
from halp.training.run import Run, locked_run, peak_memory
from halp.training.start import Begun, Learner, Start, begin, build_learner
from halp.training.trainer import LossNotFinite, OnEpoch, PreparedLearner, Trainer


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
    **devices: Unpack[DeviceKeywords],
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
    """A training ready to begin, with everything that `stack` closes after it."""
    learner, first_rank = begun.learner, fabric.is_global_zero
    engine, total = set_up(learner, fabric, compile_model), last_epoch * learner.steps
    stack.enter_context(torch.random.fork_rng(devices=[]))  # leave the caller's generator as it was
    stopping = stack.enter_context(graceful_shutdown())
    records = stack.enter_context(open_records(begun, loggers, first_rank))
    bar = stack.enter_context(Bar(learner.recipe.name, total, done=begun.step, shown=progress and first_rank))
    return Trainer(learner, begun.run, begun.step, fabric, engine, records, bar, stopping)


def set_up(learner: Learner, fabric: Fabric, compile_model: bool) -> PreparedLearner:
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
    return PreparedLearner(views, dropped, wrapped, optimiser)


def open_records(begun: Begun, loggers: Sequence[str], first_rank: bool) -> RunRecords:
    """The records of a run; an empty new folder is removed on failure."""
    try:
        return RunRecords(begun.run, loggers, active=first_rank, step=begun.step)
    except InputError:
        if begun.made_folder and first_rank:  # it would block the next try; whatever else lies there stays
            for file in (begun.run.info_file, begun.run.recipe_file):
                file.unlink(missing_ok=True)
            with suppress(OSError):
                begun.run.path.rmdir()
        raise


@contextmanager
def graceful_shutdown() -> Iterator[Callable[[], bool]]:
    """Defer the first signal, which the yielded function reports; if unreported, it is sent again on exit."""
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
