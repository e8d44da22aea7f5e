"""Notices files that are added to an open folder, or removed from it."""

from __future__ import annotations

from contextlib import suppress
from os import listdir
from pathlib import Path


class WatchedFolder:
    """The files of a folder when it was opened, without subfolders."""

    def __init__(self, path: Path, labels: Path) -> None:
        self.path, self.own, self.news = path, labels.stem, ""
        self._time, self._names = self._look()

    def look(self) -> str:
        """A sentence on changes since then; empty if there are none."""
        with suppress(OSError):
            if self.path.is_dir() and self.path.stat().st_mtime_ns != self._time:
                self._time, names = self._look()
                counts = {"new": len(names - self._names), "removed": len(self._names - names)}
                told = " and ".join(f"{count} {word}" for word, count in counts.items() if count)
                self.news = told and (
                    f"files in '{self.path.name}' since the start: {told}; start `halp explore` again to see"
                    " the folder as it is"
                )
        return self.news

    def _look(self) -> tuple[int, set[str]]:
        with suppress(OSError):
            if self.path.is_dir():
                time = self.path.stat().st_mtime_ns
                return time, {name for name in listdir(self.path) if not name.startswith((".", self.own))}
        return 0, set()
