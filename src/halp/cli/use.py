"""Commands that use an encoder: vectors, search, export.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or
recordings.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from tyro.conf import Positional

from halp.cli.app import app, note, show, table_of
from halp.cli.job_array import job_array
from halp.cli.options import READING, ReadingArgs
from halp.cli.verbs import Count, In
from halp.core.errors import InputError


@app.command
def encoders(*, json: bool = False) -> None:
    """List the encoders that come with halp, with their input and output."""
    from halp.core.packages import list_encoders

    shipped = list_encoders()
    rows = []
    for name, facts in shipped.items():
        layout, steps = facts["topology"], ", ".join(facts["normalisation"])
        reads = f"{layout['dimensions']}D, {len(layout['joints'])} joints ({layout['name']})"
        numbers = {"persons": facts["persons"], "normalisation": steps, "vector": facts["features"]}
        rows.append({"encoder": name, "release": facts["provenance"]["release"], "reads": reads, **numbers})
    show(shipped, table_of(rows), json=json)


@app.command
def embed(
    encoder: Positional[str],
    source: Positional[Path],
    out: Positional[Path],
    *,
    reading: ReadingArgs = READING,
    stream: str | None = None,
    compact: bool = False,
    shard: str | None = None,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Write the vectors of clips or windows with their names and times to a file.

    Examples:
        halp embed runs/small-seed0 stores/mine vectors.npz
        halp embed halp-base recordings vectors.csv --window 2 --stride 0.5
        halp embed halp-base recordings collection --window 2 --stride 0.5

    Args:
        out: the file to write: .npz, .csv or .parquet; without an ending the folder of a collection, which
            can be searched.
        compact: the few numbers that search and groups use, if the encoder has a projection to them.
        json: print what was written as JSON.
    """
    from halp.core.urls import remote_url
    from halp.features.collection import check_collection_place
    from halp.features.loading import open_for
    from halp.features.table import check_vector_file, write_vectors

    as_collection = not out.suffix
    if as_collection:
        check_collection_place(out)
    else:
        check_vector_file(out)
    if (shard is not None or as_collection) and not cache:
        raise InputError(
            "a collection and parts of a job array are put together from the cache; leave out --no-cache"
        )
    loaded, opened = open_for(encoder, source, replace(reading.reading, shard=shard), stream=stream)
    from halp.features.embed import embed_table, write_embedded
    from halp.tasks.card import identity

    with job_array(out):
        table = embed_table(loaded, opened, cache=cache, compact=compact or as_collection)
        if as_collection:
            write_embedded(out, loaded, opened, reading.reading, encoder)
        else:
            write_vectors(out, table, identity(loaded))
    answer = {
        "written": remote_url(out) or str(out),
        "vectors": len(table),
        "features": table.vectors.shape[1],
    }
    show(
        answer,
        json=json,
        said="written: {written} with {vectors} vectors of {features} numbers".format(**answer),
    )


app.verb(
    "halp.tasks.search:search",
    types={"query": str, "source": In, "k": Count},
    options=("source",),
    texts={
        "query": "a recording of any format, or the name of a recording in the source that is searched.",
        "source": "where to search: a store, or recordings of any format.",
        "cache": "keep vectors and index for the next search (--no-cache recomputes them).",
    },
    examples=(
        "halp search runs/small-seed0 query.bvh --in stores/mine",
        "halp search halp-base wave.json --in recordings --window 2 --stride 0.5 -k 5 --html found.html",
    ),
)


def _exported(folder: Path, web: bool, json: bool, **_: Any) -> None:
    from halp.tasks.model_folder import is_model

    files = sorted(path.name for path in folder.iterdir())
    said, place = f"written: {folder} ({', '.join(files)})", quote(str(folder))
    if web:
        serve = f"python -m http.server --bind 127.0.0.1 --directory {place}"
        said = f"written: {folder}; next: {serve}, then open http://127.0.0.1:8000"
    else:
        verb = "classify predict {} RECORDINGS" if is_model(folder) else "embed {} SOURCE vectors.csv"
        said += f"; next: halp {verb.format(place)}"
    show({"written": str(folder), "files": files}, json=json, said=said)


def _pushed(address: str, package: Path, repository: str, **_: Any) -> None:
    note(f"pushed: {address}; others get it with halp pull {repository} {quote(package.name)}")


def _pulled(folder: Path, **_: Any) -> None:
    note(f"written: {folder}; next: halp embed {quote(str(folder))} SOURCE vectors.csv")


app.verb(
    "halp.tasks.export:export",
    types={"topology": str | None},
    texts={
        "encoder": (
            "a run folder, a package, the name of an encoder that comes with halp, or a model of"
            " `halp classify fit`."
        ),
        "out": "the folder to make.",
    },
    examples=(
        "halp export runs/small-seed0 my-encoder",
        "halp export models/mine product --onnx --topology mediapipe-33",
        "halp export models/mine page --web",
    ),
    end=_exported,
)
app.verb("halp.tasks.export:push", examples=("halp push my-encoder me/my-encoder",), end=_pushed)
app.verb(
    "halp.tasks.export:pull",
    texts={"out": "the folder to make."},
    examples=("halp pull me/my-encoder my-encoder",),
    end=_pulled,
)
