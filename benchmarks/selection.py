"""`python -m benchmarks.selection`: encoders, read-outs and methods for small sets, each with the same budget for tuning.

Every candidate is trained on the four Kinect sets together for the same number of epochs and tried with the learning rate of
its recipe and with a third of it, one seed each; the mean ridge accuracy on validation splits of the training
parts (view 1 → 2; subjects 1, 5 → 3, 7; 1, 5, 9 → 3, 7) decides. `--test NAME …` trains these candidates with the rate that
was chosen on all training parts with three seeds and reads the test accuracies once, beside the untrained encoders. Learning
curves: validation accuracy at every tenth epoch of the trials, and MoCo on a quarter and on half of the clips. Finished
runs are found again. Writes `results/selection.json` and `.md`. Data is looked for in `HALP_SHARED/data`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.baselines import save_results
from benchmarks.halp_gain import Array, Parts, probe
from benchmarks.real_data import POOLED, SETS, pooled_store, prepared_store
from halp.augment import ClipPool, centre_views
from halp.core.errors import InputError
from halp.data.splits import Split
from halp.data.store import Store, add_split, open_store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import embed
from halp.evaluation.results import mean_and_std, versions
from halp.training import open_run, pretrain
from halp.training.checkpoint import load_checkpoint
from halp.training.recipe import load_recipe
from halp.training.run import Run

RATES = (1.0, 1 / 3)  # times the learning rate of the recipe
TUNED = 10  # epochs of augmentation-free tuning, of all epochs
GEOMETRY = "encoder.gains=[0.3,0.3,1.5,0.3,0.3]"
SHARES = (0.25, 0.5)
PENALTY_NOTE = "penalty by folds over whole subjects or cameras of the fitted clips"


@dataclass(frozen=True)
class Candidate:
    """A recipe with settings; `start` is trained first, and its encoder tuned for the last epochs."""

    recipe: str
    settings: tuple[str, ...] = ()
    start: str = ""


FUSED = ("encoder.name=fusion",)
CANDIDATES: dict[str, Candidate] = {
    "MoCo, mean over thirds": Candidate("cpu-moco", ("encoder.pooling=thirds",)),
    "MoCo": Candidate("cpu-moco"),
    "HaLP": Candidate("cpu-halp"),
    "HaLP, balanced": Candidate("cpu-halp", ("halp.negatives=true",)),
    "PCM3's mix and distillation": Candidate("cpu-moco", ('terms=["infonce","mix","self-distillation"]',)),
    "VICReg": Candidate("small-vicreg", ("encoder.pooling=thirds-max",)),
    "two branches": Candidate("cpu-branches"),
    "early fusion": Candidate("cpu-moco", FUSED),
    "early fusion with geometry": Candidate("cpu-moco", (*FUSED, GEOMETRY)),
    "masked prediction": Candidate("small-masked"),
    "masked, tuned with neighbours": Candidate("small-tune", start="masked prediction"),
    "masked, tuned with hallucinated positives": Candidate(
        "small-tune", ("tune.positives=hallucinated",), start="masked prediction"
    ),
    "MoCo, tuned with hallucinated positives": Candidate(
        "small-tune", ("tune.positives=hallucinated", "encoder.pooling=thirds-max"), start="MoCo"
    ),
}


@dataclass(frozen=True)
class Task:
    """One set: its store and the clips that are fitted to and judged on."""

    name: str
    store: Store
    groups: Array
    parts: Parts


def tasks(folder: Path, *, validation: bool) -> list[Task]:
    """The three sets that are judged, on their validation or test splits."""
    found = []
    for name, (test, other) in SETS.items():
        store = prepared_store(name, folder)
        groups = np.asarray(store.cameras if name == "nw-ucla" else store.subjects)
        found.append(Task(name, store, groups, [store.split(other.name if validation else test)]))
    return found


def recipe_of(name: str, rate: float, epochs: int, split: str, seed: int) -> tuple[str, list[str]]:
    """The recipe of a candidate and its settings at the common budget; what begins late keeps its share of the epochs."""
    candidate = CANDIDATES[name]
    own = load_recipe(candidate.recipe, candidate.settings)
    length = TUNED if candidate.start else epochs
    settings = [*candidate.settings, f"epochs={length}", f"split={split}", f"seed={seed}", "batch_size=64"]
    settings += [
        f"optimiser.learning_rate={own.optimiser.learning_rate * rate:.6g}",
        "saving.checkpoint_epochs=10",
        "saving.keep=99",
    ]
    share = length / own.epochs
    moments = own.flat()
    if milestones := moments.get("optimiser.milestones"):
        settings.append(f"optimiser.milestones={[round(share * one) for one in milestones]}")
    if warmup := moments.get("optimiser.warmup"):
        settings.append(f"optimiser.warmup={warmup * share:.4g}")
    if "halp" in own.term_settings:
        settings.append(f"halp.start_epoch={round(share * own.term_settings['halp'].start_epoch)}")
    if candidate.start.startswith("masked"):
        settings += [
            "encoder.name=transformer",
            "encoder.frames=32",
            "encoder.patch=8",
            "encoder.width=64",
            "encoder.layers=3",
        ]
    return candidate.recipe, settings


def trained(name: str, rate: float, epochs: int, store: Store, split: str, seed: int, folder: Path) -> Run:
    """The run of a candidate, trained where it is not finished."""
    start = CANDIDATES[name].start
    before = trained(start, 1.0, epochs - TUNED, store, split, seed, folder) if start else None
    plain = "".join(letter if letter.isalnum() else "-" for letter in name.lower())
    path = folder / f"{plain}-rate{rate:.2g}-{epochs}-{split}-seed{seed}"
    if not (path / "finished").exists():
        recipe = load_recipe(*recipe_of(name, rate, epochs, split, seed))
        init = None if before is None or path.exists() else before.path
        pretrain(recipe, store, path, resume=path.exists(), init=init, progress=False)
        (path / "finished").touch()
    return open_run(path)


def judge(encoder: PretrainedEncoder, on: Sequence[Task]) -> dict[str, dict[str, float]]:
    """Set → probe → accuracy, with the mean of the sets."""
    found = {
        task.name: probe(embed(encoder, task.store, progress=False), task.store, task.groups, task.parts) for task in on
    }
    means = {one: float(np.mean([probes[one] for probes in found.values()])) for one in ("knn", "ridge")}
    return {**found, "mean": means}


def at_checkpoint(run: Run, path: Path) -> PretrainedEncoder:
    """The encoder as an earlier checkpoint has it."""
    method = run.model()
    method.load_state_dict(load_checkpoint(path).model)
    return run.package(method, "joint", {"trained": True})


def untrained(run: Run) -> PretrainedEncoder:
    """The encoder before its first step, with statistics of the clips in every BatchNorm, which it would lack otherwise."""
    encoder = run.encoder("joint", trained=False)
    store = open_store(run.info["data"]["path"])
    clips = torch.from_numpy(store.split(run.recipe.split)[0])
    norms = [module for module in encoder.modules() if isinstance(module, torch.nn.BatchNorm1d)]
    for norm in norms:
        norm.momentum = None
    encoder.train()
    with torch.no_grad():
        encoder.encoder(centre_views(ClipPool.from_store(store), clips, encoder.frames))
    return encoder.eval()


def remembered(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured before, from its file; else as `measure` gives it."""
    if not path.exists():
        path.write_text(json.dumps(measure()), encoding="utf-8")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def judged_run(run: Run, on: Sequence[Task], kind: str, *, curve: bool = False) -> dict[str, Any]:
    """A run's encoder, the untrained one beside it and, with `curve`, what every tenth epoch has."""

    def measure() -> dict[str, Any]:
        found: dict[str, Any] = {"trained": judge(run.encoder("joint"), on)}
        found["untrained"] = judge(untrained(run), on)
        if curve:
            steps = sorted((run.path / "checkpoints").iterdir())
            found["by checkpoint"] = {one.name: judge(at_checkpoint(run, one), on)["mean"] for one in steps}
        return found

    return remembered(run.path / f"{kind}.json", measure)


