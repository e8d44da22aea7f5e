"""`python -m benchmarks.reweighting CMU --ntu NTU`: soft closed-form invariance, full rank, on the features of `halp-base`.

`benchmarks.invariance` kept the few directions that views move least, and lost. Here nothing is dropped: features `x` become
`(S / mean + a)^(−p/2) x`, where `S` is the covariance between views of one CMU window (`views`), the total covariance
(`total`: whitening, which needs no views) or a mixture of both. Views are those that `halp-base` was trained with, or
motion capture made to look like a Kinect: noise that grows towards hands and feet, other bones, lost frames, missing joints,
a tilt, normalised again as recordings are. Held-out CMU subjects decide: the mean of kNN and of one label per class, on
windows as they are and as a Kinect would see them. The chosen map alone meets the test clips of the four Kinect sets and of
NTU-10 (prepared as `benchmarks.ntu10` asks). The same encoder without training goes through the same trials of its own.
Every trial goes to `results/reweighting.json`; what was encoded is kept in `--out`, so that a stopped command resumes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from benchmarks.baselines import save_results
from benchmarks.invariance import few, knn
from benchmarks.transfer import open_tasks
from rich.console import Console
from torch import Tensor

from halp.augment import ClipPool, ViewMaker, centre_views
from halp.augment.base import AugmentationBase, Drawn, ViewShape, register_augmentation, uniform
from halp.augment.policy import ViewSettings, build_policy
from halp.core.initialisation import initialise
from halp.data.store import Store, open_store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import embed
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.features.loading import load_encoder
from halp.skeleton import Topology
from halp.training.recipe import load_recipe

Array = npt.NDArray[Any]
MOST = {"train": 200, "held": 100}  # labelled windows of a class, of which half of all are walking
LEAST = 10  # held-out windows of a class that counts
FITTED = 2000  # windows that scales are fitted to, as those of `halp-base`
RIDGE_CLIPS = 2000  # of NTU-10, for ridge with all labels
MIXTURES = {"views": 0.0, "views and total": 0.3, "total": 1.0}
FLOORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
POWERS = (0.5, 1.0)
DRAWS = 10


@dataclass(frozen=True)
class KinectNoiseSettings:
    """Standard deviations in sizes of a bone (about 25 cm): of the trunk, and what each joint further out adds."""

    trunk: float = 0.03
    outward: float = 0.02


@register_augmentation("kinect-noise", KinectNoiseSettings)
class KinectNoise(AugmentationBase[KinectNoiseSettings]):
    """Noise that grows towards hands and feet, half of it slow; then centred and scaled again, as recordings are."""

    def __init__(self, settings: KinectNoiseSettings, topology: Topology) -> None:
        super().__init__(settings, topology)
        self.parents, self.centre = list(topology.parents), topology.index(topology.centre or topology.joints[0])
        depth = []
        for joint in range(len(topology)):
            steps, here = 0, joint
            while self.parents[here] != here:
                here, steps = self.parents[here], steps + 1
            depth.append(steps)
        self.sigma = settings.trunk + settings.outward * torch.tensor(depth)
        self.bones = [joint for joint in range(len(topology)) if self.parents[joint] != joint]

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        fast, slow = torch.randn(2, *shape, generator=generator)
        slow = torch.nn.functional.avg_pool1d(slow.transpose(1, -1).flatten(0, -2)[:, None], 9, 1, 4).view(
            shape.batch, shape.coordinates, shape.persons, shape.joints, shape.frames
        )
        noise = (fast + 3 * slow.permute(0, 4, 2, 3, 1)) / 2**0.5
        return {"noise": noise * uniform(0.3, 1.0, shape.batch, 1, 1, 1, 1, generator=generator)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        clips = clips + drawn["noise"] * self.sigma[:, None] * (clips != 0).any(1, keepdim=True)
        clips = clips - clips[:, :, :, self.centre : self.centre + 1]
        bones = (clips[:, :, 0] - clips[:, :, 0, self.parents])[:, :, self.bones].norm(dim=3)
        return clips / bones.median(1).values.mean(1)[:, None, None, None, None].clamp_min(1e-6)


KINECT = [
    {"name": "crop-resize", "min": 0.6, "frames": 16},
    {"name": "lost-frames", "frames": 0.6},
    {"name": "bone-lengths", "min": 0.85, "max": 1.15},
    {"name": "rotation", "amplitude": 0.2},
    {"name": "kinect-noise"},
    {"name": "joint-mask", "joints": 0.15, "probability": 0.2},
]


def policies(frames: int) -> dict[str, ViewSettings]:
    """How views are made: as `halp-base` was trained, and as a Kinect sees."""
    trained = load_recipe("cmu-moco", [f"views.frames={frames}"]).views
    return {"as trained": trained, "Kinect": replace(trained, augmentations=build_policy(KINECT, "Kinect"))}


@torch.inference_mode()
def encode_views(encoder: Any, store: Store, settings: ViewSettings, clips: Array, views: int, path: Path) -> Array:
    """Features `(n, views, F)`, kept in a file."""
    if not path.exists():
        maker = ViewMaker(settings, {"view": None}, store.topology, ClipPool.from_store(store), 0)
        pieces = [
            torch.stack([encoder(maker.make(rows, view, batch)["view"]) for view in range(views)], dim=1).half()
            for batch, rows in enumerate(torch.from_numpy(clips).split(128))
        ]
        np.save(path, torch.cat(pieces).numpy())
    return np.asarray(np.load(path), dtype=np.float32)


def plain_base() -> PretrainedEncoder:
    """`halp-base` without its invariance: its GRU and its kernels, as they were in 0.2.0."""
    encoder = load_encoder("halp-base")
    encoder.encoder.invariance = torch.nn.Identity()
    return encoder


def untrained(seed: int, store: Store) -> PretrainedEncoder:
    """`halp-base` with a fresh GRU and without invariance; scales are fitted to CMU windows, as its own were."""
    encoder = plain_base()
    torch.manual_seed(seed)
    for module in encoder.encoder.modules():
        if isinstance(module, torch.nn.GRU):
            module.reset_parameters()
    initialise(encoder.encoder)
    windows = np.sort(np.random.default_rng(seed).permutation(store.split("xsub")[0])[:FITTED])
    encoder.encoder.fit(centre_views(ClipPool.from_store(store), torch.from_numpy(windows), encoder.frames))
    return encoder


def covariances(views: Array) -> tuple[Tensor, Tensor]:
    """Between views of one clip, and in total: `(F, F)` each."""
    x = torch.from_numpy(views)
    flat = (x - x.mean((0, 1))).flatten(0, 1)
    within = (x - x.mean(1, keepdim=True)).flatten(0, 1)
    count, number, _ = x.shape
    return within.T @ within / (count * (number - 1)), flat.T @ flat / len(flat)


@dataclass(frozen=True)
class Spectrum:
    """Directions of a covariance and their variances, whose mean is 1."""

    name: str
    variances: Tensor
    axes: Tensor

    def weights(self, floor: float, power: float) -> Array:
        return ((self.variances + floor) ** (-power / 2)).numpy()


def spectra(views: dict[str, Array], folder: Path) -> Iterator[Spectrum]:
    """All covariances of the grid, each decomposed once."""
    for policy, features in views.items():
        for title, share in MIXTURES.items():
            if title == "total" and policy != "as trained":
                continue
            path = folder / f"{policy} {title}.pt"
            if not path.exists():
                within, total = covariances(features)
                mixed = (1 - share) * within / within.trace() + share * total / total.trace()
                variances, axes = torch.linalg.eigh(mixed * len(mixed))
                torch.save({"variances": variances.clamp_min(0), "axes": axes}, path)
            yield Spectrum(f"{title}, {policy}", **torch.load(path))


def labelled_windows(store: Store, draws: np.random.Generator) -> tuple[Array, Array, int]:
    """Windows of known class, their labels, and how many of them, the first, are of training subjects."""
    train, held = store.split("xsub")
    labels = np.asarray(store.labels)
    classes = [label for label in np.unique(labels[labels >= 0]) if (labels[held] == label).sum() >= LEAST]
    gallery, queries = (
        np.concatenate([draws.permutation(side[labels[side] == label])[:most] for label in classes])
        for side, most in ((train, MOST["train"]), (held, MOST["held"]))
    )
    rows = np.concatenate([gallery, queries])
    return rows, np.unique(labels[rows], return_inverse=True)[1], len(gallery)


def decide(sides: Sequence[Array], labels: Array, gallery: int) -> dict[str, float]:
    """kNN and one label per class on windows of held-out subjects, of every kind of view; `score` is their mean."""
    train, test = np.arange(gallery), np.arange(gallery, len(labels))
    found: dict[str, float] = {}
    for kind, features in zip(("clean", "Kinect"), sides):
        found[f"kNN, {kind}"] = knn(features, labels, train, test)
        found[f"one label, {kind}"] = few(features, labels, train, test, 1, draws=DRAWS)
    found["score"] = float(np.mean(list(found.values())))
    return {name: round(value, 2) for name, value in found.items()}


def measure(
    features: Array, labels: Array, groups: Array, parts: Sequence[tuple[Array, Array]], ridge_clips: int | None = None
) -> dict[str, float]:
    """kNN, one, five and ten labels per class, and ridge with a validated penalty: means over the parts."""
    figures: dict[str, list[float]] = {}
    classes = int(labels.max()) + 1
    for train, test in parts:
        figures.setdefault("knn", []).append(knn(features, labels, train, test))
        for shots in (1, 5, 10):
            score = few(features, labels, train, test, shots, draws=DRAWS)
            figures.setdefault(f"{shots} per class", []).append(score)
        fitted = train if ridge_clips is None else np.random.default_rng(0).choice(train, ridge_clips, replace=False)
        folds = group_folds(groups[fitted], 5)
        penalty, _ = choose_ridge_penalty(features[fitted], labels[fitted], folds, classes)
        guess = fit_ridge(features[fitted], labels[fitted], penalty, classes).predict(features[test])
        figures.setdefault("ridge", []).append(100 * float((guess == labels[test]).mean()))
    return {name: round(float(np.mean(values)), 2) for name, values in figures.items()}


def kept(path: Path, encoder: PretrainedEncoder, source: Any) -> Array:
    """Features of all clips of a store, from a file where they were made before."""
    if not path.exists():
        np.save(path, embed(encoder, source, progress=False))
    return np.asarray(np.load(path), dtype=np.float32)


def main(arguments: Sequence[str]) -> int:
    """Fit, choose on CMU, test once, write."""
    parser = argparse.ArgumentParser(description="Soft closed-form invariance on the features of halp-base.")
    parser.add_argument("store", type=Path, help="made by benchmarks/corpus.py")
    parser.add_argument("--ntu", type=Path, help="NTU-10")
    parser.add_argument("--windows", type=int, default=9000)
    parser.add_argument("--views", type=int, default=3)
    parser.add_argument("--twins", type=int, default=2, help="untrained encoders")
    parser.add_argument("--no-test", action="store_true", help="choose only")
    parser.add_argument("--out", type=Path, default=Path("runs/reweighting"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console, store = Console(stderr=True), open_store(options.store)
    draws = np.random.default_rng(0)
    clips = np.sort(draws.choice(store.split("xsub")[0], options.windows, replace=False))
    rows, labels, gallery = labelled_windows(store, draws)
    command = f"python -m benchmarks.reweighting CMU --ntu NTU --twins {options.twins}"
    result: dict[str, Any] = {"command": command, "versions": versions()}
    names = ["halp-base", *(f"untrained, seed {seed}" for seed in range(options.twins))]
    for name in names:
        folder = options.out / name
        folder.mkdir(parents=True, exist_ok=True)
        encoder = plain_base() if name == "halp-base" else untrained(int(name[-1]), store)
        one = replace_persons(encoder)
        made = policies(encoder.frames)
        views = {
            policy: encode_views(one, store, settings, clips, options.views, folder / f"{policy}.npy")
            for policy, settings in made.items()
        }
        console.print(f"{name}: encoded")
        seen = encode_views(one, store, made["Kinect"], rows, 1, folder / "seen.npy")[:, 0]
        sides = [kept(folder / "cmu.npy", one, store)[rows], seen]
        kept_trials = folder / "trials.json"
        known = json.loads(kept_trials.read_text(encoding="utf-8")) if kept_trials.exists() else {}
        known.setdefault("none", decide(sides, labels, gallery))
        maps: dict[str, tuple[Spectrum, float, float]] = {}
        for spectrum in spectra(views, folder):
            turned = [side @ spectrum.axes.numpy() for side in sides]
            for floor, power in itertools.product(FLOORS, POWERS):
                label = f"{spectrum.name}, a = {floor:g}, p = {power:g}"
                maps[label] = spectrum, floor, power
                if label not in known:
                    mapped = [(side * spectrum.weights(floor, power)) @ spectrum.axes.numpy().T for side in turned]
                    known[label] = decide(mapped, labels, gallery)
                    kept_trials.write_text(json.dumps(known), encoding="utf-8")
                    console.print(f"{name}: {label}: {known[label]}")
        trials = [{"map": label, **scores} for label, scores in known.items()]
        best = max(trials[1:], key=lambda trial: trial["score"])["map"]
        console.print(f"{name}: chosen {best}")
        entry: dict[str, Any] = {"chosen": best, "trials": trials, "test": {}}
        result[name] = entry
        save_results("reweighting", result)
        if options.no_test:
            continue
        spectrum, floor, power = maps[best]
        matrix = (spectrum.axes * torch.from_numpy(spectrum.weights(floor, power))) @ spectrum.axes.T
        tests: list[tuple[str, Any, Array, Array, Any, int | None]] = [
            (task.name, task.stores["body-16"], task.labels, task.groups, task.parts, None)
            for task in open_tasks(options.out / "sets")
        ]
        if options.ntu:
            ntu = open_store(options.ntu)
            for split, groups in (("xsub", ntu.subjects), ("xview", ntu.cameras)):
                tests.append((f"ntu10 {split}", ntu, ntu.labels, groups, [ntu.split(split)], RIDGE_CLIPS))
        for title, source, truth, groups, parts, ridge_clips in tests:
            features = kept(folder / f"{title.partition(' ')[0]}.npy", encoder, source)
            entry["test"][title] = {
                kind: measure(some, np.asarray(truth), np.asarray(groups), parts, ridge_clips)
                for kind, some in (("as it is", features), ("with the map", features @ matrix.numpy()))
            }
            console.print(f"{name}, {title}: {entry['test'][title]}")
            save_results("reweighting", result)
    return 0


def replace_persons(encoder: PretrainedEncoder) -> PretrainedEncoder:
    """The encoder for one person, which is what CMU windows hold; a second one costs as much time again."""
    return PretrainedEncoder(
        encoder.encoder,
        encoder.topology,
        stream=encoder.stream,
        persons=1,
        frames=encoder.frames,
        normalisation=encoder.normalisation,
    ).eval()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
