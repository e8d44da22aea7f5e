"""Tables and the figure of `experiments/halp_gain.py`: accuracies, paired differences, similarities, quality
of prototypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from halp.reports.figures import line_chart

PROBES = ("knn", "ridge")


def interval(ours: Sequence[float], other: Sequence[float], comparisons: int) -> tuple[float, float]:
    """Mean difference and half of its 95 % interval, corrected for this many comparisons (Bonferroni)."""
    gaps = np.array(ours) - np.array(other)
    if len(gaps) < 2:
        return float(gaps.mean()), float("nan")
    quantile = stats.t.ppf(1 - 0.025 / comparisons, len(gaps) - 1)
    return float(gaps.mean()), float(quantile * gaps.std(ddof=1) / np.sqrt(len(gaps)))


def paired_gain(cell: dict[str, Any]) -> dict[str, Any]:
    """Read-out → method → set → probe → (mean, half width); the mean over the sets counts as one
    comparison.
    """
    found: dict[str, Any] = {}
    for readout, base in cell["methods"][cell["baseline"]]["accuracies"].items():
        for method, entry in cell["methods"].items():
            if method == cell["baseline"]:
                continue
            ours = entry["accuracies"][readout]
            gains = {
                name: {one: interval(ours[name][one], base[name][one], len(base)) for one in PROBES}
                for name in base
            }
            gains["mean of the sets"] = {
                one: interval(_mean_of_sets(ours, one), _mean_of_sets(base, one), 1) for one in PROBES
            }
            found.setdefault(readout, {})[method] = {
                name: {one: [round(x, 3) for x in pair] for one, pair in probes.items()}
                for name, probes in gains.items()
            }
    return found


def _mean_of_sets(accuracies: dict[str, dict[str, list[float]]], probe: str) -> list[float]:
    return np.mean([probes[probe] for probes in accuracies.values()], 0).tolist()


def known(values: Sequence[float | None]) -> list[float]:
    """The values of the epochs in which something was logged."""
    return [value for value in values if value is not None]


def _signed(pair: Sequence[float]) -> str:
    mean, half = pair
    sure = abs(mean) > half
    text = f"{mean:+.1f} ± {half:.1f}".replace("-", "−")
    return f"**{text}**" if sure else text


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _head(first: str, columns: Sequence[str]) -> list[str]:
    return [_row(first, columns), "| --- |" + " --- |" * len(columns)]


def accuracy_table(found: dict[str, Any], cell: dict[str, Any], probe: str, readout: str) -> list[str]:
    """Mean accuracies of a cell beside the baselines, and differences to the method without HaLP."""
    sets = list(found["baselines"]["raw coordinates"])
    lines = _head(f"{probe}, %", sets)
    for name, accuracies in found["baselines"].items():
        if readout == "joint":
            lines.append(_row(name, [f"{np.mean(accuracies[one][probe]):.1f}" for one in sets]))
    for name, entry in cell["methods"].items():
        lines.append(_row(name, [f"{np.mean(entry['accuracies'][readout][one][probe]):.1f}" for one in sets]))
    for name, gains in cell["differences"][readout].items():
        lines.append(_row(f"{name} − {cell['baseline']}", [_signed(gains[one][probe]) for one in sets]))
    return [*lines, ""]


def sweep_table(found: dict[str, Any], probe: str) -> list[str]:
    """The difference on the mean of the sets, what it is a difference to, the similarity to the queue: a row
    per cell.
    """
    three = ["without HaLP", "HaLP", "balanced"]
    columns = [
        *three,
        "kept",
        *(f"{what}: {one}" for what in ("key – queue", "purity", "false positives") for one in three),
    ]
    lines = _head(f"cell ({probe}, mean of the sets)", columns)
    for name, cell in found["cells"].items():
        methods = list(cell["methods"].values())
        base = methods[0]["accuracies"]["joint"]
        accuracy = np.mean([np.mean(base[one][probe]) for one in base])
        gains = [one["mean of the sets"][probe] for one in cell["differences"]["joint"].values()]
        quality = [entry["quality"] for entry in methods]
        cells = [f"{accuracy:.1f}", *map(_signed, gains), f"{100 * quality[1]['kept']:.0f} %"]
        cells += [f"{known(entry['curves']['similarity_key_queue'])[-1]:.2f}" for entry in methods]
        cells += [f"{100 * one['purity']:.0f} %" for one in quality]
        cells += [f"{100 * one['false_positives']:.0f} %" for one in quality]
        lines.append(_row(name, cells))
    return [*lines, ""]


def markdown(found: dict[str, Any]) -> str:
    """All tables; differences beyond their intervals are bold."""
    cells = found["cells"]
    seeds = len(next(iter(found["baselines"]["untrained encoder"].values()))["knn"])
    lines = [
        "# What HaLP adds",
        "",
        f"Top-1 in per cent, mean over {seeds} seeds; paired differences, 95 %.",
        "",
    ]
    for name, readouts in (("base", ("joint",)), ("cmd", ("joint", "fused"))):
        if name not in cells:
            continue
        for readout in readouts:
            lines += [f"## {name}, {readout}", ""]
            for probe in PROBES:
                lines += accuracy_table(found, cells[name], probe, readout)
    lines += ["## What it depends on", ""]
    for probe in PROBES:
        lines += sweep_table(found, probe)
    return "\n".join([*lines, f"`{found['command']}`", ""])


def similarity_figure(cell: dict[str, Any]) -> str:
    """Mean similarities by epoch, as the paper's figure 4 has them."""
    series = {}
    for method, entry in cell["methods"].items():
        for name, values in entry["curves"].items():
            points = [(epoch + 1, value) for epoch, value in enumerate(values) if value is not None]
            if points and name != "similarity_positive_queue":
                title = name.removeprefix("similarity_").replace("_", " – ")
                series[f"{method}: {title}"] = ([x for x, _ in points], [y for _, y in points])
    return line_chart(series, x_label="epoch", y_label="cosine similarity") + "\n"
