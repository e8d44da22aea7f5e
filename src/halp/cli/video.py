"""The explorer, the weights of the pose estimator, and live recognition."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from halp.cli.app import app, note, print_json, warn
from halp.cli.options import READING, ReadingArgs
from halp.core.errors import missing_extra

if TYPE_CHECKING:
    from halp.tasks.live import LiveRecognition


@app.command
def explore(
    source: Positional[Path],
    *,
    encoder: str = "auto",
    labels: Path | None = None,
    static: Path | None = None,
    runs: tuple[Path, ...] = (),
    browser: bool = True,
    port: int = 0,
    reading: ReadingArgs = READING,
) -> None:
    """Open a page on a collection: a map of all movements, players, search, labels, groups and timelines.

    The page is served on this machine only, at an address with a secret of its own, until Ctrl-C. Labels are
    kept in a database as they are given, and written to a CSV table of events beside it.

    Examples:
        halp explore stores/mine
        halp explore recordings --window 2 --stride 0.5
        halp explore demo/store --encoder demo/halp --static shown

    Args:
        labels: the CSV table of labels; the database beside it has the same stem (default:
            SOURCE.labels.csv).
        static: write the page into this folder, to be opened from disk or put on any web server, and end.
        runs: run folders whose metrics, results and settings are shown side by side under Method (default:
            that of the encoder).
        browser: open the page in the browser.
        port: to listen on (default: any that is free).
    """
    try:
        from halp.explorer.server import serve
    except ImportError as error:
        raise missing_extra(f"the explorer needs {error.name}", "explore") from error
    from halp.explorer.session import Settings

    settings = Settings(source, encoder, labels, reading.reading, runs)
    if runs:
        from halp.reports.run_report import open_runs

        open_runs(runs)  # what is wrong with them is said at once
    if static is not None:
        from halp.explorer.static_page import write_static

        write_static(settings, static)
        return
    if serve(settings, port=port, browser=browser).busy:
        os._exit(0)  # a map that is being laid out cannot be interrupted, and nobody waits for it any more


@app.command(name="pose-model")
def pose_model(*, wheel: Path | None = None) -> None:
    """Fetch the weights of the pose estimator into the cache, once, verified by hash; needed for videos.

    They come from the package mediapipe 0.10.21 (Apache-2.0) by pip as it is configured on this machine.

    Examples:
        halp pose-model
        halp pose-model --wheel mediapipe-0.10.21-cp311-cp311-manylinux_2_28_x86_64.whl

    Args:
        wheel: the package, if it is there already and nothing is to be downloaded.
    """
    from halp.video.pose_model import obtain_pose_model

    print(obtain_pose_model(wheel))  # noqa: T201


@app.command
def live(
    model: Positional[Path],
    source: Positional[str] = "0",
    *,
    pose_model: str = "",
    window: float | None = None,
    stride: float = 0.5,
    fps: float | None = None,
    topology: str | None = None,
    reject: str = "auto",
    view: bool = True,
) -> None:
    """Recognise actions live, from a camera, a video or standard input: a line of JSON per stride.

    On a terminal the skeleton is drawn. Answers say how many milliseconds they took. Ctrl-C ends it.

    Examples:
        halp live model
        halp live model film.mp4 --stride 0.25 --no-view
        joints | halp live model - --fps 30 --stride 0.25

    Args:
        model: a model of `halp classify fit` or `halp finetune`.
        source: the number of a camera, a video, or - for standard input, with a JSON array of joints per line.
        pose_model: a .task file of your own (default: that of `halp pose-model`).
        window: seconds that an answer looks at (default: as the model was fitted, else 2).
        stride: seconds between two answers.
        fps: frames per second of a camera (default: 15) or of standard input (default: as the model was
            fitted); videos have their own.
        topology: joint layout of standard input (default: that of the encoder).
        view: draw the skeleton on standard error if it is a terminal.
    """
    from halp.core.progress import console
    from halp.tasks.segments import prediction_json
    from halp.tasks.watch import live as recognise
    from halp.video.live import LivePicture, terminal_skeleton

    pictures, poses, summary = 0, 0.0, ""

    def look(picture: LivePicture | None, recognition: LiveRecognition) -> None:
        nonlocal pictures, poses, summary
        summary = recognition.summary()
        if picture is None:
            return
        pictures, poses = pictures + 1, poses + picture.pose / 1000
        summary = recognition.summary(pictures / max(poses + recognition.busy, 1e-9))
        if view and console.is_terminal:
            console.clear()
            console.print(terminal_skeleton(picture.image, picture.size), highlight=False, markup=False)

    how: dict[str, Any] = {
        "pose_model": pose_model,
        "window": window,
        "stride": stride,
        "fps": fps,
        "topology": topology,
        "reject": reject,
    }
    try:
        for event in recognise(model, source, on_frame=look, **how):
            print_json(prediction_json(event), indent=None)
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    if source != "-" and not pictures:
        warn(f"'{source}' gave no frame")
    else:
        note(summary)
