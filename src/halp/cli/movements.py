"""Commands about movements: groups, comparison of two recordings, timelines, motifs, and deviation from a reference group.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or recordings.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from halp.cli.app import app, note, print_json, show, table_of, warn
from halp.cli.findings import read_people
from halp.cli.options import READING, ReadingArgs
from halp.cli.verbs import MaybeIn, Verb, finish
from halp.core.errors import InputError

if TYPE_CHECKING:
    from halp.data.windows import WindowSettings
    from halp.reports.page import Report
    from halp.tasks.model_folder import Model


app.verb(
    "cluster",
    Verb(
        "halp.tasks.cluster:cluster",
        examples=(
            "halp cluster runs/small-seed0 stores/mine --html groups.html",
            "halp cluster halp-base recordings --groups 6 --window 2",
        ),
    ),
)
app.verb(
    "compare",
    Verb(
        "halp.tasks.compare:compare",
        types={"first": str, "second": str, "source": MaybeIn},
        texts={
            "first": "a file with one recording, or the name of a recording in the source given by --in.",
            "second": "the same for the other one.",
            "source": "a store or recordings that hold both by name.",
        },
        examples=(
            "halp compare runs/small-seed0 before.bvh after.bvh --html compared.html",
            "halp compare halp-base squat_01 squat_02 --in stores/mine",
        ),
    ),
)


@app.command
def segment(
    encoder: Positional[str],
    source: Positional[Path],
    *,
    model: Path | None = None,
    out: Path | None = None,
    html: Path | None = None,
    video: Path | None = None,
    groups: int | None = None,
    shortest: float | None = None,
    reject: str = "auto",
    reading: ReadingArgs = READING,
    topology: str | None = None,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Cut recordings into segments: a timeline of classes, or of groups where there is no model.

    Windows are those the model was fitted with, else 2 seconds every half second, unless told otherwise. With - as source,
    frames are read from standard input, a JSON array of joints per line, and an answer is written per stride as a line of
    JSON.

    Examples:
        halp segment runs/small-seed0 long.bvh --model model --html timeline.html --out segments.csv
        halp segment halp-base recordings --window 2 --stride 0.5 --groups 6
        camera | halp segment halp-base - --model model --fps 30 --window 2 --stride 0.25

    Args:
        encoder: a run folder, a package, or the name of an encoder that comes with halp; a model brings its own.
        source: a store, recordings of any format, or - for frames on standard input.
        model: a model of `halp classify fit` or `halp finetune`.
        html: also write a page with the player on the timeline.
        video: where the source is a film, also write it with skeletons, labels and a time line drawn into it (mp4).
        groups: how many groups, without a model (default: the number whose groups are furthest apart).
        shortest: seconds; shorter segments go to a neighbour (default: half a window).
        topology: of frames on standard input (default: the encoder's).
        json: print a list of name, start, end, label (null: rejected, or nobody), probability, best and rejected as JSON.
    """
    from halp.tasks.model_folder import load_model
    from halp.tasks.segment import segment as find_segments
    from halp.tasks.segment import timeline_cutting

    fitted = None if model is None else load_model(model)
    if str(source) == "-":
        _stream(fitted, timeline_cutting(fitted, reading.reading.windows), topology, reject)
        return
    timeline = find_segments(
        encoder,
        source,
        model=fitted,
        groups=groups,
        shortest=shortest,
        reject=reject,
        cache=cache,
        reading=reading.reading,
    )
    finish(timeline, out=out, html=html, json=json)
    if video is not None:
        from halp.data.readers.video import overlay_film

        spans = [(event.start, event.stop, event.label or "?") for event in timeline]
        note(f"written: {overlay_film(source, spans, video)}")


def _stream(fitted: Model | None, cutting: WindowSettings, topology: str | None, reject: str) -> None:

    from halp.tasks.live import FrameReader, LiveRecognition
    from halp.tasks.segments import prediction_json

    if fitted is None:
        raise InputError(
            "frames on standard input need a model; make one with `halp classify fit` and give it with --model"
        )
    if cutting.fps is None or cutting.window is None or cutting.stride is None:
        raise InputError("frames on standard input do not tell their rate; give it with --fps")
    live = LiveRecognition(fitted, cutting.fps, cutting.window, cutting.stride, topology, reject)
    reader = FrameReader(sys.stdin.buffer, live.layout)
    said = 0
    for frame in reader:
        answer = live.push(frame)
        if reader.bad > said and said < 3:
            said = reader.bad
            warn(reader.problem)
        if answer is not None:
            print_json(prediction_json(answer), indent=None)
            sys.stdout.flush()
    if reader.bad:
        warn(f"{reader.bad} of {reader.read} lines were not frames; the last: {reader.problem}")
    note(live.summary())


