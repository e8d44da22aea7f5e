"""Counts and times of a service, as Prometheus reads them."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from halp._version import __version__


@dataclass
class Metrics:
    """Counts and times, as Prometheus reads them."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    buckets: Counter[tuple[str, float]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    streams: int = 0
    edges = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        with self._lock:
            self.requests[path, status] += 1
            self.seconds[path] += seconds
            for edge in self.edges:
                self.buckets[path, edge] += seconds <= edge

    def count(self, name: str, number: int = 1) -> None:
        """Count something else."""
        with self._lock:
            self.counts[name] += number

    def text(self) -> str:
        """The Prometheus text format."""
        with self._lock:
            lines = ["# TYPE halp_requests_total counter"]
            lines += [
                f'halp_requests_total{{path="{p}",status="{s}"}} {n}'
                for (p, s), n in sorted(self.requests.items())
            ]
            lines.append("# TYPE halp_request_seconds histogram")
            for path in sorted(self.seconds):
                total = sum(n for (p, _), n in self.requests.items() if p == path)
                marks = [(str(edge), self.buckets[path, edge]) for edge in self.edges] + [("+Inf", total)]
                lines += [
                    f'halp_request_seconds_bucket{{path="{path}",le="{edge}"}} {n}' for edge, n in marks
                ]
                lines.append(f'halp_request_seconds_sum{{path="{path}"}} {self.seconds[path]:.6f}')
                lines.append(f'halp_request_seconds_count{{path="{path}"}} {total}')
            for name, number in sorted(self.counts.items()):
                lines += [f"# TYPE halp_{name}_total counter", f"halp_{name}_total {number}"]
            for name, number in (("waiting", self.waiting), ("streams", self.streams)):
                lines += [f"# TYPE halp_{name} gauge", f"halp_{name} {number}"]
        lines += ["# TYPE halp_info gauge", f'halp_info{{version="{__version__}"}} 1']
        return "\n".join(lines) + "\n"
