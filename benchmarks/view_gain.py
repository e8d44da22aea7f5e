"""`python -m benchmarks.view_gain STORE`: does HaLP help where there is an invariance to learn?

The two views of a window are two virtual cameras (`halp.augment.cameras`). A small GRU is trained on a fixed draw of CMU
windows (`benchmarks.corpus --unturned`) by MoCo, by HaLP as published and by HaLP with the balanced pull; the three share seed
and warm-up, and none was tuned. Frozen encoders are judged as in `benchmarks/view.py`: four Kinect sets, x and y, test
clips turned by 0 to 90°, kNN, ridge and one label per class. Differences are paired by seed; intervals are Student's at 95 %,
corrected for the number of cells of a table (Bonferroni). Finished runs are found again. Writes `results/view_gain.json` and
`.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.baselines import save_results
from benchmarks.halp_gain import ENCODER, FRAMES, draw_store, untrained
from benchmarks.view import ANGLES, FLAT, MEASURES, STEPS, Array, Task, measure, open_tasks
from halp.analysis.paired_difference import paired_difference
from halp.clips.normalise import normalise
from halp.clips.store import Store, open_store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import embed
from halp.evaluation.results import versions
from halp.training import open_run, pretrain
from halp.training.recipe import recipe_from_dict

CLIPS, WARM_UP, EPOCHS = 2048, 6, 12
PULLS: dict[str, bool | None] = {"MoCo": None, "HaLP": False, "HaLP, balanced": True}
CAMERAS = [
    {"name": "crop-resize", "min": 0.5, "frames": 16},
    {"name": "camera"},
    {"name": "jitter"},
    {"name": "joint-mask", "joints": 0.1},
    {"name": "picture"},
]


def settings(seed: int, balanced: bool | None) -> dict[str, Any]:
    """The recipe of a run; `balanced` is HaLP's pull, None without HaLP."""
    recipe: dict[str, Any] = {
        "terms": ["infonce"], "split": "all", "seed": seed, "epochs": EPOCHS, "batch_size": 128,
        "views": {"frames": FRAMES, "augmentations": CAMERAS}, "encoder": ENCODER,
        "contrast": {"queue": 2048, "momentum": 0.99},
        "optimiser": {"learning_rate": 0.1, "schedule": "cosine"},
        "saving": {"checkpoint_epochs": WARM_UP, "keep": EPOCHS, "log_every": 32},
    }  # fmt: skip
    if balanced is not None:
        recipe |= {"terms": ["infonce", "halp"], "halp": {"start_epoch": WARM_UP, "negatives": balanced}}
    return recipe


def train(store: Store, seed: int, folder: Path) -> dict[str, PretrainedEncoder]:
    """MoCo, and HaLP with both pulls from its warm-up."""
    encoders = {}
    for method, balanced in PULLS.items():
        path = folder / f"{method.replace(', ', '-').lower()}-seed{seed}"
        if not (path / "finished").exists():
            warm = folder / f"moco-seed{seed}" / "checkpoints"
            fork = None if balanced is None or path.exists() else min(warm.iterdir())
            recipe = recipe_from_dict(settings(seed, balanced))
            pretrain(recipe, store, path, resume=path.exists(), fork=fork, progress=False)
            (path / "finished").touch()
        encoders[method] = open_run(path).encoder("joint")
    return encoders


def seen(task: Task) -> dict[int, list[Array]]:
    """Clips `(T, 1, 16, 3)` from every angle as the encoders were trained: in the picture, without depth."""
    depth = ((0, 0),) * 3 + ((0, 1),)
    return {a: [np.pad(normalise(clip, FLAT, STEPS), depth) for clip in task.seen_from(a)] for a in ANGLES}


