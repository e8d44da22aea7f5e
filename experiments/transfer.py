"""`python -m experiments.transfer [--encoder halp-base]`: a frozen encoder on sets that it never saw, beside
tuned baselines.

NW-UCLA (views 1, 2 → 3), UTD-MHAD and MSR-Action3D (odd → even subjects) and UTKinect (mean of ten half
splits). One probe for all: ridge (features standardised on the training clips, penalty chosen by folds over
whole subjects or cameras of the training part); kNN (k = 1, cosine of features standardised in the same way)
beside it. Every baseline is a family of candidates of which the same folds choose one per set: raw
coordinates (two layouts), untrained encoders (two architectures, three streams, three seeds each) and
MiniRocket (joints, or joints and motion, 32 or 64 frames). The encoder's own architecture with fresh weights
stands beside it, its invariance left out (few labels: `experiments.few_labels`). `--validate` prints the
accuracies on the folds only and leaves the test clips alone. What is finished is found again in the folder of
`--out`; empty it for another encoder of the same name. Data is looked for in `HALP_SHARED/data` (default `../shared/data`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from benchmarks.minirocket import MiniRocket
from experiments.files import DATA, save_results
from halp.augment import ClipPool, centre_views
from halp.core.errors import InputError
from halp.core.initialisation import initialise
from halp.core.packages import find_package
from halp.data.ingest.prepare import prepare
from halp.data.splits import Split
from halp.data.store import Store, open_store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder, load_package
from halp.evaluation import RawCoordinates, embed
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import Fold, choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import mean_and_std, versions

Array = npt.NDArray[Any]
STEPS = ("drop-empty", "centre", "rotate-mean")
LAYOUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "kinect-v1": ("kinect-v1", STEPS),
    "body-16": ("body-16", (*STEPS, "scale")),
}
SETS = ("nw-ucla", "utd-mhad", "msr-action3d", "utkinect")
FOLDS = 5
UNIT_PENALTY = 0.1  # of ridge on unit vectors: best of 0.1, 0.3 and 1 on folds, trained and untrained, and above class means


@dataclass(frozen=True)
class Task:
    """One set: a store for every layout, labels, and pairs of training and test clips."""

    name: str
    stores: dict[str, Store]
    labels: Array
    groups: Array  # what a split goes by: camera or subject
    parts: list[tuple[Array, Array]]

    def folds(self, train: Array) -> list[Fold]:
        return group_folds(self.groups[train], FOLDS)


@dataclass(frozen=True)
class Candidate:
    """Features of a method on a set; `fit` may look at the training clips, but at no label."""

    name: str
    features: Callable[[Task, Array], Array]
    seeds: int = 1
    scale: str = "each"  # "one" where the features share a unit, as raw coordinates do


def open_tasks(folder: Path) -> list[Task]:
    """The four sets, prepared once."""
    tasks = []
    for name in SETS:
        stores = {}
        for layout, (topology, steps) in LAYOUTS.items():
            path = folder / f"{name}-{layout}"
            if not (path / "store.json").exists():
                prepare(
                    "interchange",
                    DATA / f"{name}.npz",
                    path,
                    topology=topology,
                    normalisation=steps,
                    progress=False,
                )
            stores[layout] = open_store(path)
        store = stores["body-16"]
        groups = store.cameras if name == "nw-ucla" else store.subjects
        tasks.append(Task(name, stores, store.labels, groups, list(parts_of(name, store))))
    return tasks


def parts_of(name: str, store: Store) -> Iterator[tuple[Array, Array]]:
    """Pairs of training and test clips of a set: one, or ten half splits of UTKinect."""
    if name == "nw-ucla":
        rules = [Split("test", "camera", (1, 2), (3,))]
    elif name == "utkinect":
        with np.load(DATA / f"{name}.npz") as data:
            halves = zip(data["split_train_subjects"].tolist(), data["split_test_subjects"].tolist())
        rules = [Split("test", "subject", tuple(train), tuple(test)) for train, test in halves]
    else:
        rules = [Split("test", "subject", (1, 3, 5, 7, 9), (2, 4, 6, 8, 10))]
    for rule in rules:
        yield rule.indices(store.columns)


def _raw(layout: str) -> Candidate:
    def features(task: Task, train: Array) -> Array:
        store = task.stores[layout]
        return embed(RawCoordinates(store.topology, persons=1), store, progress=False)

    return Candidate(f"raw, {layout}", features, scale="one")


def _untrained(label: str, layout: str, stream: str, settings: dict[str, Any], seed: int) -> Candidate:
    def features(task: Task, train: Array) -> Array:
        store = task.stores[layout]
        torch.manual_seed(seed)
        inner = build_encoder(EncoderSettings(**settings), store.topology, 1)
        packaged = PretrainedEncoder(inner, store.topology, stream=stream, persons=1, frames=32)
        if settings["name"] == "fusion":
            calibrate(packaged, store, train)
        return embed(packaged, store, progress=False)

    return Candidate(f"untrained {label}, seed {seed}", features)


def calibrate(encoder: PretrainedEncoder, store: Store, clips: Array) -> None:
    """Give the input normalisation of an untrained encoder the mean and variance of some clips."""
    norm = encoder.encoder.input_norm
    norm.momentum = None
    encoder.encoder.train()
    with torch.no_grad():
        bodies = centre_views(ClipPool.from_store(store), torch.from_numpy(clips), encoder.frames)[:, :, 0]
        encoder.encoder.inputs(bodies)
    encoder.encoder.eval()


def _rocket(motion: bool, frames: int, seed: int) -> Candidate:
    def features(task: Task, train: Array) -> Array:
        store = task.stores["body-16"]
        series = []
        for stream in ("joint", "motion") if motion else ("joint",):
            raw = RawCoordinates(store.topology, stream=stream, persons=1, frames=frames)
            series.append(
                embed(raw, store, progress=False).reshape(len(store), frames, -1).transpose(0, 2, 1)
            )
        x = np.ascontiguousarray(np.concatenate(series, 1))
        return MiniRocket(seed=seed).fit(x[train]).transform(x)

    return Candidate(
        f"MiniRocket {'joints and motion' if motion else 'joints'}, {frames} frames, seed {seed}", features
    )


def _pretrained(name: str) -> Candidate:
    encoder = load_package(find_package(name) or name)

    def features(task: Task, train: Array) -> Array:
        return embed(encoder, task.stores["body-16"], progress=False)

    return Candidate(name, features)


def _twin(name: str, seed: int) -> Candidate:
    """The same architecture, gains, kernels and input statistics with fresh weights: what training itself
    adds.
    """
    encoder = load_package(find_package(name) or name)
    torch.manual_seed(seed)
    for module in encoder.encoder.modules():
        if isinstance(module, torch.nn.GRU):
            module.reset_parameters()
    initialise(encoder.encoder)
    encoder.encoder.invariance = torch.nn.Identity()

    def features(task: Task, train: Array) -> Array:
        store = task.stores["body-16"]
        if hasattr(encoder.encoder, "fit"):  # kernels and scales, which need data but no training
            encoder.encoder.fit(
                centre_views(ClipPool.from_store(store), torch.from_numpy(train), encoder.frames)
            )
        return embed(encoder, store, progress=False)

    return Candidate(f"{Path(name).name} without training, seed {seed}", features)


def families(encoder: str | None, seeds: int) -> dict[str, list[list[Candidate]]]:
    """Methods; each is a list of alternatives to choose between, and each alternative a list of seeds."""
    gru = {"name": "gru", "hidden": 96, "layers": 2, "pooling": "thirds-max"}
    found = {
        "raw coordinates": [[_raw(layout)] for layout in LAYOUTS],
        "untrained encoder": (
            [
                [_untrained(f"GRU, {stream}", "kinect-v1", stream, gru, seed) for seed in range(seeds)]
                for stream in ("joint", "motion", "bone")
            ]
            + [[_untrained("fusion", "body-16", "joint", {"name": "fusion"}, seed) for seed in range(seeds)]]
        ),
        "MiniRocket": [
            [_rocket(motion, frames, seed) for seed in range(seeds)]
            for motion in (False, True)
            for frames in (32, 64)
        ],
    }
    if encoder:
        found[f"{Path(encoder).name} without training"] = [[_twin(encoder, seed) for seed in range(seeds)]]
        found[Path(encoder).name] = [[_pretrained(encoder)]]
    return found


def validated(task: Task, features: Array, train: Array, scale: str = "each") -> tuple[float, float]:
    """The penalty that the folds choose, and their accuracy with it."""
    classes = int(task.labels.max()) + 1
    part = features[train], task.labels[train], task.folds(train), classes
    penalty, accuracies = choose_ridge_penalty(*part, scale=scale)
    return penalty, accuracies[penalty]


def measure(task: Task, alternatives: Sequence[Sequence[Candidate]], test: bool) -> dict[str, Any]:
    """Choose an alternative by the folds of the first training part, then test all its seeds on all parts."""
    first = task.parts[0][0]
    tried = {
        " / ".join(dict.fromkeys(one.name.partition(", seed")[0] for one in seeds)): float(
            np.mean([validated(task, one.features(task, first), first, one.scale)[1] for one in seeds])
        )
        for seeds in alternatives
    }
    best = max(tried, key=lambda name: tried[name])
    found: dict[str, Any] = {
        "validation": {name: round(value, 2) for name, value in tried.items()},
        "chosen": best,
    }
    if not test:
        return found
    chosen = alternatives[list(tried).index(best)]
    runs: list[dict[str, Any]] = []
    for one in chosen:
        for train, held in task.parts:
            features = one.features(task, train)
            part = task, features, train, held, one.scale
            runs.append(_test(*part))
    for key in runs[0]:
        # splits are averaged first: the spread is that of the seeds
        per_seed = np.array([run[key] for run in runs]).reshape(len(chosen), len(task.parts)).mean(1).tolist()
        mean, std = mean_and_std(per_seed)
        found[key] = {
            "mean": round(mean, 2),
            "std": None if std is None else round(std, 2),
            "seeds": len(per_seed),
        }
    return found


def _test(task: Task, features: Array, train: Array, held: Array, scale: str) -> dict[str, float]:
    penalty, _ = validated(task, features, train, scale)
    classes = int(task.labels.max()) + 1
    ridge = fit_ridge(features[train], task.labels[train], penalty, classes, scale).predict(features[held])
    unit = standardised(features, train, scale)
    nearest = knn_predict(unit[train], task.labels[train], unit[held])
    return {"ridge": _accuracy(ridge, task.labels[held]), "knn": _accuracy(nearest, task.labels[held])}


def standardised(features: Array, train: Array, scale: str = "each") -> Array:
    """Unit vectors of features less the mean of the training clips, by their spread; no label is looked
    at.
    """
    mean, spread = features[train].mean(0), features[train].std(0)
    if scale == "one":
        spread = np.where(spread < 1e-6, 0, np.sqrt((spread**2).mean()))
    x = (features - mean) / np.where(spread < 1e-6, np.inf, spread)
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-9), dtype=np.float32)


def few_right(
    unit: Array, labels: Array, train: Array, held: Array, shots: int, draws: Sequence[Any]
) -> Array:
    """Whether each held-out clip is right `(draws, clips)` by ridge on this many labelled unit vectors per
    class; labels are drawn with the seeds in `draws`.
    """
    classes, right = np.unique(labels[train]), []
    for draw in draws:
        order = np.random.default_rng(draw).permutation(train)
        rows = np.concatenate([order[labels[order] == label][:shots] for label in classes])
        wanted = (labels[rows][:, None] == classes).astype(float)
        gram = unit[rows] @ unit[rows].T + UNIT_PENALTY * np.eye(len(rows))
        weights = unit[rows].T @ np.linalg.solve(gram, wanted - wanted.mean(0))
        right.append(classes[(unit[held] @ weights).argmax(1)] == labels[held])
    return np.stack(right)


def correctness(task: Task, one: Candidate) -> Array:
    """How often ridge is right about every clip of the set, over the parts that test it; NaN if none does."""
    right, times = np.zeros(len(task.labels)), np.zeros(len(task.labels))
    classes = int(task.labels.max()) + 1
    for train, held in task.parts:
        features = one.features(task, train)
        penalty, _ = validated(task, features, train, one.scale)
        guess = fit_ridge(features[train], task.labels[train], penalty, classes, one.scale).predict(
            features[held]
        )
        right[held] += guess == task.labels[held]
        times[held] += 1
    return np.divide(right, times, out=np.full(len(right), np.nan), where=times > 0)


def bootstrap_interval(differences: Array, draws: int = 2000) -> tuple[float, float, float]:
    """Mean of differences per clip and the ends of its 95 % interval when clips are drawn again, in per cent.

    >>> bootstrap_interval(np.ones(10))
    (100.0, 100.0, 100.0)
    """
    rows = np.random.default_rng(0).integers(len(differences), size=(draws, len(differences)))
    low, high = np.quantile(differences[rows].mean(1), [0.025, 0.975])
    return 100 * float(differences.mean()), 100 * float(low), 100 * float(high)


def paired_differences(
    encoder: str, tasks: Sequence[Task], found: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, dict[str, list[float]]]:
    """The encoder less the variant of each baseline that validation chose (first seed): set → mean, low,
    high.
    """
    ours_name = Path(encoder).name
    result: dict[str, dict[str, list[float]]] = {}
    for task in tasks:
        ours = correctness(task, _pretrained(encoder))
        for method, alternatives in families(encoder, 1).items():
            if method == ours_name:
                continue
            names = [seeds[0].name.partition(", seed")[0] for seeds in alternatives]
            other = alternatives[names.index(found[method][task.name]["chosen"])][0]
            gaps = (ours - correctness(task, other))[np.isfinite(ours)]
            result.setdefault(method, {})[task.name] = [round(value, 2) for value in bootstrap_interval(gaps)]
    return result


def _accuracy(predicted: Array, labels: Array) -> float:
    return 100 * float((predicted == labels).mean())


def markdown(
    found: dict[str, dict[str, dict[str, Any]]],
    measures: Sequence[str],
    command: str,
    paired: Mapping[str, Mapping[str, Sequence[float]]],
) -> str:
    """One table per measure: methods × sets; and differences to the encoder, clip by clip."""
    lines = [
        "# Transfer to sets that the encoder never saw",
        "",
        "Top-1 in per cent, mean ± standard deviation over seeds.",
        "",
    ]
    for one in measures:
        lines += [f"## {one}", "", f"| method | {' | '.join(SETS)} |", "| --- |" + " --- |" * len(SETS)]
        for method, sets in found.items():
            cells = []
            for name in SETS:
                value = sets[name][one]
                spread = "" if value["std"] is None else f" ± {value['std']:.1f}"
                cells.append(f"{value['mean']:.1f}{spread}")
            lines.append(f"| {method} | {' | '.join(cells)} |")
        lines.append("")
    if paired:
        title = (
            "ridge: the encoder less each method (first seed), 95 % interval when test clips are drawn again"
        )
        lines += [f"## {title}", "", f"| method | {' | '.join(SETS)} |", "| --- |" + " --- |" * len(SETS)]
        for method, gaps in paired.items():
            cells = ["{:+.1f} ({:+.1f} to {:+.1f})".format(*gaps[name]).replace("-", "−") for name in SETS]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join([*lines, f"`{command}`", ""])


def _remembered(
    options: argparse.Namespace, method: str, task: Task, alternatives: Sequence[Sequence[Candidate]]
) -> dict[str, Any]:
    """The result of a method on a set, from its file where it was measured before: a stopped command
    resumes.
    """
    kind = "validation" if options.validate else "test"
    path = options.out / "cells" / f"{method}-{task.name}-{kind}-{options.seeds}.json".replace(" ", "_")
    if path.exists():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    result = measure(task, alternatives, not options.validate)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result), encoding="utf-8")
    return result


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write `results/transfer.json` and `.md`."""
    parser = argparse.ArgumentParser(
        description="A frozen encoder on sets that it never saw, beside tuned baselines."
    )
    parser.add_argument(
        "--encoder", default="halp-base", help="a package or the name of a shipped encoder; empty: none"
    )
    parser.add_argument("--seeds", type=int, default=3, help="of untrained encoders and MiniRocket")
    parser.add_argument("--validate", action="store_true", help="folds of the training part only")
    parser.add_argument("--out", type=Path, default=Path("runs/transfer"), help="where stores go")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    named = "" if options.encoder == parser.get_default("encoder") else f" --encoder {options.encoder}"
    command = f"python -m experiments.transfer{named} --seeds {options.seeds}"
    console = Console(stderr=True)
    try:
        tasks = open_tasks(options.out)
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for method, alternatives in families(options.encoder, options.seeds).items():
            for task in tasks:
                result = _remembered(options, method, task, alternatives)
                found.setdefault(method, {})[task.name] = result
                console.print(f"{method}, {task.name}: {json.dumps(result)}")
    except InputError as error:
        console.print(f"{error}; set HALP_SHARED to the folder that holds data/")
        return 2
    if options.validate:
        print(json.dumps(found, indent=1))
        return 0
    paired = paired_differences(options.encoder, tasks, found) if options.encoder else {}
    text = markdown(found, ["ridge", "knn"], command, paired)
    print(text)
    data = {"command": command, "versions": versions(), "methods": found, "paired": paired}
    save_results("transfer", data, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
