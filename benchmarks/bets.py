"""`python -m benchmarks.bets CMU`: three bets on a better GRU for `halp-base`, trained on motion capture, one seed each.

CMU is the store of `benchmarks/corpus.py`. Motion capture made to look like a Kinect instead of the views of the recipe; a
short tuning from there, towards the nearest past clip or hallucinated positives; and masked prediction: whitened kernel
features of the clean window from a noised one of which half the joints are hidden. Each GRU is measured alone and beside the
fixed kernels, as in `halp-base`, on windows of held-out CMU subjects as they are and as a Kinect would see them, and on
folds of the training parts of the four Kinect sets. Test clips are met only by a trial that gains the point that its bet
was about on held-out CMU subjects. Every trial goes to `results/bets.json`; what is finished is found again in `--out`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from benchmarks.baselines import save_results
from benchmarks.halp_base import FITTED
from benchmarks.invariance import Array, centres, knn, probe
from benchmarks.reweighting import encode_views, labelled_windows, plain_base, policies, replace_persons, untrained
from benchmarks.transfer import Task, open_tasks, validated
from halp.augment import ClipPool, ViewMaker, centre_views
from halp.augment.policy import build_policy
from halp.data.store import Store, open_store
from halp.encoders import build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import embed
from halp.evaluation.results import versions
from halp.training import open_run, pretrain
from halp.training.recipe import load_recipe

EPOCHS, TUNED = 9, 3
NEEDED = 1.0  # point
COMPONENTS = 256  # of the kernel features that are predicted
GRU = 1152  # columns of the GRU in the features of halp-base; kernels follow
DEGRADED = [
    {"name": "lost-frames", "frames": 0.6},
    {"name": "bone-lengths", "min": 0.85, "max": 1.15},
    {"name": "rotation", "amplitude": 0.2},
    {"name": "noise", "sigma": 0.08},
]
KINECT = [
    {"name": "crop-resize", "min": 0.6, "frames": 16},
    *DEGRADED,
    {"name": "joint-mask", "joints": 0.15, "probability": 0.2},
]
HIDDEN = [{"name": "crop-resize", "min": 0.95, "frames": 16}, *DEGRADED, {"name": "joint-mask", "joints": 0.5}]
ENCODER = ['encoder={name="fusion",hidden=96,layers=2,gains=[0.3,0.3,1.5,0.0,0.0]}', 'split="xsub"']


@dataclass(frozen=True)
class Trial:
    """A way to train the GRU, the trial it has to beat, and the measures that its bet is about."""

    recipe: str = ""
    settings: tuple[str, ...] = ()
    start: str = ""
    beats: str = ""
    measures: tuple[str, ...] = ()


def toml(steps: Sequence[dict[str, Any]]) -> str:
    """Steps as they stand in a recipe.

    >>> toml([{"name": "noise", "sigma": 0.1}])
    '[{name="noise",sigma=0.1}]'
    """
    return f"[{','.join('{' + ','.join(f'{key}={json.dumps(value)}' for key, value in step.items()) + '}' for step in steps)}]"


TRIALS = {
    "untrained": Trial(),
    "recipe": Trial("cmu-moco", (f"epochs={EPOCHS}",)),
    "kinect": Trial(
        "cmu-moco", (f"epochs={EPOCHS}", f"views.augmentations={toml(KINECT)}"), "", "recipe", ("knn", "5 per class")
    ),
    **{
        positives: Trial(
            "small-tune", (f"epochs={TUNED}", f'tune.positives="{positives}"', *ENCODER), "kinect", "kinect", ("knn",)
        )
        for positives in ("neighbour", "hallucinated")
    },
    "masked": Trial("masked", (), "", "untrained", ("knn", "ridge")),
}


def trained(name: str, store: Store, folder: Path) -> dict[str, Tensor]:
    """The weights of the GRU of a trial, trained where it is not finished."""
    trial, path = TRIALS[name], folder / name
    if name == "masked":
        if not path.with_suffix(".pt").exists():
            torch.save(predict_kernels(store), path.with_suffix(".pt"))
        return dict(torch.load(path.with_suffix(".pt")))
    if not (path / "finished").exists():
        init = folder / trial.start if trial.start and not path.exists() else None
        pretrain(load_recipe(trial.recipe, trial.settings), store, path, resume=path.exists(), init=init)
        (path / "finished").touch()
    return dict(open_run(path).encoder("joint").encoder.state_dict())


def predict_kernels(store: Store, epochs: int = EPOCHS, batch: int = 64) -> dict[str, Tensor]:
    """A GRU that predicts whitened kernel features of clean windows from noised ones with hidden joints."""
    recipe, pool = load_recipe("cmu-moco", []), ClipPool.from_store(store)
    clips = torch.from_numpy(np.sort(store.split("xsub")[0]))
    clean = torch.from_numpy(centres(replace_persons(plain_base()), pool, clips.numpy())).float()[:, GRU:]
    torch.manual_seed(0)
    parts = torch.pca_lowrank(clean, COMPONENTS)[0]
    targets = parts * len(parts) ** 0.5
    student = build_encoder(recipe.encoder, store.topology, 1).train()
    head = nn.Linear(student.output_size, COMPONENTS)
    maker = ViewMaker(
        replace(recipe.views, augmentations=build_policy(HIDDEN, "masked")), {"view": None}, store.topology, pool, 0
    )
    parameters = [*student.parameters(), *head.parameters()]
    steps = len(clips) // batch
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, total_steps=epochs * steps)
    for epoch in range(epochs):
        total = 0.0
        for step, rows in enumerate(torch.randperm(len(clips))[: steps * batch].split(batch)):
            guess = head(student(maker.make(clips[rows], epoch, step)["view"]))
            loss = nn.functional.smooth_l1_loss(guess, targets[rows])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 3.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
        Console(stderr=True).print(f"masked: epoch {epoch + 1}, loss {total / steps:.4f}")
    return dict(student.state_dict())


def beside_kernels(weights: dict[str, Tensor] | None, store: Store) -> PretrainedEncoder:
    """`halp-base` with these weights of its GRU (fresh ones without), scales fitted to CMU windows as its own were."""
    if weights is None:
        return untrained(0, store)
    encoder = plain_base()
    encoder.encoder.load_state_dict({**encoder.encoder.state_dict(), **weights})
    windows = np.sort(np.random.default_rng(0).permutation(store.split("xsub")[0])[:FITTED])
    encoder.encoder.fit(centre_views(ClipPool.from_store(store), torch.from_numpy(windows), encoder.frames))
    return encoder


def validate(sides: dict[str, Array], labels: Array, groups: Array, gallery: int) -> dict[str, float]:
    """kNN, one and five labels per class and ridge on held-out subjects; means of windows as they are and as a Kinect sees."""
    halves = [(np.arange(gallery), np.arange(gallery, len(labels)))]
    found = {kind: probe(features, labels, groups, halves) for kind, features in sides.items()}
    figures = {f"{name}, {kind}": value for kind, part in found.items() for name, value in part.items()}
    return figures | {
        name: round(float(np.mean([part[name] for part in found.values()])), 2) for name in found["clean"]
    }


def on_folds(task: Task, features: Array) -> dict[str, float]:
    """Ridge and kNN on folds of the training part."""
    train = task.parts[0][0]
    nearest = float(np.mean([knn(features, task.labels, train[a], train[b]) for a, b in task.folds(train)]))
    return {"ridge": round(validated(task, features, train)[1], 2), "knn": round(nearest, 2)}


def gain(found: dict[str, Any], name: str) -> dict[str, Any]:
    """What a trial gains beside the kernels on held-out subjects by the measures of its bet, and whether it is enough.

    >>> sides = {one: {"GRU and kernels": {"held-out CMU": {"knn": knn}}} for one, knn in (("kinect", 50.0), ("neighbour", 50.5))}
    >>> gain(sides, "neighbour")
    {'over': 'kinect', 'knn': 0.5, 'met': False}
    """
    trial = TRIALS[name]
    ours, other = (found[one]["GRU and kernels"]["held-out CMU"] for one in (name, trial.beats))
    gains = {measure: round(ours[measure] - other[measure], 2) for measure in trial.measures}
    met = float(np.mean(list(gains.values()))) if name == "kinect" else min(gains.values())
    return {"over": trial.beats, **gains, "met": met >= NEEDED}


def main(arguments: Sequence[str]) -> int:
    """Train, validate, test what passed, write."""
    parser = argparse.ArgumentParser(description="Three bets on a better GRU for halp-base.")
    parser.add_argument("store", type=Path, help="made by benchmarks/corpus.py")
    parser.add_argument("--out", type=Path, default=Path("runs/bets"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console, store = Console(stderr=True), open_store(options.store)
    options.out.mkdir(parents=True, exist_ok=True)
    rows, labels, gallery = labelled_windows(store, np.random.default_rng(0))
    groups, tasks = np.asarray(store.subjects)[rows], open_tasks(options.out / "sets")
    result: dict[str, Any] = {"command": "python -m benchmarks.bets CMU", "versions": versions(), "seeds": 1}
    found: dict[str, Any] = {}
    result |= {"epochs": {"tuned": TUNED, "others": EPOCHS}, "trials": found, "bets": {}, "test": {}}

    def features_of(name: str, task: Task) -> Path:
        return Path(options.out / f"{name} {task.name}.npy")

    for name, trial in TRIALS.items():
        path = options.out / f"{name}.json"
        if not path.exists():
            encoder = beside_kernels(trained(name, store, options.out) if trial.recipe else None, store)
            one = replace_persons(encoder)
            views = policies(encoder.frames)["Kinect"]
            seen = encode_views(one, store, views, rows, 1, options.out / f"{name} seen.npy")[:, 0]
            sides = {"clean": centres(one, ClipPool.from_store(store), rows), "Kinect": seen}
            figures: dict[str, Any] = {}
            for task in tasks:
                np.save(features_of(name, task), embed(encoder, task.stores["body-16"], progress=False))
            for kind, columns in (("GRU", slice(GRU)), ("GRU and kernels", slice(None))):
                cut = {side: features[:, columns] for side, features in sides.items()}
                folds = {task.name: on_folds(task, np.load(features_of(name, task))[:, columns]) for task in tasks}
                figures[kind] = {"held-out CMU": validate(cut, labels, groups, gallery), "folds": folds}
            path.write_text(json.dumps(figures), encoding="utf-8")
        found[name] = json.loads(path.read_text(encoding="utf-8"))
        console.print(f"{name}: {found[name]}")
        if trial.beats:
            result["bets"][name] = gain(found, name)
            console.print(f"{name}: {result['bets'][name]}")
        if trial.beats and result["bets"][name]["met"]:
            for task in tasks:
                for tested in (trial.beats, name):
                    figures = probe(np.load(features_of(tested, task)), task.labels, task.groups, task.parts)
                    result["test"].setdefault(tested, {})[task.name] = figures
            console.print(f"{name}: {result['test']}")
        save_results("bets", result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