def part_of(store: Store, split: str, share: float) -> str:
    """A split of the store whose training part is a fixed share of another one's, made once."""
    name = f"{split}-{share:g}"
    if name not in store.splits:
        train, test = store.split(split)
        kept = np.sort(np.random.default_rng(0).permutation(train)[: round(share * len(train))])
        add_split(
            store.path, Split(name, "name", *(tuple(str(store.names[clip]) for clip in part) for part in (kept, test)))
        )
    return name


def tried(names: Sequence[str], epochs: int, folder: Path, console: Console) -> dict[str, Any]:
    """Both trials of every candidate on the validation splits."""
    store, on = pooled_store(folder / "stores"), tasks(folder / "stores", validation=True)
    found: dict[str, Any] = {}
    for name in names:
        for rate in RATES:
            run = trained(name, rate, epochs, store, POOLED[1], 0, folder / "runs")
            result = judged_run(run, on, "validation", curve=True)
            found.setdefault(name, {})[f"{rate:.2g}"] = result
            console.print(f"{name}, rate × {rate:.2g}: {json.dumps(result['trained'])}")
    return found


def fewer_clips(epochs: int, folder: Path) -> dict[str, Any]:
    """MoCo on shares of the clips, for as many steps."""
    store, on = pooled_store(folder / "stores"), tasks(folder / "stores", validation=True)
    found = {}
    for share in SHARES:
        split = part_of(store, POOLED[1], share)
        store = pooled_store(folder / "stores")
        run = trained("MoCo", 1.0, round(epochs / share), store, split, 0, folder / "runs")
        found[f"{share:g}"] = judged_run(run, on, "validation")
    return found


