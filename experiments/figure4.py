"""`python -m experiments.figure4 --data STORE --out FOLDER [--seed 0]`: is the key or the positive nearer to
the query, and why?

The supplement's figure 4 has keys slightly nearer. Measured here on one store: (1) short trainings that fork
from one MoCo warm-up and differ in one setting of HaLP; (2) positives of other steps and hardness around the
same keys, on the embeddings of the warm-up and of the end of MoCo and HaLP, where nothing but the geometry
differs. Runs that are there are used again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from experiments.files import RESULTS
from experiments.query_gap import query_gap, share_of_epochs_with_keys_nearer
from halp.augment import ClipPool, ViewMaker
from halp.core.sampling import generator
from halp.data.store import Store, open_store
from halp.evaluation.analysis.similarities import similarities_by_epoch
from halp.methods import MocoMethod
from halp.sphere import kmeans
from halp.training import Run, load_recipe, open_run, pretrain
from halp.training.checkpoint import list_checkpoints
from halp.training.run_folder import RunFolder

EPOCHS, START, EARLY, LATE = (
    45,
    20,
    5,
    40,
)  # a tenth of the paper's: HaLP from epoch 200 of 450, in its Table 11 from 50 or 400
COMMON = (
    *(f"epochs={EPOCHS}", "optimiser.milestones=[35]", "encoder.hidden=48", "encoder.layers=1"),
    *(f"saving.checkpoint_epochs={EPOCHS}", "saving.log_every=1"),
)
VARIANTS: dict[str, tuple[str, ...]] = {
    "paper's settings": (),
    "λ = 0.2": ("halp.hardness=0.2",),
    "λ = 1.0": ("halp.hardness=1.0",),
    "authors' steps": ("halp.step=authors",),
    "hardest step": ("halp.step=hardest",),
    "μ = 0.01": ("halp.weight=0.01",),
    "μ = 0.1": ("halp.weight=0.1",),
    "balanced pull": ("halp.negatives=true",),
    "start early": (f"halp.start_epoch={EARLY}",),
    "start late": (f"halp.start_epoch={LATE}",),
    "three times as long": (f"epochs={3 * EPOCHS}", "optimiser.milestones=[105]"),
}
QUEUES = (256, 2048)
STEPS = (("paper", 0.2), ("paper", 0.8), ("paper", 1.0), ("authors", 0.8), ("hardest", 1.0))


def train(
    store: Store, folder: Path, name: str, settings: tuple[str, ...], fork: Run | None, until: int
) -> Run:
    """A run of that name, trained unless it is there already."""
    path = folder / name.replace(" ", "-")
    if RunFolder(path).holds_run() and open_run(path).info.get("finished"):
        return open_run(path)
    split = "xview" if "xview" in store.splits else "xsub"
    recipe = load_recipe("cpu-halp", (f"split={split}", *COMMON, *settings))
    resume = bool(list_checkpoints(RunFolder(path).checkpoints))
    warm = None if fork is None or resume else fork.path
    until = until if until < EPOCHS else recipe.epochs
    return pretrain(recipe, store, path, fork=warm, until=until, progress=False, resume=resume)


def curves(name: str, run: Run) -> dict[str, Any]:
    """The curves of figures 4 and 5 of a run, as means over the epochs since HaLP started."""
    _, rows = similarities_by_epoch([run])
    means = np.array([row[1:] for row in rows], dtype=float).mean(0)
    last = rows[-1]
    first = next((row[0] for row in rows if share_of_epochs_with_keys_nearer([row])), None)
    return {
        "run": name,
        "epochs": len(rows),
        "key-query": round(float(means[0]), 4),
        "positive-query": round(float(means[1]), 4),
        "gap": round(float(means[0] - means[1]), 4),
        "epochs with keys nearer": round(share_of_epochs_with_keys_nearer(rows), 3),
        "first such epoch": first,
        "key-queue": round(float(means[2]), 4),
        "key-query, last epoch": last[1],
        "key-queue, last epoch": last[3],
    }


@torch.no_grad()
def geometry(name: str, run: Run, store: Store, clips: int = 512) -> list[dict[str, Any]]:
    """Positives of other steps and hardness around the same keys, in training mode as during a step."""
    model = run.model()
    if not isinstance(model, MocoMethod):
        raise TypeError("figure 4 is about momentum contrast")
    chosen = torch.arange(min(clips, len(store)))
    pool = ClipPool.from_store(store)
    views = ViewMaker(run.recipe.views, model.views, store.topology, pool, 1).make(chosen, 0, 0)
    pair = model.pairs["joint"].train()
    query, key = pair.get_submodule("query")(views["query"]), pair.get_submodule("key")(views["key"])
    prototypes = kmeans(model.queue.recent("joint", 256), 20, generator=generator(0, "figure 4"))
    rows = []
    for step, hardness in STEPS:
        draws = generator(0, "figure 4", 1)
        found = query_gap(query, key, prototypes, step=step, hardness=hardness, count=100, generator=draws)
        rows.append(
            {"embeddings": name, "step": step, "λ": hardness, "gap": round(found.gap, 4)} | _rounded(found)
        )
    return rows


def _rounded(found: Any) -> dict[str, float]:
    return {key: round(value, 4) for key, value in asdict(found).items()}


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a table."""
    shown = Table(*rows[0], title=title)
    for row in rows:
        shown.add_row(*map(str, row.values()))
    Console(width=200).print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", default="runs/figure4")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    store, folder, seed = open_store(given.data), Path(given.out) / f"seed{given.seed}", f"seed={given.seed}"
    trained = []
    for queue in (512, *QUEUES):
        plain = (f"contrast.queue={queue}", seed, 'terms=["infonce"]')
        starts = (START, EARLY, LATE) if queue == 512 else (START,)
        warm = {start: train(store, folder, f"warm {queue} {start}", plain, None, start) for start in starts}
        for name, settings in VARIANTS.items() if queue == 512 else [(f"queue of {queue}", ())]:
            start = next((int(text.partition("=")[2]) for text in settings if "start_epoch" in text), START)
            full = (*plain[:2], f"halp.start_epoch={START}", *settings)
            trained.append(curves(name, train(store, folder, name, full, warm[start], EPOCHS)))
    early = open_run(folder / f"warm-512-{START}")
    moco = train(store, folder, "MoCo", ("contrast.queue=512", seed, 'terms=["infonce"]'), early, EPOCHS)
    fixed = geometry(f"MoCo, epoch {START}", early, store) + geometry(f"MoCo, epoch {EPOCHS}", moco, store)
    fixed += geometry(f"HaLP, epoch {EPOCHS}", open_run(folder / "paper's-settings"), store)
    show("Trainings: means over the epochs since HaLP started", trained)
    show("Fixed embeddings: positives of other steps around the same keys", fixed)
    found = {"data": store.hash, "trained": trained, "fixed": fixed}
    name = f"figure4-seed{given.seed}.json"
    (RESULTS / name).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
