"""Commands about classes: `halp classify fit`, `halp classify predict`, `halp finetune`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from halp.cli.app import app, note, print_json, print_table, show, table_of, warn
from halp.cli.options import LABELS, READING, LabelOptions, Labels, Reading, ReadingOptions

if TYPE_CHECKING:
    from halp.features.source import Source
    from halp.use.model_folder import Model
    from halp.use.segments import Answer

classify_app = app.group("classify", "Classes from a handful of labels: `fit` makes a model, `predict` uses it.")


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
        halp classify fit halp-base recordings model --events boris-export.csv

    Args:
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        labelled: a store with labels, or recordings in a folder for each class.
        model: the model folder to make.
        kind: linear, knn, prototypes, or auto to choose by cross-validation.
        seed: of the folds.
        json: print accuracies as JSON.
    """
    from halp.use.calibration import check_rejection
    from halp.use.classify import fit
    from halp.use.model_folder import check_free, save_model

    check_free(model)
    check_rejection(labels.rejection_rate)
    source = _open_labelled(labelled, labels, reading)
    fitted = fit(encoder, source, kind=kind, rejection_rate=labels.rejection_rate, seed=seed)
    save_model(fitted, model)
    _print_fitted(fitted, model, json)


@classify_app.command(name="predict")
def classify_predict(
    model: Positional[Path],
    source: Positional[Path],
    *,
    out: Path | None = None,
    suggest: int = 0,
    reject: str = "auto",
    reading: Reading = READING,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Give every clip or window its most probable class, and reject what is unlike everything labelled.

    Examples:
        halp classify predict model recordings
        halp classify predict model recordings --reject none --json
        halp classify predict model recordings --suggest 5

    Args:
        model: a model that `halp classify fit` or `halp finetune` made.
        source: a store, or recordings of any format.
        out: also write a CSV table.
        suggest: name so many recordings to label next, in place of the classes.
        reject: share of known clips that may be rejected as unlike everything labelled (auto: as fitted); none for never.
        cache: keep vectors for the next time (--no-cache computes them anew).
        json: print a list of name, start, end, label (null: rejected), probability, best and rejected as JSON.
    """
    from halp.errors import InputError
    from halp.use.calibration import check_rejection
    from halp.use.classify import answers, notes, predict_table, suggest_recordings, window_settings
    from halp.use.model_folder import load_model

    check_rejection(reject)
    if suggest < 0:
        raise InputError(f"{suggest} suggestions cannot be made; ask for at least 1")
    loaded = load_model(model)
    cutting = window_settings(loaded, **reading.spans)
    if not suggest:
        warn(*notes(loaded, cutting, reject))
    vectors, prediction = predict_table(
        loaded, source, cutting, reject=reject, file_format=reading.format, options=reading.options, cache=cache
    )
    if suggest:
        named = suggest_recordings(loaded, vectors, suggest)
        rows = [
            {"name": name, "uncertainty": suggestion.uncertainty, "distance": suggestion.distance}
            for name, suggestion in named
        ]
        show_rows(["name", "uncertainty", "distance"], rows, out, json)
    else:
        show_answers(answers(loaded, vectors, prediction, cutting), out, json)


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
    from halp.use.finetune import finetune as train
    from halp.use.model_folder import check_free, save_model

    check_free(model)
    settings = FinetuneSettings(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        milestones=(epochs * 5 // 8, epochs * 7 // 8),
    )
    source = _open_labelled(labelled, labels, reading)
    tuned = train(encoder, source, settings=settings, rejection_rate=labels.rejection_rate, seed=seed)
    save_model(tuned, model)
    _print_fitted(tuned, model, json)


def _open_labelled(source: Path, labels: LabelOptions, reading: ReadingOptions) -> Source:
    """Recordings with their labels: of whole recordings, or of spans of time."""
    from dataclasses import asdict

    from halp.errors import InputError
    from halp.features.source import open_source

    given = {**reading.source, "labels": labels.labels, "pattern": labels.pattern}
    if labels.events is None:
        return open_source(source, **given)
    if labels.labels is not None or labels.pattern is not None:
        raise InputError("labels come from --events or from --labels and --pattern, not from both; leave one out")
    from halp.findings.formats import read_events
    from halp.findings.labelled import label_windows, usual_cutting

    events, notes = read_events(labels.events)
    cutting = usual_cutting(events, **reading.spans)
    labelled, missed = label_windows(open_source(source, **{**given, **asdict(cutting)}), events)
    for sentence in [*notes, *missed]:
        note(f"note: {sentence}")
    note(
        f"{len(labelled)} windows of {cutting.window:g} s, one every {cutting.stride:g} s, have a label of '{labels.events}'"
    )
    return labelled


def show_answers(answers: Sequence[Answer], out: Path | None, json: bool) -> None:
    """Answers as a table, a CSV file or JSON; the table names the state of a row in place of a class that it has not."""
    from halp.files import write_csv
    from halp.use.segments import COLUMNS

    rows = [answer.to_json() for answer in answers]
    if out is not None:  # the columns of events, then those of answers
        event = {"recording": "name", "stop": "end", "score": "probability"}
        table = [{**row, **{name: row[old] for name, old in event.items()}, "source": "model"} for row in rows]
        columns = ["recording", "start", "stop", "label", "subject", "source", "score"]
        columns += [name for name in (*COLUMNS, "state") if name not in columns]
        note(f"written: {write_csv(out, columns, table)}")
    show_rows([*COLUMNS, "state"], rows, None, json)


def show_rows(columns: list[str], rows: list[dict[str, Any]], out: Path | None, json: bool) -> None:
    """Rows as a table or as JSON on standard output, and as a CSV file where one is asked for."""
    from halp.files import write_csv

    if out is not None:
        note(f"written: {write_csv(out, columns, rows)}")
    columns = [column for column in columns if column != "state" or any("state" in row for row in rows)]
    words = {True: "rejected", False: ""}
    cells = [{k: words[v] if isinstance(v, bool) else v for k, v in row.items()} for row in rows]
    show(rows, table_of(cells, columns, digits=2), json=json)


def _print_fitted(model: Model, path: Path, json: bool) -> None:
    """What was fitted and how good it is."""
    from rich.table import Table

    from halp.progress import console

    facts = {"model": str(path), "classes": model.labelled, "classifier": str(model.classifier.head.candidate)}
    if json:
        print_json({**facts, **model.assessment})
        return
    console.print(
        f"{sum(model.labelled.values())} labelled clips: " + ", ".join(f"{k} {v}" for k, v in model.labelled.items())
    )
    scores = {"encoder": model.assessment.get("encoder"), "raw coordinates": model.assessment.get("raw")}
    table = Table("vectors", "accuracy", "95 % interval", "classifier")
    for name, score in scores.items():
        if score is not None:
            interval = f"{score['low']:.1%} – {score['high']:.1%}"
            table.add_row(name, f"{score['accuracy']:.1%}", interval, score["chosen"])
    if table.row_count:
        print_table(table)
    else:
        console.print("accuracy is not known: every class needs two recordings at least, so that one can be held out")
    curve = model.assessment.get("curve") or {}
    if curve:
        few = Table("labels per class", "encoder", "raw coordinates")
        for count, (encoded, raw) in curve.items():
            few.add_row(str(count), f"{encoded:.1%}", f"{raw:.1%}")
        print_table(few)
    console.print(f"written: [bold]{path}[/]; next: halp classify predict {path} RECORDINGS")
