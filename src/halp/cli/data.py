"""Commands about data: from pose files to stores."""

from __future__ import annotations

import math
from pathlib import Path
from shlex import quote
from typing import Any

from tyro.conf import Positional

from halp.cli.app import app, note, show, table_of, warn
from halp.cli.job_array import job_array, join_parts
from halp.cli.options import Assignments, flat, parse_options
from halp.cli.verbs import Out
from halp.core.errors import InputError


@app.command
def prepare(
    format: Positional[str],
    source: Positional[Path],
    store: Positional[Path],
    *,
    normalise: tuple[str, ...] | None = None,
    topology: str | None = None,
    strict: bool = False,
    workers: int | None = None,
    engine: str | None = None,
    shard: str | None = None,
    limit: int | None = None,
    window: float | None = None,
    stride: float | None = None,
    fps: float | None = None,
    labels: Path | None = None,
    pattern: str | None = None,
    option: Assignments = (),
    max_memory: float | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Turn pose files into a store: read and normalise them, and report every clip that was dropped or
    repaired.

    Examples:
        halp prepare ntu-60 nturgb+d_skeletons stores/ntu60
        halp prepare auto my_recordings stores/mine --topology kinect-v1
        halp prepare synthetic 1440 stores/people

    Args:
        format: how the files are written (see `halp formats`), or auto to find out.
        source: a file or folder; for `synthetic` the number of clips.
        store: the store to make.
        normalise: normalisation steps in order, instead of the format's own.
        topology: map the joints by name onto this layout, or onto that of a TOML file.
        strict: stop at the first clip that cannot be used instead of leaving it out.
        limit: read only this many items.
        window: cut recordings into windows of this many seconds.
        stride: seconds from the start of one window to the next (default: the window).
        fps: frames per second, if the files do not state them or are wrong.
        labels: a CSV table with a column name or path, and label, subject, camera or any others.
        pattern: of the paths below the source, which names columns, such as "{subject}/{label}/*.bvh".
        option: settings of the format as name=value, such as min_score=0.3; `halp formats` lists them.
        max_memory: GiB that a compressed file may expand to (default: 100 times its size and 64 MiB more, up
            to 4 GiB).
        json: print the manifest as JSON.
    """
    from halp.data.ingest.prepare import prepare as make
    from halp.data.readers.archives import memory_limit

    given: dict[str, Any] = {
        "topology": topology,
        "limit": limit,
        "window": window,
        "stride": stride,
        "fps": fps,
    }
    given |= {"labels": labels, "pattern": pattern, "workers": workers}
    given |= {"engine": engine, "shard": shard}
    if format == "synthetic":
        given |= {"normalise": normalise, "option": option or None}
        _prepare_synthetic(
            source, store, overwrite, [name for name, value in given.items() if value is not None]
        )
        return
    given |= {"normalisation": normalise, "options": parse_options(flat(option))}
    with memory_limit(None if max_memory is None else int(max_memory * 2**30)), job_array(store):
        manifest = make(format, source, store, strict=strict, overwrite=overwrite, **given)
    if not json:
        warn(*manifest.notes)
    show(manifest.to_json(), json=json, said=f"{manifest.summary()}\n{_written(store)}")


@app.command
def join(out: Positional[Path]) -> None:
    """Join the parts of a job array: the results of `--shard 1/n` … `--shard n/n` of a command.

    Example: halp join stores/mine

    Args:
        out: the store or file that the command is to write.
    """
    join_parts(out)


def _written(store: Path, clips: int | None = None) -> str:
    """The path of the store and the next command, quoted for a shell."""
    count = "" if clips is None else f" with {clips} clips"
    return f"written: {store}{count}; look at it with: halp inspect {quote(str(store))}"


def _prepare_synthetic(count: Path, store: Path, overwrite: bool, given: list[str]) -> None:
    from halp.data.synthetic import ONE_TAKE, make_synthetic_store

    if given:
        names = ", ".join(f"--{name}" for name in given)
        raise InputError(f"synthetic clips are ready to use and take no {names}; omit it")
    if not str(count).isdigit() or not 0 < int(str(count)) <= 999 * ONE_TAKE:
        raise InputError(
            f"synthetic takes a number of clips from 1 to {999 * ONE_TAKE} instead of a source, not '{count}'"
        )
    clips, takes = int(str(count)), math.ceil(int(str(count)) / ONE_TAKE)
    made = make_synthetic_store(store, count=clips, repetitions=takes, overwrite=overwrite)
    note(_written(store, len(made)))


@app.command
def formats(*, json: bool = False) -> None:
    """List the formats that `halp prepare` reads."""
    from halp.data.readers import get_reader, list_formats, list_readers, reader_options

    options = {name: reader_options(get_reader(name)) for name in list_readers()}
    rows = []
    for name, description in list_formats().items():
        settings = "\n".join(f"{key}={value}" for key, value in options.get(name, {}).items())
        rows.append({"format": name, "what it reads": description, "options": settings})
    show(list_formats(), table_of(rows), json=json)


app.verb(
    "halp.data.inspect:inspect",
    types={"store": Path},
    texts={"store": "the store."},
    events=False,
    examples=("halp inspect stores/mine --html mine.html",),
)


def _merged(store: Any, path: Path, **_: Any) -> None:
    note(_written(path, len(store)))


app.verb(
    "halp.data.merge:merge",
    types={"stores": tuple[Path, ...], "path": Out, "topology": str | None},
    options=("path",),
    texts={"stores": "the stores to pool.", "path": "the store to make."},
    examples=("halp merge stores/nw-ucla stores/utd-mhad --out stores/pooled --topology kinect-v1",),
    end=_merged,
)


def _splits(rules: Any, store: Path, json: bool, **_: Any) -> None:
    from halp.data.splits import split_sizes
    from halp.data.store import open_store

    sizes = split_sizes(rules, open_store(store).columns)
    answer = {rule.name: {**(sizes[rule.name] or {}), "hash": rule.hash} for rule in rules}
    rows = [
        {"split": split, "train": str(size.get("train")), "test": str(size.get("test"))}
        for split, size in answer.items()
    ]
    show(answer, table_of(rows), json=json)


app.verb(
    "halp.data.new_splits:split",
    types={"hold_out": tuple[str, ...]},
    options=("by",),
    texts={"overwrite": "replace splits of the same name."},
    examples=(
        "halp split stores/mine --by subject --folds 5",
        "halp split stores/mine --by stratified --folds 5",
        "halp split stores/mine --by subject --hold-out 3 7 --name xsub",
    ),
    end=_splits,
)
