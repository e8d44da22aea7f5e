"""`python -m experiments.ntu10 STORE --seeds 5`: what positives can give, and whether HaLP squeezes the
sphere, on real NTU.

STORE holds the classes A001 to A010 of NTU-60, prepared with `--normalise drop-empty centre rotate-mean
scale`.
`halp reproduce ntu10` is the paper's comparison with the paper's kind of encoder. Here a perceptron on 64
principal components of 16 frames of the most moving person stands in for it, on views that are made once, so
that every question gets paired seeds on a CPU: MoCo warms up, and all methods fork from it. **True
positives** take the place of hallucinated ones in the same loss: the newest keys of the same performance seen
by the other cameras (`views`), or of clips of the same class (`class`), which no method without labels can
reach. Variants change one setting of HaLP each. Only training clips of the split are seen; the probes are
kNN, a ridge classifier with a validated penalty, and ridge on 1, 5 and 10 % of the labels. Writes
`results/ntu10_positives_SPLIT.json`; with `--curve`, HaLP less MoCo over clips and epochs:
`ntu10_curve_SPLIT.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.files import save_results
from experiments.prototype_quality import prototype_quality
from halp.augment import ClipPool, ViewMaker, centre_views
from halp.core.registry import NoSettings
from halp.core.sampling import generator
from halp.data.store import Store, open_store
from halp.encoders import EncoderSettings
from halp.evaluation.analysis.paired_difference import paired_difference
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.extend import BuildContext, StepContext, StreamBatch, register_encoder, register_term
from halp.losses.infonce import log_partition
from halp.methods.halp import HalpSettings
from halp.methods.moco import ContrastSettings, MocoMethod
from halp.methods.momentum import MomentumPair
from halp.methods.queue import KeyQueue
from halp.training.recipe import load_recipe

Array = npt.NDArray[Any]
FRAMES, COPIES, COMPONENTS, BATCH, QUEUE = 16, 8, 64, 64, 2048
WARM_UP, EPOCHS, DROP = 6, 13, 10  # the paper's 200, 450 and 350 in the same order
SHARES = (0.01, 0.05, 0.1)
DRAWS = 3
CURVE = (
    (0.25, 1),
    (0.5, 1),
    (1.0, 1),
    (1.0, 2),
    (1.0, 4),
    (0.25, 4),
)  # share of the clips, times the schedule
CURVES = (
    "similarity_key_query",
    "similarity_key_queue",
    "similarity_positive_query",
    "similarity_positive_queue",
    "kept",
)


@dataclass(frozen=True)
class PerceptronSettings:
    """Width of both layers."""

    width: int = 128


@register_encoder("perceptron", PerceptronSettings)
class Perceptron(nn.Module):
    """Principal components of a whole clip → two layers."""

    def __init__(self, settings: PerceptronSettings, topology: Any, persons: int) -> None:
        super().__init__()
        self.output_size = width = settings.width
        first, second = nn.Linear(COMPONENTS, width), nn.Linear(width, width)
        self.layers = nn.Sequential(first, nn.BatchNorm1d(width), nn.ReLU(), second)

    def forward(self, clips: Tensor) -> Tensor:
        return self.layers(clips.flatten(1))


@dataclass(frozen=True)
class TruthSettings:
    """Whose keys are positives: the same performance in other `views`, or the same `class`; `balanced` pays
    for negatives.
    """

    group: str = "views"
    balanced: bool = False
    start_epoch: int = WARM_UP


@register_term("truth", TruthSettings)
class TruePositives(nn.Module):
    """Eq. 8 with true positives: the mean of the newest keys of the clips that belong together."""

    groups: ClassVar[dict[str, Tensor]] = {}  # name → group of every clip; set before a method is built
    bank: Tensor
    total: Tensor

    def __init__(self, settings: TruthSettings, streams: Sequence[str], temperature: float) -> None:
        super().__init__()
        self.settings, self.temperature = settings, temperature
        self.group = self.groups[settings.group]
        self.register_buffer(
            "bank", torch.zeros(len(self.group), 129)
        )  # the newest key of every clip, and whether it has one
        self.register_buffer("total", torch.zeros(int(self.group.max()) + 1, 129))  # of every group

    def forward(
        self, streams: Mapping[str, StreamBatch], queue: KeyQueue, context: StepContext
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (batch,) = streams.values()
        clips = cast(Tensor, context.clips)
        group = self.group[clips]
        loss, metrics = batch.query.new_zeros(()), {}
        if context.epoch >= self.settings.start_epoch:
            others = self.total[group] - self.bank[clips]
            number = others[:, 128]
            positive = others[:, :128] / number.clamp_min(1)[:, None]
            rows = number > 0.5
            pull = -(batch.query * positive).sum(1) / self.temperature
            if self.settings.balanced:
                pull = pull + log_partition(batch.query, batch.key, queue.keys("joint"), self.temperature)
            loss = (pull * rows).sum() / rows.sum().clamp_min(1)
            if context.log_metrics and bool(rows.any()):
                metrics = {
                    "joint/similarity_positive_query": (batch.query * positive).sum(1)[rows].mean().detach()
                }
        newest = F.pad(batch.key.detach(), (0, 1), value=1.0)
        self.total.index_add_(0, group, newest - self.bank[clips])
        self.bank[clips] = newest
        return loss, metrics


@dataclass(frozen=True)
class Setup:
    """Terms and settings of one method; settings outside `halp` and `truth` need a warm-up of their own."""

    halp: Mapping[str, Any] | None = None
    truth: Mapping[str, Any] | None = None
    contrast: tuple[tuple[str, Any], ...] = ()

    def build(self, store: Store, seed: int) -> MocoMethod:
        sections: dict[str, Any] = {}
        if self.halp is not None:
            sections["halp"] = HalpSettings(**{"start_epoch": WARM_UP, **self.halp})
        if self.truth is not None:
            sections["truth"] = TruthSettings(**self.truth)
        torch.manual_seed(seed)
        contrast = ContrastSettings(**{"queue": QUEUE, "momentum": 0.99, **dict(self.contrast)})
        encoders = {"joint": EncoderSettings("perceptron")}
        draws = torch.Generator().manual_seed(seed)
        context = BuildContext(
            store.topology, 1, FRAMES, encoders, {"infonce": NoSettings(), **sections}, draws
        )
        return MocoMethod(contrast, context)


CORE: dict[str, Setup] = {
    "MoCo": Setup(),
    "HaLP": Setup(halp={}),
    "HaLP, balanced": Setup(halp={"negatives": True}),
    "true views, balanced": Setup(truth={"balanced": True}),
}
MORE: dict[str, Setup] = {
    "true views": Setup(truth={}),
    "same class, balanced": Setup(truth={"group": "class", "balanced": True}),
    "μ = 0.1": Setup(halp={"weight": 0.1}),
    "μ = 0.3": Setup(halp={"weight": 0.3}),
    "λ = 0.4": Setup(halp={"hardness": 0.4}),
    "λ = 1": Setup(halp={"hardness": 1.0}),
    "N = 10": Setup(halp={"prototypes": 10}),
    "N = 40": Setup(halp={"prototypes": 40}),
    "no filter": Setup(halp={"filter": "variant-2"}),
    "hardest only": Setup(halp={"step": "hardest"}),
    "anchor = query": Setup(halp={"anchor": "query"}),
    "mean per anchor first": Setup(halp={"average_over": "anchors"}),
    "K = 1024": Setup(halp={"recent": 1024}),
    "from epoch 4": Setup(halp={"start_epoch": 4}),
    "MoCo, m = 0.999": Setup(contrast=(("momentum", 0.999),)),
    "HaLP, m = 0.999": Setup(halp={}, contrast=(("momentum", 0.999),)),
    "MoCo, queue 512": Setup(contrast=(("queue", 512),)),
    "HaLP, queue 512": Setup(halp={}, contrast=(("queue", 512),)),
    "MoCo, no head": Setup(contrast=(("head", "none"), ("dimension", 128))),
    "HaLP, no head": Setup(halp={}, contrast=(("head", "none"), ("dimension", 128))),
    "MoCo, τ = 0.2": Setup(contrast=(("temperature", 0.2),)),
    "HaLP, τ = 0.2": Setup(halp={}, contrast=(("temperature", 0.2),)),
}


@dataclass
class Trainer:
    """A method, its optimiser and what it logged."""

    method: MocoMethod
    optimiser: torch.optim.SGD
    curves: dict[str, list[float | None]]

    @classmethod
    def start(cls, method: MocoMethod, parent: Trainer | None = None) -> Trainer:
        """A fresh one, or one that goes on where another stands, with other terms."""
        optimiser = torch.optim.SGD(
            [parameter for parameter in method.parameters() if parameter.requires_grad], lr=0.05, momentum=0.9, weight_decay=1e-4
        )  # fmt: skip
        if parent is None:
            return cls(method, optimiser, {name: [] for name in CURVES})
        method.load_state_dict(parent.method.state_dict(), strict=False)
        optimiser.load_state_dict(parent.optimiser.state_dict())
        return cls(method, optimiser, {name: list(values) for name, values in parent.curves.items()})

    def train(self, views: Tensor, clips: Tensor, epochs: range, seed: int, drop: int = DROP) -> None:
        """Train on views `(n, copies, components)` of the clips `(n,)`; from epoch `drop` on at a tenth of
        the learning rate.
        """
        self.method.train()
        for epoch in epochs:
            for group in self.optimiser.param_groups:
                group["lr"] = 0.05 if epoch < drop else 0.005
            draws = generator(seed, "batches", epoch, 0)
            logged: dict[str, list[float]] = {name: [] for name in CURVES}
            batches = torch.randperm(len(clips), generator=draws)[: len(clips) // BATCH * BATCH].view(
                -1, BATCH
            )
            for step, rows in enumerate(batches):
                first = torch.randint(COPIES, (BATCH,), generator=draws)
                second = (first + torch.randint(1, COPIES, (BATCH,), generator=draws)) % COPIES
                terms = generator(seed, "terms", epoch, step)
                context = StepContext(epoch, terms, log_metrics=step % 8 == 0, clips=clips[rows])
                output = self.method.training_step(
                    {"query": views[rows, first], "key": views[rows, second]}, context
                )
                self.optimiser.zero_grad()
                output.loss.backward()
                self.optimiser.step()
                for name in CURVES:
                    if f"joint/{name}" in output.metrics:
                        logged[name].append(float(output.metrics[f"joint/{name}"]))
            for name, values in logged.items():
                self.curves[name].append(round(float(np.mean(values)), 4) if values else None)


def make_views(store: Store, train: Tensor, path: Path) -> tuple[Tensor, Tensor]:
    """Augmented views `(N, copies, …)` of all clips and their evaluation views `(N, …)`, as components of
    training clips.
    """
    pool = ClipPool.from_store(store)
    pool = ClipPool(pool.frames[:, :1].contiguous(), pool.offsets, pool.lengths, pool.device)
    every = torch.arange(len(store))
    if not path.exists():
        settings = load_recipe("cpu-moco", [f"views.frames={FRAMES}"]).views
        maker = ViewMaker(settings, {"view": None}, store.topology, pool, 0)
        pieces = [
            torch.stack([maker.make(rows, copy, batch)["view"] for copy in range(COPIES)], dim=1)
            for batch, rows in enumerate(every.split(512))
        ]
        np.save(path, torch.cat(pieces).numpy().astype(np.float16))
    views, centre = (
        torch.from_numpy(np.load(path)).float().flatten(2),
        centre_views(pool, every, FRAMES).flatten(1),
    )
    mean = centre[train].mean(0)
    variance, axes = torch.linalg.eigh((centre[train] - mean).T @ (centre[train] - mean) / len(train))
    scaled = axes[:, -COMPONENTS:] / variance[-COMPONENTS:].mean().sqrt()
    return (views - mean) @ scaled, (centre - mean) @ scaled


def probe(features: Array, labels: Array, groups: Array, train: Array, test: Array) -> dict[str, float]:
    """kNN, ridge, and ridge on a share of the labels: accuracies in per cent."""
    classes = int(labels.max()) + 1
    unit = features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-9)
    figures = {"knn": float((knn_predict(unit[train], labels[train], unit[test]) == labels[test]).mean())}
    penalty, _ = choose_ridge_penalty(features[train], labels[train], group_folds(groups[train], 5), classes)
    guess = fit_ridge(features[train], labels[train], penalty, classes).predict(features[test])
    figures["ridge"] = float((guess == labels[test]).mean())
    for share in SHARES:
        right = []
        for draw in range(DRAWS):
            few = np.random.default_rng(draw).choice(train, round(share * len(train)), replace=False)
            guess = fit_ridge(features[few], labels[few], 1.0, classes).predict(features[test])
            right.append(float((guess == labels[test]).mean()))
        figures[f"{100 * share:g} %"] = float(np.mean(right))
    return {name: round(100 * value, 2) for name, value in figures.items()}


@torch.no_grad()
def judge(trainer: Trainer, centre: Tensor, store: Store, split: str) -> dict[str, Any]:
    """Probes, quality of prototypes and curves of a trained method."""
    method = trainer.method.eval()
    pair = cast(MomentumPair, method.pairs["joint"])
    features = pair.query.encoder(centre).numpy()
    train, test = store.split(split)
    labels = np.asarray(store.labels)
    groups = np.asarray(store.subjects if split == "xsub" else store.cameras)
    keys = F.normalize(pair.key(centre[torch.from_numpy(train)]), dim=1)[:2048]
    quality = prototype_quality(
        keys, torch.from_numpy(labels[train][:2048]).long(), generator=torch.Generator().manual_seed(0)
    )
    return {
        "accuracies": probe(features, labels, groups, train, test),
        "curves": trainer.curves,
        "quality": {name: round(value, 4) for name, value in asdict(quality).items()},
    }


def run_seed(
    methods: Mapping[str, Setup],
    views: Tensor,
    centre: Tensor,
    store: Store,
    split: str,
    seed: int,
    folder: Path,
) -> None:
    """Train and judge methods of one seed that are not there yet; those with equal settings of contrast share
    a warm-up.
    """
    clips = torch.from_numpy(store.split(split)[0])
    own = views[clips]
    warm: dict[Any, Trainer] = {}
    for name, setup in methods.items():
        path = folder / f"{split}-seed{seed}-{name.replace('/', ' ')}.json"
        if path.exists():
            continue
        started = time.process_time()
        first = (setup.halp or {}).get("start_epoch", WARM_UP)
        if (setup.contrast, first) not in warm:
            trainer = Trainer.start(Setup(contrast=setup.contrast).build(store, seed))
            trainer.train(own, clips, range(first), seed)
            warm[setup.contrast, first] = trainer
        trainer = Trainer.start(setup.build(store, seed), warm[setup.contrast, first])
        trainer.train(own, clips, range(first, EPOCHS), seed)
        result = judge(trainer, centre, store, split) | {"seconds": round(time.process_time() - started, 1)}
        path.write_text(json.dumps(result), encoding="utf-8")
        Console(stderr=True).print(
            f"{split} seed {seed} {name}: {result['accuracies']}, {result['seconds']} s"
        )


def summarise(folder: Path, split: str) -> dict[str, Any]:
    """Method → accuracies per seed, gain over MoCo with the same contrast, whether that is another gain than
    HaLP's, curves and quality.

    Intervals hold for all gains of `CORE` at once, and for all variants at once.
    """
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for path in sorted(folder.glob(f"{split}-seed*.json")):
        seed, _, name = path.stem.removeprefix(f"{split}-seed").partition("-")
        found.setdefault(name, {})[int(seed)] = json.loads(path.read_text(encoding="utf-8"))
    found = {name: found[name] for name in (*CORE, *MORE) if name in found}
    variants = sum(name in MORE and not name.startswith("MoCo") for name in found)

    def accuracies(name: str, one: str, seeds: Sequence[int]) -> Array:
        return np.array([found[name][seed]["accuracies"][one] for seed in seeds])

    table: dict[str, Any] = {}
    for name, seeds in found.items():
        base = (
            name.replace("HaLP", "MoCo") if name.startswith("HaLP, ") and "balanced" not in name else "MoCo"
        )
        probes = list(next(iter(seeds.values()))["accuracies"])
        entry: dict[str, Any] = {
            "seeds": sorted(seeds),
            "accuracies": {one: accuracies(name, one, sorted(seeds)).tolist() for one in probes},
        }
        paired = sorted({*seeds} & {*found.get(base, {})} & {*found["HaLP"]} & {*found["MoCo"]})
        if name != base and paired:
            comparisons = len(probes) * (len(CORE) - 1 if name in CORE else variants)
            sides = {one: (accuracies(name, one, paired), accuracies(base, one, paired)) for one in probes}
            entry["to"] = base
            entry["differences"] = {
                one: str(paired_difference(ours.tolist(), theirs.tolist(), comparisons=comparisons))
                for one, (ours, theirs) in sides.items()
            }
            if name in MORE and not name.startswith("MoCo"):
                gains = {
                    one: accuracies("HaLP", one, paired) - accuracies("MoCo", one, paired) for one in probes
                }
                entry["differences to the gain of HaLP"] = {
                    one: str(
                        paired_difference(
                            (ours - theirs).tolist(), gains[one].tolist(), comparisons=comparisons
                        )
                    )
                    for one, (ours, theirs) in sides.items()
                }
        runs = list(seeds.values())
        entry["quality"] = {
            key: round(float(np.mean([run["quality"][key] for run in runs])), 3) for key in runs[0]["quality"]
        }
        entry["curves"] = {key: _mean_curve([run["curves"][key] for run in runs]) for key in CURVES}
        table[name] = entry
    return table


def run_curve(
    views: Tensor, centre: Tensor, store: Store, split: str, seeds: int, folder: Path
) -> list[dict[str, Any]]:
    """HaLP less MoCo for shares of the training clips and multiples of the schedule; intervals hold for all
    of them at once.
    """
    train = torch.from_numpy(store.split(split)[0])
    points = []
    gains: list[list[float]] = []
    for share, times in CURVE:
        found: dict[str, list[dict[str, Any]]] = {"MoCo": [], "HaLP": []}
        first, drop, last = times * WARM_UP, times * DROP, times * EPOCHS
        for seed in range(seeds):
            path = folder / f"curve-{split}-{share:g}-{times}-seed{seed}.json"
            if not path.exists():
                order = torch.randperm(len(train), generator=generator(seed, "clips", 0, 0))
                clips = train[order[: round(share * len(train))].sort().values]
                warm = Trainer.start(Setup().build(store, seed))
                warm.train(views[clips], clips, range(first), seed, drop)
                results = {}
                for name, setup in (("MoCo", Setup()), ("HaLP", Setup(halp={"start_epoch": first}))):
                    trainer = Trainer.start(setup.build(store, seed), warm)
                    trainer.train(views[clips], clips, range(first, last), seed, drop)
                    results[name] = judge(trainer, centre, store, split)
                path.write_text(json.dumps(results), encoding="utf-8")
                Console(stderr=True).print(f"{share:g} of the clips, {last} epochs, seed {seed}")
            for name, result in json.loads(path.read_text(encoding="utf-8")).items():
                found[name].append(result)
        ours, theirs = ([run["accuracies"] for run in found[name]] for name in ("HaLP", "MoCo"))
        gains.append([run["1 %"] - base["1 %"] for run, base in zip(ours, theirs)])
        points.append(
            {
                "gain with 1 % less that of each point before": [
                    str(paired_difference(gains[-1], earlier, comparisons=len(CURVE) * (len(CURVE) - 1) // 2))
                    for earlier in gains[:-1]
                ],
                "clips": round(share * len(train)),
                "epochs": last,
                "MoCo": {one: round(float(np.mean([run[one] for run in theirs])), 1) for one in theirs[0]},
                "HaLP less MoCo": {
                    one: str(
                        paired_difference(
                            [run[one] for run in ours],
                            [run[one] for run in theirs],
                            comparisons=len(CURVE) * len(theirs[0]),
                        )
                    )
                    for one in theirs[0]
                },
                "key - queue": {
                    name: round(
                        float(np.mean([run["curves"]["similarity_key_queue"][-1] for run in runs])), 2
                    )
                    for name, runs in found.items()
                },
            }
        )
    return points


def _mean_curve(curves: Sequence[Sequence[float | None]]) -> list[float | None]:
    epochs = [np.array(epoch, dtype=float) for epoch in zip(*curves)]
    return [None if np.isnan(epoch).any() else round(float(epoch.mean()), 3) for epoch in epochs]


def main(arguments: Sequence[str]) -> int:
    """Train what is missing, write."""
    parser = argparse.ArgumentParser(description="What positives can give on ten classes of NTU-60.")
    parser.add_argument("store", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--more-seeds", type=int, default=1, help="seeds of the variants")
    parser.add_argument("--split", default="xsub", choices=("xsub", "xview"))
    parser.add_argument("--curve", action="store_true", help="over training clips and epochs instead")
    parser.add_argument("--out", type=Path, default=Path("runs/ntu10"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    store = open_store(options.store)
    views, centre = make_views(
        store, torch.from_numpy(store.split(options.split)[0]), options.out / "views.npy"
    )
    performances = [name[:4] + name[8:] for name in store.names]  # without the camera
    TruePositives.groups = {
        "views": torch.from_numpy(np.unique(performances, return_inverse=True)[1]),
        "class": torch.from_numpy(np.array(store.labels)).long(),
    }
    train, test = store.split(options.split)
    groups = np.asarray(store.subjects if options.split == "xsub" else store.cameras)
    labels = np.asarray(store.labels)
    if options.curve:
        points = run_curve(views, centre, store, options.split, options.seeds, options.out)
        command = f"python -m experiments.ntu10 STORE --curve --seeds {options.seeds} --split {options.split}"
        save_results(
            f"ntu10_curve_{options.split}", {"command": command, "versions": versions(), "points": points}
        )
        return 0
    baselines = {"principal components": probe(centre.numpy(), labels, groups, train, test)}
    with torch.no_grad():
        pairs = cast(MomentumPair, Setup().build(store, 0).eval().pairs["joint"])
        baselines["untrained"] = probe(pairs.query.encoder(centre).numpy(), labels, groups, train, test)
    work = [(seed, CORE) for seed in range(options.seeds)] + [
        (seed, MORE) for seed in range(options.more_seeds)
    ]
    for seed, methods in work:
        run_seed(methods, views, centre, store, options.split, seed, options.out)
        seeds = f"--seeds {options.seeds} --more-seeds {options.more_seeds}"
        result = {
            "command": f"python -m experiments.ntu10 STORE {seeds} --split {options.split}",
            "versions": versions(),
            "baselines": baselines,
            "methods": summarise(options.out, options.split),
        }
        save_results(f"ntu10_positives_{options.split}", result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
