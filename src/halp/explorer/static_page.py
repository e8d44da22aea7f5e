"""The explorer as a static folder: the page with precomputed answers, for a web server or from disk."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from halp.core.errors import InputError
from halp.core.files import building
from halp.core.progress import Bar, console
from halp.explorer.api import Api, asset
from halp.explorer.described import describe_row, describe_state
from halp.explorer.packing import pack
from halp.explorer.session import Session, Settings
from halp.tasks.heads import unit

BLOCK = 50  # rows whose frames are in one file
LARGEST_PAGE = 1 << 30  # bytes


def write_static(settings: Settings, folder: Path) -> Path:
    """Read everything, then write the folder atomically."""
    if folder.exists():
        raise InputError(f"'{folder}' exists already; remove it or choose another folder for the page")
    session = Session(settings)
    with session.labels:
        session.load()
        session.fit_now()
        collection = session.collection
        size = 8 * sum(int(np.prod(collection.frames(row).shape[:3])) for row in range(len(collection)))
        if size > LARGEST_PAGE:
            raise InputError(
                f"a page with all {len(collection)} movements would have {size >> 20} MB; "
                "make a store of those that you want to show, with `halp prepare`"
            )
        try:
            _write_folder(session, folder)
        except OSError as error:
            raise InputError(
                f"the page '{folder}' cannot be written ({error}); choose another path"
            ) from error
    written = f"written: {folder / 'index.html'}; open it, or put the folder on a web server"
    console.print(written, highlight=False, markup=False, soft_wrap=True)
    return folder


def _write_folder(session: Session, folder: Path) -> None:
    with building(folder) as partial:
        (partial / "data").mkdir()
        for name in ("app.js", "app.css", "LICENSES.txt"):
            (partial / name).write_bytes(asset(name))
        page = asset("index.html").replace(b'<html lang="en">', b'<html lang="en" data-static>')
        (partial / "index.html").write_bytes(page)
        _write_parts(session, partial / "data")


def _write_parts(session: Session, folder: Path) -> None:
    collection, api = session.collection, Api(session)
    state = describe_state(session)
    columns = [name for name in state["columns"] if _there(session, name)]
    parts: dict[str, Any] = {
        "state": {**state, "static": True, "columns": columns, "label_file": "", "command": ""},
        "rows": api.rows({}),
        "names": collection.recordings,
        "vectors": pack({}, {"vectors": np.round(unit(collection.reduced) * 127).astype(np.int8)}),
        **{f"map-{method}": api.map({"method": method}) for method in collection.maps},
        **{
            f"column-{name}": api.column({"name": name})
            for name in {*columns, "group", "label"}
            if _there(session, name)
        },
    }
    if session.runs:
        parts["runs"] = api.runs({})
    for name, content in parts.items():
        _write(folder, name, content)
    with Bar("writing", len(collection)) as bar:
        for first in range(0, len(collection), BLOCK):
            rows = range(first, min(first + BLOCK, len(collection)))
            packed = [collection.packed(row) for row in rows]
            facts = [{**about, "about": describe_row(session, row)} for row, (_, about) in zip(rows, packed)]
            arrays = {str(number): joints for number, (joints, _) in enumerate(packed)}
            _write(folder, f"clips-{first // BLOCK}", pack({"clips": facts}, arrays))
            bar.advance(len(rows))
    if state["long"]:
        for recording in range(len(collection.recordings)):
            given = {"recording": recording}
            _write(folder, f"timeline-{recording}", api.timeline(given))
            extent = collection.extent(recording)
            for chunk in range(-(-extent["frames"] // extent["chunk"])):
                _write(folder, f"chunk-{recording}-{chunk}", api.chunk({**given, "chunk": chunk}))


def _there(session: Session, name: str) -> bool:
    try:
        return len(session.column(name).values) > 0
    except InputError:
        return False


def _write(folder: Path, name: str, content: Any) -> None:
    """A part as a script, since a page from disk may not read files."""
    data = (
        content
        if isinstance(content, bytes)
        else json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    )
    (folder / f"{name}.js").write_text(
        f"halpPart({json.dumps(name)}, {json.dumps(base64.b64encode(data).decode())});\n"
    )
