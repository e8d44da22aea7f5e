"""`python -m experiments.endpoint train|read STORE --out FOLDER`: the registered endpoint
(experiments/registration.md).

STORE holds the classes A001 to A010 of NTU-60, as `halp prepare ntu` makes it. `train` trains what is not
finished and resumes what was stopped, one process with one thread. `read` probes the seeds that are complete
on both splits and writes `results/endpoint.json` and `.md`: the endpoint, and the exploratory probes with
intervals corrected over all of them. A base that was recorded with more seeds than FOLDER has keeps its
recorded figures, with the versions that they were measured with. `probe` only keeps the answers of finished
seeds for `read`, and shows none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from experiments.files import RESULTS, save_results
from experiments.hierarchical import RESAMPLES, interval, resampled_means
from halp.data.splits import FewLabels
from halp.data.store import Store, open_store
from halp.evaluation.analysis.paired_difference import paired_difference
from halp.evaluation.protocol import ProtocolContext
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import RidgePath, choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.reproduce.runner import SweepRunner
from halp.reproduce.scales import get_scale
from halp.reproduce.scheduler import DataSet, Schedule, make_schedule
from halp.reproduce.tables import get_table
from halp.training import Run

Array = npt.NDArray[Any]
Found = dict[
    tuple[str, str, int], dict[str, Array]
]  # by method, split and seed: probe → right (draws, clips)
SPLITS = ("xsub", "xview")
SEEDS = range(10)
DRAWS = 20
PENALTY = 0.3
OTHER_PENALTIES = (0.03, 0.1, 1.0, 3.0)
SHARES = {"1 %": 0.01, "5 %": 0.05, "10 %": 0.1}
PAIRS = {
    "ntu10": ("MoCo", "HaLP"),
    "ntu10-streams": ("CMD", "HaLP + CMD"),
}  # table → base and the same with HaLP
PAIRS_BY_BASE = {pair[0]: pair for pair in PAIRS.values()}
PAPER = {"MoCo": 3.65, "CMD": 1.0}  # means of its two splits, 60 classes


def schedules(store: Store, seeds: Sequence[int] = SEEDS) -> Iterator[tuple[str, str, int, Schedule]]:
    """Base, split, seed and schedule of each pair, in the registered order."""
    for name, pair in PAIRS.items():
        table = get_table(name)
        table = replace(table, rows=tuple(row for row in table.rows if row.name in pair))
        for seed in seeds:
            for split in SPLITS:
                source = DataSet("ntu10", store)
                yield (
                    pair[0],
                    split,
                    seed,
                    make_schedule(table, get_scale("ntu10"), [source], splits=[split], seeds=(seed,)),
                )


def train(store: Store, out: Path) -> None:
    """Train what is not finished, in the registered order."""
    runner = SweepRunner(out, progress=True)
    for base, split, seed, schedule in schedules(store):
        print(f"{base} {split} seed {seed}", flush=True)
        runner.train(schedule.jobs.values())


def complete_seeds(store: Store, out: Path) -> dict[str, list[int]]:
    """By base, the seeds that are complete on both splits."""
    runner, found = SweepRunner(out, progress=False), {}
    for base, split, seed, schedule in schedules(store):
        done = all(runner.state(job) == "done" for job in schedule.jobs.values())
        found[base, split, seed] = done
    bases = [pair[0] for pair in PAIRS.values()]
    return {
        base: [seed for seed in SEEDS if all(found[base, split, seed] for split in SPLITS)] for base in bases
    }


def probe(features: Array, store: Store, split: str, seed: int) -> dict[str, Array]:
    """Which test clips are right `(draws, clips)`, by probe; the draws are those of the seed."""
    labels, classes = store.labels, int(store.labels.max()) + 1
    fitted, tested = store.split(split)
    wanted = labels[tested]
    found: dict[str, list[Array]] = {}
    for name, share in SHARES.items():
        for draw in range(DRAWS):
            rule = FewLabels("few", store.splits[split], share, seed=1000 * seed + draw)
            few, _ = rule.indices(store.columns)
            path = RidgePath(features[few], labels[few], classes)
            penalties = {name: PENALTY}
            if name == "1 %":
                penalties |= {f"1 %, penalty {penalty:g}": penalty for penalty in OTHER_PENALTIES}
            for key, penalty in penalties.items():
                found.setdefault(key, []).append(path.classifier(penalty).predict(features[tested]) == wanted)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-9)
    found["kNN"] = [knn_predict(unit[fitted], labels[fitted], unit[tested]) == wanted]
    groups = np.asarray(store.subjects if split == "xsub" else store.cameras)[fitted]
    penalty, _ = choose_ridge_penalty(features[fitted], labels[fitted], group_folds(groups, 5), classes)
    guess = fit_ridge(features[fitted], labels[fitted], penalty, classes).predict(features[tested])
    found["all labels"] = [guess == wanted]
    return {name: np.stack(rows) for name, rows in found.items()}


def probed(store: Store, out: Path, complete: dict[str, list[int]]) -> Found:
    """Probes by method, split and seed; what was probed before is found again."""
    runner = SweepRunner(out, progress=False)
    found: Found = {}
    (out / "probes").mkdir(parents=True, exist_ok=True)
    for base, split, seed, schedule in schedules(store):
        if seed not in complete[base]:
            continue
        for cell in {cell.row.name: cell for cell in schedule.cells}.values():
            if cell.row.method == "raw":  # `halp reproduce ntu10` has them
                continue
            path = out / "probes" / f"{base}-{cell.row.name}-{split}-{seed}.npz".replace(" ", "_")
            if not path.exists():
                run = cast(Run, runner.run_of(schedule.scale, cell))
                encoder = run.encoder("joint", trained=cell.row.trained)
                parts = store.split(split)
                features = ProtocolContext(encoder, store, split, *parts, progress=False).features
                np.savez_compressed(path, **probe(features, store, split, seed))  # type: ignore[arg-type]
            with np.load(path, allow_pickle=False) as kept:
                name = cell.row.name if cell.row.trained else f"untrained {base}"
                found[name, split, seed] = dict(kept)
    return found


def spread(values: Sequence[float]) -> list[float | None]:
    """Mean and standard deviation over seeds, in per cent."""
    std = 100 * float(np.std(values, ddof=1)) if len(values) > 1 else None
    return [round(100 * float(np.mean(values)), 3), None if std is None else round(std, 3)]


def accuracies(found: Found) -> dict[str, dict[str, dict[str, list[float | None]]]]:
    """By method, split and probe."""
    table: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for method, split in sorted({(method, split) for method, split, _ in found}):
        rows = [cells for (name, part, _), cells in found.items() if (name, part) == (method, split)]
        table.setdefault(method, {})[split] = {
            key: spread([float(cells[key].mean()) for cells in rows]) for key in rows[0]
        }
    return table


def differences(
    found: Found, store: Store, base: str, ours: str, seeds: Sequence[int], key: str
) -> dict[str, Any]:
    """Per split and for their mean: the difference per seed `(seeds,)`, and its resampled means."""
    per_seed, resampled = {}, {}
    for place, split in enumerate(SPLITS):
        rows = [
            100.0 * found[ours, split, seed][key] - 100.0 * found[base, split, seed][key] for seed in seeds
        ]
        people = np.asarray(store.subjects)[store.split(split)[1]]
        per_seed[split] = np.stack(rows).mean((1, 2))
        resampled[split] = resampled_means(np.stack(rows), people, seed=place)
    for table in (per_seed, resampled):
        table["both"] = np.mean([table[split] for split in SPLITS], axis=0)
    return {split: (per_seed[split], resampled[split]) for split in per_seed}


def summarise(found: Found, store: Store, complete: dict[str, list[int]]) -> dict[str, Any]:
    """Accuracies, the endpoint of each base, and the exploratory differences."""
    endpoint: dict[str, Any] = {}
    explored: list[dict[str, Any]] = []
    pairs = [pair for pair in PAIRS.values() if complete[pair[0]]]
    keys = list(next(iter(found.values())))
    comparisons = len(PAIRS) * (3 * len(keys) - 1)  # each split and their mean, without the endpoint
    for base, ours in pairs:
        seeds = complete[base]
        for key in keys:
            for split, (values, resampled) in differences(found, store, base, ours, seeds, key).items():
                mean = float(values.mean())
                row: dict[str, Any] = {"difference": f"{ours} − {base}", "split": split, "probe": key}
                row |= {
                    "per seed": np.round(values, 3).tolist(),
                    "95 % interval": interval(mean, resampled).to_json(),
                }
                if (key, split) != ("1 %", "both"):
                    level = 1 - 0.05 / comparisons
                    explored.append(
                        row | {"corrected interval": interval(mean, resampled, level=level).to_json()}
                    )
                    continue
                late = values[[seed >= 5 for seed in seeds]]
                endpoint[base] = row | {
                    "seeds": seeds,
                    "97.5 % interval": interval(mean, resampled, level=0.975).to_json(),
                    "Student over seeds, 97.5 %": str(
                        paired_difference(values, np.zeros_like(values), comparisons=2)
                    ),
                    "seeds 5 to 9 alone": (
                        str(paired_difference(late, np.zeros_like(late))) if len(late) else None
                    ),
                    "the paper": PAPER[base],
                    "versions": versions(),
                }
    return {
        "endpoint": endpoint,
        "comparisons": comparisons,
        "exploratory": explored,
        "accuracy": accuracies(found),
    }


def recorded(store: Store, complete: dict[str, list[int]]) -> dict[str, Any]:
    """The recorded result of the same store and probe, of bases that have more seeds there than here."""
    path = RESULTS / "endpoint.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    here = {"store": store.hash, "draws": DRAWS, "penalty": PENALTY, "resamples": RESAMPLES}
    if any(found.get(name) != value for name, value in here.items()):
        return {"endpoint": {}, "exploratory": [], "accuracy": {}}
    rows = {base: row for base, row in found["endpoint"].items() if len(row["seeds"]) > len(complete[base])}
    rows = {base: {"versions": found["versions"], **row} for base, row in rows.items()}
    names = {name for base in rows for name in (*PAIRS_BY_BASE[base], f"untrained {base}")}
    gaps = {row["difference"] for row in rows.values()}
    return {
        "endpoint": rows,
        "exploratory": [row for row in found["exploratory"] if row["difference"] in gaps],
        "accuracy": {name: row for name, row in found["accuracy"].items() if name in names},
    }


def joined(result: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """A result and recorded rows of other bases, which have the same probes and correction."""
    return {
        "endpoint": earlier["endpoint"] | result["endpoint"],
        "comparisons": result["comparisons"],
        "exploratory": earlier["exploratory"] + result["exploratory"],
        "accuracy": dict(sorted((earlier["accuracy"] | result["accuracy"]).items())),
    }


def markdown(result: dict[str, Any]) -> str:
    """The endpoint, then everything else."""

    def text(values: Sequence[float]) -> str:
        return "{:+.2f} ({:+.2f} to {:+.2f})".format(*values).replace("-", "−")

    def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
        return ["", *(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows]), ""]

    ends = [
        [
            row["difference"],
            str(len(row["seeds"])),
            text(row["97.5 % interval"]),
            row["Student over seeds, 97.5 %"],
            row["seeds 5 to 9 alone"] or "",
            f"{row['the paper']:+.2f}",
        ]
        for row in result["endpoint"].values()
    ]
    columns = [
        "1 % of the labels, mean of both splits",
        "seeds",
        "97.5 % interval",
        "Student over seeds",
        "seeds 5 to 9",
    ]
    lines = ["# The registered endpoint", *table([*columns, "the paper"], ends)]
    lines.append(f"## Exploratory: intervals corrected for {result['comparisons']} differences")
    others = [
        [
            row["difference"],
            row["split"],
            row["probe"],
            text(row["corrected interval"]),
            text(row["95 % interval"]),
        ]
        for row in result["exploratory"]
    ]
    lines += table(["difference", "split", "probe", "corrected interval", "95 % interval"], others)
    lines.append("## Accuracies: mean ± standard deviation over seeds")
    probes = list(next(iter(next(iter(result["accuracy"].values())).values())))
    cells = [
        [
            method,
            split,
            *(f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}") for mean, std in row.values()),
        ]
        for method, splits in result["accuracy"].items()
        for split, row in splits.items()
    ]
    lines += table(["method", "split", *probes], cells)
    return "\n".join([*lines, f"`{result['command']}`", ""])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["train", "probe", "read"])
    parser.add_argument("store", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    store = open_store(options.store)
    if options.action == "train":
        train(store, options.out)
        return 0
    complete = complete_seeds(store, options.out)
    if options.action == "probe":
        probed(store, options.out, complete)
        print(f"probed: {complete}")
        return 0
    earlier = recorded(store, complete)
    complete = {base: [] if base in earlier["endpoint"] else seeds for base, seeds in complete.items()}
    if not any(complete.values()):
        print("no base has as many complete seeds here as are recorded")
        return 2
    result = joined(summarise(probed(store, options.out, complete), store, complete), earlier)
    facts = {
        "command": "python -m experiments.endpoint read STORE --out FOLDER",
        "store": store.hash,
        "draws": DRAWS,
    }
    result = {**facts, "penalty": PENALTY, "resamples": RESAMPLES, "versions": versions(), **result}
    text = markdown(result)
    print(text)
    save_results("endpoint", result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
