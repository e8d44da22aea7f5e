"""Commands about classes: `halp classify fit`, `halp classify predict`, `halp finetune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from tyro.conf import Positional

from halp.cli.app import app, print_json, print_table
from halp.cli.options import LABELS, READING, Labels, Reading

if TYPE_CHECKING:
    from halp.use.model_folder import Model

# `halp classify` has commands of its own; the main application hands over to this one.
classify_app = tyro.extras.SubcommandApp()


@app.command(name="classify")
def classify_overview() -> None:
    """Classes from a handful of labels: `halp classify fit` makes a model, `halp classify predict` uses it."""


@classify_app.command(name="fit")
def classify_fit(
    encoder: Positional[str],
    labelled: Positional[Path],
    model: Positional[Path],
    *,
    labels: Labels = LABELS,
    kind: str = "auto",
    reading: Reading = READING,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Fit a classifier on labelled recordings and say how good it is, beside the raw coordinates.

    Examples:
        halp classify fit runs/small-seed0 labelled model
        halp classify fit halp-base recordings model --labels labels.csv --window 2 --stride 1

    Args:
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        labelled: a store with labels, or recordings in a folder for each class.
        model: the model folder to make.
        kind: linear, knn, prototypes, or auto to choose by cross-validation.
        seed: of the folds.
        json: print accuracies as JSON.
    """
    from halp.use.classify import LabelledSource, fit
    from halp.use.model_folder import check_free, save_model

    check_free(model)
    given = LabelledSource(labelled, reading.cutting, reading.format, labels.labels, labels.path)
    made = fit(encoder, given, kind=kind, unsure=labels.unsure, seed=seed)
    save_model(made, model)
    _say_fitted(made, model, json)


@classify_app.command(name="predict")
def classify_predict(
    model: Positional[Path],
    source: Positional[Path],
    *,
    out: Path | None = None,
    suggest: int = 0,
    reading: Reading = READING,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Give every clip or window a class, or none of these.

    Examples:
        halp classify predict model recordings
        halp classify predict model recordings --json
        halp classify predict model recordings --suggest 5

    Args:
        model: a model that `halp classify fit` or `halp finetune` made.
        source: a store, or recordings of any format.
        out: also write a CSV table.
        suggest: name so many recordings to label next, in place of the classes.
        cache: keep vectors for the next time (--no-cache computes them anew).
        json: print a list of name, start, end, label (null: none of these) and probability as JSON.
    """
    from rich.table import Table

    from halp.progress import console
    from halp.use.classify import answers, cutting_for, predict_table, suggest_recordings
    from halp.use.model_folder import load_model
    from halp.use.tables import write_csv

    loaded = load_model(model)
    cutting = cutting_for(loaded, **reading.spans)
    vectors, found = predict_table(loaded, source, cutting, format=reading.format, cache=cache)
    if suggest:
        named = suggest_recordings(loaded, vectors, suggest)
        rows = [{"name": name, "uncertainty": one.uncertainty, "distance": one.distance} for name, one in named]
        columns = ["name", "uncertainty", "distance"]
    else:
        rows = [answer.to_json() for answer in answers(loaded, vectors, found)]
        columns = ["name", "start", "end", "label", "probability"]
    if out is not None:
        console.print(f"written: [bold]{write_csv(out, columns, rows)}[/]")
    if json:
        print_json(rows)
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    print_table(table)


@app.command
def finetune(
    encoder: Positional[str],
    labelled: Positional[Path],
    model: Positional[Path],
    *,
    labels: Labels = LABELS,
    epochs: int = 80,
    batch_size: int = 64,
    learning_rate: float = 0.01,
    reading: Reading = READING,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Train the whole network with labels; `halp classify predict` takes the model.

    Example: halp finetune runs/small-seed0 labelled model --epochs 30

    Args:
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        labelled: a store with labels, or recordings in a folder for each class.
        model: the model folder to make.
        epochs: passes over the labelled recordings; the learning rate falls after 5/8 and 7/8 of them.
        batch_size: clips per step.
        learning_rate: of the first epochs.
        seed: of the head, the crops and the order.
        json: print the accuracy as JSON.
    """
    from halp.evaluation.protocols.finetune import FinetuneSettings
    from halp.use.classify import LabelledSource
    from halp.use.finetune import finetune as train
    from halp.use.model_folder import check_free, save_model

    check_free(model)
    settings = FinetuneSettings(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        milestones=(epochs * 5 // 8, epochs * 7 // 8),
    )
    given = LabelledSource(labelled, reading.cutting, reading.format, labels.labels, labels.path)
    made = train(encoder, given, settings=settings, unsure=labels.unsure, seed=seed)
    save_model(made, model)
    _say_fitted(made, model, json)


def _cell(value: object) -> str:
    return "none of these" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _say_fitted(made: Model, path: Path, json: bool) -> None:
    """What was fitted and how good it is."""
    from rich.table import Table

    from halp.progress import console

    facts = {"model": str(path), "classes": made.labelled, "classifier": str(made.classifier.head.candidate)}
    if json:
        print_json({**facts, **made.assessment})
        return
    console.print(
        f"{sum(made.labelled.values())} labelled clips: " + ", ".join(f"{k} {v}" for k, v in made.labelled.items())
    )
    scores = {"encoder": made.assessment.get("encoder"), "raw coordinates": made.assessment.get("raw")}
    table = Table("vectors", "accuracy", "95 % interval", "classifier")
    for name, score in scores.items():
        if score is not None:
            interval = f"{score['low']:.1%} – {score['high']:.1%}"
            table.add_row(name, f"{score['accuracy']:.1%}", interval, score["chosen"])
    if table.row_count:
        print_table(table)
    else:
        console.print("accuracy is not known: every class needs two recordings at least, so that one can be held out")
    curve = made.assessment.get("curve") or {}
    if curve:
        few = Table("labels per class", "encoder", "raw coordinates")
        for count, (own, raw) in curve.items():
            few.add_row(str(count), f"{own:.1%}", f"{raw:.1%}")
        print_table(few)
    console.print(f"written: [bold]{path}[/]; next: halp classify predict {path} RECORDINGS")
