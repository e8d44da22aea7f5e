"""Commands about movements: groups, comparison, timelines, motifs, and deviation from a reference group.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or
recordings.
"""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from halp.cli.app import app, note
from halp.cli.options import READING, ReadingArgs
from halp.cli.verbs import MaybeIn, finish
from halp.core.errors import InputError

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


app.verb(
    "halp.tasks.measure_deviation:deviation", texts={"source": "a store or recordings of the tested people."}
)
