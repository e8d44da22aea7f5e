"""What a `prepare` that was killed had read: finished clips in files beside the store, which the same command takes up again.

A journal belongs to its key: the settings and every file that is read, with size and times of change. Another key finds nothing.
"""

from __future__ import annotations

import glob
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import atomic_path, save_arrays
from halp.data.clip import Clip, Dropped
from halp.data.ingest.pipeline import Outcome, Pipeline
from halp.data.readers import Item
from halp.data.readers.archives import expansion_limit

_ITEMS = 32  # in a file
_KEY = 16  # hexadecimal digits
_SUFFIX = ".safetensors"
_FACTS = "outcomes"


class Journal:
    """Outcomes of items in their order. `done` items are known; more are added as they are read."""

    def __init__(self, store: Path, plan: Pipeline, items: Sequence[Item]) -> None:
        self._prefix = f".{store.name}.read-"
        self.folder = store.with_name(self._prefix + _key(plan, items))
        self.done = 0
        self.files = 0  # what a later attempt can take up
        self._waiting: list[Outcome] = []
        self._count = 0
        self._ours = False  # only who writes the store may touch its journals

    def replay(self) -> Iterator[tuple[int, list[Outcome]]]:
        """What an earlier attempt left, up to the first file that is not whole; `done` counts its items."""
        self._ours = True
        for other in self.folder.parent.glob(glob.escape(self._prefix) + "[0-9a-f]" * _KEY):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        while (path := self._path()).exists():
            try:
                count, outcomes = _load(path)
            except (OSError, SafetensorError, InputError, ValueError, KeyError, TypeError):
                break
            self.done += count
            self.files += 1
            yield count, outcomes

    def add(self, count: int, outcomes: Sequence[Outcome]) -> None:
        """Keep what came of the next items."""
        self._waiting += outcomes
        self._count += count
        if self._count < _ITEMS:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(self._path()) as partial:
                _save(partial, self._count, self._waiting)
        except (OSError, SafetensorError) as error:
            remedy = "make room or choose another place"
            raise InputError(f"'{self.folder}' cannot be written ({error}); {remedy}") from error
        self.files += 1
        self._waiting, self._count = [], 0

    def remove(self) -> None:
        """Forget everything."""
        if self._ours:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self) -> Path:
        return self.folder / f"{self.files:06}{_SUFFIX}"


def _key(plan: Pipeline, items: Sequence[Item]) -> str:
    key = hashlib.sha256(f"{__version__} {expansion_limit(0)} {plan!r}".encode())
    for item in items:
        key.update(str(item).encode())
        for path in (item.path, *(item.path / name for name in getattr(item.key, "files", ()))):
            try:
                known = path.stat()
            except OSError:
                key.update(b" unreadable\n")  # reading it says why
            else:
                key.update(f" {known.st_size} {known.st_mtime_ns} {known.st_ctime_ns}\n".encode())
    return key.hexdigest()[:_KEY]


def _save(path: Path, count: int, outcomes: Sequence[Outcome]) -> None:
    facts = [
        {"clip": {**asdict(replace(outcome, frames=_NOTHING)), "frames": None}}
        if isinstance(outcome, Clip)
        else {"dropped": asdict(outcome)}
        for outcome in outcomes
    ]
    text = np.frombuffer(json.dumps([count, facts]).encode(), dtype=np.uint8)
    frames = {str(number): outcome.frames for number, outcome in enumerate(outcomes) if isinstance(outcome, Clip)}
    save_arrays({_FACTS: text, **frames}, path)


_NOTHING = np.zeros((1, 1, 1, 1), dtype=np.float32)


def _load(path: Path) -> tuple[int, list[Outcome]]:
    arrays = load_file(path)
    count, facts = json.loads(arrays[_FACTS].tobytes())
    outcomes: list[Outcome] = []
    for number, fact in enumerate(facts):
        if "dropped" in fact:
            outcomes.append(Dropped(**fact["dropped"]))
        else:
            known = {**fact["clip"], "frames": arrays[str(number)], "repairs": tuple(fact["clip"]["repairs"])}
            known["absent"] = tuple((first, count) for first, count in known["absent"])
            outcomes.append(Clip(**known))
    return count, outcomes