def tested(trials: Mapping[str, Any], epochs: int, seeds: int, folder: Path, console: Console) -> dict[str, Any]:
    """The better trial of some candidates on the test splits, with several seeds."""
    store, on = pooled_store(folder / "stores"), tasks(folder / "stores", validation=False)
    found: dict[str, Any] = {}
    for name, by_rate in trials.items():
        best = max(by_rate, key=lambda rate: by_rate[rate]["trained"]["mean"]["ridge"])
        rate = RATES[list(by_rate).index(best)]
        runs = [trained(name, rate, epochs, store, POOLED[0], seed, folder / "runs") for seed in range(seeds)]
        results = [judged_run(run, on, "test") for run in runs]
        found[name] = {"rate": best}
        for kind in ("trained", "untrained"):
            found[name][kind] = {
                one: {
                    measure: dict(
                        zip(("mean", "std"), mean_and_std([result[kind][one][measure] for result in results]))
                    )
                    for measure in ("knn", "ridge")
                }
                for one in [*SETS, "mean"]
            }
        console.print(f"{name}: {json.dumps(found[name]['trained'])}")
    return found


def markdown(found: dict[str, Any]) -> str:
    """Trials, curves and test accuracies."""
    columns = [*SETS, "mean"]
    lines = [
        f"# Selection, {found['epochs']} epochs",
        "",
        f"Validation, one seed; {PENALTY_NOTE}; ridge / kNN in per cent.",
        "",
    ]
    lines += [
        f"| candidate | rate | {' | '.join(columns)} | untrained, mean |",
        "| --- |" + " --- |" * (len(columns) + 2),
    ]
    for name, by_rate in found["validation"].items():
        for rate, result in by_rate.items():
            cells = [f"{result['trained'][one]['ridge']:.1f} / {result['trained'][one]['knn']:.1f}" for one in columns]
            other = result["untrained"]["mean"]
            lines.append(f"| {name} | {rate} | {' | '.join(cells)} | {other['ridge']:.1f} / {other['knn']:.1f} |")
    lines += ["", "Learning curves, mean of the validation splits, ridge / kNN:", ""]
    for name, by_rate in found["validation"].items():
        for rate, result in by_rate.items():
            points = [f"{one['ridge']:.1f} / {one['knn']:.1f}" for one in result["by checkpoint"].values()]
            lines.append(f"- {name}, rate {rate}: {', '.join(points)}")
    for share, result in found["fewer clips"].items():
        mean = result["trained"]["mean"]
        lines.append(
            f"- MoCo on {float(share):.0%} of the clips, as many steps: {mean['ridge']:.1f} / {mean['knn']:.1f}"
        )
    if found.get("test"):
        lines += ["", f"Test, {found['seeds']} seeds, the better rate of each; ridge (untrained):", ""]
        lines += [f"| candidate | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
        for name, result in found["test"].items():
            cells = []
            for one in columns:
                value, other = result["trained"][one]["ridge"], result["untrained"][one]["ridge"]
                cells.append(
                    f"{value['mean']:.1f} ± {value['std'] or 0:.1f} ({other['mean']:.1f} ± {other['std'] or 0:.1f})"
                )
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"`{found['command']}`", ""])


def main(arguments: Sequence[str]) -> int:
    """Try, choose, test, write."""
    parser = argparse.ArgumentParser(description="Encoders and methods for small sets at an equal budget for tuning.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3, help="of the test")
    parser.add_argument("--test", nargs="+", default=[], choices=list(CANDIDATES), metavar="NAME")
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("runs/selection"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True, width=200)
    tests = " --test " + " ".join(f'"{name}"' for name in options.test) if options.test else ""
    try:
        trials = tried(options.candidates, options.epochs, options.out, console)
        found: dict[str, Any] = {
            "command": f"python -m benchmarks.selection --epochs {options.epochs}{tests}",
            "versions": versions(),
            "epochs": options.epochs,
            "seeds": options.seeds,
            "validation": trials,
            "fewer clips": fewer_clips(options.epochs, options.out),
        }
        if options.test:
            chosen = {name: trials[name] for name in options.test}
            found["test"] = tested(chosen, options.epochs, options.seeds, options.out, console)
    except InputError as error:
        console.print(str(error))
        return 2
    text = markdown(found)
    print(text)
    if set(options.candidates) == set(CANDIDATES):
        save_results("selection", found, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
