"""Commands about results: evaluation, the paper's tables, reports."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from halp.cli.app import app, note, print_json, print_table, show, table_of
from halp.cli.options import Assignments, flat
from halp.core.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from halp.reproduce.summary import TableSummary
    from halp.reproduce.tables import RowStatus


@app.command
def evaluate(
    encoder: Positional[str],
    *,
    data: Path | None = None,
    protocol: tuple[str, ...] = ("knn", "linear"),
    split: tuple[str, ...] = (),
    stream: str = "joint",
    seed: int = 0,
    seeds: int = 1,
    set: Assignments = (),
    ensemble_with: tuple[Path, ...] = (),
    baselines: bool = True,
    allow_overlap: bool = False,
    json: bool = False,
) -> None:
    """Evaluate an encoder, beside the untrained one, the raw coordinates and the matching shipped encoder.

    Examples:
        halp evaluate runs/small-seed0 --protocol knn linear retrieval
        halp evaluate runs/small-seed0 --protocol semi --seeds 5 --set semi.share=0.05
        halp evaluate runs/ntu60-halp-seed0 --data stores/pku2 --protocol finetune
        halp evaluate halp-base --data stores/mine --protocol ridge
        halp evaluate runs/joint --protocol ensemble --ensemble-with runs/motion runs/bone

    Args:
        encoder: a run folder, whose results are saved in its results/; a package, a shipped name or auto,
            which need --data.
        data: the store to evaluate on (default: the one a run was trained on); joints are mapped by name.
        protocol: knn, linear, ridge, semi, finetune, ensemble, retrieval, or one of a plugin.
        split: splits of the store (default: the one it was trained on; folds if the store has none).
        stream: which stream's encoder of a run.
        seed: the first seed, of classifiers and of draws of labels.
        seeds: how many seeds; several give mean and standard deviation.
        set: override settings of protocols as protocol.key=value, such as knn.k=5 or linear.head=mlp.
        ensemble_with: further runs whose streams join the ensemble.
        baselines: also evaluate the untrained encoder, the raw coordinates and the shipped encoder that reads
            these joints (--no-baselines leaves them out).
        allow_overlap: evaluate also where test clips were in the run's pre-training, and mark the results.
        json: print the results as JSON.
    """
    from halp.core.packages import find_encoder, is_package
    from halp.data.choose_splits import evaluation_splits
    from halp.data.store import open_store
    from halp.evaluation.evaluate_run import evaluate_run, verdict
    from halp.evaluation.protocol import parse_protocol_settings
    from halp.evaluation.results import with_folds
    from halp.features.loading import AUTO, as_encoder
    from halp.features.opening import open_source
    from halp.reports.tables import accuracies_for_terminal
    from halp.training import open_run

    if seeds < 1:
        raise InputError(f"--seeds {seeds}: at least one seed is needed")
    trained: Any
    if encoder == AUTO or is_package(find_encoder(encoder)):
        if data is None:
            raise InputError(f"'{encoder}' has no data of its own; name a store with --data STORE")
        store = open_store(data)
        trained = as_encoder(encoder, open_source(store))
        origin = trained.origin
        trained_on = (
            str(origin.get("split", "")) if origin.get("data") == store.hash else next(iter(store.splits), "")
        )
    else:
        trained = open_run(encoder)
        store, trained_on = open_store(data or trained.info["data"]["path"]), trained.recipe.split
    store, splits, reason = evaluation_splits(store, split, trained_on)
    if reason:
        note(f"note: {reason}")
    rows = evaluate_run(
        trained,
        store,
        name=Path(encoder).name,
        protocols=protocol,
        splits=splits,
        stream=stream,
        seeds=range(seed, seed + seeds),
        settings=parse_protocol_settings(flat(set), protocol),
        baselines=baselines,
        others=[open_run(other) for other in ensemble_with],
        allow_overlap=allow_overlap,
    )
    answer = {row.name: [asdict(result) for result in with_folds(row.results)] for row in rows}
    show(answer, accuracies_for_terminal(rows), json=json)
    if sentence := verdict(rows):
        note(sentence)


@app.command
def reproduce(
    table: Positional[str] = "",
    *,
    data: tuple[str, ...] = (),
    target: str | None = None,
    scale: str | None = None,
    seeds: int | None = None,
    split: tuple[str, ...] = (),
    datasets: tuple[str, ...] = (),
    svm: str = "plain",
    workers: int | None = None,
    engine: str | None = None,
    all_cells: bool = False,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    set: Assignments = (),
    out: Path = Path("reproduced"),
    list: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Reproduce a table, ablation or analysis figure of the paper; without a name, list them.

    Examples:
        halp reproduce hardness --data stores/nw-ucla --split xview --scale small --seeds 5
        halp reproduce linear --scale paper --data ntu60=stores/ntu60 pku2=stores/pku2
        halp reproduce all --scale paper --dry-run
        halp reproduce graphs --data graphs --datasets MUTAG NCI1 --workers 2
        halp reproduce semi --list

    Args:
        table: which one (see `halp reproduce`), or all (transfer only if there is a target).
        data: stores or recordings, as KEY=STORE for the paper's data sets (ntu60, ntu120, pku2); tiny and
            small make synthetic people. KEY:RECIPE=STORE is for the rows of one recipe, such as ntu60:aimclr.
            For graphs, the folder with the TU sets.
        target: for transfer, the store to fine-tune on.
        scale: tiny (does it run?), quick (a CPU, minutes per table), small (a CPU, hours), ntu10 (an hour per
            seed and table) or paper (default: tiny, for the tables ntu10… their own).
        seeds: how many seeds (default: 1, for graphs 10); HaLP and the baseline of a seed share their
            warm-up.
        split: splits of the store, for data of your own.
        datasets: for graphs, which TU sets (default: MUTAG PROTEINS NCI1 DD).
        svm: for graphs, plain (as published) or scaled (features standardised; an extra).
        workers: trainings at a time on this machine, each on one core (default: as many as cores; one on a
            GPU).
        engine: a Dask scheduler, such as tcp://HOST:8786, whose workers train.
        all_cells: run other systems also where the paper has no figure of them.
        devices: processes on this machine that share each training.
        precision: of trainings: 32-true, bf16-mixed or 16-mixed.
        set: override settings of all runs, such as epochs=100, or of protocols, such as linear.head=mlp.
        out: where runs, tables and reports go; a sweep that was stopped is resumed from there.
        list: say for every row of the paper's tables, or of the one that is named, what runs it; train
            nothing.
        dry_run: print the plan and what it costs, train nothing.
    """
    if table == "graphs" and not list:
        graphs = {"sets": datasets, "seeds": seeds, "svm": svm, "settings": flat(set), "out": out}
        return _reproduce_graphs(data, workers, engine, dry_run, json, **graphs)

    from halp.reproduce import list_rows, list_tables, prepare_sweep, reproduce, tables_for

    if list:
        rows = list_rows("" if table == "all" else table)
        return show([asdict(row) for row in rows], rows_as_table(rows), json=json)
    if not table:
        return show({key: known.title for key, known in list_tables().items()}, _tables_as_table(), json=json)
    choices: dict[str, Any] = {"data": data, "target": target, "scale": scale, "splits": split}
    choices |= {
        "seeds": 1 if seeds is None else seeds,
        "settings": flat(set),
        "out": out,
        "all_cells": all_cells,
    }
    choices |= {"accelerator": accelerator, "devices": devices, "precision": precision}
    choices |= {"workers": workers, "engine": engine}
    answers = []
    for name in tables_for(data, target) if table == "all" else [table]:
        if dry_run:
            answers.append(prepare_sweep(name, dry=True, **choices).cost())
            shown = _schedule_as_table(answers[-1])
        else:
            summary = reproduce(name, **choices)
            answers.append(asdict(summary))
            shown = _summary_as_table(summary)
        if not json:
            print_table(shown)
    idle = "nothing was trained; leave out --dry-run to start, and call it again to resume after a stop"
    return show(answers if table == "all" else answers[0], json=json, said=idle if dry_run else "")


