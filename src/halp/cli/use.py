"""Commands that use an encoder: vectors, search, export.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or
recordings.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote

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


@app.command
def export(
    encoder: Positional[str],
    out: Positional[Path],
    *,
    onnx: bool = False,
    web: bool = False,
    topology: str | None = None,
    stream: str | None = None,
    json: bool = False,
) -> None:
    """Export an encoder or a model as a package: config.json, model.safetensors and a model card.

    With --onnx there is also model.onnx: raw key points in (NaN where missing; any number of clips, frames
    and persons), class probabilities and rejection out (features for an encoder). Preparation, encoder and
    classifier are in that one file. With --web the folder is a static page that recognises the model's
    classes in the browser, from a camera or a video.

    Examples:
        halp export runs/small-seed0 my-encoder
        halp export models/mine product --onnx --topology mediapipe-33
        halp export models/mine page --web

    Args:
        encoder: a run folder, a package, the name of an encoder that comes with halp, or a model of `halp
            classify fit`.
        out: the folder to make.
        onnx: also write model.onnx, checked against the library.
        web: write a page instead; it needs the weights of `halp pose-model`, and npm for its libraries.
        topology: joint layout of the points that model.onnx takes (default: that of the encoder).
        json: print what was written as JSON.
    """
    from halp.tasks.export import export as write
    from halp.tasks.model_folder import is_model

    folder = write(encoder, out, stream=stream, onnx=onnx, web=web, topology=topology)
    files = sorted(path.name for path in folder.iterdir())
    if web:
        serve = f"python -m http.server --bind 127.0.0.1 --directory {quote(str(folder))}"
        said = f"written: {folder}; next: {serve}, then open http://127.0.0.1:8000"
        show({"written": str(folder), "files": files}, json=json, said=said)
        return
    verb = "classify predict {} RECORDINGS" if is_model(folder) else "embed {} SOURCE vectors.csv"
    said = f"written: {folder} ({', '.join(files)}); next: halp {verb.format(quote(str(folder)))}"
    show({"written": str(folder), "files": files}, json=json, said=said)


@app.command
def push(package: Positional[Path], repository: Positional[str], *, private: bool = False) -> None:
    """Upload an encoder package to a model hub.

    Example: halp push my-encoder me/my-encoder

    Args:
        package: a folder that `halp export` made.
        repository: OWNER/NAME on the hub, created if it does not exist.
        private: make it visible to you alone, if it is new.
    """
    from halp.tasks.export import push as upload

    address = upload(package, repository, private=private)
    note(f"pushed: {address}; others get it with halp pull {repository} {quote(package.name)}")


@app.command
def pull(repository: Positional[str], out: Positional[Path], *, revision: str | None = None) -> None:
    """Download an encoder package from a model hub and verify it before it is installed.

    Example: halp pull me/my-encoder my-encoder

    Args:
        repository: OWNER/NAME on the hub.
        out: the folder to make.
        revision: a branch, tag or commit (default: the newest).
    """
    from halp.tasks.export import pull as download

    folder = download(repository, out, revision=revision)
    note(f"written: {folder}; next: halp embed {quote(str(folder))} SOURCE vectors.csv")
