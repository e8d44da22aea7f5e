"""Training commands: from stores to runs, and conversion of checkpoints."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from shlex import quote
from typing import Any

from tyro.conf import Positional

from halp.cli.app import app, first_process, note, show, table_of
from halp.cli.options import Assignments, flat
from halp.core.errors import InputError


@app.command
def sweep(
    recipe: Positional[str],
    *,
    data: Path,
    set: Assignments = (),
    seeds: int = 3,
    out: Path | None = None,
    protocol: tuple[str, ...] = ("knn", "linear"),
    split: tuple[str, ...] = (),
    workers: int | None = None,
    engine: str | None = None,
    accelerator: str = "auto",
    precision: str = "32-true",
    json: bool = False,
) -> None:
    """Train and evaluate a recipe with all combinations of settings, over seeds; compare results in pairs.

    The same command resumes what was stopped.

    Examples:
        halp sweep small --data stores/mine --set halp.hardness=0.2,0.6,0.8 --seeds 3
        halp sweep small --data stores/mine --set contrast.temperature=0.07,0.1 epochs=20 --workers 2

    Args:
        recipe: a TOML file, or the name of a recipe that comes with halp (see `halp recipes`).
        data: the store to learn from and to evaluate on.
        set: settings as key=a,b,c; the first combination is what the others are compared with.
        seeds: how many, the same for every combination.
        out: the folder of the runs (default: sweeps/RECIPE).
        protocol: how runs are evaluated.
        split: splits of the store (default: the one that was trained on; folds if the store has none).
        workers: trainings at a time on this machine, each on one core (default: as many as cores; one on a
            GPU).
        engine: a Dask scheduler, such as tcp://HOST:8786, whose workers train.
        precision: 32-true, bf16-mixed or 16-mixed.
        json: print accuracies and differences as JSON.
    """
    from halp.reproduce.sweep import sweep as run

    given: dict[str, Any] = {
        "workers": workers,
        "engine": engine,
        "accelerator": accelerator,
        "precision": precision,
    }
    answer = run(recipe, data, flat(set), seeds=seeds, out=out, protocols=protocol, splits=split, **given)
    show(answer.to_json(), table_of(answer.rows()), json=json)
    if len(answer.settings) > 1 and not json:
        note(
            f"Δ: paired differences to '{answer.settings[0].name}' with 95 % intervals that hold for all rows"
            " at once"
        )
    if failed := [f"{one.name}, seed {seed}" for one in answer.settings for seed in one.failures]:
        raise InputError(f"{len(failed)} runs failed: {'; '.join(failed)}; the same command tries them again")


@app.command
def pretrain(
    recipe: Positional[str],
    *,
    data: Path,
    run: Path | None = None,
    set: Assignments = (),
    resume: bool = False,
    fork: Path | None = None,
    init: Path | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    strategy: str = "auto",
    precision: str = "32-true",
    compile: bool = False,
    log: tuple[str, ...] = (),
    knn_every: int = 0,
    profile: bool = False,
    json: bool = False,
) -> None:
    """Learn an encoder from a store without labels.

    Examples:
        halp pretrain small --data stores/mine
        halp pretrain ntu60-halp --data stores/ntu60 --set seed=1 halp.hardness=0.6
        halp pretrain small --data stores/mine --resume
        halp pretrain small --data stores/mine --devices 2
        halp pretrain small-tune --data stores/mine --init runs/small-seed0

    Args:
        recipe: a TOML file, or the name of a recipe that comes with halp (see `halp recipes`).
        data: the store to learn from.
        run: the run folder (default: runs/NAME-seedN).
        set: override settings as key=value.
        resume: continue the run where it stopped.
        fork: start from the newest checkpoint of another run, or from that very checkpoint.
        init: take the weights of the encoders alone from another run, a package or an encoder that comes with
            halp.
        devices: processes on this machine that share the batch; under torchrun its own number counts.
        nodes: machines.
        strategy: auto or ddp.
        precision: 32-true, bf16-mixed or 16-mixed; the geometry of the loss is always in full precision.
        compile: compile the model with torch.compile.
        log: tensorboard and/or wandb, beside metrics.jsonl.
        knn_every: look at the nearest-neighbour accuracy every this many epochs.
        profile: take a few steps, print where their time goes, and leave no run.
        json: print what was made as JSON.
    """
    from halp.data.store import open_store
    from halp.training import load_recipe
    from halp.training import pretrain as train

    chosen = load_recipe(recipe, flat(set))
    store = open_store(data)
    if profile:
        _profile(chosen, store, accelerator, precision, json)
        return
    if not resume and fork is None and (advice := _advice(store, chosen.split)):
        note(advice)
    trained = train(
        chosen,
        store,
        run or Path("runs") / f"{chosen.name}-seed{chosen.seed}",
        resume=resume,
        fork=fork,
        init=init,
        accelerator=accelerator,
        devices=devices,
        nodes=nodes,
        strategy=strategy,
        precision=precision,
        compile_model=compile,
        loggers=log,
        on_epoch=_online_knn(store, knn_every) if knn_every else None,
    )
    if first_process():
        answer = {"run": str(trained.path), **trained.info.get("finished", {})}
        further = f"halp evaluate {quote(str(trained.path))} --data {quote(str(data))}"
        show(answer, json=json, said=f"trained: {trained.path}; next: {further}")


#: Training clips of the largest set on which own training was compared with the shipped encoder
#: (docs/appendix/own-training.md).
_MEASURED = 6_667


def _advice(store: Any, split: str) -> str:
    """A warning before training if a shipped encoder reads these joints: own training has not paid so far."""
    from halp.data.choose_splits import training_clips
    from halp.features.loading import choose_shipped
    from halp.features.opening import open_source

    clips = len(training_clips(store, split)[0])
    if clips > _MEASURED:
        return ""
    try:
        shipped = choose_shipped(open_source(store))
    except InputError:
        return ""
    return (
        f"note: {clips} clips to learn from; with up to {_MEASURED:,} of them, own training has not been"
        f" better than {shipped}, which needs no training (docs/appendix/own-training.md). `halp evaluate` puts the"
        " two side by side"
    )


def _profile(recipe: Any, store: Any, accelerator: str, precision: str, json: bool) -> None:
    from halp.training import pretrain as train
    from halp.training.records import Profiled, StepProfile

    steps = StepProfile()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Profiled):
        train(
            recipe, store, Path(folder) / "run", accelerator=accelerator, precision=precision, profile=steps
        )
    if not steps.parts:
        raise InputError(
            f"the recipe takes fewer than {steps.skip + steps.steps} steps; raise epochs to profile it"
        )
    whole = sum(steps.parts.values())
    rows = [
        {"part of a step": name, "ms": f"{spent:.2f}", "share": f"{100 * spent / max(whole, 1e-9):.1f} %"}
        for name, spent in sorted(steps.parts.items(), key=lambda part: -part[1])
    ]
    show(steps.parts, table_of(rows), json=json, said=f"mean of {steps.steps} steps: {whole:.1f} ms")


def _online_knn(store: Any, every: int) -> Any:
    from halp.evaluation import evaluate as measure

    def look(run: Any, epoch: int, model: Any) -> dict[str, float]:
        if epoch % every:
            return {}
        streams, split = run.recipe.streams, run.recipe.split
        encoders = {stream: run.package(model, stream, {"trained": True}) for stream in streams}
        return {
            f"{stream}/knn": measure(encoder, store, protocol="knn", split=split).accuracy
            for stream, encoder in encoders.items()
        }

    return look


def _converted(path: Path, source: Path, json: bool, **_: Any) -> None:
    further = f"; next: halp evaluate {quote(str(path))} --data STORE" if path.is_dir() else ""
    show({"written": str(path), "from": str(source)}, json=json, said=f"written: {path}{further}")


app.verb(
    "halp.training.convert:convert",
    texts={
        "source": "the authors' file, or a run folder.",
        "out": "the run folder to make, or the file.",
        "to": "run or authors (default: the other one).",
    },
    examples=(
        "halp convert checkpoint_0450.pth.tar runs/authors",
        "halp convert runs/ntu60-halp-seed0 checkpoint.pth.tar",
    ),
    end=_converted,
)
