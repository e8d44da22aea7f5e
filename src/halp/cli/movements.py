"""Commands about movements: groups, comparison of two recordings, timelines and live recognition.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or recordings.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import Positional

from halp.cli.app import app, print_json, print_table
from halp.cli.options import READING, Reading, ReadingOptions

if TYPE_CHECKING:
    from halp.use.model_folder import Model


@app.command
def cluster(
    encoder: Positional[str],
    source: Positional[Path],
    *,
    groups: int | None = None,
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
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        source: a store, or recordings of any format.
        groups: how many (default: the number up to 12 whose groups are furthest apart).
        html: also write a page with the typical clips and a map.
        seed: of the starting points.
        cache: keep vectors for the next time (--no-cache computes them anew).
        json: print groups with their members as JSON.
    """
    from rich.table import Table

    from halp.progress import console
    from halp.training import load_encoder
    from halp.use.answer_pages import cluster_page
    from halp.use.cluster import cluster as group
    from halp.use.cluster import clusters_to_json
    from halp.use.search import fetch

    loaded = load_encoder(encoder)
    vectors, found = group(
        loaded, source, groups=groups, **reading.spans, format=reading.format, seed=seed, cache=cache
    )
    if json:
        print_json(clusters_to_json(vectors, found))
    else:
        table = Table("group", "clips", "typical clip", "start", "end")
        for number, row in enumerate(found.typical):
            times = [f"{vectors.starts[row]:.2f}", f"{vectors.ends[row]:.2f}"]
            table.add_row(str(number + 1), str(found.sizes[number]), vectors.name(row), *times)
        print_table(table)
        console.print(f"silhouette {found.silhouette:.2f} (1: far apart, 0: touching)")
    if html is not None:
        clips = fetch(loaded, source, vectors, found.typical, reading.cutting, format=reading.format)
        page = cluster_page(loaded, vectors, found, clips, str(source))
        console.print(f"written: [bold]{page.save(html)}[/]")


@app.command
def compare(
    encoder: Positional[str],
    first: Positional[str],
    second: Positional[str],
    *,
    in_: Annotated[Path | None, tyro.conf.arg(name="in")] = None,
    html: Path | None = None,
    format: str = "auto",
    window: float | None = None,
    fps: float | None = None,
    json: bool = False,
) -> None:
    """Align two recordings in time and show where they differ, frame and joint.

    Examples:
        halp compare runs/small-seed0 before.bvh after.bvh --html compared.html
        halp compare halp-base squat_01 squat_02 --in stores/mine

    Args:
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        first: a file with one recording, or the name of a recording in the place given by --in.
        second: the same for the other one.
        in_: a store or recordings that hold both by name.
        html: also write a page with both in step, the difference over time and by joint.
        format: how recordings are written (see `halp formats`).
        window: seconds around a moment that the encoder looks at (default: a twelfth of the shorter recording).
        fps: frames per second, where the recordings do not tell.
        json: print alignment, stretches and joints as JSON.
    """
    from rich.table import Table

    from halp.progress import console
    from halp.training import load_encoder
    from halp.use.answer_pages import comparison_page
    from halp.use.compare import compare as align

    loaded = load_encoder(encoder)
    made = align(loaded, first, second, source=in_, window=window, fps=fps, format=format)
    found = made.to_json()
    if json:
        print_json(found)
    else:
        table = Table("from", "to", "in the second", "difference", "joints that differ most")
        for one in made.stretches:
            other = f"{one.other_start:.2f} – {one.other_end:.2f}"
            table.add_row(f"{one.start:.2f}", f"{one.end:.2f}", other, f"{one.difference:.2f}", ", ".join(one.joints))
        print_table(table if made.stretches else "no stretch stands out from the rest")
        joints = ", ".join(
            f"{one['joint']} {one['difference']:.2f}" for one in found["joints"][:5] if one["difference"] is not None
        )
        print_table(f"joints that differ most overall, in mean bone lengths: {joints}")
    if html is not None:
        page = comparison_page(loaded, made, f"{first} and {second}")
        console.print(f"written: [bold]{page.save(html)}[/]")


@app.command
def segment(
    encoder: Positional[str],
    source: Positional[Path],
    *,
    model: Path | None = None,
    out: Path | None = None,
    html: Path | None = None,
    groups: int | None = None,
    shortest: float | None = None,
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
        out: also write a CSV table.
        html: also write a page with the player on the timeline.
        groups: how many groups, without a model (default: the number whose groups are furthest apart).
        shortest: seconds; shorter segments go to a neighbour (default: half a window).
        topology: of frames on standard input (default: the encoder's).
        cache: keep vectors for the next time (--no-cache computes them anew).
        json: print a list of name, start, end, label and probability as JSON.
    """
    from rich.table import Table

    from halp.progress import console
    from halp.training import load_encoder
    from halp.use.answer_pages import NONE, timeline_page
    from halp.use.model_folder import load_model
    from halp.use.segment import segment as find_segments
    from halp.use.segment import segment_rows
    from halp.use.sources import read_source
    from halp.use.tables import write_csv

    loaded, fitted = load_encoder(encoder), None if model is None else load_model(model)
    used = loaded if fitted is None else fitted.encoder
    if str(source) == "-":
        _stream(fitted, reading, topology)
        return
    asked = {**reading.spans, "format": reading.format, "cache": cache}
    made = find_segments(used, source, model=fitted, groups=groups, shortest=shortest, **asked)
    rows = segment_rows(made)
    columns = ["name", "start", "end", "label", "probability"]
    if out is not None:
        console.print(f"written: [bold]{write_csv(out, columns, rows)}[/]")
    if json:
        print_json(rows)
    else:
        table = Table(*columns)
        for one in made:
            label = NONE if one.label is None else one.label
            table.add_row(one.name, f"{one.start:.2f}", f"{one.end:.2f}", label, f"{one.probability:.2f}")
        print_table(table)
    if html is not None:
        from halp.clips.windows import Cutting

        whole = list(read_source(used, source, Cutting(fps=made.cutting.fps), format=reading.format))
        console.print(f"written: [bold]{timeline_page(used, made, whole, str(source)).save(html)}[/]")


def _stream(fitted: Model | None, reading: ReadingOptions, topology: str | None) -> None:
    import sys
    from json import dumps

    from halp.errors import InputError
    from halp.progress import console
    from halp.skeleton import get_topology
    from halp.use.segment import timeline_cutting
    from halp.use.stream import LiveRecognition, read_frames

    if fitted is None:
        raise InputError(
            "frames on standard input need a model; make one with `halp classify fit` and give it with --model"
        )
    cutting = timeline_cutting(fitted, **reading.spans)
    if cutting.fps is None or cutting.window is None or cutting.stride is None:
        raise InputError("frames on standard input do not tell their rate; give it with --fps")
    joints = get_topology(topology) if topology else fitted.encoder.topology
    live = LiveRecognition(fitted, cutting.fps, cutting.window, cutting.stride, joints)
    for frame in read_frames(sys.stdin, joints):
        answer = live.push(frame)
        if answer is not None:
            sys.stdout.write(dumps(answer.to_json(), ensure_ascii=False) + "\n")
            sys.stdout.flush()
    found = live.summary()
    console.print(
        f"{found['frames']} frames, {found['answers']} answers; latency {found['latency_median_ms']:.1f} ms (median), "
        f"{found['latency_95_ms']:.1f} ms (95 %); keeps up with {found['frames_per_second']:.0f} frames per second"
    )
