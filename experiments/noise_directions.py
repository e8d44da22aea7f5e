"""`python -m experiments.noise_directions`: would an encoder survive jitter if the directions that noise moves
were shrunk?

Clips are encoded as recorded and with 5 cm of noise on every coordinate; the directions in which features
move most between the two are shrunk in the closed form of `Invariance`, without labels, for clean and noisy
clips alike. Fitted are they to training clips of the other three Kinect sets, or to clips of `halp demo`.
kNN (k = 1) on the first fold of each set's training part, with a clean gallery and damaged queries; raw
coordinates (one scale) beside it. Writes `results/noise_directions.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.files import kept_arrays, save_results
from experiments.survives import DAMAGES, Array, accuracy, damaged, recorded
from experiments.training_pays import open_stores, open_tasks
from halp.data.synthetic import synthetic_clips
from halp.encoders.kernel_fusion import Invariance
from halp.evaluation import RawCoordinates, embed
from halp.evaluation.results import versions
from halp.features.loading import load_encoder

LEVELS = ("clean", "noise 2 cm", "noise 5 cm", "noise 10 cm")
FITTED, PER_SET = "noise 5 cm", 200  # clips of each set at most that the directions are fitted to
TRIALS = (("other sets", 16), ("other sets", 64), ("demo", 64))


def encoded(frames: list[Array], topology: str, levels: Sequence[str], out: Path) -> dict[str, Array]:
    """Features of clips after each damage, those of `halp-base` and raw coordinates."""
    shipped = load_encoder("halp-base")
    raw = RawCoordinates(shipped.topology, persons=1, normalisation=shipped.normalisation)

    def make() -> dict[str, Array]:
        found = {}
        for name in levels:
            clips = damaged(frames, DAMAGES[name], False)
            for label, encoder in (("halp-base", shipped), ("raw", raw)):
                found[f"{label} {name}"] = embed(encoder, clips, topology=topology, progress=False)
        again = damaged(frames, DAMAGES[FITTED], False, seed=1)
        return {**found, "fit": embed(shipped, again, topology=topology, progress=False)}

    return kept_arrays(out, make)


def shrinking(parts: Sequence[dict[str, Array]], rank: int) -> Invariance:
    """The map that shrinks what noise moves in these clips."""
    views = np.concatenate(
        [np.stack([part["halp-base clean"], part["fit"]])[:, :PER_SET] for part in parts], axis=1
    )
    fitted = Invariance(views.shape[2], rank)
    fitted.fit(torch.from_numpy(views))
    return fitted


def main(arguments: Sequence[str]) -> int:
    """Encode, fit, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/noise-directions"))
    out = parser.parse_args(arguments).out
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    tasks = {task.name: task for task in open_tasks(open_stores(out, None), True)}
    sets: dict[str, dict[str, Array]] = {}
    for name, task in tasks.items():
        frames, rows = recorded(name), np.sort(np.concatenate(task.parts[0]))
        sets[name] = encoded([frames[row] for row in rows], "kinect-v1", LEVELS, out / f"{name}.npz")
    people = [np.asarray(clip.frames)[:, :1] for clip in synthetic_clips(1440)][::4]
    sets["demo"] = encoded(people, "kinect-v2", LEVELS[:1], out / "demo.npz")
    encoder = load_encoder("halp-base")
    found: dict[str, dict[str, dict[str, float]]] = {}

    def measure(label: str, kind: str, one: Any, change: Any) -> None:
        name, task = one
        rows = np.sort(np.concatenate(task.parts[0]))
        train, labels = np.isin(rows, task.parts[0][0]), task.labels[rows]
        reader = RawCoordinates(encoder.topology, persons=1) if kind == "raw" else encoder
        gallery = change(sets[name][f"{kind} clean"][train])
        for level in LEVELS:
            queries = change(sets[name][f"{kind} {level}"][~train])
            found.setdefault(label, {}).setdefault(level, {})[name] = accuracy(
                reader, gallery, queries, labels[train], labels[~train]
            )

    for one in tasks.items():
        measure("raw coordinates", "raw", one, lambda features: features)
        measure("halp-base", "halp-base", one, lambda features: features)
        for source, rank in TRIALS:
            others = [sets[name] for name in tasks if name != one[0]]
            shrunk = shrinking(others if source == "other sets" else [sets["demo"]], rank)
            measure(
                f"{rank} directions, {source}",
                "halp-base",
                one,
                lambda features: shrunk(torch.from_numpy(features)).numpy(),  # noqa: B023
            )
    for label, levels in found.items():
        for row in levels.values():
            row["mean"] = round(float(np.mean(list(row.values()))), 4)
        print(label, {level: row["mean"] for level, row in levels.items()}, flush=True)
    command = "python -m experiments.noise_directions"
    save_results("noise_directions", {"command": command, "versions": versions(), "accuracy": found})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
