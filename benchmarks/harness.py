"""How the benchmarks measure and report: interleaved timing, one row a claim, a table and a JSON file."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("HALP_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"

_clock: Callable[[], float] = time.perf_counter


def measure_cpu_time() -> None:
    """Count the processor time of one thread instead of the wall clock: for machines that are busy with other
    work.
    """
    global _clock
    torch.set_num_threads(1)
    _clock = time.process_time


@dataclass(frozen=True)
class Row:
    """One claim: `ratio` is what `target` is about, met where it is `at most` or `at least` that."""

    name: str
    ours: str
    reference: str
    ratio: float
    target: float | None = None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None if there is none."""
        if self.target is None:
            return None
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target


def interleaved(
    *actions: Callable[[], object], repeats: int = 30, inner: Sequence[int] | int = 1, warm_up: int = 3
) -> list[float]:
    """Median seconds of one call of each action; the actions take turns, so that a busy moment hits all
    alike.

    `inner` calls are timed together, one number for all actions or one for each, where a single call is too
    short.
    """
    times = list(inner) if not isinstance(inner, int) else [inner] * len(actions)
    for action in actions:
        for _ in range(warm_up):
            action()
    taken: list[list[float]] = [[] for _ in actions]
    for _ in range(repeats):
        for action, number, seconds in zip(actions, times, taken):
            began = _clock()
            for _ in range(number):
                action()
            seconds.append((_clock() - began) / number)
    return [statistics.median(seconds) for seconds in taken]


def taking_turns(*actions: Callable[[], object], stretch: int, repeats: int, warm_up: int = 1) -> list[float]:
    """Median over `repeats` of the mean seconds of `stretch` calls; the actions take turns call by call.

    For long actions that differ little: neighbours in time are compared, and a stretch holds one whole cycle.
    """
    for action in actions:
        for _ in range(warm_up):
            action()
    taken: list[list[float]] = [[] for _ in actions]
    for _ in range(repeats):
        sums = [0.0 for _ in actions]
        for _ in range(stretch):
            for i, action in enumerate(actions):
                began = _clock()
                action()
                sums[i] += _clock() - began
        for seconds, total in zip(taken, sums):
            seconds.append(total / stretch)
    return [statistics.median(seconds) for seconds in taken]


def memory_peak() -> int:
    """Most memory this program has held, in bytes; the system's own counter would start with that of the
    parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def milliseconds(seconds: float) -> str:
    """A duration for the table."""
    return f"{seconds * 1e3:.3g} ms"


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "clock": _clock.__name__,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def table(rows: Sequence[Row]) -> Table:
    """The rows as a rich table."""
    shown = Table("name", "ours", "reference", "ratio", "target", "met?", title="halp benchmarks")
    for row in rows:
        bound = "–" if row.target is None else f"{'≤' if row.at_most else '≥'} {row.target:g}"
        met = {None: "–", True: "[green]yes[/green]", False: "[red]no[/red]"}[row.met]
        shown.add_row(row.name, row.ours, row.reference, f"{row.ratio:.3g}", bound, met)
    return shown


def origin(command: str) -> dict[str, Any]:
    """What made figures: the command, the commit, the machine and its load."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout
    load = f"{os.getloadavg()[2]:.0f} processes on {os.cpu_count()} cores"
    return {"command": command, "commit": commit.strip(), "load": load, "machine": machine()}


def save(rows: Sequence[Row], path: Path) -> None:
    """The figures with what made them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = [{**asdict(row), "met": row.met} for row in rows]
    made = origin(f"python -m benchmarks {path.stem.removeprefix('bench-')}")
    path.write_text(json.dumps({**made, "rows": figures}, indent=2, ensure_ascii=False) + "\n")
