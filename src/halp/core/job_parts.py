"""Parts of a job array: `--shard i/n` computes the shards of one part, `halp join` needs all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from halp.core.errors import InputError

Part = tuple[int, int]  # i of n, counted from 1


def parse_part(text: str) -> Part:
    """The part that `--shard i/n` names.

    >>> parse_part("2/8")
    (2, 8)
    """
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    part = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= part[0] <= part[1]:
        raise InputError(f"--shard takes i/n with i from 1 to n, such as 1/8, not '{text}'")
    return part


class PartDone(Exception):
    """One part of the shards is computed, as `--shard` asks; the answer needs all parts."""

    def __init__(self, part: Part, there: int, wanted: int) -> None:
        super().__init__(f"part {part[0]}/{part[1]} is done: {there} of {wanted} shards complete")


class NotAllThere(InputError):
    """Parts are being joined, but some have not been computed."""


_joining: ContextVar[int] = ContextVar("parts that are joined", default=0)


@contextmanager
def joining(parts: int) -> Iterator[None]:
    """In this context nothing is computed: missing shards raise an error that names the parts to run again."""
    token = _joining.set(parts)
    try:
        yield
    finally:
        _joining.reset(token)


def in_job_array(part: Part | None) -> bool:
    """Whether one part is being computed, or parts are being joined."""
    return part is not None or _joining.get() > 0


def check_all_there(missing: Sequence[int], wanted: int) -> None:
    """Raise if parts are being joined and some shards are missing."""
    if missing and (parts := _joining.get()):
        again = ", ".join(
            f"--shard {part}/{parts}" for part in sorted({place % parts + 1 for place in missing})
        )
        raise NotAllThere(
            f"{len(missing)} of {wanted} shards are missing; run the command again with {again}"
        )
