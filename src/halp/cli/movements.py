"""Commands about movements: groups, comparison of two recordings, timelines, motifs, and deviation from a reference group.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or recordings.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import Positional

from halp.cli.app import app, note, print_json, show, table_of, warn, write_rows
from halp.cli.classify import show_answers
from halp.cli.findings import read_people
from halp.cli.options import READING, Reading, Settings, flat, parse_options
from halp.errors import InputError

if TYPE_CHECKING:
    from halp.clips.windows import WindowSettings
    from halp.reports.page import Report
    from halp.use.model_folder import Model


@app.command
def cluster(
    encoder: Positional[str],
    source: Positional[Path],
    *,
    groups: int | None = None,
    adapt: bool = False,
    out: Path | None = None,
    html: Path | None = None,
    reading: Reading = READING,
    seed: int = 0,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Group clips or windows without labels and name a typical clip of each group.

    Examples:
        halp cluster runs/small-seed0 stores/mine --html groups.html
        halp cluster halp-base recordings --groups 6 --window 2

    Args:
        groups: how many (default: the number up to 12 whose groups are furthest apart).
        adapt: compare in a metric fitted to these clips, in which what mutual neighbours differ in counts less.
        out: also write a CSV table of all clips with their groups.
        html: also write a page with the typical clips and a map.
        seed: of the starting points.
        json: print groups with their members as JSON.
    """
    from halp.features.loading import open_for

    loaded, opened = open_for(encoder, source, **reading.source)
    from halp.features.embed import ready_clips
    from halp.use.cluster import cluster as group
    from halp.use.cluster import clusters_to_json
    from halp.use.pages import cluster_page

    vectors, clusters = group(loaded, opened, groups=groups, adapt=adapt, seed=seed, cache=cache)
    answer = clusters_to_json(vectors, clusters)
    members = [{"group": cluster["group"], **member} for cluster in answer["groups"] for member in cluster["members"]]
    write_rows(out, members, ["name", "start", "end", "group"])
    show(
        answer,
        table_of(clusters.summary(vectors), digits=2),
        json=json,
        said=f"silhouette {clusters.silhouette:.2f} (1: far apart, 0: touching)",
        html=html,
        page=lambda: cluster_page(
            loaded, vectors, clusters, ready_clips(loaded, opened, clusters.typical), str(source)
        ),
    )


@app.command
def compare(
    encoder: Positional[str],
    first: Positional[str],
    second: Positional[str],
    *,
    in_: Annotated[Path | None, tyro.conf.arg(name="in")] = None,
    out: Path | None = None,
    html: Path | None = None,
    format: str = "auto",
    window: float | None = None,
    fps: float | None = None,
    option: Settings = (),
    json: bool = False,
) -> None:
    """Align two recordings in time and show where they differ, frame and joint.

    Examples:
        halp compare runs/small-seed0 before.bvh after.bvh --html compared.html
        halp compare halp-base squat_01 squat_02 --in stores/mine

    Args:
        first: a file with one recording, or the name of a recording in the place given by --in.
        second: the same for the other one.
        in_: a store or recordings that hold both by name.
        out: also write a CSV table of the stretches that differ.
        html: also write a page with both in step, the difference over time and by joint.
        window: seconds around a moment that the encoder looks at (default: a twelfth of the shorter recording).
        option: settings of the format as name=value, as `halp prepare` takes them.
        json: print alignment, stretches and joints as JSON.
    """
    from halp.features.loading import AUTO, as_encoder
    from halp.features.source import open_source
    from halp.use.compare import compare as align
    from halp.use.pages import comparison_page

    options = parse_options(flat(option))
    reading: dict[str, Any] = {"fps": fps, "file_format": format, "options": options}
    loaded = as_encoder(encoder, open_source(in_ or first, **reading) if encoder == AUTO else None)
    comparison = align(loaded, first, second, source=in_, window=window, **reading)
    answer = comparison.to_json()
    rows = [{**stretch, "joints": " ".join(stretch["joints"])} for stretch in answer["stretches"]]
    columns = ["start", "end", "other_start", "other_end", "difference", "joints"]
    write_rows(out, rows, columns)
    worst = [f"{j['joint']} {j['difference']:.2f}" for j in answer["joints"][:5] if j["difference"] is not None]
    show(
        answer,
        table_of(rows, columns, digits=2) if rows else "no stretch stands out from the rest",
        f"joints that differ most overall, in mean bone lengths: {', '.join(worst)}",
        json=json,
        html=html,
        page=lambda: comparison_page(loaded, comparison, f"{first} and {second}"),
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
    reading: Reading = READING,
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
    from halp.features.loading import open_for
    from halp.features.source import open_source
    from halp.use.classify import notes
    from halp.use.model_folder import load_model
    from halp.use.pages import timeline_page
    from halp.use.segment import segment as find_segments
    from halp.use.segment import timeline_cutting

    fitted = None if model is None else load_model(model)
    cutting = timeline_cutting(fitted, **reading.spans)
    if fitted is not None:
        warn(*notes(fitted, cutting, reject))
    if str(source) == "-":
        _stream(fitted, cutting, topology, reject)
        return
    opened = open_source(source, fps=reading.fps, file_format=reading.format, options=reading.options)
    used, opened = open_for(encoder if fitted is None else fitted.encoder, opened)
    asked = {**reading.spans, "cache": cache}
    timeline = find_segments(used, opened, model=fitted, groups=groups, shortest=shortest, reject=reject, **asked)
    show_answers(timeline, out, json)
    if video is not None:
        from halp.clips.readers.video import overlay_film

        spans = [(answer.start, answer.end, answer.label or answer.state or "?") for answer in timeline]
        note(f"written: {overlay_film(source, spans, video)}")
    if html is not None:
        from halp.features.embed import ready_clips
        from halp.video.film import film_addresses

        recordings = opened.cut(fps=cutting.fps)
        whole = ready_clips(used, recordings, range(len(recordings)))
        films = film_addresses(source, [clip.recording or clip.name for clip in whole], html)
        note(f"written: {timeline_page(used, timeline, whole, str(source), films).save(html)}")


def _stream(fitted: Model | None, cutting: WindowSettings, topology: str | None, reject: str) -> None:

    from halp.use.stream import FrameReader, LiveRecognition

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
            print_json(answer.to_json(), indent=None)
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