@app.command
def motifs(
    encoder: Positional[str],
    source: Positional[Path],
    *,
    motifs: int | None = None,
    sticky: float = 20.0,
    merge: int | None = None,
    model: Path | None = None,
    save: Path | None = None,
    shortest: float = 0.0,
    stability: bool = True,
    out: Path | None = None,
    html: Path | None = None,
    reading: ReadingArgs = READING,
    seed: int = 0,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Find movements that come again, with their durations and without labels, and apply them to new recordings.

    A hidden Markov model on vectors of windows (1 second every quarter of a second unless told otherwise).

    Examples:
        halp motifs halp-base recordings --save motifs.npz --html motifs.html --out motifs.csv
        halp motifs halp-base new-recordings --model motifs.npz --out motifs.csv

    Args:
        motifs: how many (default: the number up to 12 with the lowest BIC).
        sticky: prior counts of staying in a motif; larger means longer bouts.
        merge: join the most similar motifs until so many are left.
        model: motifs that --save wrote, to apply in place of finding new ones.
        save: write the motifs to a file.
        shortest: seconds; shorter bouts go to a neighbour.
        stability: measure how far motifs depend on the seed and on the half of the data (--no-stability saves the time).
        out: also write the bouts as events (CSV, or any format that `halp events` writes).
        html: also write a page with examples.
        seed: of the search.
        json: print motifs, tree, stability and events as JSON.
    """
    import numpy as np

    from halp.data.spans import Events
    from halp.features.embed import ready_clips
    from halp.reports.pages.findings import motifs_page
    from halp.tasks.events.formats import write_events
    from halp.tasks.intervals import rounded
    from halp.tasks.motifs import fit_motifs, load_motifs
    from halp.tasks.motifs import stability as measure_stability
    from halp.tasks.segment import check_stride
    from halp.tasks.windows import embedded, motif_answers, motif_rows, sequences, typical_rows

    fitted = None if model is None else load_motifs(model)
    width = reading.window or (1.0 if fitted is None else float(fitted.facts.get("window", 1.0)))
    step = reading.stride or (width / 4 if fitted is None else float(fitted.facts.get("stride", 0.25)))
    check_stride(width, step)
    asked = replace(reading.reading, window=width, stride=step)
    loaded, opened, table = embedded(encoder, source, asked, cache=cache)
    parts = [np.asarray(table.vectors[rows]) for rows in sequences(table)]
    steady = None
    if fitted is None:
        fitted = fit_motifs(parts, motifs, sticky=sticky, seed=seed, progress=True)
        fitted.facts.update(window=width, stride=step, encoder=str(encoder))
        steady = measure_stability(parts, len(fitted), sticky=sticky, seed=seed, progress=True) if stability else None
    if merge is not None and not 1 <= merge <= len(fitted):
        raise InputError(f"{len(fitted)} motifs cannot be merged to {merge}; give 1 to {len(fitted)}")
    answers, probability = motif_answers(
        fitted, table, groups=None if merge is None else fitted.merged(merge), shortest=shortest
    )
    events = Events(answers)
    rows = motif_rows(events, probability)
    if save is not None:
        note(f"written: {fitted.save(save)}")
    for path in () if out is None else write_events(events, out):
        note(f"written: {path}")

    def page() -> Report:
        examples = {
            row["motif"]: ready_clips(loaded, opened, typical_rows(table, probability, number))
            for number, row in enumerate(rows)
        }
        return motifs_page(loaded, fitted, events, rows, examples, steady, str(source))

    answer = {"motifs": rows, "tree": fitted.tree().tolist(), "stability": steady}
    answer["events"] = [event.to_json() for event in events]
    show(rounded(answer), table_of(rows), json=json, html=html, page=page)
    if steady is not None and not json:
        shown = {name: "unknown" if value is None else f"{value:.2f}" for name, value in steady.items()}
        note(f"adjusted Rand index (1: the same motifs, 0: chance): seeds {shown['seeds']}, halves {shown['halves']}")


@app.command
def deviation(
    encoder: Positional[str],
    reference: Positional[Path],
    source: Positional[Path],
    *,
    people: Path | None = None,
    other_windows: bool = True,
    html: Path | None = None,
    reading: ReadingArgs = READING,
    cache: bool = True,
    json: bool = False,
) -> None:
    """How far movements are from those of a reference group, as a percentile among people who were held out.

    It says how unusual a movement is for this group; it is not a diagnosis. Every recording of the source is a visit.

    Examples:
        halp deviation halp-base healthy visits --html deviation.html
        halp deviation halp-base healthy visits --people people.csv --window 2 --json

    Args:
        reference: a store or recordings of five or more people, doing what is tested.
        source: a store or recordings of the tested people.
        people: a CSV table with the columns recording and subject, where recordings do not tell who it is.
        other_windows: also measure with half the window and warn where the answer changes (--no-other-windows saves time).
        html: also write a page with visits, joints and moments.
        json: print a list of recordings with score, percentile, joints and moments as JSON.
    """
    from halp.reports.pages.findings import deviation_page
    from halp.tasks.deviation import warnings_about
    from halp.tasks.intervals import rounded
    from halp.tasks.windows import measure_deviation

    names = None if people is None else read_people(people, "subject", ("recording", "name", "path"))
    measured = measure_deviation(
        encoder, reference, source, reading.reading, people=names, other_windows=other_windows, cache=cache
    )
    rows = rounded(measured)
    flat = [
        {k: v for k, v in row.items() if k not in ("joints", "moments", "reference", "other_windows")}
        | {f"percentile, {o['window']:g} s windows": o["percentile"] for o in row.get("other_windows", ())}
        | {"unlike": "unlike the reference" if row["unlike"] else ""}
        | {"joints": ", ".join(joint["joint"] for joint in row["joints"][:3])}
        for row in rows
    ]
    spread = rows[0]["reference"] if rows else {}
    said = "scores of the reference, each person against the others: " + ", ".join(
        f"{name} {value:.3f}" for name, value in spread.items()
    )
    page = f"{source} beside {reference}"
    show(rows, table_of(flat), json=json, said=said, html=html, page=lambda: deviation_page(rows, page))
    warn(*warnings_about(rows))
