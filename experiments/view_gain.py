"""`python -m experiments.view_gain STORE`: does HaLP help if there is an invariance to learn?

The two views of a window are two virtual cameras (`halp.augment.cameras`). A small GRU is trained on a fixed
draw of CMU windows (`tools.encoders.corpus --unturned`) by MoCo, by HaLP as published and by HaLP with the
balanced pull; the three share seed and warm-up, and none was tuned. Frozen encoders are judged as in
`experiments/view.py`: four Kinect sets, x and y, test clips turned by 0 to 90°, kNN, ridge and one label per
class. Differences are paired by seed; intervals are Student's at 95 %, corrected for the number of cells of a
table (Bonferroni). Finished runs are found again. Writes `results/view_gain.json` and `.md`.

`--trials` is another question: could these methods, or VICReg, have trained `halp-view`? An early-fusion GRU
is trained on all training windows by each of them, the two views being two cameras with the faults of
estimators (`recipes/cmu-view.toml`), and the lifting network of `halp-view` for as many epochs. Test clips
are kept out (`experiments.view --validate`). All numbers are read and 256 compact ones, fitted as those of
`halp-view`; a method's measure counts by the vector with the better mean of the angles. Writes its entry of
`results/view_trials.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit
import torch

from experiments.files import RESULTS, save_results
from experiments.halp_gain import ENCODER, FRAMES, draw_store, untrained
from experiments.view import (
    ANGLES,
    FLAT,
    MEASURES,
    STEPS,
    Array,
    Cells,
    Embedding,
    Task,
    camera_windows,
    embedding_of,
    measure,
    measure_both,
    open_tasks,
    remembered,
    summary,
)
from halp.data.normalise import normalise
from halp.data.store import Store, open_store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import embed
from halp.evaluation.analysis.paired_difference import paired_difference
from halp.evaluation.results import versions
from halp.training import open_run, pretrain
from halp.training.recipe import load_recipe, recipe_from_dict
from tools.encoders.halp_view import camera_features, fit_compact, packaged

CLIPS, WARM_UP, EPOCHS = 2048, 6, 12
PULLS: dict[str, bool | None] = {"MoCo": None, "HaLP": False, "HaLP, balanced": True}
CAMERAS = [
    {"name": "crop-resize", "min": 0.5, "frames": 16},
    {"name": "camera"},
    {"name": "jitter"},
    {"name": "joint-mask", "joints": 0.1},
    {"name": "picture"},
]
DEPTH = ((0, 0),) * 3 + ((0, 1),)
RECIPES = Path(__file__).parents[1] / "recipes"
TRIAL_EPOCHS, TRIAL_FRAMES = 8, 32  # half of the epochs are the common warm-up of HaLP
TRIAL_ENCODER: dict[str, Any] = {"name": "fusion", "hidden": 64, "layers": 2}
VICREG = {"name": "adam", "learning_rate": 0.001, "schedule": "cosine"}
LIFTING = "lifting"


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


def trial_settings(seed: int) -> dict[str, dict[str, Any]]:
    """The recipes of the trials; HaLP and VICReg with the settings of other recipes, not tuned."""
    crop = {"name": "crop-resize", "min": 0.5, "frames": TRIAL_FRAMES}
    faults = tomlkit.parse((RECIPES / "cmu-view.toml").read_text(encoding="utf-8")).unwrap()["views"][
        "augmentations"
    ]
    common = {
        "split": "xsub", "epochs": TRIAL_EPOCHS, "encoder": TRIAL_ENCODER,
        "views": {"frames": TRIAL_FRAMES, "augmentations": [crop, *faults]},
        "saving": {"checkpoint_epochs": TRIAL_EPOCHS // 2, "keep": TRIAL_EPOCHS, "log_every": 32},
    }  # fmt: skip
    recipes = {method: settings(seed, balanced) | common for method, balanced in PULLS.items()}
    for recipe in recipes.values():
        if "halp" in recipe:
            recipe["halp"]["start_epoch"] = TRIAL_EPOCHS // 2
    plain = {key: value for key, value in recipes["MoCo"].items() if key not in ("terms", "contrast")}
    return {**recipes, "VICReg": plain | {"method": "vicreg", "vicreg": {"width": 512}, "optimiser": VICREG}}


def train(
    store: Store, recipes: Mapping[str, Mapping[str, Any]], seed: int, folder: Path
) -> dict[str, PretrainedEncoder]:
    """Every method by its recipe, HaLP from the warm-up of MoCo."""
    encoders = {}
    for method, chosen in recipes.items():
        path = folder / f"{method.replace(', ', '-').lower()}-seed{seed}"
        if not (path / "finished").exists():
            warm = folder / f"moco-seed{seed}" / "checkpoints"
            fork = min(warm.iterdir()) if "halp" in chosen and not path.exists() else None
            recipe = recipe_from_dict(chosen)
            pretrain(recipe, store, path, resume=path.exists(), fork=fork, progress=False)
            (path / "finished").touch()
        encoders[method] = open_run(path).encoder("joint")
    return encoders


def in_picture(clips: Sequence[Array]) -> list[Array]:
    """Key points `(T, 1, 16, 2)` as the encoders were trained, `(T, 1, 16, 3)` without depth."""
    return [np.pad(normalise(clip, FLAT, STEPS), DEPTH) for clip in clips]


def seen(task: Task) -> dict[int, list[Array]]:
    """Clips in the picture from every angle."""
    return {angle: in_picture(task.seen_from(angle)) for angle in ANGLES}


def judged(
    encoder: PretrainedEncoder, tasks: Mapping[str, tuple[Task, dict[int, list[Array]]]]
) -> dict[str, Any]:
    """Set → measure → angle → accuracy in per cent."""
    encoder.normalisation = []
    table: dict[str, Any] = {}
    for name, (task, clips) in tasks.items():
        cells = measure(task, {angle: embed(encoder, clips[angle], progress=False) for angle in ANGLES})
        table[name] = {
            probe: {str(a): round(100 * float(cells[a][probe].mean()), 2) for a in ANGLES}
            for probe in MEASURES
        }
    return table


def differences(accuracies: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Method → measure → angle, all angles or set → [mean, half width] of its paired gain over MoCo; sets
    count alike.
    """

    def figures(method: str, probe: str, sets: Sequence[str], angles: Sequence[int]) -> list[float]:
        return [
            float(np.mean([run[s][probe][str(a)] for s in sets for a in angles]))
            for run in accuracies[method]
        ]

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
    lines = [
        f"| mean of four sets, {found['seeds']} seeds | {' | '.join(f'{angle}°' for angle in ANGLES)} | all |"
    ]
    lines.append("| --- |" + " --- |" * (len(ANGLES) + 1))
    for probe in MEASURES:
        for method, runs in found["accuracies"].items():
            means = [np.mean([[s[probe][str(a)] for s in run.values()] for run in runs]) for a in ANGLES]
            lines.append(
                f"| {probe}, {method} | {' | '.join(f'{mean:.1f}' for mean in [*means, np.mean(means)])} |"
            )
        for method, gains in found["differences"].items():
            cells = [gains[probe][row] for row in (*(f"{angle}°" for angle in ANGLES), "all")]
            texts = [f"{mean:+.2f} ± {half or 0:.2f}".replace("-", "−") for mean, half in cells]
            lines.append(f"| {probe}, {method} − MoCo | {' | '.join(texts)} |")
    return "\n".join(lines)