def _verified(found: Any, json: bool, **_: Any) -> None:
    rows = [
        {
            "table": cell.table,
            "row": cell.row,
            "column": cell.column,
            "ours on": cell.data,
            "paper": f"{cell.paper:g}",
            "ours": f"{cell.ours:.2f}" if cell.std is None else f"{cell.ours:.2f} ± {cell.std:.2f}",
            "difference": f"{cell.difference:+.2f}",
            "verdict": cell.verdict,
        }
        for cell in found.cells
    ]
    show(found.to_json(), table_of(rows), json=json, said=found.sentence)


app.verb(
    "halp.reproduce.verify:verify",
    examples=("halp verify reproduced/tables/paper/linear.json", "halp verify runs/ntu60-halp-seed0"),
    end=_verified,
)


def _tables_as_table() -> Table:
    """The tables that can be reproduced."""
    from rich.table import Table

    from halp.reproduce import list_tables

    shown = Table("table", "what it is", "in the paper", "rows")
    for name, table in list_tables().items():
        shown.add_row(name, table.title, table.source, str(len(table.rows)))
    return shown


def rows_as_table(rows: list[RowStatus]) -> Table:
    """Rows of the paper's tables, and what runs each."""
    from rich.table import Table

    shown = Table("in the paper", "row", "published", "run by", "note")
    before = ""
    for status in rows:
        paper = " / ".join("–" if value is None else f"{value:g}" for value in status.paper)
        source = status.source if status.source != before else ""
        shown.add_row(source, status.row, paper, status.how, status.note)
        before = status.source
    return shown


