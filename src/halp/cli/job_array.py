"""Parts of a job array: a command with `--shard i/n` leaves a note beside its output for `halp join`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halp.cli.app import app, note
from halp.core.errors import InputError
from halp.core.files import read_json, write_json
from halp.core.job_parts import PartDone, joining, parse_part


def _record(out: Path) -> Path:
    return out.with_name(f".{out.name}.shards.json")


@contextmanager
def job_array(out: Path) -> Iterator[None]:
    """Wrap a command that writes `out`: a completed part ends it and leaves a note for `halp join`."""
    try:
        yield
    except PartDone as done:
        write_json(_record(out), {"folder": os.getcwd(), "arguments": app.arguments})
        note(f"{done}; when all are complete: halp join {out}")
        sys.exit(0)
    _record(out).unlink(missing_ok=True)


def join_parts(out: Path) -> None:
    """Join the parts of a job array: rerun their command when all shards are computed.

    Parameters
    ----------
    out : path
        The store or file that the command with `--shard 1/n` … `--shard n/n` is to write.
    """
    if not _record(out).exists():
        raise InputError(f"no part of '{out}' was computed here; run it with --shard 1/n, 2/n, … first")
    told = read_json(_record(out))
    arguments, parts = [], 1
    given = iter(told["arguments"])
    for argument in given:
        if argument == "--shard" or argument.startswith("--shard="):
            _, parts = parse_part(argument.partition("=")[2] or next(given))
        else:
            arguments.append(argument)
    os.chdir(told["folder"])  # where the command's paths are to be found
    with joining(parts):
        app.run(arguments)
