"""Asked to stop: the first SIGINT or SIGTERM lets the step finish and the state be saved, a second one ends at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def graceful_shutdown() -> Iterator[Callable[[], bool]]:
    """Inside, a first signal is noted and the given function tells of it; afterwards the handlers are as before."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:
        before = {}  # not the main thread: nobody can signal us
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