def with_compact(encoder: PretrainedEncoder, corpus: Store) -> Embedding:
    """Key points → all numbers of an encoder, and the compact ones fitted as those of `halp-view`."""
    encoder.normalisation = []

    def read(pictures: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(
            embed(encoder, [np.pad(one, DEPTH) for one in pictures.numpy()], progress=False)
        )

    encoder.projection = fit_compact(camera_features(read, corpus), corpus)
    return lambda clips: embedding_of(encoder)(in_picture(clips))


def fresh(corpus: Store, seed: int) -> PretrainedEncoder:
    """The encoder of the trials before training, which knows the means and spreads of its inputs."""
    torch.manual_seed(seed)
    inner: Any = build_encoder(EncoderSettings(**TRIAL_ENCODER), corpus.topology, 1)
    kept, inner.input_norm.momentum = inner.input_norm.momentum, 1.0
    with torch.no_grad():
        inner.train()(camera_windows(corpus, 1000, TRIAL_FRAMES)[0])
    inner.input_norm.momentum = kept
    return PretrainedEncoder(inner, corpus.topology, stream="joint", persons=1, frames=TRIAL_FRAMES).eval()


def trial_embedding(method: str, corpus: Store, seed: int, folder: Path) -> Embedding:
    """A method's encoder, trained where it is not yet; HaLP needs MoCo's run."""
    if method == "untrained":
        return with_compact(fresh(corpus, seed), corpus)
    if method != LIFTING:
        recipes = {method: trial_settings(seed)[method]}
        return with_compact(train(corpus, recipes, seed, folder)[method], corpus)
    path = folder / f"lifting-seed{seed}"
    if not (path / "finished").exists():
        recipe = load_recipe(RECIPES / "cmu-view.toml", [f"epochs={TRIAL_EPOCHS}", f"seed={seed}"])
        pretrain(recipe, corpus, path, resume=path.exists(), progress=False)
        (path / "finished").touch()
    return embedding_of(packaged(path, corpus.path).float())


def better(vectors: Mapping[str, Mapping[str, Mapping[int, float]]]) -> dict[str, dict[str, Any]]:
    """Measure → the vector with the better mean of the angles, and its accuracies."""
    found: dict[str, dict[str, Any]] = {}
    for probe in MEASURES:
        name = max(vectors, key=lambda vector: np.mean(list(vectors[vector][probe].values())))
        found[probe] = {"vector": name, "accuracy": vectors[name][probe]}
    return found


def trials(corpus: Store, seeds: int, folder: Path) -> dict[str, Any]:
    """Train, judge on folds, and write the entry of `results/view_trials.json`."""
    tasks = open_tasks(folder / "sets", validate=True)
    methods = ["untrained", *trial_settings(0), LIFTING]
    runs: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    for seed in range(seeds):
        for method in methods:
            embedding = cache(partial(trial_embedding, method, corpus, seed, folder))
            cells: dict[str, dict[str, Cells]] = {}
            for task in tasks:
                kept = folder / "cells" / f"{method.replace(' ', '_')}-{seed}-{task.name}.npz"
                found = remembered(kept, lambda: measure_both(task, embedding()))  # noqa: B023
                for vector, measured in found.items():
                    cells.setdefault(vector, {})[task.name] = measured
            runs[method].append(summary(cells))
            print(
                method,
                seed,
                {name: row["vector"] for name, row in better(mean_of_sets(runs[method])).items()},
            )
    vectors = {method: mean_of_sets(found) for method, found in runs.items()}
    return {
        "name": "MoCo, HaLP, balanced HaLP and VICReg on two cameras, and lifting, for as many epochs",
        "command": f"python -m experiments.view_gain STORE --trials --seeds {seeds}",
        "recipe": trial_settings(0)["MoCo"],  # the others: `trial_settings`
        "lifting": f"cmu-view, {TRIAL_EPOCHS} epochs, read by the GRU and the kernels of halp-base",
        "seeds": seeds,
        "what_is_read": vectors,
        "better_vector": {method: better(found) for method, found in vectors.items()},
        "versions": versions(),
    }


def mean_of_sets(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[int, float]]]:
    """Vector → measure → angle → accuracy, mean of sets and seeds."""
    return {
        vector: {
            probe: {
                a: round(float(np.mean([run[vector][probe][a]["mean"] for run in runs])), 1) for a in ANGLES
            }
            for probe in MEASURES
        }
        for vector in runs[0]
    }


