"""Shards of a source of files: which recordings are read together, and keys from their content.

The SHA-256 of a file is kept beside its size, inode, modification and change time. A file is read again only
where one of them differs, or where it was so young when it was last looked at that it could have changed
unseen.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halp.core.files import cache_home, file_state, sha256, write_text
from halp.data.readers import Item
from halp.data.source_files import place_below, unreadable
from halp.data.text_files import utf8

FILES, BYTES = 256, 16 << 20  # of a shard, whichever is reached first
_SETTLED = 2 * 10**9  # nanoseconds: clocks of file systems are coarse


@dataclass(frozen=True)
class Shard:
    """Items that are read together, by their places in the source, and the key of their content."""

    key: str
    items: tuple[int, ...]


def settled(newest: int, look: int) -> bool:
    """Whether files last changed at a time (in nanoseconds) are old enough that no later change can go
    unnoticed.
    """
    return newest < look - _SETTLED


class FileHashes:
    """SHA-256 of the files below a folder (or of one file), remembered in the user's cache folder."""

    def __init__(self, root: Path, *, verify: bool = False) -> None:
        self.root = root
        home = cache_home()
        name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:32]
        self._record = None if home is None else home / "files" / f"{name}.json"
        self._known: dict[str, list[Any]] = {}
        self.read = 0  # files whose content was read
        self.states: dict[Path, list[int]] = {}  # of files whose hash was asked for
        if self._record is not None and not verify:
            with suppress(OSError, ValueError, TypeError, AttributeError):
                known = json.loads(self._record.read_text(encoding="utf-8"))
                self._known = {str(name): list(state) for name, state in known.items()}

    def place(self, file: Path) -> str:
        """A file by its place below the root."""
        return utf8(place_below(file, self.root) or file.name)

    def of(self, files: Iterable[Path]) -> dict[Path, tuple[str, int]]:
        """SHA-256 and size of every file."""
        now, hashes, changed = time.time_ns(), {}, False
        for file in files:
            place = self.place(file)
            try:
                self.states[file] = state = file_state(file)
                known = self._known.get(place)
                if known is None or known[:-1] != state:
                    known = [*state, sha256(file)]
                    self.read += 1
                    changed = True
                    if settled(max(state[2:]), now):
                        self._known[place] = known
                    else:
                        self._known.pop(place, None)
            except OSError as error:
                raise unreadable(file, error) from error
            hashes[file] = (str(known[-1]), state[0])
        if changed:
            self._keep()
        return hashes

    def _keep(self) -> None:
        if self._record is not None:
            with suppress(OSError):
                write_text(self._record, json.dumps(self._known))


def item_files(items: Sequence[Item], walked: Sequence[Path]) -> tuple[list[list[Path]], list[Path]]:
    """Files that each item is read from, and those of all `walked` files that belong to no item."""
    there = {str(file): file for file in walked}
    groups = []
    for item in items:
        path, names = str(item.path), getattr(item.key, "files", ())
        if names:
            groups.append([item.path / name for name in names])
        elif path in there or not item.path.is_dir():
            groups.append([item.path])
        else:
            groups.append([file for name, file in there.items() if name.startswith(os.path.join(path, ""))])
    used = {str(file) for group in groups for file in group}
    return groups, [file for name, file in there.items() if name not in used]


def item_keys(
    root: Path,
    items: Sequence[Item],
    files: Sequence[Sequence[Path]],
    others: Sequence[Path],
    hashes: FileHashes,
) -> tuple[list[str], list[int]]:
    """A key and the size of every item, from its files, its reader's notes, and files shared by all items."""
    known = hashes.of({file: None for group in (*files, others) for file in group})
    beside = hashlib.sha256()
    for file in others:
        beside.update(f"{hashes.place(file)}\0{known[file][0]}\n".encode())
    keys, sizes, common = [], [], beside.hexdigest()
    for item, group in zip(items, files):
        noted = (
            b""
            if item.key is None
            else repr(item.key).replace(str(root), "").encode(errors="surrogateescape")
        )
        content = "".join(f"{hashes.place(file)}\0{known[file][0]}\n" for file in group)
        keys.append(
            hashlib.sha256(b"%b\n%b\n%b" % (common.encode(), noted, content.encode())).hexdigest()[:32]
        )
        sizes.append(sum(known[file][1] for file in group))
    return keys, sizes


def cut_shards(
    keys: Sequence[str], sizes: Sequence[int], places: Iterable[int], most: int = FILES
) -> list[Shard]:
    """Shards of the items at these places, in their order: up to `most` items or 16 MiB each."""
    shards: list[Shard] = []
    block: list[int] = []
    held = 0
    for place in places:
        if block and (len(block) == most or held + sizes[place] > BYTES):
            shards.append(_shard(keys, block))
            block, held = [], 0
        block.append(place)
        held += sizes[place]
    return [*shards, _shard(keys, block)] if block else shards


def _shard(keys: Sequence[str], places: list[int]) -> Shard:
    content = "\n".join(keys[place] for place in places)
    return Shard(hashlib.sha256(content.encode()).hexdigest()[:32], tuple(places))
