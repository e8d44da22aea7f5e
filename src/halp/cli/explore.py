"""The command `halp explore`: a collection of movements in the browser."""

from __future__ import annotations

import os
from pathlib import Path

from tyro.conf import Positional

from halp.cli.app import app
from halp.cli.options import READING, Reading


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
    reading: Reading = READING,
) -> None:
    """Open a page over a collection: a map of all movements, players, search, labels, groups and timelines.

    The page is served on this machine only, at an address with a secret of its own, until Ctrl-C. Labels are written to a
    CSV table of events as they are given.

    Examples:
        halp explore stores/mine
        halp explore recordings --window 2 --stride 0.5
        halp explore demo/store --encoder demo/halp --static shown

    Args:
        source: a store, or recordings of any format.
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        labels: the table that labels are written to (default: beside the source, SOURCE.labels.csv).
        static: write the page into this folder, to be opened from disk or put on any web server, and end.
        runs: run folders whose metrics, results and settings are shown side by side under Method.
        browser: open the page in the browser.
        port: to listen on (default: any that is free).
    """
    try:
        from halp.explorer.server import serve
    except ImportError as error:
        from halp.errors import InputError

        raise InputError(f"the explorer needs {error.name}; install it with `pip install 'halp[explore]'`") from error
    from halp.explorer.session import Settings

    settings = Settings(source, encoder, labels, reading.format, runs=runs, **reading.spans)
    if runs:
        from halp.reports.run_report import open_runs

        open_runs(runs)  # what is wrong with them is said at once
    if static is not None:
        from halp.explorer.static_page import write_static

        write_static(settings, static)
        return
    if serve(settings, port=port, browser=browser).busy:
        os._exit(0)  # a map that is being laid out cannot be interrupted, and nobody waits for it any more