def _schedule_as_table(cost: dict[str, Any]) -> Table:
    """Runs in order with their state, and the remaining work."""
    from rich.table import Table

    from halp.reproduce.summary import duration

    shown = Table("run", "state", "steps", "forks from", title=f"{cost['table']}, scale {cost['scale']}")
    for job in cost["jobs"]:
        shown.add_row(job["run"], job["state"], f"{job['steps']:,}", job["forks from"] or "–")
    shown.caption = (
        f"{cost['runs left']} of {cost['runs']} runs left, {cost['steps left']:,} steps,"
        f" {cost['evaluations']} evaluations, about {duration(cost['seconds left'])} of training"
        f" ({cost['time from']})"
    )
    return shown


def _summary_as_table(summary: TableSummary) -> Table:
    """The table as it is saved."""
    from halp.evaluation.analysis.similarities import evenly_chosen

    heads, rows = summary.table()
    from rich.table import Table

    shown = Table(*heads, title=f"{summary.title} ({summary.source})", caption=summary.note())
    for row in evenly_chosen(rows) if summary.columns else rows:
        shown.add_row(*("–" if cell is None else str(cell) for cell in row))
    return shown


def _reproduce_graphs(
    data: tuple[str, ...], workers: int | None, engine: str | None, dry_run: bool, json: bool, **choices: Any
) -> None:
    from rich.table import Table

    from halp.reproduce.graphs import HEADS, TITLE, plan_graphs, reproduce_graphs, request_graphs

    request = request_graphs(data, **choices)
    if dry_run:
        print_json(plan_graphs(request))
    else:
        graphs = reproduce_graphs(request, workers=workers, engine=engine)
        table = Table(*HEADS, title=TITLE, caption=graphs.note)
        for result in graphs.results:
            table.add_row(*result.cells())
        show(graphs.as_dict(), table, json=json)


@app.command
def report(
    runs: Positional[tuple[Path, ...]], *, out: Path = Path("report.html"), data: Path | None = None
) -> None:
    """Write one self-contained HTML page that compares runs.

    Example: halp report runs/moco-seed0 runs/halp-seed0 --out report.html

    Args:
        runs: run folders.
        out: where the page goes.
        data: the store for embedding map and players (default: the one the first run was trained on).
    """
    from halp.reports.run_report import report as make_page

    note(f"written: {make_page(runs, data).save(out)}")
