"""The `halp` command. Each command is a thin function here; the work is done by the library.

Exit codes: 0 done · 2 wrong use or bad input, said in one sentence · 3 stopped as asked, can be resumed · 1 anything else.
"""

from __future__ import annotations

import json as json_format
import os
import sys
from pathlib import Path
from typing import Any

import tyro
from tyro.conf import Positional, UseAppendAction

from halp._version import __version__
from halp.errors import InputError

app = tyro.extras.SubcommandApp()
Settings = UseAppendAction[tuple[tuple[str, ...], ...]]


def _flat(settings: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(setting for group in settings for setting in group)


def _print_json(data: Any) -> None:
    sys.stdout.write(json_format.dumps(data, indent=1, ensure_ascii=False) + "\n")


@app.command
def demo(
    *, folder: Path = Path("demo"), clips: int = 1440, seed: int = 0, set: Settings = (), json: bool = False
) -> None:
    """Train MoCo and HaLP on synthetic people, print a table and write a report. Takes less than five minutes.

    Example: halp demo --folder demo

    Args:
        folder: where data, runs and report.html go; what an earlier demo left there is replaced.
        clips: how many clips to make.
        seed: another seed gives other people and other weights.
        set: override settings of both recipes, such as epochs=10.
        json: print the accuracies as JSON.
    """
    from halp.demo import run_demo
    from halp.evaluation.table import print_table
    from halp.progress import console

    made = run_demo(folder, clips=clips, seed=seed, settings=_flat(set))
    if json:
        _print_json({row.name: {result.protocol: result.accuracy for result in row.results} for row in made.rows})
    else:
        print_table(made.rows)
    console.print(f"done in {made.seconds:.0f} s; open [bold]{made.report}[/] in a browser")


@app.command
def prepare(
    format: Positional[str],
    source: Positional[Path],
    store: Positional[Path],
    *,
    normalise: tuple[str, ...] | None = None,
    topology: str | None = None,
    strict: bool = False,
    workers: int | None = None,
    limit: int | None = None,
    option: Settings = (),
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Turn pose files into a store: read, normalise, keep, and name every clip that was left out or mended.

    Examples:
        halp prepare ntu-60 nturgb+d_skeletons stores/ntu60
        halp prepare auto my_recordings stores/mine --topology kinect-v1
        halp prepare synthetic 1440 stores/people

    Args:
        format: how the files are written (see `halp formats`), or auto to find out.
        source: a file or folder; for `synthetic` the number of clips.
        store: the store to make.
        normalise: normalisation steps in order, instead of the format's own.
        topology: map the joints by name onto this layout.
        strict: stop at the first clip that cannot be used instead of leaving it out.
        workers: processes (default: all cores).
        limit: read only so many items.
        option: settings of the format as name=number, such as min_score=0.3; `halp formats` lists them.
        overwrite: replace a store that is there already.
        json: print the manifest as JSON.
    """
    from halp.clips.prepare import prepare as make
    from halp.progress import console

    if format == "synthetic":
        _prepare_synthetic(source, store, overwrite)
        return
    manifest = make(
        format,
        source,
        store,
        normalisation=normalise,
        topology=topology,
        strict=strict,
        workers=workers,
        limit=limit,
        options=_numbers(_flat(option)),
        overwrite=overwrite,
    )
    if json:
        _print_json(manifest.to_json())
    else:
        console.print(manifest.summary())
        console.print(f"written: [bold]{store}[/]; look at it with: halp inspect {store}")


def _numbers(options: tuple[str, ...]) -> dict[str, float]:
    numbers = {}
    for option in options:
        name, _, value = option.partition("=")
        try:
            numbers[name.strip()] = float(value)
        except ValueError:
            raise InputError(f"--option takes name=number, for example min_score=0.3, not '{option}'") from None
    return numbers


def _prepare_synthetic(count: Path, store: Path, overwrite: bool) -> None:
    from halp.clips.synthetic import make_synthetic_store
    from halp.progress import console

    if not str(count).isdigit():
        raise InputError(f"synthetic takes a number of clips in place of a source, not '{count}'")
    made = make_synthetic_store(store, count=int(str(count)), overwrite=overwrite)
    console.print(f"written: [bold]{store}[/] with {len(made)} clips; look at it with: halp inspect {store}")


@app.command
def formats(*, json: bool = False) -> None:
    """List the formats that `halp prepare` reads.

    Args:
        json: print as JSON.
    """
    from rich.table import Table

    from halp.clips.readers import get_reader, list_readers, reader_options
    from halp.progress import console

    known = {**list_readers(), "synthetic": "invented people; takes a number of clips in place of a source"}
    if json:
        _print_json(known)
        return
    table = Table("format", "what it reads", "options")
    for name, description in known.items():
        options = {} if name == "synthetic" else reader_options(get_reader(name))
        table.add_row(name, description, "\n".join(f"{key}={value:g}" for key, value in options.items()))
    console.print(table)


@app.command
def inspect(store: Positional[Path], *, html: Path | None = None, json: bool = False) -> None:
    """Show what is in a store: counts by class, subject, camera and split, lengths, missing joints.

    Example: halp inspect stores/mine --html mine.html

    Args:
        store: the store.
        html: also write a page with pictures and the skeleton player.
        json: print as JSON.
    """
    from halp.clips.inspect import inspect as look
    from halp.clips.store import open_store
    from halp.progress import console

    opened = open_store(store)
    found = look(opened)
    if json:
        _print_json(found.to_json())
    else:
        console.print(found.table())
    if html is not None:
        from halp.reports.store_page import store_page

        console.print(f"written: [bold]{store_page(opened, found).save(html)}[/]")


@app.command
def merge(
    stores: Positional[tuple[Path, ...]], *, out: Path, topology: str | None = None, overwrite: bool = False
) -> None:
    """Pool several stores into one, joints mapped by name.

    Example: halp merge stores/nw-ucla stores/utd-mhad --out stores/pooled --topology kinect-v1

    Args:
        stores: the stores to pool.
        out: the store to make.
        topology: the layout to map onto (default: the first store's).
        overwrite: replace a store that is there already.
    """
    from halp.clips.merge import merge as pool
    from halp.progress import console

    made = pool(stores, out, topology=topology, overwrite=overwrite)
    console.print(f"written: [bold]{out}[/] with {len(made)} clips; look at it with: halp inspect {out}")


@app.command
def pretrain(
    recipe: Positional[str],
    *,
    data: Path,
    run: Path | None = None,
    set: Settings = (),
    resume: bool = False,
    fork: Path | None = None,
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
        halp pretrain recipes/ntu60-halp.toml --data stores/ntu60 --set seed=1 halp.hardness=0.6
        halp pretrain small --data stores/mine --resume
        halp pretrain small --data stores/mine --devices 2

    Args:
        recipe: a TOML file, or the name of a recipe that comes with halp (see `halp recipes`).
        data: the store to learn from.
        run: the run folder (default: runs/NAME-seedN).
        set: override settings as key=value.
        resume: go on with the run where it stopped.
        fork: start from the newest checkpoint of another run, or from that very checkpoint.
        accelerator: cpu, cuda, mps or auto.
        devices: processes on this machine that share the batch; under torchrun its own number counts.
        nodes: machines.
        strategy: auto or ddp.
        precision: 32-true, bf16-mixed or 16-mixed; the geometry of the loss is always in full precision.
        compile: compile the model with torch.compile.
        log: tensorboard and/or wandb, beside metrics.jsonl.
        knn_every: look at the nearest-neighbour accuracy every so many epochs.
        profile: take a few steps, print where their time goes, and leave no run.
        json: print what was made as JSON.
    """
    from halp.clips.store import open_store
    from halp.progress import console
    from halp.training import load_recipe
    from halp.training import pretrain as train

    chosen = load_recipe(recipe, _flat(set))
    store = open_store(data)
    if profile:
        _profile(chosen, store, accelerator, precision, json)
        return
    made = train(
        chosen,
        store,
        run or Path("runs") / f"{chosen.name}-seed{chosen.seed}",
        resume=resume,
        fork=fork,
        accelerator=accelerator,
        devices=devices,
        nodes=nodes,
        strategy=strategy,
        precision=precision,
        compile=compile,
        loggers=log,
        on_epoch=_online_knn(store, knn_every) if knn_every else None,
    )
    if not _first_process():
        return
    if json:
        _print_json({"run": str(made.path), **made.info.get("finished", {})})
    else:
        console.print(f"trained: [bold]{made.path}[/]; next: halp evaluate {made.path} --data {data}")


def _profile(recipe: Any, store: Any, accelerator: str, precision: str, json: bool) -> None:
    import contextlib
    import tempfile

    from halp.progress import console
    from halp.training import pretrain as train
    from halp.training.profiling import Profiled, StepProfile

    steps = StepProfile()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Profiled):
        train(recipe, store, Path(folder) / "run", accelerator=accelerator, precision=precision, profile=steps)
    if not steps.parts:
        raise InputError(f"the recipe takes fewer than {steps.skip + steps.steps} steps; raise epochs to profile it")
    if json:
        _print_json({part.name: part.milliseconds for part in steps.parts})
    else:
        console.print(steps.table())


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


def _first_process() -> bool:
    """Whether this process speaks for the job; others were started by a launcher."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", os.environ.get("SLURM_PROCID", "0")))) == 0


@app.command
def convert(
    checkpoint: Positional[Path],
    out: Positional[Path],
    *,
    topology: str = "kinect-v2",
    frames: int = 64,
    json: bool = False,
) -> None:
    """Turn a checkpoint in the authors' format (HaLP, or CMD with three modalities) into a run, or a run into such a file.

    Examples:
        halp convert checkpoint_0450.pth.tar runs/authors
        halp convert runs/ntu60-halp-seed0 checkpoint.pth.tar

    Args:
        checkpoint: the authors' file, or a run folder.
        out: the run folder to make, or the file.
        topology: the joint layout that the authors' encoder reads.
        frames: how many frames it reads.
        json: print what was made as JSON.
    """
    from halp.progress import console
    from halp.training import convert as turn

    made = turn(checkpoint, out, topology=topology, frames=frames)
    if json:
        _print_json({"written": str(made), "from": str(checkpoint)})
    elif made.is_dir():
        console.print(f"written: [bold]{made}[/]; next: halp evaluate {made} --data STORE")
    else:
        console.print(f"written: [bold]{made}[/]")


@app.command
def evaluate(
    run: Positional[Path],
    *,
    data: Path | None = None,
    protocol: tuple[str, ...] = ("knn", "linear"),
    split: tuple[str, ...] = (),
    stream: str = "joint",
    seed: int = 0,
    seeds: int = 1,
    set: Settings = (),
    others: tuple[Path, ...] = (),
    floors: bool = True,
    json: bool = False,
) -> None:
    """Evaluate a run's encoder, beside the untrained encoder and the raw coordinates.

    Examples:
        halp evaluate runs/small-seed0 --protocol knn linear retrieval --split xsub xview
        halp evaluate runs/small-seed0 --protocol semi --seeds 5 --set semi.share=0.05
        halp evaluate runs/ntu60-halp-seed0 --data stores/pku2 --protocol finetune
        halp evaluate runs/joint --protocol ensemble --others runs/motion runs/bone

    Args:
        run: the run folder; results are saved in its results/.
        data: the store to evaluate on (default: the one it was trained on); joints are mapped by name.
        protocol: knn, linear, semi, finetune, ensemble, retrieval.
        split: splits of the store (default: the one it was trained on).
        stream: which stream's encoder.
        seed: the first seed, of classifiers and of draws of labels.
        seeds: how many seeds; several give mean and standard deviation.
        set: override settings of protocols as protocol.key=value, such as knn.k=5 or linear.head=mlp.
        others: further runs whose streams join the ensemble.
        floors: also evaluate the untrained encoder and the raw coordinates (--no-floors leaves them out).
        json: print the results as JSON.
    """
    from dataclasses import asdict

    from halp.clips.store import open_store
    from halp.evaluation.options import parse_options
    from halp.evaluation.table import evaluate_run, print_table
    from halp.training import open_run

    trained = open_run(run)
    store = open_store(data or trained.info["data"]["path"])
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: at least one seed is needed")
    rows = evaluate_run(
        trained,
        store,
        protocols=protocol,
        splits=split or (trained.recipe.split,),
        stream=stream,
        seed=seed,
        seeds=range(seed, seed + seeds),
        options=parse_options(_flat(set), protocol),
        floors=floors,
        others=[open_run(other) for other in others],
    )
    if json:
        _print_json({row.name: [asdict(result) for result in row.results] for row in rows})
    else:
        print_table(rows)


@app.command
def reproduce(
    table: Positional[str] = "",
    *,
    data: tuple[str, ...] = (),
    target: str | None = None,
    scale: str = "tiny",
    seeds: int = 1,
    split: tuple[str, ...] = (),
    set: Settings = (),
    out: Path = Path("reproduced"),
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Reproduce a table, ablation or analysis figure of the paper; without a name, list them.

    Examples:
        halp reproduce hardness --data stores/nw-ucla --split xview --scale small --seeds 5
        halp reproduce linear --scale paper --data ntu60=stores/ntu60 pku2=stores/pku2
        halp reproduce all --scale paper --dry-run

    Args:
        table: which one (see `halp reproduce`), or all (transfer only where there is a target).
        data: stores, as KEY=STORE for the paper's data sets (ntu60, ntu120, pku2); tiny and small make synthetic people.
        target: for transfer, the store to fine-tune on.
        scale: tiny (does it run?), small (a CPU) or paper.
        seeds: how many seeds; HaLP and the baseline of a seed share their warm-up.
        split: splits of the store, for data of your own.
        set: override settings of all runs, such as epochs=100.
        out: where runs, tables and reports go; a sweep that was stopped goes on from there.
        dry_run: print the plan and what it costs, train nothing.
        json: print as JSON.
    """
    from dataclasses import asdict

    from halp.progress import console
    from halp.reproduce import list_tables, prepare_sweep, tables_for
    from halp.reproduce import reproduce as run_table
    from halp.reproduce.printing import print_outcome, print_plan, print_tables

    if not table:
        print_tables() if not json else _print_json({key: known.title for key, known in list_tables().items()})
        return
    choices: dict[str, Any] = {"data": data, "target": target, "scale": scale, "seeds": seeds, "splits": split}
    choices |= {"settings": _flat(set), "out": out}
    names = tables_for(data, target) if table == "all" else [table]
    made = []
    for name in names:
        if dry_run:
            cost = prepare_sweep(name, dry=True, **choices).cost()
            made.append(cost)
            if not json:
                print_plan(cost)
        else:
            outcome = run_table(name, **choices)
            made.append(asdict(outcome))
            if not json:
                print_outcome(outcome)
    if json:
        _print_json(made if table == "all" else made[0])
    elif dry_run:
        console.print("nothing was trained; leave out --dry-run to start, and call it again to go on after a stop")


@app.command
def report(runs: Positional[tuple[Path, ...]], *, out: Path = Path("report.html"), data: Path | None = None) -> None:
    """Write one self-contained HTML page that compares runs.

    Example: halp report runs/moco-seed0 runs/halp-seed0 --out report.html

    Args:
        runs: run folders.
        out: where the page goes.
        data: the store for embedding map and players (default: the one the first run was trained on).
    """
    from halp.clips.store import open_store
    from halp.progress import console
    from halp.reports.run_report import report_runs
    from halp.training import open_run

    if not runs:
        raise InputError("name at least one run folder, for example: halp report runs/small-seed0")
    opened = {path.name: open_run(path) for path in runs}
    if len(opened) < len(runs):
        raise InputError("two of the runs have the same folder name; give them different ones")
    home = Path(data or next(iter(opened.values())).info["data"]["path"])
    store = open_store(home) if home.exists() else None
    console.print(f"written: [bold]{report_runs(opened, store).save(out)}[/]")


@app.command
def recipes(name: Positional[str] = "", *, json: bool = False) -> None:
    """List the recipes that come with halp, or print one with every default spelled out.

    Args:
        name: a recipe to print.
        json: print as JSON.
    """
    from rich.table import Table

    from halp.progress import console
    from halp.training import list_recipes, load_recipe

    if name:
        chosen = load_recipe(name)
        if json:
            _print_json(chosen.flat())
        else:
            sys.stdout.write(chosen.to_toml())
        return
    known = {key: load_recipe(path) for key, path in list_recipes().items()}
    if json:
        _print_json({key: recipe.description for key, recipe in known.items()})
        return
    table = Table("recipe", "what it is", "epochs", "terms")
    for key, recipe in known.items():
        table.add_row(key, recipe.description, str(recipe.epochs), " + ".join(recipe.terms))
    console.print(table)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `halp` command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        sys.stdout.write(f"halp {__version__}\n")
        return
    # idle threads that spin cost a busy machine dearly; this has to be said before torch is loaded
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app.cli(
            prog="halp",
            description="Learn human actions from skeletons without labels.",
            args=arguments,
            config=(tyro.conf.OmitSubcommandPrefixes,),
        )
    except InputError as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except Exception as error:
        code = {"Interrupted": 3, "Diverged": 1, "LostProcess": 1}.get(type(error).__name__)
        if code is None:
            raise
        _fail(str(error), code)


def _fail(message: str, code: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    if code != 2 or _first_process():  # bad input is the same for every process of a job
        Console(stderr=True, soft_wrap=True).print(f"[bold red]halp:[/] {escape(message)}", highlight=False)
    sys.exit(code)
