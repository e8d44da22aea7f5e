"""`python -m experiments.survives`: what the shipped encoders survive, by kNN with a clean gallery and
damaged queries.

NW-UCLA (views 1, 2 → 3), UTD-MHAD and MSR-Action3D (odd → even subjects) and UTKinect (the first half split).
The test clips are damaged as recordings, in metres, and then made ready for the encoder like any recording.
`halp-view` reads x and y of the same clips. Beside each encoder: itself without its smoothing of jittery
clips, and raw coordinates (one scale) made ready by the same steps. `--training` measures on the first fold
of the training parts. Writes `results/survives.json` and `.md`. `--copies` tries a remedy on these folds: a gallery that also
holds copies of its clips with the same damage (of a movement that is cut, its first and its last half), and
measures what they cost clean queries; writes `results/survives_copies.json`. `--few` measures what smoothing
costs clean clips of the test parts with few labels (ridge on unit vectors, 20 draws for each of three seeds;
hierarchical intervals over draws and people) and writes `results/survives_few.json`. `--steady` puts gallery and
queries through the step `steady` first, on the folds by which its limit was chosen and on the test parts, and
writes `results/survives_steady.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from experiments.files import DATA, save_results
from experiments.hierarchical import hierarchical_interval
from experiments.training_pays import open_stores, open_tasks
from experiments.transfer import SETS, few_right, standardised
from halp.data.clip import Clip
from halp.data.jitter import steady
from halp.data.readers import get_reader
from halp.evaluation import RawCoordinates, embed
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.results import versions
from halp.features.loading import load_encoder
from halp.skeleton import KINECT_V1
from halp.tasks.heads import column_scale

Array = npt.NDArray[Any]
Clips = tuple[Sequence[Array], Array]  # clips and their labels
Damage = Callable[[Array, np.random.Generator], Array]


def _noise(size: float) -> Damage:
    def damage(clip: Array, draw: np.random.Generator) -> Array:
        return np.where((clip != 0).any(-1, keepdims=True), clip + draw.normal(0, size, clip.shape), clip)

    return damage


def _without(*parts: str) -> Damage:
    gone = [row for row, joint in enumerate(KINECT_V1.joints) if any(part in joint for part in parts)]

    def damage(clip: Array, draw: np.random.Generator) -> Array:
        clip = clip.copy()
        clip[:, :, gone] = 0
        return clip

    return damage


def _lost_frames(clip: Array, draw: np.random.Generator) -> Array:
    return clip * (draw.random(clip.shape[:3]) > 0.3)[..., None]


def _lost_joints(clip: Array, draw: np.random.Generator) -> Array:
    kept: Array = np.asarray(draw.random(clip.shape[2]) > 0.3)
    kept[
        [
            KINECT_V1.index(name)
            for name in ("hip_center", "shoulder_center", "shoulder_left", "shoulder_right")
        ]
    ] = True
    return clip * kept[:, None]


def _mirrored(clip: Array, draw: np.random.Generator) -> Array:
    return clip[:, :, KINECT_V1.mirror] * np.array([-1, 1, 1])


def _tilted(clip: Array, draw: np.random.Generator) -> Array:
    sine, cosine = np.sin(np.pi / 6), np.cos(np.pi / 6)
    return clip @ np.array([[1, 0, 0], [0, cosine, sine], [0, -sine, cosine]])


LIMBS = ("hip_", "knee", "ankle", "foot")
DAMAGES: dict[str, Damage] = {
    "clean": lambda clip, draw: clip,
    "noise 2 cm": _noise(0.02),
    "noise 5 cm": _noise(0.05),
    "noise 10 cm": _noise(0.1),
    "30 % of joint-frames lost": _lost_frames,
    "30 % of joints never seen": _lost_joints,
    "half the frame rate": lambda clip, draw: clip[::2],
    "legs missing": _without("knee", "ankle", "foot"),
    "right arm and leg missing": _without("elbow_right", "wrist_right", "hand_right", "knee_right", "ankle_right", "foot_right"),
    "mirrored": _mirrored,
    "tilted by 30°": _tilted,
    "ends half-way": lambda clip, draw: clip[: max(4, len(clip) // 2)],
}  # fmt: skip


def _last_half(clip: Array, draw: np.random.Generator) -> Array:
    return clip[-max(4, len(clip) // 2) :]


NOISE = ("clean", "noise 2 cm", "noise 5 cm", "noise 10 cm")
COPIED: dict[str, tuple[Damage, ...]] = {
    name: (DAMAGES[name],)
    for name in ("noise 5 cm", "noise 10 cm", "legs missing", "right arm and leg missing", "mirrored")
} | {"ends half-way": (DAMAGES["ends half-way"], _last_half)}


def readers(flat: bool) -> dict[str, Any]:
    """The shipped encoder of 3D or 2D clips, without its smoothing, and raw coordinates."""
    name = "halp-view" if flat else "halp-base"
    shipped, rough = load_encoder(name), load_encoder(name)
    rough.encoder.steady = 0.0
    raw = RawCoordinates(shipped.topology, persons=1, normalisation=shipped.normalisation)
    return {
        name: shipped,
        f"{name} without smoothing": rough,
        f"raw coordinates, {'2D' if flat else '3D'}": raw,
    }


def damaged(clips: Sequence[Array], damage: Damage, flat: bool, seed: int = 0) -> list[Array]:
    """Clips after a damage; of 2D ones x and y alone."""
    draw = np.random.default_rng(seed)
    found = [damage(clip, draw).astype(np.float32) for clip in clips]
    return [clip[..., :2] for clip in found] if flat else found


def accuracy(encoder: Any, gallery: Array, queries: Array, labels: Array, wanted: Array) -> float:
    """kNN, k = 1, cosine, features standardised on the gallery."""
    mean, scale = gallery.mean(0), column_scale(gallery, isinstance(encoder, RawCoordinates))
    guess = knn_predict((gallery - mean) / scale, labels, (queries - mean) / scale)
    return round(100 * float((guess == wanted).mean()), 4)


def survived(encoder: Any, frames: Sequence[Array], task: Any, flat: bool) -> dict[str, float]:
    """Accuracy of test clips after every damage, with a clean gallery."""
    how: dict[str, Any] = {"topology": "kinect-v1-2d" if flat else "kinect-v1", "progress": False}
    train, test = task.parts[0]
    gallery = embed(encoder, damaged([frames[row] for row in train], DAMAGES["clean"], flat), **how)
    found = {}
    for label, damage in DAMAGES.items():
        queries = embed(encoder, damaged([frames[row] for row in test], damage, flat), **how)
        found[label] = accuracy(encoder, gallery, queries, task.labels[train], task.labels[test])
    return found


def markdown(result: dict[str, Any]) -> str:
    """A table per number of dimensions: damages × encoders, mean of the sets."""
    lines = ["# What the encoders survive", "", "kNN, top-1 in per cent, mean of the four sets.", ""]
    methods = list(result["mean"])
    lines += [f"| | {' | '.join(methods)} |", "| --- |" + " --- |" * len(methods)]
    for name in DAMAGES:
        cells = [f"{result['mean'][method][name]:.1f}" for method in methods]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"`{result['command']}`", ""])


def with_copies(encoder: Any, gallery: Clips, queries: Clips, flat: bool, **how: Any) -> dict[str, Any]:
    """Accuracy of damaged and of clean queries with a gallery as recorded, and with damaged copies beside
    it.
    """

    def vectors(clips: Clips, damage: Damage, seed: int) -> Array:
        return np.asarray(embed(encoder, damaged(clips[0], damage, flat, seed), **how))

    plain, clean = (vectors(part, DAMAGES["clean"], 0) for part in (gallery, queries))
    found: dict[str, Any] = {"clean": accuracy(encoder, plain, clean, gallery[1], queries[1])}
    for name, copies in COPIED.items():
        asked = vectors(queries, DAMAGES[name], 0)
        both = np.concatenate([plain, *(vectors(gallery, copy, 1) for copy in copies)])
        labels = np.tile(gallery[1], 1 + len(copies))
        found[name] = {
            "as recorded": accuracy(encoder, plain, asked, gallery[1], queries[1]),
            "with copies": accuracy(encoder, both, asked, labels, queries[1]),
            "clean, with copies": accuracy(encoder, both, clean, labels, queries[1]),
        }
    return found


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """What a file holds, made once."""
    path = path.with_name(path.name.replace(" ", "_"))
    if not path.exists():
        path.write_text(json.dumps(make()), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def try_copies(tasks: dict[str, Any], out: Path, console: Console) -> int:
    """The remedy, for both encoders and raw coordinates."""
    found: dict[str, dict[str, Any]] = {}
    for name, task in tasks.items():
        frames, (train, test) = recorded(name), task.parts[0]
        for flat in (False, True):
            for method, encoder in readers(flat).items():
                if "without" not in method:
                    how: dict[str, Any] = {
                        "topology": "kinect-v1-2d" if flat else "kinect-v1",
                        "progress": False,
                    }
                    parts = [([frames[row] for row in rows], task.labels[rows]) for rows in (train, test)]
                    make = partial(with_copies, encoder, *parts, flat, **how)
                    found.setdefault(method, {})[name] = kept(out / f"copies-{name}-{method}.json", make)
                    console.print(name, method, found[method][name])
    data = {"command": "python -m experiments.survives --copies", "versions": versions(), "sets": found}
    save_results("survives_copies", data)
    return 0


def made_steady(encoder: Any, frames: Sequence[Array], task: Any) -> dict[str, Any]:
    """Accuracy of noisy test clips, as recorded and after the step `steady`; and the share of clean clips
    that it changes.
    """
    train, test = task.parts[0]
    found: dict[str, Any] = {}
    for name, step in (("as recorded", lambda clip: clip), ("steady", steady)):

        def vectors(rows: Array, level: str) -> Array:
            clips = damaged([frames[row] for row in rows], DAMAGES[level], False)
            made = [step(clip) for clip in clips]  # noqa: B023
            return np.asarray(embed(encoder, made, topology="kinect-v1", progress=False))

        gallery = vectors(train, "clean")
        for level in NOISE:
            found.setdefault(level, {})[name] = accuracy(
                encoder, gallery, vectors(test, level), task.labels[train], task.labels[test]
            )
    clean = damaged([frames[row] for row in test], DAMAGES["clean"], False)
    found["changed"] = round(100 * float(np.mean([steady(clip) is not clip for clip in clean])), 4)
    return found


def try_steady(stores: dict[str, Any], out: Path, console: Console) -> int:
    """The step, for `halp-base` and raw coordinates, on folds and test parts."""
    found: dict[str, Any] = {}
    for part in ("folds", "test"):
        for task in open_tasks(stores, part == "folds"):
            for method, encoder in readers(False).items():
                if "without" not in method:
                    make = partial(made_steady, encoder, recorded(task.name), task)
                    row = kept(out / f"steady-{part}-{task.name}-{method}.json", make)
                    found.setdefault(part, {}).setdefault(method, {})[task.name] = row
                    console.print(part, task.name, method, row)
        for row in found[part].values():
            sets = list(row.values())
            row["mean"] = {
                level: {
                    way: round(float(np.mean([one[level][way] for one in sets])), 4)
                    for way in ("as recorded", "steady")
                }
                for level in NOISE
            }
            console.print(part, row["mean"])
    command = "python -m experiments.survives --steady"
    save_results("survives_steady", {"command": command, "versions": versions(), "accuracy": found})
    return 0


def with_few_labels(tasks: dict[str, Any], stores: dict[str, Any]) -> dict[str, Any]:
    """Accuracy with few labels, smoothed and not, and the paired difference, by set."""
    found: dict[str, Any] = {}
    for name, task in tasks.items():
        train, test = task.parts[0]
        shipped, rough, _ = readers(False).values()
        vectors = [
            standardised(embed(encoder, stores[name], progress=False), train) for encoder in (shipped, rough)
        ]
        for shots in (1, 5, 10):
            smoothed, not_smoothed = (
                np.stack(
                    [
                        few_right(one, task.labels, train, test, shots, [(seed, draw) for draw in range(20)])
                        for seed in range(3)
                    ]
                )
                * 100.0
                for one in vectors
            )
            gap = hierarchical_interval(smoothed - not_smoothed, np.asarray(stores[name].subjects)[test])
            found.setdefault(name, {})[f"{shots} per class"] = {
                "smoothed": round(float(smoothed.mean()), 4),
                "not smoothed": round(float(not_smoothed.mean()), 4),
                "difference": gap.to_json(),
            }
            print(name, shots, found[name][f"{shots} per class"], flush=True)
    return found


def recorded(name: str) -> list[Array]:
    """The clips of a set as they were recorded."""
    path, reader = DATA / f"{name}.npz", get_reader("interchange")
    return [
        np.asarray(clip.frames)
        for item in reader.items(path)
        for clip in reader.read(item)
        if isinstance(clip, Clip)
    ]


def main(arguments: Sequence[str]) -> int:
    """Damage, encode, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--training", action="store_true", help="the first fold of the training parts only")
    parser.add_argument("--copies", action="store_true", help="on these folds, a gallery with damaged copies")
    parser.add_argument("--steady", action="store_true", help="with the step `steady`, folds and test parts")
    parser.add_argument("--few", action="store_true", help="what smoothing costs with few labels")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/survives"), help="where stores and what was measured go"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    options.out.mkdir(parents=True, exist_ok=True)
    stores = open_stores(options.out, None)
    tasks = {task.name: task for task in open_tasks(stores, options.training or options.copies)}
    if options.steady:
        return try_steady(stores, options.out, console)
    if options.few:
        sets = with_few_labels(tasks, stores)
        command = "python -m experiments.survives --few"
        save_results("survives_few", {"command": command, "versions": versions(), "sets": sets})
        return 0
    if options.copies:
        return try_copies(tasks, options.out, console)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in SETS:
        frames, task = recorded(name), tasks[name]
        for flat in (False, True):
            for method, encoder in readers(flat).items():
                path = options.out / f"{name}-{method}{'-fold' * options.training}.json"
                row = kept(path, partial(survived, encoder, frames, task, flat))
                for label, score in row.items():
                    found.setdefault(method, {}).setdefault(label, {})[name] = score
                console.print(name, method, row)
    mean = {
        method: {label: round(float(np.mean(list(row.values()))), 4) for label, row in rows.items()}
        for method, rows in found.items()
    }
    command = f"python -m experiments.survives{' --training' * options.training}"
    result = {"command": command, "versions": versions(), "mean": mean, "sets": found}
    text = markdown(result)
    print(text)
    if not options.training:
        save_results("survives", result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
