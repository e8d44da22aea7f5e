"""The report of runs: accuracies, curves, prototypes, embedding map, confusion, players; one HTML file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from halp.core.errors import InputError
from halp.data.store import Store, open_store
from halp.evaluation.analysis.embedding import embed_split
from halp.evaluation.analysis.prototypes import Series, prototype_similarities
from halp.evaluation.analysis.similarities import kept_curve, kept_share, smooth_curve
from halp.evaluation.evaluate_run import EncoderResults, saved_results, verdict
from halp.evaluation.results import Result
from halp.reports.figures import heatmap, line_chart
from halp.reports.page import Report
from halp.reports.player import PlayerClip, clip_map, player
from halp.reports.tables import accuracy_table, overlap_note, result_title
from halp.training.run import Run, open_run


def open_runs(paths: Sequence[Path]) -> dict[str, Run]:
    """Runs by the names of their folders."""
    if not paths:
        raise InputError("name at least one run folder, for example: halp report runs/small-seed0")
    opened = {path.resolve().name: open_run(path) for path in paths}
    if len(opened) < len(paths):
        raise InputError("two of the runs have the same folder name; give them different ones")
    return opened


def report(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    data: str | os.PathLike[str] | None = None,
) -> Report:
    """One self-contained HTML page that compares runs.

    Parameters
    ----------
    runs : path or sequence of paths
        Run folders.
    data : path, optional
        The store for embedding map and players (default: the one the first run was trained on, if it is still
        there).

    Returns
    -------
    Report
        `report.save("report.html")` writes it.
    """
    paths = [runs] if isinstance(runs, (str, os.PathLike)) else list(runs)
    opened = open_runs([Path(path) for path in paths])
    home = Path(data or next(iter(opened.values())).info["data"]["path"])
    # a store that was asked for must be there; that of the training may have moved
    return report_runs(opened, open_store(home) if data is not None or home.exists() else None)


def compare_runs(runs: Mapping[str, Run]) -> Report:
    """Content of runs side by side: results, curves, settings that differ."""
    report = Report("Runs compared")
    if rows := result_rows({name: saved_results(run) for name, run in runs.items()}):
        add_accuracies(report, rows)
    add_curves(report, runs)
    add_provenance(report, runs)
    return report


def report_runs(runs: Mapping[str, Run], store: Store | None) -> Report:
    """A page about runs: saved results, curves, and, if the store is available, the last run's embedding.

    What is left out is named with the reason.
    """
    saved = {name: saved_results(run) for name, run in runs.items()}
    report = Report("Runs compared" if len(runs) > 1 else f"Run {next(iter(runs))}")
    left_out: list[str] = []
    if rows := result_rows(saved):
        add_accuracies(report, rows)
    else:
        left_out.append("Accuracies: no evaluation is saved in the run; make one with `halp evaluate`.")
    add_curves(report, runs)
    name, run = list(runs.items())[-1]
    if store is None:
        left_out.append(
            f"Prototypes, embedding map and players: the store '{run.info['data']['path']}' that the run was"
            " trained on is not there; give another with --data."
        )
    else:
        if not add_prototypes(report, run, store):
            left_out.append(f"Similarity to prototypes: run {name} has not hallucinated any positives.")
        trained = [
            result
            for result in saved[name]
            if result.encoder.get("trained") and "shipped" not in result.encoder
        ]
        split = _split_to_show(run, store, trained)
        if split is None:
            left_out.append(
                f"Embedding map and nearest neighbours: the store '{store.path}' has no split with test"
                " clips."
            )
        else:
            add_embedding(report, run, store, _last_on(split, trained), split=split)
            if _last_on(split, trained) is None:
                left_out.append(f"Confusion matrix: no evaluation on split '{split}' is saved in run {name}.")
    add_provenance(report, runs)
    if left_out:
        report.section("Left out", "\n\n".join(left_out))
    return report


def result_rows(saved: Mapping[str, Sequence[Result]]) -> list[EncoderResults]:
    """Rows of accuracies: raw coordinates and shipped encoders, then each run before and after training."""
    common: dict[str, dict[str, Result]] = {"raw coordinates": {}}
    rows: list[EncoderResults] = []
    for name, results in saved.items():
        for result in results:
            if result.encoder.get("raw") or "shipped" in result.encoder:
                kind = result.encoder.get("shipped", "raw coordinates")
                common.setdefault(kind, {})[result_title(result)] = result
        own = [result for result in results if "shipped" not in result.encoder]
        for kind, trained in ((", untrained", False), ("", True)):
            if chosen := [result for result in own if result.encoder.get("trained") is trained]:
                rows.append(EncoderResults(f"{name}{kind}", chosen))
    return [*(EncoderResults(kind, list(found.values())) for kind, found in common.items() if found), *rows]


def _split_to_show(run: Run, store: Store, results: Sequence[Result]) -> str | None:
    """The run's own split, else one that it was evaluated on, else any of the store."""
    wanted = [run.recipe.split, *(result.split for result in results), *store.splits]
    return next((split for split in wanted if split in store.splits), None)


