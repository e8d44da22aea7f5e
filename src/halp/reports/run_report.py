"""The report of one or more runs: accuracies, curves, prototypes, embedding map, confusion, players; one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch

from halp.clips.store import Store
from halp.evaluation.features import embed
from halp.evaluation.knn import neighbours
from halp.evaluation.results import Result
from halp.evaluation.table import Row, accuracy_table
from halp.hallucinate import HallucinatedPositives, plan
from halp.methods.terms import HalpTerm
from halp.reports.embedding import embedding_map
from halp.reports.figures import line_chart, scatter
from halp.reports.heat import heatmap
from halp.reports.page import Report
from halp.reports.player import PlayerClip, player
from halp.sampling import generator
from halp.training.run import Run
from halp.views import ClipPool, derive, random_views


def report_runs(runs: Mapping[str, Run], store: Store | None) -> Report:
    """A page about runs: their saved results, curves, and, where the store is at hand, what the last one's encoder sees."""
    saved = {
        name: [Result.load(path) for path in sorted((run.path / "results").glob("*.json"))]
        for name, run in runs.items()
    }
    rows = [
        Row(f"{name}{kind}", results)
        for name, found in saved.items()
        for kind, trained in ((", untrained", False), ("", True))
        if (results := [result for result in found if result.encoder["trained"] == trained])
    ]
    report = Report("Runs compared" if len(runs) > 1 else f"Run {next(iter(runs))}")
    if rows:
        add_accuracies(report, rows)
    add_curves(report, runs)
    last_name, last = list(runs.items())[-1]
    if store is not None:
        add_prototypes(report, last, store)
        best = [result for result in saved[last_name] if result.encoder["trained"]]
        if last.recipe.split in store.splits:
            add_embedding(report, last, store, best[-1] if best else None, split=last.recipe.split)
    add_provenance(report, runs)
    return report


def add_accuracies(report: Report, rows: Sequence[Row]) -> None:
    """The table that matters, first."""
    report.section(
        "Accuracy",
        "Top-1 accuracy in per cent on clips of people (or cameras) that were not trained on. The raw coordinates and the "
        "untrained encoder are the floors: what stands below them has learnt nothing. One seed; differences of a point or "
        "two are within what another seed would give.",
    )
    columns, cells = accuracy_table(rows)
    report.table(columns, cells, highlight=-1)


def add_curves(report: Report, runs: Mapping[str, Run]) -> None:
    """Loss, kept positives and the similarities of the paper's supplement over training."""
    report.section("Training", "Everything below is read from the runs' metrics.")
    stream = next(iter(runs.values())).recipe.streams[0]
    metrics = {name: run.metrics() for name, run in runs.items()}

    def curves(**keys: str) -> dict[str, tuple[list[float], list[float]]]:
        """label → key of the metrics, for every run that has it"""
        series = {}
        for name, lines in metrics.items():
            for label, key in keys.items():
                points = [line for line in lines if f"{stream}/{key}" in line]
                if points:
                    title = f"{name}: {label.replace('_', ' ')}" if len(keys) > 1 else name
                    steps = [float(line["step"]) for line in points]
                    series[title] = (steps, _smooth([line[f"{stream}/{key}"] for line in points]))
        return series

    report.figure(
        line_chart(curves(loss="loss_contrast"), title="Contrastive loss", x_label="step", y_label="InfoNCE"),
        "InfoNCE alone, so that runs with and without hallucinated positives can be compared.",
    )
    if kept := curves(kept="kept"):
        report.figure(
            line_chart(kept, title="Positives kept by the filter", x_label="step", y_label="share", y_range=(0, 1)),
            "At the end "
            + ", ".join(f"{name} keeps {kept_share(runs[name]):.1%}" for name in kept)
            + "; the paper reports 91 of 100.",
        )
    report.figure(
        line_chart(
            curves(real_positive="similarity_key_query", hallucinated="similarity_positive_query"),
            title="Similarity to the query",
            x_label="step",
            y_label="mean cosine",
        ),
        "Real keys and hallucinated positives against the query they belong to (the supplement's first figure).",
    )
    report.figure(
        line_chart(
            curves(real_positive="similarity_key_queue", hallucinated="similarity_positive_queue"),
            title="Similarity to the queue",
            x_label="step",
            y_label="mean cosine",
        ),
        "The same against the negatives (the supplement's second figure).",
    )


def kept_share(run: Run, lines: int = 20) -> float:
    """Mean share of positives that survived the filter over the last lines of a run's metrics."""
    stream = run.recipe.streams[0]
    kept = [line[f"{stream}/kept"] for line in run.metrics() if f"{stream}/kept" in line]
    return float(np.mean(kept[-lines:])) if kept else float("nan")


