"""The explorer in a notebook cell: the same page, whose requests use the kernel's connection."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from halp.core.errors import InputError, missing_extra
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.explorer.api import Api, answer, asset
from halp.explorer.session import Session, Settings

if TYPE_CHECKING:
    from anywidget import AnyWidget

_open: dict[Path, Session] = {}  # by the table of labels, which one session at a time holds


def explore(
    source: str | os.PathLike[str],
    encoder: str = "auto",
    *,
    runs: Sequence[str | os.PathLike[str]] = (),
    height: int = 720,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> AnyWidget:
    """Show the explorer of a collection of movements in a notebook cell.

    No port is opened: it works wherever the notebook does. Explored again, a source is taken over from the
    earlier cell.

    Parameters
    ----------
    source
        A store, or recordings of any format.
    encoder
        A run folder, a package, or the name of an encoder that comes with halp.
    runs
        Run folders that are shown side by side under Method; that of the encoder, unless given.
    height
        Pixels of the cell.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields (window, stride, fps, format, options).
        `labels` is the table that labels are written to, with the database beside it (default:
        `SOURCE.labels.csv`).

    Returns
    -------
    AnyWidget
        A widget; the notebook shows it where it is the last value of a cell.
    """
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise missing_extra(f"notebooks need {error.name}", "notebook") from error
    how = combine(reading, keywords)
    table = Path(how.labels) if how.labels else None
    settings = Settings(Path(source), encoder, table, replace(how, labels=None), tuple(map(Path, runs)))
    if not settings.source.exists():
        raise InputError(f"there is nothing at '{settings.source}'; check the path of the source")
    _end(settings.label_file)
    session = Session(settings)
    session.labels.__enter__()
    _open[settings.label_file] = session
    session.start()
    api = Api(session)

    class ExplorerWidget(anywidget.AnyWidget):
        _esm = asset("widget.js").decode()
        page = traitlets.Unicode(whole_page()).tag(sync=True)
        height = traitlets.Int().tag(sync=True)

        def close(self) -> None:
            if _open.get(settings.label_file) is session:
                _end(settings.label_file)
            super().close()

    def take(widget: AnyWidget, content: Any, _: Any) -> None:
        asked = {"view": content.get("view"), "number": content.get("number")}
        try:
            data = answer(api, content.get("name"), content.get("given"))
            data = data.read_bytes() if isinstance(data, Path) else data
        except InputError as error:
            widget.send({**asked, "error": str(error)})
            return
        widget.send(asked, [data if isinstance(data, bytes) else json.dumps(data, allow_nan=False).encode()])

    shown = ExplorerWidget(height=height)
    shown.on_msg(take)
    return shown


def _end(label_file: Path) -> None:
    """Release the label file."""
    if session := _open.pop(label_file, None):
        session.stop()
        session.labels.__exit__()


def whole_page() -> str:
    """The page as one document with its style and script inside."""
    page = asset("index.html").decode()
    page = page.replace(
        '<link rel="stylesheet" href="app.css">', f"<style>{asset('app.css').decode()}</style>"
    )
    return page.replace('<script src="app.js"></script>', f"<script>{asset('app.js').decode()}</script>")