def _last_on(split: str, results: Sequence[Result]) -> Result | None:
    return next((result for result in reversed(results) if result.split == split), None)


def add_accuracies(report: Report, rows: Sequence[EncoderResults]) -> None:
    """The main table; it says "not trained on" only if that was checked."""
    results = [result for row in rows for result in row.results]
    # shipped encoders are of other recordings, which their card names
    counted = [result.test_clips_trained_on == 0 for result in results if "shipped" not in result.encoder]
    unseen = " that were not trained on" if all(counted) else ""
    seeds = (
        "Mean ± standard deviation over seeds of the evaluation."
        if any(len(result.seeds) > 1 for result in results)
        else "One seed; differences of a point or two are within the variation between seeds."
    )
    report.section(
        "Accuracy",
        f"Top-1 accuracy in per cent on test clips{unseen}. The raw coordinates and the untrained encoder are"
        " the baselines: a result below them means that nothing useful was learnt. An encoder that comes with halp stands"
        f" beside them if one reads these joints. {seeds}",
    )
    columns, cells = accuracy_table(rows)
    report.table(columns, cells, highlight=-1)
    report.text(overlap_note(rows))
    report.text(f"{sentence}." if (sentence := verdict(rows)) else "")


def add_curves(report: Report, runs: Mapping[str, Run]) -> None:
    """Loss, kept positives and similarities of the paper's supplement over training, if recorded."""
    report.section("Training", "Everything below is read from the runs' metrics.")
    contrast = _curves(runs, loss="loss_contrast")
    if len(contrast) < len(runs):
        report.figure(
            line_chart(_curves(runs, loss="loss"), title="Loss", x_label="step", y_label="loss"),
            "All terms together; losses of different methods are not comparable.",
        )
    if contrast:
        report.figure(
            line_chart(contrast, title="Contrastive loss", x_label="step", y_label="InfoNCE"),
            "InfoNCE alone, so that runs with and without hallucinated positives can be compared.",
        )
    kept = {name: curve for name, run in runs.items() if (curve := kept_curve(run))[0]}
    if kept:
        shares = ", ".join(f"{name} keeps {kept_share(runs[name]):.1%}" for name in kept)
        report.figure(
            line_chart(
                kept, title="Positives kept by the filter", x_label="step", y_label="share", y_range=(0, 1)
            ),
            f"Mean over the tenth of the logged steps up to each step. At the end {shares}; the paper reports"
            " 91 of 100.",
        )
    for other, caption in (
        (
            "query",
            (
                "Real keys and hallucinated positives against the query they belong to (the supplement's"
                " figure 4)."
            ),
        ),
        ("queue", "The same against the negatives of the queue (the supplement's figure 5)."),
    ):
        curves = _curves(
            runs, real_positive=f"similarity_key_{other}", hallucinated=f"similarity_positive_{other}"
        )
        if curves:
            report.figure(
                line_chart(curves, title=f"Similarity to the {other}", x_label="step", y_label="mean cosine"),
                caption,
            )


