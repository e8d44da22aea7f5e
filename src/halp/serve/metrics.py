"""Counts and times of a service in the Prometheus text format, summed over its processes."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from halp._version import __version__

EDGES = ("0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf")
PLAIN = [f"halp_{name}_total" for name in ("batches", "clips", "frames", "dropped_windows")]
KINDS = {
    "halp_requests_total": "counter",
    "halp_request_seconds": "histogram",
    **dict.fromkeys(PLAIN, "counter"),
    **dict.fromkeys(("halp_waiting", "halp_streams", "halp_info"), "gauge"),
}
ALIVE = 10.0  # seconds after which a process that wrote nothing has no stream and nothing waiting


class Metrics:
    """Counts of one process, by their names in the Prometheus text format.

    Parameters
    ----------
    shared : path, optional
        A folder in which the processes of a service keep their counts, so that each can state the sums.
    """

    def __init__(self, shared: str | os.PathLike[str] | None = None) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(PLAIN, 0))
        self.waiting, self.streams = 0, 0
        self._own = None if shared is None else Path(shared) / f"{os.getpid()}.json"

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.counts[f'halp_requests_total{{path="{path}",status="{status}"}}'] += 1
        for edge in EDGES:
            name = f'halp_request_seconds_bucket{{path="{path}",le="{edge}"}}'
            self.counts[name] += seconds <= float(edge)
        self.counts[f'halp_request_seconds_sum{{path="{path}"}}'] += seconds  # type: ignore[assignment]
        self.counts[f'halp_request_seconds_count{{path="{path}"}}'] += 1

    def count(self, name: str, number: int = 1) -> None:
        """Add to any other metric."""
        self.counts[f"halp_{name}_total"] += number

    def text(self) -> str:
        """The Prometheus text format."""
        total = Counter(self._present())
        for counts in self._others():
            total.update(counts)
        total[f'halp_info{{version="{__version__}"}}'] = 1
        lines = []
        for family, kind in KINDS.items():
            found = [f"{name} {number}" for name, number in total.items() if name.startswith(family)]
            lines += [f"# TYPE {family} {kind}", *found] if found else []
        return "\n".join(lines) + "\n"

    async def keep(self) -> None:
        """Write the counts every second if several processes share them."""
        while self._own is not None:
            partial = self._own.with_suffix(".partial")
            partial.write_text(json.dumps(self._present()), encoding="utf-8")
            os.replace(partial, self._own)  # others read all of it or the one before
            await asyncio.sleep(1)

    def _present(self) -> dict[str, float]:
        return {**self.counts, "halp_waiting": self.waiting, "halp_streams": self.streams}

    def _others(self) -> Iterator[dict[str, float]]:
        """Counts of the other processes, also of those that have ended."""
        for file in [] if self._own is None else self._own.parent.glob("*.json"):
            if file == self._own:
                continue
            counts = json.loads(file.read_text())
            if time.time() - file.stat().st_mtime > ALIVE:
                counts = {name: n for name, n in counts.items() if KINDS.get(name) != "gauge"}
            yield counts
