"""`python -m experiments.view [--encoder halp-view]`: does an encoder of 2D poses care where the camera
stands?

x and y of the four Kinect sets of `experiments/transfer.py` as their own cameras saw them; training clips at
0°, test clips turned about the vertical by 0, 30, 60 and 90° before they are projected. NW-UCLA is split by
camera (1, 2 → 3), so that 0° is another real camera already; of UTKinect's half splits the first counts.
Features are standardised on the training clips; kNN (k = 1, cosine), ridge (penalty 0.1 × features ÷ clips,
not tuned) and one labelled clip per class (nearest by cosine, 20 draws for each of three seeds). Ridge reads
all numbers of an encoder, the others its compact ones (`VECTORS`, as folds prefer). Beside the encoder: raw
key points; its own architecture with random weights and a random projection, two seeds; the same with
invariance and projection fitted as those of `halp-view`, so that only the lifting network is untrained; and
at 0° `halp-base` in 3D, all numbers. 95 % intervals of paired differences, and of what is lost from 0° to
90°, are hierarchical over seeds, label draws and test people. `--validate` keeps test
clips out: folds over subjects or cameras of the training parts, with both vectors. Cells that are finished
are found again in the folder of
`--out`; empty it for another encoder of the same name. Writes `results/view.json` and `.md`; with `--few`, which leaves
out what takes longest, `view_few`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from experiments.files import DATA, save_results
from experiments.training_pays import gap
from experiments.transfer import SETS, parts_of
from halp.augment import ClipPool, ViewMaker, ViewSettings, build_policy
from halp.core.errors import InputError
from halp.core.initialisation import initialise
from halp.core.packages import find_package
from halp.data.ingest.prepare import prepare
from halp.data.normalise import normalise
from halp.data.store import Store, open_store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.fusion import Projection
from halp.encoders.pretrained import PretrainedEncoder, load_package
from halp.evaluation import RawCoordinates, embed
from halp.evaluation.protocols.knn import neighbours
from halp.evaluation.protocols.ridge import fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.skeleton import get_topology
from halp.tasks.heads import unit

Array = npt.NDArray[Any]
ANGLES = (0, 30, 60, 90)
MEASURES = ("knn", "ridge", "one label")
PLAIN, PARTLY = "the same without training", "lifting untrained, the rest fitted"
# what a measure reads, if there is a choice: for every encoder what its own folds prefer in the mean of the
# angles
VECTOR = {"knn": "compact", "ridge": "all", "one label": "compact"}
VECTORS = {PLAIN: {**VECTOR, "one label": "all"}, PARTLY: VECTOR}
STEPS = ("picture-up", "drop-empty", "picture")
SEEDS, DRAWS, NETWORKS = 3, 20, 2  # label draws of each seed; a random network has a seed of its own
FOLDS = 3
FLAT = get_topology("body-16-2d")
FRAMES = 64
# halp-view before training, without what is fitted to cameras
TWIN: dict[str, Any] = {"name": "lifted", "layers": 2, "stride": 2, "picture_gains": (1.0, 1.0, 1.0)}
# what the untrained encoders are fitted to, and halp-view was trained on, without faults
CAMERAS: tuple[dict[str, Any], ...] = ({"name": "camera"}, {"name": "picture"})


@dataclass(frozen=True)
class Task:
    """One set: clips `(T, 1, 16, 3)` in space, labels, and pairs of training and test clips."""

    name: str
    clips: list[Array]
    labels: Array
    people: Array
    parts: list[tuple[Array, Array]]

    def seen_from(self, angle: float) -> list[Array]:
        """Key points `(T, 1, 16, 2)` after a turn about the vertical."""
        turn = np.deg2rad(angle)
        x = np.array([np.cos(turn), 0.0, np.sin(turn)], dtype=np.float32)
        flat = [np.stack([clip @ x, clip[..., 1]], axis=-1) for clip in self.clips]
        return [
            np.where((clip != 0).any(-1, keepdims=True), points, 0) for clip, points in zip(self.clips, flat)
        ]


Vectors = dict[str, Array]  # "all" numbers of clips, and "compact" where an encoder has a projection to fewer
Embedding = Callable[[Sequence[Array]], Vectors]
Cells = dict[
    int, dict[str, Array]
]  # by angle and measure, which clips are classified rightly `(seeds, draws, clips)`


def open_tasks(folder: Path, *, validate: bool = False) -> list[Task]:
    """The four sets; with `validate` test clips are left out and folds of the training part take their
    place.
    """
    tasks = []
    for name in SETS:
        path = folder / f"{name}-view"
        if not (path / "store.json").exists():
            prepare(
                "interchange",
                DATA / f"{name}.npz",
                path,
                topology="body-16",
                normalisation=("drop-empty",),
                progress=False,
            )
        store = open_store(path)
        train, held = next(parts_of(name, store))
        parts = [(train, held)]
        if validate:
            groups = store.cameras if name == "nw-ucla" else store.subjects
            parts = [(train[fit], train[held]) for fit, held in group_folds(groups[train], FOLDS)]
        tasks.append(
            Task(
                name,
                [np.array(store.clip(i))[:, :1] for i in range(len(store))],
                store.labels,
                store.subjects,
                parts,
            )
        )
    return tasks


def embedding_of(encoder: PretrainedEncoder) -> Embedding:
    """Key points → features, all and compact."""

    def vectors(clips: Sequence[Array]) -> Vectors:
        found = {"all": embed(encoder, clips, progress=False)}
        if encoder.projection:
            projection = Projection(*encoder.projection["matrix"].shape)
            projection.load_state_dict(encoder.projection)
            found["compact"] = projection(torch.from_numpy(found["all"])).numpy()
        return found

    return vectors


def camera_windows(
    corpus: Store,
    count: int,
    frames: int,
    *,
    seed: int = 0,
    views: int = 1,
    augmentations: Sequence[Mapping[str, Any]] = CAMERAS,
) -> torch.Tensor:
    """Training windows of the corpus as some cameras see them, or in space: `(views, count, frames, 1, 16,
    3)`.
    """
    train = np.random.default_rng(seed).permutation(corpus.split("xsub")[0])[:count]
    policy = build_policy(augmentations, "cameras") if augmentations else ()
    names = {f"view-{number}": policy for number in range(views)}
    maker = ViewMaker(ViewSettings(frames=frames), names, corpus.topology, ClipPool.from_store(corpus), seed)
    return torch.stack(list(maker.make(torch.from_numpy(np.sort(train)), 0, 0).values()))


def untrained(
    architecture: Mapping[str, Any], windows: torch.Tensor, frames: int, seed: int = 0
) -> PretrainedEncoder:
    """An encoder with fresh weights, whose kernels and scales are fitted to what cameras saw."""
    settings = {str(key): value for key, value in architecture.items() if key not in ("name", "outputs")}
    torch.manual_seed(seed)
    inner = build_encoder(EncoderSettings(str(architecture["name"]), **settings), FLAT, 1)
    initialise(inner)
    flat = windows[0][..., :2]
    inner.fit(flat)
    return PretrainedEncoder(
        inner,
        FLAT,
        persons=1,
        frames=frames,
        normalisation=STEPS,
        projection=random_projection(inner.output_size),
    ).eval()


def random_projection(inputs: int, outputs: int = 256) -> dict[str, torch.Tensor]:
    """A projection that keeps distances about as they are."""
    matrix = torch.randn(inputs, outputs, generator=torch.Generator().manual_seed(0)) / inputs**0.5
    return {"shift": torch.zeros(inputs), "spread": torch.ones(inputs), "matrix": matrix.half()}


def space_features(task: Task) -> Array:
    """Features of `halp-base` from the clips in space."""
    encoder = load_package(find_package("halp-base") or "halp-base")
    return embed(encoder, task.clips, progress=False)


def right(
    task: Task, gallery: Array, turned: Array, train: Array, held: Array, seeds: Sequence[int]
) -> dict[str, Array]:
    """By measure, which held-out clips are classified rightly: `(seeds, draws, clips)`, 1 where nothing is
    drawn.
    """
    mean, spread = gallery[train].mean(0), gallery[train].std(0)
    spread = np.where(spread < 1e-6, np.inf, spread)
    known, asked = (((x - mean) / spread).astype(np.float32) for x in (gallery[train], turned[held]))
    labels, wanted = task.labels[train], task.labels[held]
    nearest, _ = neighbours(known, asked, 1)
    classes = int(task.labels.max()) + 1
    penalty = 0.1 * known.shape[1] / len(known)
    probe = fit_ridge(known, labels, penalty, classes).predict(asked)
    cosines = unit(asked) @ unit(known).T
    shots = np.empty((len(seeds), DRAWS, len(held)), bool)
    for row, draw in np.ndindex(len(seeds), DRAWS):
        order = np.random.default_rng([seeds[row], draw]).permutation(len(labels))
        first = np.array([order[labels[order] == label][0] for label in np.unique(labels)])
        shots[row, draw] = labels[first][cosines[:, first].argmax(1)] == wanted
    found = {"knn": labels[nearest[:, 0]] == wanted, "ridge": probe == wanted}
    return {name: value[None, None] for name, value in found.items()} | {"one label": shots}


def measure(task: Task, features: Mapping[int, Array], seeds: Sequence[int] = range(SEEDS)) -> Cells:
    """By angle and measure, which clips are classified rightly, over all parts one after the other."""
    cells: Cells = {}
    for angle, turned in features.items():
        rows = [right(task, features[0], turned, train, held, seeds) for train, held in task.parts]
        cells[angle] = {name: np.concatenate([row[name] for row in rows], axis=-1) for name in MEASURES}
    return cells


def measure_both(task: Task, embedding: Embedding, method: str = "") -> dict[str, Cells]:
    """The cells of all numbers and of the compact ones; a random network draws labels with its own seed."""
    seen = {angle: embedding(task.seen_from(angle)) for angle in ANGLES}
    return {
        vector: measure(task, {angle: found[vector] for angle, found in seen.items()}, seeds_of(method))
        for vector in seen[0]
    }


def seeds_of(method: str) -> Sequence[int]:
    """The seeds that a method draws labels with."""
    return [int(method.partition(", seed ")[2])] if ", seed " in method else range(SEEDS)


def chosen(method: str, cells: Mapping[str, Cells]) -> Cells:
    """Every measure on the vector that it is for."""
    vectors = VECTORS.get(method.partition(", seed")[0], VECTOR)
    return {
        angle: {name: cells.get(vectors[name], cells["all"])[angle][name] for name in MEASURES}
        for angle in cells["all"]
    }


def raw_embedding(clips: Sequence[Array]) -> Vectors:
    """Normalised key points of 32 frames."""
    clips = [normalise(clip, FLAT, STEPS) for clip in clips]
    return {"all": embed(RawCoordinates(FLAT, persons=1), clips, progress=False)}


def baselines(corpus: Store | None, partly: bool = True) -> dict[str, Embedding]:
    """What an encoder is compared with; what has to be fitted needs the corpus, and is fitted when it is
    first asked.
    """
    found: dict[str, Embedding] = {"raw key points": raw_embedding}
    if corpus is not None:
        from tools.encoders.halp_view import INVARIANT, fit_cameras  # which need this module

        @cache
        def twin(seed: int, fitted: bool) -> PretrainedEncoder:
            architecture = {**TWIN, "invariant": INVARIANT} if fitted else TWIN
            encoder = untrained(architecture, camera_windows(corpus, 1000, FRAMES), FRAMES, seed)
            if fitted:
                encoder.projection = fit_cameras(encoder.encoder, corpus)
            return encoder

        for fitted, name in ((False, PLAIN), *([(True, PARTLY)] if partly else [])):
            for seed in range(NETWORKS):
                found[f"{name}, seed {seed}"] = lambda clips, which=(seed, fitted): embedding_of(
                    twin(*which)
                )(clips)
    return found


def remembered(path: Path, measured: Callable[[], dict[str, Cells]]) -> dict[str, Cells]:
    """The cells of a method on a set, from the file of an earlier command if it exists: a stopped command
    resumes.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        columns: dict[str, Any] = {
            f"{vector}/{angle}/{name}": value
            for vector, cells in measured().items()
            for angle, row in cells.items()
            for name, value in row.items()
        }
        np.savez_compressed(path, **columns)
    found: dict[str, Cells] = {}
    with np.load(path, allow_pickle=False) as kept:
        for key in kept:
            vector, angle, name = key.split("/")
            found.setdefault(vector, {}).setdefault(int(angle), {})[name] = kept[key]
    return found


