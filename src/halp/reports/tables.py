"""Tables of accuracies: columns and cells from results, for pages and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from halp.evaluation.evaluate_run import EncoderResults
from halp.evaluation.protocol import get_protocol, list_protocols, protocol_settings
from halp.evaluation.results import Result, pool_folds

MARK = "*"  # behind the title of a column whose test clips were trained on


def accuracy_table(rows: Sequence[EncoderResults]) -> tuple[list[str], list[list[object]]]:
    """Columns and cells of the table of accuracies: a row per encoder, a column per protocol and split.

    Folds of a split stand together: all their test clips, and the standard deviation over the folds.
    """
    rows = [EncoderResults(row.name, pool_folds(row.results)) for row in rows]
    results = [result for row in rows for result in row.results]
    titles = list(dict.fromkeys(map(result_title, results)))
    marked = {result_title(result) for result in results if result.test_clips_trained_on}
    cells: list[list[object]] = []
    for row in rows:
        accuracies = {result_title(result): _accuracy(result) for result in row.results}
        cells.append([row.name, *(accuracies.get(title) for title in titles)])
    return ["encoder", *(f"{title} {MARK}" if title in marked else title for title in titles)], cells


def overlap_note(rows: Sequence[EncoderResults]) -> str:
    """Meaning of the mark in a column, per split; empty if no test clip was trained on."""
    counts = {
        result.split: (result.test_clips_trained_on, result.clips["test"])
        for row in rows
        for result in pool_folds(row.results)
        if result.test_clips_trained_on
    }
    parts = [f"{seen} of the {total} test clips of {split}" for split, (seen, total) in counts.items()]
    return f"{MARK} {'; '.join(parts)} were in the pre-training." if parts else ""


def result_title(result: Result) -> str:
    """The title of a column: protocol with its main settings, split, and the stream if it is not `joint`."""
    name, fuses = result.protocol, False
    if name in list_protocols():  # a result may be of a plugin that is not loaded
        protocol = get_protocol(name)
        name, fuses = protocol.title(protocol_settings(name, result.settings)), protocol.fuses_encoders
    # the members of an ensemble stand in its row
    plain = result.stream == "joint" or fuses
    return f"{name} {result.split}" + ("" if plain else f" {result.stream}")


def _accuracy(result: Result) -> object:
    return result.accuracy if result.std is None else (result.accuracy, result.std)


def accuracies_for_terminal(rows: Sequence[EncoderResults]) -> Table:
    """The accuracies as a rich table, the best of each column in bold."""
    columns, cells = accuracy_table(rows)
    table = Table(title="top-1 accuracy, per cent")
    for column in columns:
        table.add_column(column, justify="left" if column == "encoder" else "right")
    means = [[_mean(cell) for cell in row] for row in cells]
    best = [max((value for value in column if value is not None), default=None) for column in zip(*means)]
    for row, values in zip(cells, means):
        bold = (value is not None and value == top for value, top in zip(values, best))
        table.add_row(*(f"[bold]{_text(cell)}[/]" if top else _text(cell) for cell, top in zip(row, bold)))
    table.caption = overlap_note(rows) or None
    return table


def _mean(cell: object) -> float | None:
    cell = cell[0] if isinstance(cell, tuple) else cell
    return cell if isinstance(cell, float) else None


def _text(cell: object) -> str:
    if isinstance(cell, tuple):
        return f"{cell[0]:.1f} ± {cell[1]:.1f}"
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell or "")