def _smooth(values: Sequence[float], window: int = 5) -> list[float]:
    """Running mean over a few points; batches are noisy."""
    if len(values) <= window:
        return list(values)
    padded = np.pad(np.asarray(values, dtype=float), (window // 2, window - 1 - window // 2), mode="edge")
    return np.convolve(padded, np.ones(window) / window, mode="valid").tolist()


@torch.no_grad()
def prototype_similarities(run: Run, store: Store) -> dict[str, tuple[list[int], list[float]]]:
    """Similarity to every prototype, closest to the key first, of one key, two kept positives and a dropped one.

    Empty where the run has no prototypes.
    """
    model = run.model().eval()
    stream = run.recipe.streams[0]
    halp = dict(model.terms.items()).get("halp")
    if not isinstance(halp, HalpTerm):
        return {}
    term = cast(HallucinatedPositives, halp.streams[stream])
    centres = term.centres
    if not len(centres):
        return {}
    pool = ClipPool.from_store(store)
    clips = torch.arange(min(64, len(store)))
    views = random_views(pool, clips, run.recipe.views, generator(run.recipe.seed, "report"))
    pair: torch.nn.Module = model.pairs[stream]
    keys = pair.get_submodule("key")(derive(views, stream, model.topology))
    made = plan(keys, centres, query=keys, generator=generator(run.recipe.seed, "report", 1), **term.settings)
    # the key with the most even share of kept and dropped positives shows both kinds
    chosen = int((made.kept.float().mean(1) - 0.5).abs().argmin())
    good, bad = made.kept[chosen].nonzero()[:2, 0], (~made.kept[chosen]).nonzero()[:1, 0]
    positives = made.positives()[chosen] @ centres.T
    order = (keys[chosen] @ centres.T).argsort(descending=True)
    xs = list(range(1, len(centres) + 1))
    series = {"key": (xs, (keys[chosen] @ centres.T)[order].tolist())}
    for number, index in enumerate(good.tolist(), start=1):
        series[f"kept positive {number}"] = (xs, positives[index][order].tolist())
    for index in bad.tolist():
        series["dropped positive"] = (xs, positives[index][order].tolist())
    return series


def add_prototypes(report: Report, run: Run, store: Store) -> None:
    """Similarity to every prototype of one key, two positives that are kept and one that the filter drops."""
    series = prototype_similarities(run, store)
    if not series:
        return
    report.figure(
        line_chart(
            series,
            title="Similarity to every prototype",
            x_label="prototype, closest to the key first",
            y_label="cosine",
            styles={
                "key": "#2563eb",
                "kept positive 1": "#16a34a",
                "kept positive 2": "#65a30d",
                "dropped positive": "#dc2626",
            },
        ),
        "A positive is kept while the key's closest prototype is also the closest of the positive "
        "(the supplement's third figure).",
    )


def add_embedding(
    report: Report, run: Run, store: Store, result: Result | None, *, split: str, limit: int = 900
) -> None:
    """Map of the test clips, confusion matrix, and the player with nearest neighbours."""
    encoder = run.encoder(run.recipe.streams[0])
    features = embed(encoder, store, progress=False)
    train, test = store.split(split)
    names = store.class_names
    pick = np.sort(np.random.default_rng(0).permutation(test)[:limit])
    report.section(
        "What the encoder sees", f"Features of {len(pick)} test clips on a plane by t-SNE, coloured by class."
    )
    report.figure(
        scatter(
            embedding_map(features[pick]),
            [names[store.labels[clip]] for clip in pick],
            names=[str(store.names[clip]) for clip in pick],
            title="Embedding map",
        )
    )
    if result is not None:
        report.figure(
            heatmap(np.array(result.confusion), result.classes, result.classes, title="Confusion matrix"),
            f"{result.protocol} evaluation, {result.accuracy:.1f} % right.",
        )
    shown = _one_a_class(store, test)
    found, similarity = neighbours(features[train], features[shown], k=3)
    rows = []
    for clip, near, cosine in zip(shown, found, similarity):
        label = store.labels[clip]
        row = [PlayerClip(store.clip(int(clip)), f"{names[label]} (test)")]
        for index, value in zip(train[near], cosine):
            title = f"{names[store.labels[index]]}, cosine {value:.2f}"
            row.append(PlayerClip(store.clip(int(index)), title, good=bool(store.labels[index] == label)))
        rows.append(row)
    report.section(
        "Nearest neighbours",
        "A test clip on the left and the training clips whose features are nearest; green where the class is the same. "
        "Drag to turn.",
    )
    report.figure(player(rows, store.topology, up_axis=min(2, store.topology.dimensions - 1)))


def _one_a_class(store: Store, clips: np.ndarray, most: int = 12) -> np.ndarray:
    _, first = np.unique(store.labels[clips], return_index=True)
    return clips[first][:most]


def add_provenance(report: Report, runs: Mapping[str, Run]) -> None:
    """What differs between the runs, and how each can be made again."""
    report.section("How this was made")
    flat = {name: run.recipe.flat() for name, run in runs.items()}
    keys = list(dict.fromkeys(key for recipe in flat.values() for key in recipe))
    differing = [key for key in keys if len({repr(recipe.get(key)) for recipe in flat.values()}) > 1 or len(flat) == 1]
    cells: list[list[object]] = [[key, *(str(recipe.get(key)) for recipe in flat.values())] for key in differing]
    report.table(["setting", *flat], cells, caption="Settings" if len(flat) == 1 else "Settings that differ")
    facts: list[list[object]] = []
    for name, run in runs.items():
        done = run.info.get("finished", {})
        facts.append(
            [
                name,
                done.get("step"),
                done.get("seconds"),
                run.info["halp"],
                run.info["versions"]["torch"],
                run.info["data"]["hash"][:12],
            ]
        )
    report.table(["run", "steps", "seconds", "halp", "torch", "data hash"], facts, caption="Runs")
