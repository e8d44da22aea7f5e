"""`python -m benchmarks.view_ceiling`: what labels could add to `halp-view` where cameras are turned.

All numbers of `halp-view` without its invariance are shrunk along what differs within the classes of the *other three* Kinect
sets, each seen from 0, 30, 60 and 90°, (S + floor)^(−1/2): a linear map that knows labels and true turns of the camera, which
`halp-view` does not. It is judged on the set that was left out as in `benchmarks.view`; of two floors the one that is better in
the mean of all cells counts. Writes `results/view_ceiling.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from benchmarks.baselines import save_results
from benchmarks.training_pays import FLOORS, within_classes
from benchmarks.view import ANGLES, MEASURES, measure, open_tasks, summary
from halp.core.errors import InputError
from halp.evaluation import embed
from halp.evaluation.results import versions
from halp.features.loading import load_encoder


def main(arguments: Sequence[str]) -> int:
    """Encode, fit, judge, write."""
    parser = argparse.ArgumentParser(description="What labels of other sets could add to halp-view.")
    parser.add_argument("--out", type=Path, default=Path("runs/view"), help="where stores go")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    try:
        tasks = open_tasks(options.out)
    except InputError as error:
        console.print(f"{error}; data is looked for in HALP_SHARED/data")
        return 2
    encoder = load_encoder("halp-view")
    encoder.encoder.invariance = torch.nn.Identity()
    seen = {
        task.name: {angle: embed(encoder, task.seen_from(angle), progress=False) for angle in ANGLES} for task in tasks
    }
    spreads = {
        task.name: within_classes(np.concatenate(list(seen[task.name].values())), np.tile(task.labels, len(ANGLES)))
        for task in tasks
    }
    cells: dict[str, dict[str, dict[int, dict[str, np.ndarray]]]] = {}
    for task in tasks:
        mean = sum(spread for name, spread in spreads.items() if name != task.name) / (len(tasks) - 1)
        values, axes = (part.numpy() for part in torch.linalg.eigh(torch.from_numpy(mean)))
        values = values.clip(0) / values.mean()
        for floor in FLOORS:
            shrink = ((axes * (values + floor) ** -0.5) @ axes.T).astype(np.float32)
            found = measure(task, {angle: vectors @ shrink for angle, vectors in seen[task.name].items()})
            cells.setdefault(f"floor {floor}", {})[task.name] = found
        console.print(task.name)
    table = summary(cells)
    best = max(table, key=lambda name: sum(table[name][m][a]["mean"] for m in MEASURES for a in ANGLES))
    console.print(best, {m: [table[best][m][a]["mean"] for a in ANGLES] for m in MEASURES})
    command = "python -m benchmarks.view_ceiling"
    save_results("view_ceiling", {"command": command, "versions": versions(), "best": best, "accuracy": table})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
