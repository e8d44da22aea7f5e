"""Commands about classes: `halp classify fit`, `halp classify predict`, `halp finetune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from halp.cli.app import app, note, show, table_of, write_rows
from halp.cli.options import LABELS, READING, LabelOptions, Labels, ReadingArgs
from halp.cli.verbs import finish
from halp.core.errors import InputError
from halp.data.reading import Reading

if TYPE_CHECKING:
    from halp.features.source import Source
    from halp.tasks.model_folder import Model

classify_app = app.group(
    "classify", "Classes from a handful of labels: `fit` makes a model, `predict` uses it."
)


@classify_app.command(name="fit")
def classify_fit(
    encoder: Positional[str],
    labelled: Positional[Path],
    model: Positional[Path],
    *,
    unlabelled: Path | None = None,
    labels: Labels = LABELS,
    kind: str = "auto",
    sides: str = "matter",
    reading: ReadingArgs = READING,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Fit a classifier on labelled recordings and report its accuracy beside that of raw coordinates.

    Examples:
        halp classify fit runs/small-seed0 labelled model
        halp classify fit halp-base recordings model --labels labels.csv --window 2 --stride 1
        halp classify fit halp-base recordings model --events boris-export.csv
        halp classify fit halp-base labelled model --unlabelled recordings

    Args:
        model: the model folder to make.
        unlabelled: recordings without labels, read like the labelled ones; few labels go further with them.
            Recordings of LABELLED that have no label are used in any case.
        kind: linear, knn, prototypes, adapted (needs clips without labels), or auto to choose by
            cross-validation.
        sides: whether left and right matter to the classes: matter, soft (less), or same (either hand will
            do).
        seed: of the folds.
        json: print accuracies as JSON.
    """
    from halp.tasks.calibration import check_rejection
    from halp.tasks.classify import fit
    from halp.tasks.model_folder import check_free, save_model

    check_free(model)
    check_rejection(labels.rejection_rate)
    source = _open_labelled(labelled, labels, reading.reading)
    further = None if unlabelled is None else open_unlabelled(unlabelled, source, reading.reading)
    how: dict[str, Any] = {
        "kind": kind,
        "sides": sides,
        "rejection_rate": labels.rejection_rate,
        "seed": seed,
    }
    fitted = fit(encoder, source, unlabelled=further, **how)
    save_model(fitted, model)
    _show_fitted(fitted, model, json)


@classify_app.command(name="predict")
def classify_predict(
    model: Positional[Path],
    source: Positional[Path],
    *,
    out: Path | None = None,
    suggest: int = 0,
    reject: str = "auto",
    reading: ReadingArgs = READING,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Predict the class of every clip or window, and reject those unlike all labelled ones.

    Examples:
        halp classify predict model recordings
        halp classify predict model recordings --reject none --json
        halp classify predict model recordings --suggest 5

    Args:
        model: a model that `halp classify fit` or `halp finetune` made.
        suggest: name this many recordings to label next, instead of the classes.
        json: print a list of name, start, end, label (null: rejected), probability, best and rejected as
            JSON.
    """
    from halp.tasks.classify import predict, suggest_recordings

    if suggest < 0:
        raise InputError(f"{suggest} suggestions cannot be made; ask for at least 1")
    if not suggest:
        return finish(
            predict(model, source, reject=reject, cache=cache, reading=reading.reading), out=out, json=json
        )
    named = suggest_recordings(model, source, suggest, cache=cache, reading=reading.reading)
    rows = [{"name": name, "uncertainty": one.uncertainty, "distance": one.distance} for name, one in named]
    write_rows(out, rows)
    return show(rows, table_of(rows, digits=2), json=json)


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
    reading: ReadingArgs = READING,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Train the whole network with labels; `halp classify predict` takes the model.

    Example: halp finetune runs/small-seed0 labelled model --epochs 30

    Args:
        model: the model folder to make.
        epochs: passes over the labelled recordings; the learning rate falls after 5/8 and 7/8 of them.
        batch_size: clips per step.
        learning_rate: of the first epochs.
        seed: of the head, the crops and the order.
        json: print the accuracy as JSON.
    """
    from halp.evaluation.protocols.finetune import FinetuneSettings
    from halp.tasks.finetune import finetune as train
    from halp.tasks.model_folder import check_free, save_model

    check_free(model)
    settings = FinetuneSettings(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        milestones=(epochs * 5 // 8, epochs * 7 // 8),
    )
    source = _open_labelled(labelled, labels, reading.reading)
    tuned = train(encoder, source, settings=settings, rejection_rate=labels.rejection_rate, seed=seed)
    save_model(tuned, model)
    _show_fitted(tuned, model, json)


def _open_labelled(source: Path, labels: LabelOptions, reading: Reading) -> Source:
    """Recordings with their labels: of whole recordings, or of spans of time."""
    from halp.features.opening import open_source

    if labels.events is None:
        return open_source(source, reading, labels=labels.labels, pattern=labels.pattern)
    if labels.labels is not None or labels.pattern is not None:
        raise InputError("labels come either from --events or from --labels and --pattern; leave one out")
    from halp.tasks.events.formats import read_events
    from halp.tasks.windows import label_windows, usual_cutting

    events, notes = read_events(labels.events)
    cutting = usual_cutting(events, reading.windows)
    labelled, missed = label_windows(open_source(source, reading.cut_by(cutting)), events)
    for sentence in [*notes, *missed]:
        note(f"note: {sentence}")
    note(
        f"{len(labelled)} windows of {cutting.window:g} s, one every {cutting.stride:g} s, have a label of"
        f" '{labels.events}'"
    )
    return labelled


def open_unlabelled(path: Path, labelled: Source, reading: Reading) -> Source:
    """Recordings without labels, cut like the labelled ones."""
    from halp.features.opening import open_source

    return open_source(path, reading.cut_by(labelled.cutting))


def _show_fitted(model: Model, path: Path, json: bool) -> None:
    """The fitted model and its accuracy."""
    facts = {
        "model": str(path),
        "classes": model.labelled,
        "classifier": str(model.classifier.head.candidate),
    }
    known = {"encoder": model.assessment.get("encoder"), "raw coordinates": model.assessment.get("raw")}
    scores = [
        {"vectors": name, "accuracy": f"{score['accuracy']:.1%}"}
        | {"95 % interval": f"{score['low']:.1%} – {score['high']:.1%}", "classifier": score["chosen"]}
        for name, score in known.items()
        if score is not None
    ]
    curve = [
        {"labels per class": str(count), "encoder": f"{encoded:.1%}", "raw coordinates": f"{raw:.1%}"}
        for count, (encoded, raw) in (model.assessment.get("curve") or {}).items()
    ]
    counts = ", ".join(f"{name} {count}" for name, count in model.labelled.items())
    said = f"{sum(model.labelled.values())} labelled clips: {counts}"
    if clips := model.assessment.get("unlabelled"):
        used = "used" if model.classifier.head.candidate.kind == "adapted" else "of no help here"
        said += f"\n{clips} clips without labels: {used}"
    if not scores:
        said += (
            "\naccuracy is not known: every class needs at least two recordings, so that one can be held out"
        )
    show(
        {**facts, **model.assessment},
        *(table_of(rows) for rows in (scores, curve) if rows),
        json=json,
        said=said,
    )
    if not json:
        note(f"written: {path}; next: halp classify predict {path} RECORDINGS")