def judged(encoder: PretrainedEncoder, tasks: Mapping[str, tuple[Task, dict[int, list[Array]]]]) -> dict[str, Any]:
    """Set → measure → angle → accuracy in per cent."""
    encoder.normalisation = []
    table: dict[str, Any] = {}
    for name, (task, clips) in tasks.items():
        cells = measure(task, {angle: embed(encoder, clips[angle], progress=False) for angle in ANGLES})
        table[name] = {
            probe: {str(a): round(100 * float(cells[a][probe].mean()), 2) for a in ANGLES} for probe in MEASURES
        }
    return table


def differences(accuracies: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Method → measure → angle, all angles or set → [mean, half width] of its paired gain over MoCo; sets count alike."""

    def figures(method: str, probe: str, sets: Sequence[str], angles: Sequence[int]) -> list[float]:
        return [float(np.mean([run[s][probe][str(a)] for s in sets for a in angles])) for run in accuracies[method]]

    names = list(accuracies["MoCo"][0])
    rows = {f"{angle}°": (names, [angle]) for angle in ANGLES} | {name: ([name], ANGLES) for name in names}
    table: dict[str, Any] = {}
    for method in list(PULLS)[1:]:
        for probe in MEASURES:
            for row, (sets, angles) in {**rows, "all": (names, ANGLES)}.items():
                count = len(MEASURES) * (1 if row == "all" else len(ANGLES))
                ours, base = (figures(one, probe, sets, angles) for one in (method, "MoCo"))
                gain = paired_difference(ours, base, comparisons=count)
                table.setdefault(method, {}).setdefault(probe, {})[row] = [
                    round(gain.mean, 2),
                    None if gain.half_width is None else round(gain.half_width, 2),
                ]
    return table


def markdown(found: Mapping[str, Any]) -> str:
    """Means over seeds and sets, and gains over MoCo."""
    lines = [f"| mean of four sets, {found['seeds']} seeds | {' | '.join(f'{angle}°' for angle in ANGLES)} | all |"]
    lines.append("| --- |" + " --- |" * (len(ANGLES) + 1))
    for probe in MEASURES:
        for method, runs in found["accuracies"].items():
            means = [np.mean([[s[probe][str(a)] for s in run.values()] for run in runs]) for a in ANGLES]
            lines.append(f"| {probe}, {method} | {' | '.join(f'{mean:.1f}' for mean in [*means, np.mean(means)])} |")
        for method, gains in found["differences"].items():
            cells = [gains[probe][row] for row in (*(f"{angle}°" for angle in ANGLES), "all")]
            texts = [f"{mean:+.2f} ± {half or 0:.2f}".replace("-", "−") for mean, half in cells]
            lines.append(f"| {probe}, {method} − MoCo | {' | '.join(texts)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Train, judge, write."""
    parser = argparse.ArgumentParser(description="What HaLP adds where two views are two cameras.")
    parser.add_argument("store", type=Path, help="made by `benchmarks.corpus --unturned`")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/view_gain"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    source = open_store(options.store)
    clips = np.sort(np.random.default_rng(1).permutation(source.split("xsub")[0])[:CLIPS])
    store = draw_store(source, clips, options.out / "store")
    tasks = {task.name: (task, seen(task)) for task in open_tasks(options.out / "sets")}
    accuracies: dict[str, list[Any]] = {}
    for seed in range(options.seeds):
        kept = options.out / f"judged-{seed}.json"
        if not kept.exists():
            encoders = {"untrained": untrained(seed, store), **train(store, seed, options.out)}
            kept.write_text(json.dumps({name: judged(one, tasks) for name, one in encoders.items()}), encoding="utf-8")
        for name, table in json.loads(kept.read_text(encoding="utf-8")).items():
            accuracies.setdefault(name, []).append(table)
    found = {
        "protocol": "benchmarks/view_gain.py: two virtual cameras as the two views, paired by seed, common warm-up",
        "settings": {"clips": CLIPS, "warm_up": WARM_UP, "epochs": EPOCHS, "encoder": ENCODER, "frames": FRAMES},
        "seeds": options.seeds,
        "accuracies": accuracies,
        "differences": differences(accuracies),
        "versions": versions(),
    }
    page = markdown(found)
    save_results("view_gain", found, page + "\n")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