def save_trial(trial: Mapping[str, Any]) -> None:
    """Put it in the place of an earlier one of its name, or behind the others."""
    found = json.loads((RESULTS / "view_trials.json").read_text(encoding="utf-8"))
    found["trials"] = [one for one in found["trials"] if one["name"] != trial["name"]] + [trial]
    save_results("view_trials", found)


def main(arguments: Sequence[str]) -> int:
    """Train, judge, write."""
    parser = argparse.ArgumentParser(description="What HaLP adds where two views are two cameras.")
    parser.add_argument("store", type=Path, help="made by `tools.encoders.corpus --unturned`")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument(
        "--trials", action="store_true", help="other methods for halp-view, on folds of training clips"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/view_gain"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    source = open_store(options.store)
    if options.trials:
        save_trial(trials(source, options.seeds, options.out / "trials"))
        return 0
    clips = np.sort(np.random.default_rng(1).permutation(source.split("xsub")[0])[:CLIPS])
    store = draw_store(source, clips, options.out / "store")
    tasks = {task.name: (task, seen(task)) for task in open_tasks(options.out / "sets")}
    accuracies: dict[str, list[Any]] = {}
    for seed in range(options.seeds):
        kept = options.out / f"judged-{seed}.json"
        if not kept.exists():
            recipes = {method: settings(seed, balanced) for method, balanced in PULLS.items()}
            encoders = {"untrained": untrained(seed, store), **train(store, recipes, seed, options.out)}
            kept.write_text(
                json.dumps({name: judged(one, tasks) for name, one in encoders.items()}), encoding="utf-8"
            )
        for name, table in json.loads(kept.read_text(encoding="utf-8")).items():
            accuracies.setdefault(name, []).append(table)
    found = {
        "protocol": (
            "experiments/view_gain.py: two virtual cameras as the two views, paired by seed, common warm-up"
        ),
        "settings": {
            "clips": CLIPS,
            "warm_up": WARM_UP,
            "epochs": EPOCHS,
            "encoder": ENCODER,
            "frames": FRAMES,
        },
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
