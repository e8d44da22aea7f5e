"""Tables of results: an encoder a row, beside the floors it has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.evaluation.features import RawCoordinates, embed
from halp.evaluation.protocols import evaluate
from halp.evaluation.results import Result
from halp.progress import console
from halp.training.run import Run

# Raw coordinates are hundreds of metres-valued columns: SGD at the paper's rate diverges on them, the exact solver does not.
RAW_SETTINGS = {"linear": {"solver": "exact", "crops": 0}}


@dataclass(frozen=True)
class Row:
    """One line of a table: an encoder's name and its results."""

    name: str
    results: Sequence[Result]


def evaluate_row(
    name: str,
    encoder: PackagedEncoder,
    store: Store,
    *,
    protocols: Sequence[str] = ("knn", "linear"),
    splits: Sequence[str] = ("xsub",),
    seed: int = 0,
    run: Run | None = None,
    progress: bool = True,
) -> Row:
    """Evaluate one encoder by several protocols on features that are computed once; results are saved in the run."""
    features = embed(encoder, store, progress=progress)
    results = []
    for split in splits:
        for protocol in protocols:
            extra = RAW_SETTINGS.get(protocol, {}) if isinstance(encoder, RawCoordinates) else {}
            result = evaluate(encoder, store, protocol, split, seed=seed, features=features, progress=progress, **extra)
            if run is not None:
                kind = "" if result.encoder["trained"] else "-untrained"
                result.save(run.path / "results" / f"{protocol}-{split}-{encoder.stream}-seed{seed}{kind}.json")
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
    floors: bool = True,
) -> list[Row]:
    """Rows of a run's encoder and, with `floors`, of the raw coordinates and of the encoder before training."""
    encoders: dict[str, tuple[PackagedEncoder, Run | None]] = {}
    if floors:
        encoders["raw coordinates"] = (RawCoordinates(store.topology, stream=stream, persons=store.persons), None)
        encoders["untrained"] = (run.encoder(stream, trained=False), run)
    encoders[run.path.name] = (run.encoder(stream), run)
    return [
        evaluate_row(name, encoder, store, protocols=protocols, splits=splits, seed=seed, run=home)
        for name, (encoder, home) in encoders.items()
    ]


def accuracy_table(rows: Sequence[Row]) -> tuple[list[str], list[list[object]]]:
    """Columns and cells of the table of accuracies, one column a protocol, split and stream."""
    titles = list(dict.fromkeys(_title(result) for row in rows for result in row.results))
    cells: list[list[object]] = []
    for row in rows:
        found = {_title(result): result.accuracy for result in row.results}
        cells.append([row.name, *(found.get(title) for title in titles)])
    return ["encoder", *titles], cells


def _title(result: Result) -> str:
    return f"{result.protocol} {result.split}" + ("" if result.stream == "joint" else f" {result.stream}")


def print_table(rows: Sequence[Row]) -> None:
    """The accuracies in the terminal, the best of each column in bold."""
    columns, cells = accuracy_table(rows)
    table = Table(title="top-1 accuracy, per cent")
    for column in columns:
        table.add_column(column, justify="left" if column == "encoder" else "right")
    best = [max((row[i] for row in cells if isinstance(row[i], float)), default=None) for i in range(len(columns))]  # type: ignore[type-var]
    for row in cells:
        shown = [f"{value:.1f}" if isinstance(value, float) else str(value or "") for value in row]
        bold = (value is not None and value == best[i] for i, value in enumerate(row))
        table.add_row(*(f"[bold]{text}[/]" if top else text for text, top in zip(shown, bold)))
    console.print(table)
