"""`python tools/result_figures.py [FOLDER]`: figures of the results and of the method, drawn from
experiments/results/*.json.

`make docs` runs it first, so that a figure is never older than the file that it shows.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from scipy import stats

from halp.reports.figures import bars, line_chart

ROOT = Path(__file__).resolve().parent.parent
SETS = {"nw-ucla": "NW-UCLA", "utd-mhad": "UTD-MHAD", "msr-action3d": "MSR-Action3D", "utkinect": "UTKinect"}
METHODS = {
    "raw coordinates, plain": "raw coordinates",
    "MiniRocket, plain": "MiniRocket, fitted to each set",
    "untrained twin, plain": "halp-base, untrained",
    "halp-base, plain": "halp-base",
}


def read(name: str, folder: str = "experiments") -> Any:
    """One file of measurements."""
    return json.loads((ROOT / folder / "results" / f"{name}.json").read_text(encoding="utf-8"))


def few_labels() -> str:
    accuracy = read("few_labels")["accuracy"]
    table = {
        title: {shown: (accuracy[name]["1"][key], math.nan) for name, shown in METHODS.items()}
        for key, title in SETS.items()
    }
    return bars(table, title="One label per class", y_label="top-1, %")


def training() -> str:
    gaps = read("training_pays")["differences"]["halp-base"]
    probes = {"1 label": "1 label", "5 labels": "5 labels", "knn": "kNN", "ridge": "all labels"}
    names = {**SETS, "ntu-10 xsub": "NTU-10 x-sub", "ntu-10 xview": "NTU-10 x-view"}
    table = {
        title: {
            names[key]: (row[probe][0], (row[probe][2] - row[probe][1]) / 2)
            for key, row in gaps.items()
            if key in names
        }
        for probe, title in probes.items()
    }
    return bars(table, title="halp-base less the same encoder untrained, 95 % interval", y_label="points")


def views() -> str:
    accuracy = read("view")["accuracy"]
    series = {
        name: ([float(angle) for angle in probes["knn"]], [cell["mean"] for cell in probes["knn"].values()])
        for name, probes in accuracy.items()
        if len(probes["knn"]) > 1
    }
    return line_chart(
        series,
        title="2D key points, kNN, mean of four sets",
        x_label="camera turned by, degrees",
        y_label="top-1, %",
    )


def gain() -> str:
    cells = read("halp_gain")["cells"]
    table = {
        name.replace("=", " = ").replace("weight", "μ").replace("hardness", "λ"): {
            method: tuple(round(number, 1) for number in entry["mean of the sets"]["knn"])
            for method, entry in cell["differences"]["joint"].items()
        }
        for name, cell in cells.items()
        if name != "cmd"
    }
    return bars(
        table, title="Less MoCo, kNN, mean of five sets, eight seeds, 95 % interval", y_label="points"
    )


def squeeze() -> str:
    methods = read("halp_gain")["cells"]["base"]["methods"]
    series = {}
    for name, entry in methods.items():
        curve = entry["curves"]["similarity_key_queue"]
        series[name] = (list(range(1, len(curve) + 1)), curve)
    return line_chart(series, title="Similarity of keys to the queue", x_label="epoch", y_label="cosine")


def similarities() -> str:
    curves = read("halp_gain")["cells"]["base"]["methods"]["HaLP"]["curves"]
    names = {
        "similarity_key_query": "real key and query",
        "similarity_positive_query": "hallucinated positive and query",
    }
    series = {title: (list(range(1, len(curves[key]) + 1)), curves[key]) for key, title in names.items()}
    return line_chart(series, title="Similarities while HaLP trains", x_label="epoch", y_label="cosine")


def ntu10() -> str:
    methods = read("ntu10_positives_xsub")["methods"]
    table: dict[str, dict[str, tuple[float, float]]] = {}
    for probe in ("knn", "ridge", "1 %", "5 %", "10 %"):
        for name in ("HaLP", "HaLP, balanced", "true views, balanced"):
            gaps = np.array(methods[name]["accuracies"][probe]) - np.array(
                methods["MoCo"]["accuracies"][probe]
            )
            half = stats.t.ppf(1 - 0.025 / 15, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
            title = {"knn": "kNN", "ridge": "all labels"}.get(probe, f"{probe} of the labels")
            table.setdefault(title, {})[name] = (round(float(gaps.mean()), 1), round(float(half), 1))
    return bars(table, title="Less MoCo, ten classes of NTU-60, five seeds, 95 % interval", y_label="points")


def readout() -> str:
    rows = read("readout")["rows"]
    shown = ("raw, ridge", "untrained GRU, joint, mean", "untrained GRU, joint, thirds-max")
    chosen = {name: rows[name] for name in (*shown, "untrained GRU, motion, thirds-max")}
    table = {
        title: {
            name: (row[key]["test"][0], math.nan if row[key]["test"][1] is None else row[key]["test"][1])
            for name, row in chosen.items()
        }
        for key, title in SETS.items()
        if key != "utkinect"
    }
    return bars(table, title="Nothing trained: only the read-out differs", y_label="ridge, top-1, %")


def methods() -> str:
    groups: dict[str, dict[str, list[float]]] = {}
    for cells in read("all_methods")["cells"].values():
        for cell in cells:
            values = groups.setdefault(cell["encoder"], {"untrained": [], "trained, mean of its methods": []})
            values["untrained"].append(cell["untrained"]["ridge"])
            values["trained, mean of its methods"].append(cell["trained"]["ridge"])
    raw = next(iter(read("all_methods")["cells"].values()))[0]["raw"]["ridge"]
    table = {
        encoder: {
            "raw coordinates": (raw, math.nan),
            **{name: (mean(some), math.nan) for name, some in values.items()},
        }
        for encoder, values in groups.items()
    }
    return bars(table, title="27 methods at 180 steps, NW-UCLA", y_label="ridge, top-1, %")


def repetitions() -> str:
    table = {
        name: {
            title: (entry["all"][key], math.nan)
            for key, title in {"exact": "exact", "off by more than one": "off by more than one"}.items()
        }
        for name, entry in read("repetitions", "benchmarks")["repetitions"].items()
    }
    return bars(table, title="Counted repetitions", y_label="% of the recordings")


def graphs() -> str:
    rows = re.findall(
        r"^\| (\w+) \|.*\| ([-+][\d.]+) ± ([\d.]+) \| [-+]",
        (ROOT / "experiments" / "results" / "graphs" / "graphs.md").read_text(encoding="utf-8"),
        flags=re.M,
    )
    table = {name: {"HaLP − GraphCL": (float(gap), float(half))} for name, gap, half in rows}
    return bars(table, title="Less GraphCL, ten seeds, 95 % interval", y_label="points")


FIGURES: dict[str, Callable[[], str]] = {
    "few-labels": few_labels,
    "training": training,
    "views": views,
    "gain": gain,
    "squeeze": squeeze,
    "similarities": similarities,
    "ntu10": ntu10,
    "readout": readout,
    "methods": methods,
    "repetitions": repetitions,
    "graphs": graphs,
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        (folder / f"{name}.svg").write_text(draw() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
