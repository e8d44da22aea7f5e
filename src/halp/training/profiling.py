"""Where a training step goes: the profiler's time under the labels that model and loop put on their parts."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from torch import profiler

LABEL = "halp: "


class Profiled(Exception):
    """Enough steps were looked at."""


@dataclass(frozen=True)
class Part:
    """One labelled part of a step."""

    name: str
    milliseconds: float


class StepProfile:
    """Call `step()` after every training step; after `skip + steps` of them it raises `Profiled`."""

    def __init__(self, steps: int = 10, skip: int = 3) -> None:
        self.steps, self.skip, self.seen = steps, skip, 0
        self.parts: list[Part] = []
        kinds = profiler.supported_activities()
        self._profiler = profiler.profile(activities=list(kinds))

    def step(self) -> None:
        """Count a step; the first ones, in which memory is found and threads start, are left out."""
        self.seen += 1
        if self.seen == self.skip:
            self._profiler.start()
        elif self.seen == self.skip + self.steps:
            self._profiler.stop()
            self.parts = [
                Part(
                    event.key.removeprefix(LABEL), max(event.cpu_time_total, event.device_time_total) / 1e3 / self.steps
                )
                for event in self._profiler.key_averages()
                if event.key.startswith(LABEL)
            ]
            raise Profiled

    def table(self) -> Table:
        """Milliseconds and share of every part, the largest first."""
        whole = sum(part.milliseconds for part in self.parts)
        shown = Table("part of a step", "ms", "share", title=f"mean of {self.steps} steps: {whole:.1f} ms")
        for part in sorted(self.parts, key=lambda part: -part.milliseconds):
            shown.add_row(part.name, f"{part.milliseconds:.2f}", f"{100 * part.milliseconds / max(whole, 1e-9):.1f} %")
        return shown