def summary(cells: Mapping[str, Mapping[str, Mapping[int, Mapping[str, Array]]]]) -> dict[str, Any]:
    """Accuracies in per cent: method → measure → angle → set and mean."""
    table: dict[str, Any] = {}
    for method, tasks in cells.items():
        angles = next(iter(tasks.values())).keys()
        for name in MEASURES:
            for angle in angles:
                row = {
                    task: round(100 * float(found[angle][name].mean()), 1) for task, found in tasks.items()
                }
                row["mean"] = round(float(np.mean(list(row.values()))), 1)
                table.setdefault(method, {}).setdefault(name, {})[angle] = row
    return table


def merged(cells: Mapping[str, Mapping[str, Cells]]) -> dict[str, dict[str, Cells]]:
    """Seeds of a random network side by side."""
    groups: dict[str, list[Mapping[str, Cells]]] = {}
    for method, tasks in cells.items():
        groups.setdefault(method.partition(", seed")[0], []).append(tasks)
    return {
        method: {
            task: {
                angle: {name: np.concatenate([one[task][angle][name] for one in members]) for name in row}
                for angle, row in found.items()
            }
            for task, found in members[0].items()
        }
        for method, members in groups.items()
    }


def differences(cells: Mapping[str, Mapping[str, Cells]], ours: str, people: Mapping[str, Array]) -> Any:
    """Ours less every other method: method → angle → set and mean → measure → mean, low, high; and what each
    method loses from 0° to 90° in the same way.
    """

    def at(method: str, angle: int) -> dict[str, dict[str, Array]]:
        return {task: found[angle] for task, found in cells[method].items()}

    def first(rows: dict[str, dict[str, Array]], seeds: int) -> dict[str, dict[str, Array]]:
        return {task: {name: value[:seeds] for name, value in row.items()} for task, row in rows.items()}

    def seeds(method: str) -> int:
        return len(at(method, 0)[next(iter(people))][MEASURES[-1]])

    gaps = {
        method: {
            angle: gap(first(at(ours, angle), seeds(method)), at(method, angle), people, MEASURES)
            for angle in ANGLES
        }
        for method in cells
        if method != ours
    }
    lost = {method: gap(at(method, ANGLES[0]), at(method, ANGLES[-1]), people, MEASURES) for method in cells}
    return gaps, lost


