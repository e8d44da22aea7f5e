"""Progress: a bar with the remaining time on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console(stderr=True)
#: what the library tells of its work; the command shows it, other programs decide for themselves
log = logging.getLogger("halp")

#: Called with every bar that starts or advances: how a display other than the terminal learns of progress.
watchers: list[Callable[[Bar], None]] = []


class Bar:
    """`with Bar("embedding", total) as bar: bar.advance()`; off a terminal it logs every ten seconds."""

    def __init__(self, title: str, total: int, *, done: int = 0, shown: bool = True) -> None:
        self.title, self.total, self.done, self.shown = title, total, done, shown
        self._first, self._started, self._said = done, time.monotonic(), time.monotonic()
        self._rich: Progress | None = None
        self._tell()
        if shown and console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._rich = Progress(
                *columns, TextColumn("{task.fields[note]}"), console=console, transient=True
            )

    def __enter__(self) -> Bar:
        if self._rich is not None:
            self._rich.start()
            self._task = self._rich.add_task(self.title, total=self.total, completed=self.done, note="")
        return self

    def _tell(self) -> None:
        for watcher in watchers:
            watcher(self)

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        """Advance by `steps`; `note` is shown after the bar."""
        self.done += steps
        self._tell()
        if self._rich is not None:
            fields = {} if note is None else {"note": note}
            self._rich.update(self._task, advance=steps, **fields)  # type: ignore[arg-type]
        elif self.shown and time.monotonic() - self._said > 10:
            self._said = time.monotonic()
            rate = (self.done - self._first) / (self._said - self._started)
            left = (self.total - self.done) / rate if rate else float("inf")
            log.info(
                f"{self.title}: {self.done}/{self.total}, {left:.0f} s left{', ' + note if note else ''}"
            )

    def expect(self, total: int) -> None:
        """Correct the total."""
        self.total = total
        if self._rich is not None:
            self._rich.update(self._task, total=total)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()
