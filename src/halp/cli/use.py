"""Commands that use an encoder: vectors, search, export.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or recordings.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import tyro
from tyro.conf import Positional

from halp.cli.app import app, print_json, print_table
from halp.cli.options import READING, Reading

Count = Annotated[int, tyro.conf.arg(aliases=["-k"])]
In = Annotated[Path, tyro.conf.arg(name="in")]


@app.command
def embed(
    encoder: Positional[str],
    source: Positional[Path],
    out: Positional[Path],
    *,
    reading: Reading = READING,
    stream: str | None = None,
    json: bool = False,
) -> None:
    """Write the vectors of clips or windows with their names and times to a file.

    Examples:
        halp embed runs/small-seed0 stores/mine vectors.npz
        halp embed halp-base recordings vectors.csv --window 2 --stride 0.5

    Args:
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        source: a store, or recordings of any format.
        out: the file to write: .npz, .csv or .parquet.
        stream: which stream of a run.
        json: print what was written as JSON.
    """
    from halp.progress import console
    from halp.training import load_encoder
    from halp.use.embed import embed_blocks
    from halp.use.vector_files import check_vector_file, write_vectors

    check_vector_file(out)
    loaded = load_encoder(encoder, stream)
    blocks = embed_blocks(loaded, source, reading.cutting, format=reading.format)
    count = write_vectors(out, blocks, loaded.output_size)
    if json:
        print_json({"written": str(out), "vectors": count, "features": loaded.output_size})
    else:
        console.print(f"written: [bold]{out}[/] with {count} vectors of {loaded.output_size} numbers")


@app.command
def search(
    encoder: Positional[str],
    query: Positional[str],
    *,
    in_: In,
    k: Count = 10,
    html: Path | None = None,
    reading: Reading = READING,
    exact: bool = False,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Find the clips or windows that are most like a query.

    Examples:
        halp search runs/small-seed0 query.bvh --in stores/mine
        halp search halp-base wave.json --in recordings --window 2 --stride 0.5 -k 5 --html found.html

    Args:
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        query: a recording of any format, or the name of a recording in the place that is searched.
        in_: where to search: a store, or recordings of any format.
        k: how many to find.
        html: also write a page with players side by side.
        exact: compare with every vector even where there are more than a million.
        cache: keep vectors and index for the next search (--no-cache computes them anew).
        json: print a list of name, similarity, start and end as JSON.
    """
    from rich.table import Table

    from halp.progress import console
    from halp.training import load_encoder
    from halp.use.index import say_index
    from halp.use.pages import search_page
    from halp.use.search import fetch
    from halp.use.search import search as find

    loaded = load_encoder(encoder)
    found = find(loaded, query, in_, k=k, **reading.spans, format=reading.format, exact=exact, cache=cache)
    if found.facts is not None:
        say_index(found.facts)
    if json:
        print_json([hit.to_json() for hit in found])
    else:
        table = Table("", "recording", "similarity", "start", "end")
        for place, hit in enumerate(found, start=1):
            table.add_row(str(place), hit.name, f"{hit.similarity:.3f}", f"{hit.start:.2f}", f"{hit.end:.2f}")
        print_table(table)
    if html is not None:
        clips = fetch(loaded, in_, found.table, found.rows, reading.cutting, format=reading.format)
        page = search_page(loaded, found, clips, f"{query} in {in_}")
        console.print(f"written: [bold]{page.save(html)}[/]")


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
        encoder: a run folder, a package, or the name of an encoder that comes with halp.
        out: the folder to make.
        onnx: also write model.onnx, checked against torch for several batch sizes.
        stream: which stream of a run.
        json: print what was written as JSON.
    """
    from halp.progress import console
    from halp.use.export import export as write

    made = write(encoder, out, stream=stream, onnx=onnx)
    files = sorted(path.name for path in made.iterdir())
    if json:
        print_json({"written": str(made), "files": files})
    else:
        console.print(
            f"written: [bold]{made}[/] ({', '.join(files)}); next: halp embed {quote(str(made))} SOURCE vectors.csv"
        )


@app.command
def push(package: Positional[Path], repository: Positional[str], *, private: bool = False) -> None:
    """Upload an encoder package to a model hub.

    Example: halp push my-encoder me/my-encoder

    Args:
        package: a folder that `halp export` made.
        repository: OWNER/NAME on the hub, made where it does not exist.
        private: make it visible to you alone, where it is new.
    """
    from halp.progress import console
    from halp.use.hub import push as upload

    address = upload(package, repository, private=private)
    console.print(f"pushed: [bold]{address}[/]; others get it with halp pull {repository} {quote(package.name)}")


@app.command
def pull(repository: Positional[str], out: Positional[Path], *, revision: str | None = None) -> None:
    """Download an encoder package from a model hub, checked before it takes its name.

    Example: halp pull me/my-encoder my-encoder

    Args:
        repository: OWNER/NAME on the hub.
        out: the folder to make.
        revision: a branch, tag or commit (default: the newest).
    """
    from halp.progress import console
    from halp.use.hub import pull as download

    made = download(repository, out, revision=revision)
    console.print(f"written: [bold]{made}[/]; next: halp embed {quote(str(made))} SOURCE vectors.csv")
