"""Commands that use an encoder: vectors, search, export.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or recordings.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import tyro
from tyro.conf import Positional

from halp.cli.app import app, note, show, table_of, write_rows
from halp.cli.options import READING, Reading

Count = Annotated[int, tyro.conf.arg(aliases=["-k"])]
In = Annotated[Path, tyro.conf.arg(name="in")]


@app.command
def encoders(*, json: bool = False) -> None:
    """List the encoders that come with halp: what each reads and gives."""
    from halp.packages import shipped_facts

    shipped = shipped_facts()
    rows = []
    for name, facts in shipped.items():
        layout, steps = facts["topology"], ", ".join(facts["normalisation"])
        reads = f"{layout['dimensions']}D, {len(layout['joints'])} joints ({layout['name']})"
        numbers = {"persons": facts["persons"], "normalisation": steps, "vector": facts["features"]}
        rows.append({"encoder": name, "reads": reads, **numbers})
    show(shipped, table_of(rows), json=json)


@app.command
def embed(
    encoder: Positional[str],
    source: Positional[Path],
    out: Positional[Path],
    *,
    reading: Reading = READING,
    stream: str | None = None,
    compact: bool = False,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Write the vectors of clips or windows with their names and times to a file.

    Examples:
        halp embed runs/small-seed0 stores/mine vectors.npz
        halp embed halp-base recordings vectors.csv --window 2 --stride 0.5

    Args:
        out: the file to write: .npz, .csv or .parquet.
        compact: the few numbers that search and groups use, where the encoder has a projection to them.
        json: print what was written as JSON.
    """
    from halp.features.loading import open_for
    from halp.features.table import check_vector_file, write_vectors

    check_vector_file(out)
    loaded, opened = open_for(encoder, source, stream=stream, **reading.source)
    from halp.features.embed import embed_table

    table = embed_table(loaded, opened, cache=cache, compact=compact)
    write_vectors(out, table)
    answer = {"written": str(out), "vectors": len(table), "features": table.vectors.shape[1]}
    show(answer, json=json, said="written: {written} with {vectors} vectors of {features} numbers".format(**answer))


@app.command
def search(
    encoder: Positional[str],
    query: Positional[str],
    *,
    in_: In,
    k: Count = 10,
    out: Path | None = None,
    html: Path | None = None,
    reading: Reading = READING,
    exact: bool = False,
    adapt: bool = False,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Find the clips or windows that are most like a query.

    Examples:
        halp search runs/small-seed0 query.bvh --in stores/mine
        halp search halp-base wave.json --in recordings --window 2 --stride 0.5 -k 5 --html found.html

    Args:
        query: a recording of any format, or the name of a recording in the place that is searched.
        in_: where to search: a store, or recordings of any format.
        k: how many to find.
        html: also write a page with players side by side.
        exact: compare with every vector even where there are more than a million.
        adapt: compare in a metric fitted to these clips, in which what mutual neighbours differ in counts less.
        cache: keep vectors and index for the next search (--no-cache computes them anew).
        json: print a list of name, similarity, start and end as JSON.
    """
    from halp.features.loading import open_for

    loaded, opened = open_for(encoder, in_, **reading.source)
    from halp.features.embed import ready_clips
    from halp.use.pages import search_page
    from halp.use.search import search as find

    results = find(loaded, query, opened, k=k, exact=exact, adapt=adapt, cache=cache, **reading.source)
    if facts := results.facts:
        measured = f"recall@10 {facts.recall:.3f}, measured with {facts.queries} queries"
        note(f"approximate search over {facts.vectors} vectors: {measured}")
    hits = [hit.to_json() for hit in results]
    write_rows(out, hits, ["name", "similarity", "start", "end"])
    show(
        hits,
        table_of([{"": place, **hit} for place, hit in enumerate(hits, start=1)]),
        json=json,
        html=html,
        page=lambda: search_page(loaded, results, ready_clips(loaded, opened, results.rows), f"{query} in {in_}"),
    )


@app.command
def export(
    encoder: Positional[str],
    out: Positional[Path],
    *,
    onnx: bool = False,
    stream: str | None = None,
    json: bool = False,
) -> None:
    """Write an encoder as a package to hand on: config.json, model.safetensors and a model card.

    Examples:
        halp export runs/small-seed0 my-encoder
        halp export runs/small-seed0 my-encoder --onnx

    Args:
        out: the folder to make.
        onnx: also write model.onnx, checked against torch for several batch sizes.
        json: print what was written as JSON.
    """
    from halp.use.export import export as write

    folder = write(encoder, out, stream=stream, onnx=onnx)
    files = sorted(path.name for path in folder.iterdir())
    said = f"written: {folder} ({', '.join(files)}); next: halp embed {quote(str(folder))} SOURCE vectors.csv"
    show({"written": str(folder), "files": files}, json=json, said=said)


@app.command
def push(package: Positional[Path], repository: Positional[str], *, private: bool = False) -> None:
    """Upload an encoder package to a model hub.

    Example: halp push my-encoder me/my-encoder

    Args:
        package: a folder that `halp export` made.
        repository: OWNER/NAME on the hub, made where it does not exist.
        private: make it visible to you alone, where it is new.
    """
    from halp.use.export import push as upload

    address = upload(package, repository, private=private)
    note(f"pushed: {address}; others get it with halp pull {repository} {quote(package.name)}")


@app.command
def pull(repository: Positional[str], out: Positional[Path], *, revision: str | None = None) -> None:
    """Download an encoder package from a model hub, checked before it takes its name.

    Example: halp pull me/my-encoder my-encoder

    Args:
        repository: OWNER/NAME on the hub.
        out: the folder to make.
        revision: a branch, tag or commit (default: the newest).
    """
    from halp.use.export import pull as download

    folder = download(repository, out, revision=revision)
    note(f"written: {folder}; next: halp embed {quote(str(folder))} SOURCE vectors.csv")
