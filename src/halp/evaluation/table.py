"""Tables of results: an encoder a row, beside the floors it has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.evaluation.cache import FeatureCache
from halp.evaluation.ensemble import EncoderGroup
from halp.evaluation.evaluator import evaluate
from halp.evaluation.features import RawCoordinates
from halp.evaluation.results import Result
from halp.evaluation.saved import result_path
from halp.progress import console
from halp.training.run import Run

# Raw coordinates are hundreds of metres-valued columns, on which SGD at the paper's rate diverges; a floor with a penalty of
# its own choice is a fair one.
RAW_SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {"solver": "exact", "head": "linear", "fresh": False, "crops": 0, "penalty": 0.0},
    "semi": {"solver": "exact", "head": "linear", "crops": 0, "penalty": 0.0},
}
Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Row:
    """One line of a table: an encoder's name and its results."""

    name: str
    results: Sequence[Result]


def settings_for(encoder: Any, protocol: str, options: Options) -> dict[str, Any] | None:
    """Settings of a protocol for this encoder; None where it has nothing that the protocol could train."""
    chosen = dict(options.get(protocol, {}))
    if not isinstance(encoder, RawCoordinates):
        return chosen
    if protocol in ("finetune", "ensemble") or chosen.get("variant") == "network":
        return None
    return {**chosen, **RAW_SETTINGS.get(protocol, {})}


def evaluate_row(
    name: str,
    encoder: PackagedEncoder | EncoderGroup,
    store: Store,
    *,
    protocols: Sequence[str] = ("knn", "linear"),
    splits: Sequence[str] = ("xsub",),
    seed: int = 0,
    seeds: Sequence[int] = (),
    options: Options | None = None,
    run: Run | None = None,
    progress: bool = True,
) -> Row:
    """Evaluate one encoder by several protocols on features that are computed once; results are saved in the run."""
    cache = FeatureCache(None if run is None else run.features)
    results = []
    for split in splits:
        for protocol in protocols:
            chosen = settings_for(encoder, protocol, options or {})
            if chosen is None:
                continue
            result = evaluate(
                encoder, store, protocol, split, seed=seed, seeds=seeds, cache=cache, progress=progress, **chosen
            )
            if run is not None:
                result.save(result_path(run.path, result, run.info["data"]["hash"]))
            results.append(result)
    return Row(name, results)


def evaluate_run(
    run: Run,
    store: Store,
    *,
    protocols: Sequence[str] = ("knn", "linear"),
    splits: Sequence[str] = ("xsub",),
    stream: str = "joint",
    seed: int = 0,
    seeds: Sequence[int] = (),
    options: Options | None = None,
    floors: bool = True,
    others: Sequence[Run] = (),
) -> list[Row]:
    """Rows of a run's encoder and, with `floors`, of the raw coordinates and of the encoder before training.

    The protocol `ensemble` fuses all streams of the run and of the `others`.
    """
    encoders: dict[str, tuple[PackagedEncoder, Run | None]] = {}
    single = [protocol for protocol in protocols if protocol != "ensemble"]
    if floors:
        raw = RawCoordinates(store.topology, stream=stream, persons=store.persons)
        encoders["raw coordinates"] = (raw, None)
        encoders["untrained"] = (run.encoder(stream, trained=False), run)
    encoders[run.path.name] = (run.encoder(stream), run)
    shared: dict[str, Any] = {"splits": splits, "seed": seed, "seeds": seeds, "options": options}
    rows = [
        evaluate_row(name, encoder, store, protocols=single, run=home, **shared)
        for name, (encoder, home) in encoders.items()
        if single
    ]
    if "ensemble" in protocols:
        group = ensemble_of([run, *others])
        rows.append(evaluate_row(f"ensemble {group.stream}", group, store, protocols=("ensemble",), run=run, **shared))
    return rows


def ensemble_of(runs: Sequence[Run]) -> EncoderGroup:
    """All streams of these runs; a stream that occurs twice is numbered."""
    members: dict[str, PackagedEncoder] = {}
    for run in runs:
        for stream in run.recipe.streams:
            name, number = stream, 2
            while name in members:
                name, number = f"{stream}-{number}", number + 1
            members[name] = run.encoder(stream)
    return EncoderGroup(members)


def accuracy_table(rows: Sequence[Row]) -> tuple[list[str], list[list[object]]]:
    """Columns and cells of the table of accuracies, one column a protocol, split and stream."""
    titles = list(dict.fromkeys(_title(result) for row in rows for result in row.results))
    cells: list[list[object]] = []
    for row in rows:
        found = {_title(result): _figure(result) for result in row.results}
        cells.append([row.name, *(found.get(title) for title in titles)])
    return ["encoder", *titles], cells


def _figure(result: Result) -> object:
    return result.accuracy if result.std is None else (result.accuracy, result.std)


def _title(result: Result) -> str:
    name = f"semi {100 * result.settings['share']:g} %" if result.protocol == "semi" else result.protocol
    # the members of an ensemble stand in its row
    plain = result.stream == "joint" or result.protocol == "ensemble"
    return f"{name} {result.split}" + ("" if plain else f" {result.stream}")


def print_table(rows: Sequence[Row]) -> None:
    """The accuracies in the terminal, the best of each column in bold."""
    columns, cells = accuracy_table(rows)
    table = Table(title="top-1 accuracy, per cent")
    for column in columns:
        table.add_column(column, justify="left" if column == "encoder" else "right")
    values = [[_mean(cell) for cell in row] for row in cells]
    best = [max((row[i] for row in values if row[i] is not None), default=None) for i in range(len(columns))]  # type: ignore[type-var]
    for row, means in zip(cells, values):
        bold = (mean is not None and mean == best[i] for i, mean in enumerate(means))
        table.add_row(*(f"[bold]{_show(cell)}[/]" if top else _show(cell) for cell, top in zip(row, bold)))
    console.print(table)


def _mean(cell: object) -> float | None:
    cell = cell[0] if isinstance(cell, tuple) else cell
    return cell if isinstance(cell, float) else None


def _show(cell: object) -> str:
    if isinstance(cell, tuple):
        return f"{cell[0]:.1f} ± {cell[1]:.1f}"
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell or "")
