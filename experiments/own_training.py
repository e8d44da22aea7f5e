"""`python -m experiments.own_training`: `halp-base` frozen and trained further on the training clips of each
shared set.
"""

import sys
from pathlib import Path

import numpy as np

from experiments import transfer
from halp.data.splits import Split
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds
from halp.features.embed import embed
from halp.features.loading import load_encoder
from halp.training import load_recipe, pretrain

ODD = Split("own", "subject", (1, 3, 5, 7, 9), (2, 4, 6, 8, 10))
SPLITS = {"nw-ucla": Split("own", "camera", (1, 2), (3,)), "utd-mhad": ODD, "msr-action3d": ODD}
DRAWS = 20


def probe(features, task, train, test):
    """kNN, one label per class (ridge on unit vectors, penalty 0.1, 20 draws), ridge with all labels, in per
    cent.
    """
    features = (features - features[train].mean(0)) / features[train].std(0).clip(1e-6)
    unit = (features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-9)).astype(np.float32)
    labels, classes, one = task.labels, int(task.labels.max()) + 1, []
    knn = (knn_predict(unit[train], labels[train], unit[test]) == labels[test]).mean()
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(train)
        rows = np.concatenate([order[labels[order] == label][:1] for label in range(classes)])
        guess = fit_ridge(unit[rows], labels[rows], 0.1, classes).predict(unit[test])
        one.append((guess == labels[test]).mean())
    folds = group_folds(task.groups[train], 5)
    penalty, _ = choose_ridge_penalty(features[train], labels[train], folds, classes)
    ridge = (
        fit_ridge(features[train], labels[train], penalty, classes).predict(features[test]) == labels[test]
    ).mean()
    return [round(100 * float(value), 1) for value in (knn, np.mean(one), ridge)]


def main(out: Path, seeds: int = 1) -> None:
    base = load_encoder("halp-base")
    transfer.LAYOUTS = {"body-16": ("body-16", tuple(base.normalisation))}
    for task in transfer.open_tasks(out / "sets"):
        if task.name not in SPLITS:
            continue
        store, (train, test) = task.stores["body-16"], task.parts[0]
        store.splits["own"] = SPLITS[task.name]
        print(
            task.name,
            len(train),
            "frozen",
            probe(embed(base, store, progress=False), task, train, test),
            flush=True,
        )
        for seed in range(seeds):
            for terms in ('["infonce"]', '["infonce", "halp"]'):
                recipe = load_recipe("own", ["split=own", f"terms={terms}", f"seed={seed}"])
                run = pretrain(
                    recipe, store, out / f"{task.name}-{len(recipe.terms)}-{seed}", init="halp-base"
                )
                found = probe(embed(run.encoder(), store, progress=False), task, train, test)
                print(task.name, len(train), terms, seed, found, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own-training"))
