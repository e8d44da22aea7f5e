"""The graph table: mean and deviation per method, paired differences with their 95 % interval, the paper's figures beside."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from halp.files import write_json, write_text
from halp.graphs.cells import METHODS, Cell

TITLES = {"untrained": "untrained encoder", "graphcl": "GraphCL", "halp": "GraphCL + HaLP"}
# mean and standard deviation in the HaLP paper's supplement, five runs
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    "graphcl": {"NCI1": (77.87, 0.41), "PROTEINS": (74.39, 0.45), "DD": (78.62, 0.40), "MUTAG": (86.80, 1.3)},
    "halp": {"NCI1": (78.88, 0.41), "PROTEINS": (74.65, 0.70), "DD": (79.20, 0.60), "MUTAG": (89.35, 1.2)},
}


@dataclass(frozen=True)
class Difference:
    """A paired difference in points: mean and half the width of its 95 % interval (none for a single pair)."""

    mean: float
    half_width: float | None

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + ("" if self.half_width is None else f" ± {self.half_width:.2f}")


@dataclass(frozen=True)
class SetResult:
    """What was measured on one set, in percent."""

    set: str
    accuracies: dict[str, list[float]]  # method → one per seed
    gain_halp: Difference  # GraphCL + HaLP minus GraphCL
    gain_training: Difference  # GraphCL minus untrained


def paired_difference(ours: Sequence[float], other: Sequence[float]) -> Difference:
    """Mean of the differences of pairs, with the interval of Student's t.

    >>> str(paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]))
    '+2.00 ± 2.48'
    """
    gaps = [one - two for one, two in zip(ours, other)]
    if len(gaps) < 2:
        return Difference(gaps[0], None)
    error = statistics.stdev(gaps) / len(gaps) ** 0.5
    return Difference(statistics.fmean(gaps), float(student.ppf(0.975, len(gaps) - 1)) * error)


def summarise(cells: Sequence[Cell], sets: Sequence[str], seeds: Sequence[int]) -> list[SetResult]:
    """Results per set, with the accuracies of every method in the order of the seeds."""
    found = {(cell.set, cell.seed, cell.method): 100 * cell.accuracy for cell in cells}
    results = []
    for name in sets:
        by_method = {method: [found[name, seed, method] for seed in seeds] for method in METHODS}
        gains = [
            paired_difference(by_method[a], by_method[b]) for a, b in (("halp", "graphcl"), ("graphcl", "untrained"))
        ]
        results.append(SetResult(name, by_method, *gains))
    return results


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation."""
    mean = statistics.fmean(values)
    return f"{mean:.2f} ± {statistics.stdev(values):.2f}" if len(values) > 1 else f"{mean:.2f}"


def rows(results: Sequence[SetResult]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, one per set."""
    heads = ["set", "untrained"]
    for method in ("graphcl", "halp"):
        heads += [TITLES[method], "paper"]
    heads += ["HaLP − GraphCL", "GraphCL − untrained"]
    lines = []
    for result in results:
        line = [result.set, spread(result.accuracies["untrained"])]
        for method in ("graphcl", "halp"):
            paper = PAPER[method].get(result.set)
            line += [spread(result.accuracies[method]), "–" if paper is None else f"{paper[0]:.2f} ± {paper[1]:.2f}"]
        lines.append([*line, str(result.gain_halp), str(result.gain_training)])
    return heads, lines


def note(seeds: Sequence[int], svm: str) -> str:
    """What the numbers are."""
    extra = (
        " Features were standardised for the SVM, which the published protocol does not do." if svm == "scaled" else ""
    )
    return (
        f"Accuracy in %, mean ± standard deviation over {len(seeds)} seed(s); differences are paired by seed (training and "
        "folds) with half the width of the 95 % interval (t). The encoder is trained on all graphs without labels, those later "
        f"tested among them. The paper: five runs.{extra}"
    )


def markdown(results: Sequence[SetResult], words: str, command: str) -> str:
    """The table as Markdown, with the command that makes it."""
    heads, lines = rows(results)
    parts = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *(f"| {' | '.join(line)} |" for line in lines)]
    return "\n".join(["# GraphCL and HaLP on TU graphs", "", *parts, "", words, "", f"`{command}`", ""])


def save(folder: Path, cells: Sequence[Cell], results: Sequence[SetResult], words: str, about: dict[str, Any]) -> None:
    """Write `graphs.md`, `graphs.csv` (one line per fold) and `graphs.json`."""
    write_text(folder / "graphs.md", markdown(results, words, str(about["command"])))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["set", "method", "seed", "fold", "accuracy"])
    for cell in cells:
        writer.writerows([cell.set, cell.method, cell.seed, fold, value] for fold, value in enumerate(cell.folds))
    write_text(folder / "graphs.csv", text.getvalue())
    write_json(folder / "graphs.json", about | {"note": words, "results": [asdict(result) for result in results]})
