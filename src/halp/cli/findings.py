"""Commands about findings: events and their formats, and what is counted from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from halp.cli.app import app, note, show, table_of, warn, write_rows
from halp.cli.options import WHOLE, WholeArgs
from halp.core.errors import InputError, check_choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halp.data.spans import Events
    from halp.reports.page import Report


@app.command
def events(
    source: Positional[Path],
    out: Positional[Path | None] = None,
    *,
    from_format: str = "auto",
    to: str = "auto",
    recordings: Path | None = None,
    labels: tuple[str, ...] = (),
    concurrent: bool = False,
    media: str = "mp4",
    fps: float = 30.0,
    json: bool = False,
) -> None:
    """Check events and write them in another format: CSV, Parquet, Excel, BORIS, ELAN, Praat, Audacity, SLEAP.

    Formats that hold one recording per file (elan, textgrid, audacity, boris-xlsx) are written to a folder.

    Examples:
        halp events segments.csv project.boris
        halp events segments.csv elan-files --to elan
        halp events boris-export.csv events.csv --recordings poses --labels walk sit

    Args:
        source: a file with events, or a folder of them.
        out: where to write; without it events are only checked and listed.
        from_format: csv, tsv, parquet, excel, boris, elan, textgrid, audacity or sleap (default: by the ending).
        to: the same, or boris-xlsx, a workbook for the import of BORIS (default: by the ending).
        recordings: a store or recordings that events are matched with by name, and checked against by length.
        labels: the labels there may be; any other is an error.
        media: ending of the films that a file of BORIS or SLEAP refers to.
        fps: frames per second of the films, for SLEAP, which counts frames.
        json: print the events as JSON.
    """
    from halp.tasks.events.formats import write_events

    checked = _read(source, from_format, recordings).check(labels=labels or None, concurrent=concurrent)
    rows = [event.to_json() for event in checked]
    show(rows, *([table_of(rows)] if out is None else []), json=json)
    for path in () if out is None else write_events(checked, out, to, media=media, fps=fps):
        note(f"written: {path}")


@app.command
def stats(
    events: Positional[Path],
    *,
    by: str | None = None,
    people: Path | None = None,
    bins: float | None = None,
    gap: float = 0.0,
    shortest: float = 0.0,
    start: float = 0.0,
    stop: float | None = None,
    measure: str = "share",
    test: str = "permutation",
    source: str | None = None,
    recordings: Path | None = None,
    concurrent: bool = False,
    format: str = "auto",
    resamples: int = 9999,
    seed: int = 0,
    out: Path | None = None,
    html: Path | None = None,
    json: bool = False,
) -> None:
    """Count events: how often, how long, in what order; per recording, and between groups of people.

    Shares refer to the time in which somebody was there, from 0 to the end of the recording (of its last event, where the
    length is not known). A person is a subject, or a recording where subjects are not given.

    Examples:
        halp stats segments.csv --html stats.html
        halp stats events.csv --by group --people people.csv --measure rate --json
        halp stats project.boris --bins 60 --gap 0.5 --shortest 1 --out tables

    Args:
        events: a file with events in any format, or a folder of them.
        by: a column of the events, or of --people, that names the group of a person.
        people: a CSV table with a column subject (or recording) and a column of groups.
        bins: also count per so many seconds.
        start: seconds; where in every recording counting begins.
        stop: seconds; where it ends.
        measure: what groups are compared by: share, rate, mean, count, total or latency.
        test: permutation or kruskal.
        source: count events of human or model only.
        recordings: a store or recordings: names are matched, lengths are known.
        format: of the events (default: by the ending).
        resamples: of permutation tests.
        seed: of permutations and bootstrap.
        out: a folder for all tables as CSV.
        html: also write a page with figures.
        json: print all tables as JSON.
    """
    from halp.reports.pages.findings import group_rows, stats_page
    from halp.tasks.bouts import observed_bouts
    from halp.tasks.stats import statistics

    chosen = _read(events, format, recordings)
    if source is not None:
        from halp.data.spans import SOURCES

        chosen = chosen.where(source=check_choice("source", source, SOURCES))
    groups = None if people is None else read_people(people, by)
    result = statistics(
        chosen,
        gap=gap,
        shortest=shortest,
        start=start,
        stop=stop,
        bins=bins,
        concurrent=concurrent,
        by=by,
        groups=groups,
        measure=measure,
        test=test,
        resamples=resamples,
        seed=seed,
        progress=True,
    )
    tables = {name: table for name, table in result.to_json().items() if name != "groups"}
    if result.groups:
        tables["groups"] = group_rows(result.groups)
    for name, rows in tables.items():
        write_rows(out and out / f"{name}.csv", rows)

    def page() -> Report:
        return stats_page(result, observed_bouts(chosen.merged(gap, shortest), start, stop), chosen.labels, str(events))

    shown = [table_of(tables[name]) for name in ("recordings", "groups") if name in tables]
    show(result.to_json(), *shown, json=json, html=html, page=page)


@app.command
def angles(
    source: Positional[Path],
    *,
    convention: str = "interior",
    out: Path | None = None,
    html: Path | None = None,
    reading: WholeArgs = WHOLE,
    json: bool = False,
) -> None:
    """Joint angles of recordings: ranges, velocities and left-right asymmetry, and every angle over time.

    Interior angles lie between two bones, 0 to 180 degrees, 180 where the limb is straight. Clinical ones are 0 where the body
    stands upright and have a sign: flexion, dorsiflexion, abduction and lean forward are positive. Any topology that has
    the joints. Angles are not smoothed; velocities are slopes over 0.2 s.

    Examples:
        halp angles squats.bvh --html angles.html
        halp angles recordings --convention clinical --out angles.csv --json

    Args:
        convention: interior or clinical (knee_flexion, ankle_dorsiflexion, trunk_flexion, pelvis_obliquity, ...).
        out: also write a CSV table with a row per frame: every angle of both conventions in degrees, and its velocity.
        html: also write a page with curves.
        json: print ranges as JSON.
    """
    from halp.reports.pages.findings import angles_page
    from halp.tasks.angles import FASTEST, FLAT, angle_rows, angle_series, headed
    from halp.tasks.clinical import clinical_angles, clinical_rows
    from halp.tasks.intervals import rounded
    from halp.tasks.pose_tracks import read_poses

    measure = {"interior": angle_rows, "clinical": clinical_rows}[
        check_choice("convention", convention, ("interior", "clinical"))
    ]
    people = list(read_poses(source, reading.reading))
    if any(poses.topology.dimensions == 2 for poses in people):
        warn(FLAT)
    rows = rounded([row for poses in people for row in measure(poses)])
    fast = [row for row in rows if row["outliers"]]
    if fast:
        warn(
            f"{fast[0]['angle']} of '{fast[0]['recording']}' changes faster than {FASTEST:,.0f} °/s in {fast[0]['outliers']} "
            f"frames{f', and {len(fast) - 1} more angles do' if len(fast) > 1 else ''}: probably tracking errors"
        )
    if out is not None:
        write_rows(out, [row for poses in people for row in angle_series(poses, clinical_angles(poses))])
    hidden = ("unit", "isb", "smoothing", "interval", "interval_reason")
    shown = [headed({name: value for name, value in row.items() if name not in hidden}) for row in rows]
    show(rows, table_of(shown), json=json, html=html, page=lambda: angles_page(people, str(source)))


@app.command
def poses(
    source: Positional[Path],
    out: Positional[Path],
    *,
    to: str = "trc",
    reading: WholeArgs = WHOLE,
) -> None:
    """Write poses for other programs: TRC (OpenSim), BVH (animation) or netCDF (`movement`), a file per person.

    Examples:
        halp poses recordings trc-files
        halp poses recordings bvh-files --to bvh

    Args:
        source: a store, or recordings of any format; TRC and BVH need three dimensions.
        out: the folder to write to.
        to: trc, bvh or nc.
    """
    from halp.tasks.pose_files import write_poses
    from halp.tasks.pose_tracks import read_poses

    for path in write_poses(read_poses(source, reading.reading), out, to):
        note(f"written: {path}")


@app.command
def repetitions(
    source: Positional[Path],
    *,
    angle: str | None = None,
    joint: str | None = None,
    reference: int | None = None,
    out: Path | None = None,
    html: Path | None = None,
    reading: WholeArgs = WHOLE,
    json: bool = False,
) -> None:
    """Count and cut the repetitions of an exercise: duration, range of motion, smoothness, difference from a reference.

    Pauses, unequal tempo and a partial first or last repetition are allowed; partial ones are listed and not counted.

    Examples:
        halp repetitions squats.bvh --html repetitions.html
        halp repetitions recordings --angle knee_right --out repetitions.csv --json

    Args:
        angle: find repetitions in this joint angle, such as knee_right (default: in the movement of the whole body).
        joint: find repetitions in the path of this joint, such as wrist_left.
        reference: which repetition (from 1) the others are compared with (default: the one nearest to all others).
        out: also write the repetitions, as events (CSV, or any format that `halp events` writes).
        html: also write a page with players.
        json: print counts and repetitions as JSON.
    """
    from halp.data.spans import Events
    from halp.reports.pages.findings import repetitions_page
    from halp.tasks.events.formats import write_events
    from halp.tasks.pose_tracks import read_poses
    from halp.tasks.repetitions import find_repetitions, repetition_row

    results = [
        find_repetitions(poses, reference=reference, angle=angle, joint=joint)
        for poses in read_poses(source, reading.reading)
    ]
    if out is not None:
        for path in write_events(Events([event for result in results for event in result.events()]), out):
            note(f"written: {path}")
    rows = [result.to_json() for result in results]
    table = table_of([repetition_row(row) for row in rows])
    show(rows, table, json=json, html=html, page=lambda: repetitions_page(results, str(source)))


@app.command
def gait(
    source: Positional[Path],
    *,
    out: Path | None = None,
    html: Path | None = None,
    reading: WholeArgs = WHOLE,
    json: bool = False,
) -> None:
    """Strides and steps of people who walk: times, lengths, cadence, symmetry and double support, with intervals.

    Foot contacts are where a foot is furthest in front of the hips, toe-offs where it is furthest behind them. Hips and both
    feet have to be seen. Lengths have the unit of the recording.

    Examples:
        halp gait walk.bvh --html gait.html
        halp gait recordings --out strides.csv --json

    Args:
        out: also write the strides, as events (CSV, or any format that `halp events` writes).
        html: also write a page.
        json: print measures, contacts and strides as JSON.
    """
    from halp.data.spans import Events
    from halp.reports.pages.findings import gait_page
    from halp.tasks.events.formats import write_events
    from halp.tasks.gait import find_gait, gait_row
    from halp.tasks.pose_tracks import read_poses

    results = [find_gait(poses) for poses in read_poses(source, reading.reading)]
    for path in () if out is None else write_events(Events([e for result in results for e in result.events()]), out):
        note(f"written: {path}")
    rows = [result.to_json() for result in results]
    warn(*dict.fromkeys(f"'{row['recording']}': {sentence}" for row in rows for sentence in row["notes"]))
    show(
        rows,
        table_of([gait_row(row) for row in rows]),
        json=json,
        html=html,
        page=lambda: gait_page(results, str(source)),
    )


@app.command
def agreement(
    first: Positional[Path],
    second: Positional[Path],
    *,
    bin: float = 0.1,
    overlap: float = 0.5,
    gap: float = 0.0,
    shortest: float = 0.0,
    html: Path | None = None,
    json: bool = False,
) -> None:
    """Compare two accounts of the same recordings: a person and a model, or two people.

    Cohen's kappa and confusion of short bins of time, F1 of bouts, errors of their boundaries, and the intraclass
    correlation of durations. Recordings are matched by name without endings.

    Examples:
        halp agreement coder.csv segments.csv --html agreement.html
        halp agreement ann.eaf bob.eaf --bin 0.04 --json

    Args:
        first: events in any format, the reference of precision and recall.
        second: the other account.
        bin: seconds of a bin.
        overlap: intersection over union from which on two bouts are the same.
        html: also write a page.
        json: print everything as JSON.
    """
    from halp.reports.pages.findings import agreement_page
    from halp.tasks.agreement import agreement as compare
    from halp.tasks.intervals import rounded

    result, notes = compare(
        _read(first, "auto"), _read(second, "auto"), bin_width=bin, overlap=overlap, gap=gap, shortest=shortest
    )
    for sentence in notes:
        note(f"note: {sentence}")
    result = rounded(result)
    chance = "undefined, there is one label only" if result["kappa"] is None else f"{result['kappa']:.3f}"
    head = f"Cohen's kappa {chance}; the same label in {result['agreement']:.1%} of the bins"
    table, name = table_of(result["labels"]), f"{first} and {second}"
    show(result, head, table, json=json, html=html, page=lambda: agreement_page(result, name))


def _read(path: Path, format: str, recordings: Path | None = None) -> Events:
    """Events of a file or folder, matched with recordings where they are given; what does not fit is said."""
    from halp.tasks.events.formats import read_events

    events, notes = read_events(path, format)
    if recordings is not None:
        from halp.tasks.pose_tracks import recording_lengths

        lengths = recording_lengths(recordings)
        matched, missed, without = events.matched(list(lengths))
        if not len(matched):
            raise InputError(
                f"no event of '{path}' belongs to a recording of '{recordings}' (events name '{missed[0] if missed else ''}', "
                f"recordings '{next(iter(lengths))}'); names without endings have to be the same"
            )
        notes += [f"no recording is called '{name}', its events are left out" for name in missed]
        notes += [f"recording '{name}' has no events" for name in without]
        events = replace(matched, lengths=lengths)
    for sentence in notes:
        note(f"note: {sentence}")
    return events


def read_people(
    path: Path, by: str | None, keys: Sequence[str] = ("subject", "person", "participant", "recording", "name")
) -> dict[str, str]:
    """A column of a table by the names of people or recordings."""
    from halp.data.text_files import problem, read_plain_table

    if by is None:
        raise InputError(f"'{path}' names people; say which of its columns is the group with --by")
    if not path.is_file():
        raise InputError(
            f"there is no table '{path}'; give a CSV file with the columns subject (or recording) and {by}"
        )
    table = read_plain_table(path)
    key = next((name for name in keys if name in table.columns), None)
    if key is None:
        raise problem(path, "line 1", "no column says whose row it is", f"call one of them {keys[0]}")
    check_choice(f"column of '{path}'", by.lower(), table.columns)
    return dict(zip(table.columns[key], table.columns[by.lower()]))
