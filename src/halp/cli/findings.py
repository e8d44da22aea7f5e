"""Commands about findings: events, what is measured from events and poses, comparison and timelines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tyro.conf import Positional

from halp.cli.app import app, note, show, table_of
from halp.cli.options import POSES, READING, From, PoseArgs, ReadingArgs
from halp.cli.verbs import MaybeIn, finish
from halp.core.errors import InputError


@app.command
def events(
    source: Positional[Path],
    out: Positional[Path | None] = None,
    *,
    from_format: From = "auto",
    to: str = "auto",
    recordings: Path | None = None,
    allowed_labels: tuple[str, ...] = (),
    concurrent: bool = False,
    media: str = "mp4",
    fps: float = 30.0,
    json: bool = False,
) -> None:
    """Check events and write them in another format: CSV, Excel, BORIS, ELAN, Praat, SLEAP and others.

    Formats that hold one recording per file (elan, textgrid, audacity, boris-xlsx) are written to a folder.

    Examples:
        halp events segments.csv project.boris
        halp events segments.csv elan-files --to elan
        halp events boris-export.csv events.csv --recordings poses --allowed-labels walk sit

    Args:
        source: a file with events, or a folder of them.
        out: where to write; without it events are only checked and listed.
        from_format: csv, tsv, parquet, excel, boris, elan, textgrid, audacity or sleap (default: by the
            ending).
        to: one of these, or boris-xlsx, a workbook for the import of BORIS (default: by the ending).
        recordings: a store or recordings that events are matched with by name, and checked against by length.
        allowed_labels: any other label is an error.
        media: ending of the videos that a file of BORIS or SLEAP refers to.
        fps: frames per second of the videos, for SLEAP, which counts frames.
        json: print the events as JSON.
    """
    from halp.tasks.events.formats import write_events
    from halp.tasks.read_events import events as read

    checked = read(
        source,
        from_format=from_format,
        recordings=recordings,
        allowed_labels=allowed_labels,
        concurrent=concurrent,
    )
    rows = [event.to_json() for event in checked]
    show(rows, *([table_of(rows)] if out is None else []), json=json)
    for path in () if out is None else write_events(checked, out, to, media=media, fps=fps):
        note(f"written: {path}")


app.verb(
    "halp.tasks.stats:stats",
    texts={
        "people": "a CSV table with a column subject (or recording) and one of study groups.",
        "recordings": "a store or recordings: names are matched, lengths are known.",
        "out": "a folder for all tables as CSV.",
    },
    examples=(
        "halp stats segments.csv --html stats.html",
        "halp stats events.csv --by group --people people.csv --measure rate --json",
        "halp stats events.csv --within visit --json",
        "halp stats project.boris --bins 60 --gap 0.5 --shortest 1 --out tables",
    ),
)
app.verb(
    "halp.tasks.angles:angles",
    texts={
        "out": (
            "also write a CSV table with a row per frame: every angle in degrees, and its velocity in"
            " degrees per second."
        )
    },
)
app.verb(
    "halp.tasks.agreement:agreement",
    events=False,
    examples=(
        "halp agreement coder.csv segments.csv --html agreement.html",
        "halp agreement ann.eaf bob.eaf --bins 0.04 --json",
    ),
)


@app.command
def poses(
    source: Positional[Path],
    out: Positional[Path],
    *,
    from_format: From = "auto",
    to: str = "trc",
    reading: PoseArgs = POSES,
) -> None:
    """Write poses for other programs: TRC (OpenSim), BVH (animation), netCDF, NWB or Motion-BIDS.

    Examples:
        halp poses recordings trc-files
        halp poses recordings bvh-files --to bvh
        halp poses recordings dataset --to bids

    Args:
        source: a store, or recordings of any format; TRC and BVH need three dimensions.
        out: the folder to write to.
        from_format: how recordings are written (see `halp formats`).
        to: trc, bvh, nc, nwb or bids.
    """
    from halp.tasks.pose_files import poses as write

    for path in write(source, out, to=to, reading=replace(reading.reading, format=from_format)):
        note(f"written: {path}")


app.verb(
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
    cache: bool = True,
    json: bool = False,
) -> None:
    """Cut recordings into segments: a timeline of classes, or of groups if there is no model.

    Windows are those the model was fitted with, else 2 seconds every half second, unless told otherwise.

    Examples:
        halp segment runs/small-seed0 long.bvh --model model --html timeline.html --out segments.csv
        halp segment halp-base recordings --window 2 --stride 0.5 --groups 6

    Args:
        encoder: a run folder, a package, or the name of an encoder that comes with halp; a model brings its
            own.
        model: a model of `halp classify fit` or `halp finetune`.
        html: also write a page with the player on the timeline.
        video: if the source is a video, also write it with skeletons, labels and a time line drawn into it
            (mp4).
        groups: how many groups, without a model (default: the number whose groups are furthest apart).
        shortest: seconds; shorter segments go to a neighbour (default: half a window).
        json: print a list of name, start, end, label (null: rejected, or nobody), probability, best and
            rejected as JSON.
    """
    from halp.tasks.segment import segment as find_segments

    if str(source) == "-":
        raise InputError("frames on standard input are recognised by `halp live MODEL -`")
    timeline = find_segments(
        encoder,
        source,
        model=model,
        groups=groups,
        shortest=shortest,
        reject=reject,
        cache=cache,
        reading=reading.reading,
    )
    finish(timeline, out=out, html=html, json=json)
    if video is not None:
        from halp.data.readers.video import overlay_film

        spans: dict[str, list[tuple[float, float, str]]] = {}
        for event in timeline:
            spans.setdefault(event.recording, []).append((event.start, event.stop, event.label or "?"))
        note(f"written: {overlay_film(source, spans, video, reading.reading)}")


app.verb("halp.tasks.deviation:deviation", texts={"source": "a store or recordings of the tested people."})
