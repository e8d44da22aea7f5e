"""Parts of a `prepare`: results of some items each, written by the process that read them.

A finished part is the journal: the same command finds it. Parts belong to a key: the settings and every file
that is read, with size and times of change. Another key finds nothing.
"""

from __future__ import annotations

import glob
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import atomic_path, save_arrays
from halp.core.job_parts import PartDone, check_all_there
from halp.core.progress import log
from halp.data.clip import Clip, Dropped
from halp.data.ingest.pipeline import Outcome, Pipeline
from halp.data.readers import Item
from halp.data.readers.archives import expansion_limit
from halp.engine import Engine, Failure, run_shards

_ITEMS = 32  # of a part
_KEY = 16  # hexadecimal digits
_FACTS = "outcomes"


@dataclass(frozen=True)
class Part:
    """Some items, and the file for their results."""

    plan: Pipeline
    items: Sequence[Item]
    path: Path

    @property
    def whole(self) -> bool:
        """Whether the file exists with the length stated in its header."""
        try:
            with safe_open(self.path, "np"):
                return True
        except (OSError, SafetensorError):
            return False

    def alone(self) -> list[Part]:
        """A part for every item."""
        return [
            replace(self, items=[item], path=self.path.with_name(f"{self.path.stem}-{number}.safetensors"))
            for number, item in enumerate(self.items)
        ]


def read_part(part: Part) -> None:
    """The function that workers run: read the items and write their results."""
    outcomes = part.plan.work(part.items)
    try:
        part.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(part.path) as partial:
            _save(partial, outcomes)
    except (OSError, SafetensorError) as error:
        remedy = "free disk space or choose another path"
        raise InputError(f"'{part.path.parent}' cannot be written ({error}); {remedy}") from error


class Parts:
    """All parts of a `prepare`, in order."""

    def __init__(self, store: Path, plan: Pipeline, items: Sequence[Item]) -> None:
        self._prefix = f".{store.name}.read-"
        self.folder = store.with_name(self._prefix + _key(plan, items))
        size = 1 if plan.info.slow else _ITEMS
        self.parts = [
            Part(plan, items[first : first + size], self.folder / f"{first // size:06}.safetensors")
            for first in range(0, len(items), size)
        ]

    @property
    def done(self) -> int:
        """How many parts a later attempt can reuse."""
        return sum(part.path.exists() for part in self.parts)

    def outcomes(self, engine: Engine, *, few: int) -> Iterator[tuple[int, list[Outcome]]]:
        """The items of every part and their outcomes, in order; finished parts are not read again."""
        for other in self.folder.parent.glob(glob.escape(self._prefix) + "[0-9a-f]" * _KEY):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        mine = engine.mine(range(len(self.parts)))
        missing = [place for place in range(len(self.parts)) if not self.parts[place].whole]
        check_all_there(missing, len(self.parts))
        if kept := sum(len(part.items) for place, part in enumerate(self.parts) if place not in set(missing)):
            total = sum(len(part.items) for part in self.parts)
            log.info(f"{kept} of {total} items were read by an earlier attempt")
        todo = sorted(set(missing) & set(mine))
        done, first = set(range(len(self.parts))) - set(missing), 0
        for place, result in run_shards(read_part, [self.parts[place] for place in todo], engine, few=few):
            if isinstance(result, Failure):
                self._read_alone(self.parts[todo[place]], result, engine)
            done.add(todo[place])
            while engine.part is None and first in done:
                yield len(self.parts[first].items), _load(self.parts[first])
                first += 1
        if engine.part is not None:
            raise PartDone(engine.part, len(done), len(self.parts))
        for part in self.parts[first:]:
            yield len(part.items), _load(part)

    def _read_alone(self, part: Part, failure: Failure, engine: Engine) -> None:
        """Read every item of a part separately, so that only the item that kills its worker is dropped."""
        if failure.error is not None:
            raise failure.error
        outcomes: list[Outcome] = []
        singles = part.alone()
        results = dict(run_shards(read_part, singles, engine, few=0)) if len(singles) > 1 else {0: failure}
        for place, single in enumerate(singles):
            result = results[place]
            lost = isinstance(result, Failure)
            outcomes += [Dropped(single.items[0].path.name, result.reason)] if lost else _load(single)
            single.path.unlink(missing_ok=True)
        with atomic_path(part.path) as partial:
            _save(partial, outcomes)

    def remove(self) -> None:
        """Delete all parts."""
        shutil.rmtree(self.folder, ignore_errors=True)


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


def _save(path: Path, outcomes: Sequence[Outcome]) -> None:
    facts = [
        (
            {"clip": {**asdict(replace(outcome, frames=_NOTHING)), "frames": None}}
            if isinstance(outcome, Clip)
            else {"dropped": asdict(outcome)}
        )
        for outcome in outcomes
    ]
    text = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    frames = {
        str(number): outcome.frames for number, outcome in enumerate(outcomes) if isinstance(outcome, Clip)
    }
    save_arrays({_FACTS: text, **frames}, path)


_NOTHING = np.zeros((1, 1, 1, 1), dtype=np.float32)


def _load(part: Part) -> list[Outcome]:
    arrays = load_file(part.path)
    outcomes: list[Outcome] = []
    for number, fact in enumerate(json.loads(arrays[_FACTS].tobytes())):
        if "dropped" in fact:
            outcomes.append(Dropped(**fact["dropped"]))
        else:
            known = {**fact["clip"], "frames": arrays[str(number)], "repairs": tuple(fact["clip"]["repairs"])}
            known["absent"] = tuple((first, count) for first, count in known["absent"])
            outcomes.append(Clip(**known))
    return outcomes