def _curves(runs: Mapping[str, Run], **metrics: str) -> dict[str, tuple[list[float], list[float]]]:
    """Curves by label and metric of the first stream, for every run that logged it."""
    series = {}
    for name, run in runs.items():
        for label, metric in metrics.items():
            steps, values = smooth_curve(run, metric)
            if steps:
                title = f"{name}: {label.replace('_', ' ')}" if len(metrics) > 1 else name
                series[title] = (steps, values)
    return series


def add_prototypes(report: Report, run: Run, store: Store) -> bool:
    """Similarity to every prototype of a key, two kept positives and a dropped one; False without any."""
    series = prototype_similarities(run, store)
    if not series:
        return False
    report.figure(*prototype_chart(series))
    return True


def prototype_chart(series: Series) -> tuple[str, str]:
    """The figure of similarities to every prototype, with its caption."""
    chart = line_chart(
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
    )
    return (
        chart,
        (
            "A positive is kept while the key's closest prototype is also the closest of the positive "
            "(the supplement's figure 6)."
        ),
    )


def add_embedding(report: Report, run: Run, store: Store, result: Result | None, *, split: str) -> None:
    """Map of the test clips, confusion matrix, and the player with nearest neighbours."""
    embedding = embed_split(run.encoder(run.recipe.streams[0]), store, split)
    report.section(
        "What the encoder sees",
        f"Features of {len(embedding.clips)} test clips on a plane by t-SNE, coloured by class.",
    )
    report.figure(
        clip_map(
            embedding.places,
            [_class_name(store, clip) for clip in embedding.clips],
            names=[str(store.names[clip]) for clip in embedding.clips],
        )
    )
    if result is not None:
        report.figure(
            heatmap(np.array(result.confusion), result.classes, result.classes, title="Confusion matrix"),
            f"{result_title(result)}, {result.accuracy:.1f} % right.",
        )
    rows = []
    for clip, near, cosine in zip(embedding.queries, embedding.neighbours, embedding.similarity):
        row = [PlayerClip(store.clip(int(clip)), f"{_class_name(store, clip)} (test)")]
        for index, value in zip(near, cosine):
            title = f"{_class_name(store, index)}, cosine {value:.2f}"
            same = bool(store.labels[index] == store.labels[clip])
            row.append(PlayerClip(store.clip(int(index)), title, good=same))
        rows.append(row)
    report.section(
        "Nearest neighbours",
        "A test clip on the left and the training clips whose features are nearest; green where the class is"
        " the same. Drag to turn.",
    )
    report.figure(player(rows, store.topology))


def _class_name(store: Store, clip: int) -> str:
    label = int(store.labels[clip])
    return (
        store.class_names[label]
        if 0 <= label < len(store.class_names)
        else "no label"
        if label < 0
        else str(label)
    )


def _setting(value: object) -> str:
    """A setting as text: lists without brackets, a dash for none."""
    return (
        "–"
        if value is None
        else ", ".join(map(str, value))
        if isinstance(value, list | tuple)
        else str(value)
    )


def add_provenance(report: Report, runs: Mapping[str, Run]) -> None:
    """What differs between the runs, and how to reproduce each."""
    report.section("How this was made")
    flat = {name: run.recipe.flat() for name, run in runs.items()}
    keys = list(dict.fromkeys(key for recipe in flat.values() for key in recipe))
    differing = [
        key for key in keys if len({repr(recipe.get(key)) for recipe in flat.values()}) > 1 or len(flat) == 1
    ]
    cells: list[list[object]] = [
        [key, *(_setting(recipe.get(key)) for recipe in flat.values())] for key in differing
    ]
    report.table(["setting", *flat], cells, caption="Settings" if len(flat) == 1 else "Settings that differ")
    facts = []
    for name, run in runs.items():
        done, info = run.info.get("finished", {}), run.info
        made_by = {
            "halp": info["halp"],
            "torch": info["versions"]["torch"],
            "data hash": info["data"]["hash"][:12],
        }
        facts.append({"run": name, "steps": done.get("step"), "seconds": done.get("seconds"), **made_by})
    report.rows(facts, "Runs")
