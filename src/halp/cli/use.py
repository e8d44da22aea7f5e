"""Commands that use an encoder: vectors, search, export.

ENCODER is a run folder, an exported package or the name of an encoder that comes with halp; SOURCE a store or recordings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from halp.cli.app import app, print_json, print_table

Count = Annotated[int, tyro.conf.arg(aliases=["-k"])]
In = Annotated[Path, tyro.conf.arg(name="in")]


@app.command
def embed(
    encoder: Positional[str],
    source: Positional[Path],
    out: Positional[Path],
    *,
    format: str = "auto",
    window: float | None = None,
    stride: float | None = None,
    fps: float | None = None,
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
        format: how recordings are written (see `halp formats`).
        window: cut recordings into windows of so many seconds.
        stride: seconds between the starts of two windows (default: the window).
        fps: frames per second, where the recordings do not tell.
        stream: which stream of a run.
        json: print what was written as JSON.
    """
    from halp.clips.windows import Cutting
    from halp.progress import console
    from halp.training import load_encoder
    from halp.use.embed import embed_blocks
    from halp.use.vector_files import check_vector_file, write_vectors

    check_vector_file(out)
    loaded = load_encoder(encoder, stream)
    blocks = embed_blocks(loaded, source, Cutting(window, stride, fps), format=format)
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
    format: str = "auto",
    window: float | None = None,
    stride: float | None = None,
    fps: float | None = None,
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
        format: how recordings are written (see `halp formats`).
        window: cut recordings into windows of so many seconds.
        stride: seconds between the starts of two windows (default: the window).
        fps: frames per second, where the recordings do not tell.
        exact: compare with every vector even where there are more than a million.
        cache: keep vectors and index for the next search (--no-cache computes them anew).
        json: print a list of name, similarity, start and end as JSON.
    """
    from rich.table import Table

    from halp.clips.windows import Cutting
    from halp.progress import console
    from halp.training import load_encoder
    from halp.use.index import say_index
    from halp.use.pages import search_page
    from halp.use.search import fetch, find

    loaded, cutting = load_encoder(encoder), Cutting(window, stride, fps)
    found = find(loaded, query, in_, k=k, cutting=cutting, format=format, exact=exact, cache=cache)
    if found.index is not None:
        say_index(found.index)
    if json:
        print_json([hit.to_json() for hit in found.hits])
    else:
        table = Table("", "recording", "similarity", "start", "end")
        for place, hit in enumerate(found.hits, start=1):
            table.add_row(str(place), hit.name, f"{hit.similarity:.3f}", f"{hit.start:.2f}", f"{hit.end:.2f}")
        print_table(table)
    if html is not None:
        clips = fetch(loaded, in_, found.table, found.rows, cutting, format=format)
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
        console.print(f"written: [bold]{made}[/] ({', '.join(files)}); next: halp embed {made} SOURCE vectors.csv")