def _numbers(method: str, measure: str) -> str:
    """Which of its numbers a method was read by, in words."""
    one_vector = method in ("raw key points", "halp-base in 3D")
    return "" if one_vector else f" ({VECTORS.get(method, VECTOR)[measure]})"


def markdown(
    table: Mapping[str, Any], gaps: Mapping[str, Any], lost: Mapping[str, Any], ours: str, command: str
) -> str:
    """One table per measure, methods × angles, the four sets in a cell; then differences with intervals."""
    lines = ["# The same movement from another camera, in 2D", ""]
    lines += [
        (
            f"Top-1 in per cent: {' / '.join(SETS)} / mean. Test clips turned by an angle; training clips at"
            " 0°. In brackets which numbers of an encoder were read, all (5,184) or the compact ones (256),"
            " as folds of the training clips prefer."
        ),
        "",
    ]
    for name in MEASURES:
        lines += [
            f"## {name}",
            "",
            f"| method | {' | '.join(f'{angle}°' for angle in ANGLES)} |",
            "| --- |" + " --- |" * 4,
        ]
        for method, measures in table.items():
            row = [
                " / ".join(f"{value:.1f}" for value in measures[name].get(angle, {}).values())
                for angle in ANGLES
            ]
            lines.append(f"| {method}{_numbers(method, name)} | {' | '.join(row)} |")
        lines.append("")
    sets = [*SETS, "mean"]

    def interval_row(label: str, row: Mapping[str, Any], name: str) -> str:
        cells = ["{:+.1f} ({:+.1f} to {:+.1f})".format(*row[task][name]).replace("-", "−") for task in sets]
        return f"| {label} | {' | '.join(cells)} |"

    head = [f"| measure, angle | {' | '.join(sets)} |", "| --- |" + " --- |" * len(sets)]
    for method, angles in gaps.items():
        lines += [f"## {ours} less {method}: 95 % intervals over seeds, label draws and people", "", *head]
        lines += [
            interval_row(f"{name}, {angle}°", row, name) for name in MEASURES for angle, row in angles.items()
        ]
        lines.append("")
    lines += [f"## Lost from {ANGLES[0]}° to {ANGLES[-1]}°, with the same intervals", "", *head]
    lines += [
        interval_row(f"{method}, {name}", row, name) for name in MEASURES for method, row in lost.items()
    ]
    lines.append("")
    return "\n".join([*lines, f"`{command}`", ""])


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write `results/view.json` and `.md`."""
    parser = argparse.ArgumentParser(description="An encoder of 2D poses from cameras it has not seen.")
    parser.add_argument(
        "--encoder",
        default="halp-view",
        help="a package or the name of a shipped encoder; empty: baselines only",
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        help="store of `tools.encoders.corpus --unturned`, for baselines that are fitted",
    )
    parser.add_argument("--few", action="store_true", help="without the slow row and halp-base")
    parser.add_argument(
        "--validate", action="store_true", help="folds of the training parts only, printed as JSON"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/view"), help="where stores go")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    try:
        encoder = load_package(find_package(options.encoder) or options.encoder) if options.encoder else None
        tasks = open_tasks(options.out, validate=options.validate)
        corpus = open_store(options.corpus) if options.corpus else None
    except InputError as error:
        console.print(f"{error}; data is looked for in HALP_SHARED/data")
        return 2
    ours = Path(options.encoder).name
    compared = baselines(corpus, not options.few) | ({} if encoder is None else {ours: embedding_of(encoder)})
    part = "folds" if options.validate else "test"

    def kept(method: str, task: Task) -> Path:
        return options.out / "cells" / f"{method}-{task.name}-{part}.npz".replace(" ", "_")

    cells: dict[str, dict[str, Cells]] = {}
    for method, embedding in compared.items():
        for task in tasks:
            found = remembered(kept(method, task), lambda: measure_both(task, embedding, method))  # noqa: B023
            rows = (
                {f"{method}, {v}": part for v, part in found.items()}
                if options.validate
                else {method: chosen(method, found)}
            )
            for row, measured in rows.items():
                cells.setdefault(row, {})[task.name] = measured
            console.print(
                f"{method}, {task.name}", summary({method: {task.name: chosen(method, found)}})[method]
            )
    for task in [] if options.few else tasks:
        found = remembered(
            kept("halp-base in 3D", task), lambda task=task: {"all": measure(task, {0: space_features(task)})}
        )
        cells.setdefault("halp-base in 3D", {})[task.name] = found["all"]
    cells = merged(cells)
    table = summary(cells)
    if options.validate:
        print(json.dumps(table, indent=1))
        return 0
    if encoder is None:
        return 0
    people = {task.name: task.people[task.parts[0][1]] for task in tasks}
    flat = {method: found for method, found in cells.items() if method != "halp-base in 3D"}
    gaps, lost = differences(flat, ours, people)
    command = f"python -m experiments.view --corpus STORE{' --few' * options.few}"
    text = markdown(table, gaps, lost, ours, command)
    print(text)
    save_results(
        "view_few" if options.few else "view",
        {
            "command": command,
            "versions": versions(),
            "vectors": {ours: VECTOR, **VECTORS},
            "accuracy": table,
            "differences": gaps,
            "lost": lost,
        },
        text,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
