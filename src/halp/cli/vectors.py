"""Commands about vectors of windows: movements that come again, and how far movements are from those of a reference group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from halp.cli.app import app, note, show, table_of
from halp.cli.findings import read_people
from halp.cli.options import READING, Reading
from halp.errors import InputError

if TYPE_CHECKING:
    from halp.reports.page import Report


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
    reading: Reading = READING,
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

    from halp.features.embed import ready_clips
    from halp.findings.events import answers_to_events
    from halp.findings.formats import write_events
    from halp.findings.motifs import fit_motifs, load_motifs
    from halp.findings.motifs import stability as measure_stability
    from halp.findings.pages import motifs_page
    from halp.findings.stats import rounded
    from halp.findings.windows import embedded, motif_answers, motif_rows, sequences, typical_rows

    fitted = None if model is None else load_motifs(model)
    asked = dict(reading.source)
    asked["window"] = reading.window or (1.0 if fitted is None else float(fitted.facts.get("window", 1.0)))
    asked["stride"] = reading.stride or (
        asked["window"] / 4 if fitted is None else float(fitted.facts.get("stride", 0.25))
    )
    loaded, opened, table = embedded(encoder, source, cache=cache, **asked)
    parts = [np.asarray(table.vectors[rows]) for rows in sequences(table)]
    steady = None
    if fitted is None:
        fitted = fit_motifs(parts, motifs, sticky=sticky, seed=seed)
        fitted.facts.update(window=asked["window"], stride=asked["stride"], encoder=str(encoder))
        steady = measure_stability(parts, len(fitted), sticky=sticky, seed=seed) if stability else None
    if merge is not None and not 1 <= merge <= len(fitted):
        raise InputError(f"{len(fitted)} motifs cannot be merged to {merge}; give 1 to {len(fitted)}")
    answers, probability = motif_answers(
        fitted, table, groups=None if merge is None else fitted.merged(merge), shortest=shortest
    )
    events = answers_to_events(answers)
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
    html: Path | None = None,
    reading: Reading = READING,
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
        html: also write a page with visits, joints and moments.
        json: print a list of recordings with score, percentile, joints and moments as JSON.
    """
    from halp.findings.deviation import deviation as measure
    from halp.findings.deviation import make_reference
    from halp.findings.pages import deviation_page
    from halp.findings.stats import rounded
    from halp.findings.windows import deviation_windows, embedded

    asked = {**reading.source, "window": reading.window or 2.0, "stride": reading.stride or (reading.window or 2.0) / 2}
    names = None if people is None else read_people(people, "subject", ("recording", "name", "path"))
    windows = []
    for place in (reference, source):
        loaded, opened, table = embedded(encoder, place, cache=cache, **asked)
        windows.append(deviation_windows(loaded, opened, table, names))
    rows = rounded(measure(make_reference(windows[0]), windows[1]))
    flat = [
        {k: v for k, v in row.items() if k not in ("joints", "moments")}
        | {"joints": ", ".join(joint["joint"] for joint in row["joints"][:3])}
        for row in rows
    ]
    show(rows, table_of(flat), json=json, html=html, page=lambda: deviation_page(rows, f"{source} beside {reference}"))
