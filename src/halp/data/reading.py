"""`Reading`: how recordings are read and cut. The only place that spells these settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from halp.core.files import write_csv
from halp.core.job_parts import parse_part

if TYPE_CHECKING:
    from halp.data.windows import WindowSettings
    from halp.engine import Engine
    from halp.skeleton import Topology
else:  # options of commands are made of this class, and `halp --help` does not wait for numpy
    Topology = WindowSettings = Engine = Any


@dataclass(frozen=True)
class LeftOutTable(os.PathLike[str]):
    """A CSV table of recordings that were left out, of every source that is read with it."""

    path: str
    rows: dict[str, list[dict[str, str]]] = field(default_factory=dict, compare=False)

    def __fspath__(self) -> str:
        return self.path

    def write(self, source: str, rows: list[dict[str, str]]) -> None:
        """Write the table with these rows of a source, beside those of the others."""
        from halp.core.progress import log

        known = source in self.rows
        self.rows[source] = rows
        write_csv(self.path, ["name", "reason"], [row for some in self.rows.values() for row in some])
        if not known:
            log.info(f"written: {self.path}")


@dataclass(frozen=True)
class Reading:
    """How recordings are read and cut.

    Every function that reads recordings takes one as `reading=`, or its fields as keywords: `halp.search(…,
    window=2)`.

    Attributes
    ----------
    format : str
        File format, or `auto` (see `halp formats`).
    window, stride : float, optional
        Seconds of a window, and between the starts of two windows (default: the window). Whole recordings
        without them.
    fps : float, optional
        Frames per second, for recordings that do not state it.
    topology : str or Topology, optional
        Joint layout of arrays.
    options : mapping
        Settings of the format, as `halp prepare --option key=value` takes them.
    person : str, optional
        Which person of a video: all (each a recording of their own), longest, largest, left, right, or a
        number.
    persons : int, optional
        How many people of a video are followed at a time.
    labels : path, optional
        A CSV table with the columns name (or path) and label, subject, …, which override labels found in the
        files.
    pattern : str, optional
        A path pattern that names labels, such as `{subject}/{label}/*.bvh`.
    workers : int, optional
        Processes of this machine that read and embed (default: as many as cores, if there is enough to do).
    engine : str or Executor, optional
        The address of a Dask scheduler, such as `tcp://host:8786`, or any executor of `concurrent.futures`.
    shard : str, optional
        Only part i/n of the work, such as `2/8`, for job arrays.
    verify : bool
        Read every file again instead of trusting its size and times.
    left_out : path, optional
        A CSV table of recordings that could not be read, to write.

    Examples
    --------
    >>> Reading(window=2, stride=0.5).windows
    WindowSettings(window=2, stride=0.5, fps=None)
    """

    format: str = "auto"
    """File format (see `halp formats`)."""
    window: float | None = None
    """Seconds of a window (default: whole recordings, or as the model was fitted)."""
    stride: float | None = None
    """Seconds between the starts of two windows (default: the window)."""
    fps: float | None = None
    """Frames per second, for recordings that do not state it."""
    topology: str | Topology | None = None
    """Joint layout of arrays."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the format."""
    person: str | None = None
    """Which person of a video: all, longest, largest, left, right, or a number (see `halp people`)."""
    persons: int | None = None
    """How many people of a video are followed at a time."""
    labels: str | os.PathLike[str] | None = None
    """A CSV table with the columns name (or path) and label; subject separates people in cross-validation."""
    pattern: str | None = None
    """A path pattern that names labels, such as "{subject}/{label}/*.bvh"."""
    workers: int | None = None
    """Processes that read and embed (default: as many as cores, if there is enough to do)."""
    engine: str | Executor | None = None
    """A Dask scheduler, such as tcp://HOST:8786, whose workers read and embed."""
    shard: str | None = None
    """Do only part i/n of the work, such as 2/8, in a job array; `halp join` puts the parts together."""
    verify: bool = False
    """Read every file again instead of trusting its size and times."""
    left_out: str | os.PathLike[str] | None = None
    """Also write a CSV table of the recordings that were left out, with reasons."""

    def __post_init__(self) -> None:
        if self.left_out is not None and not isinstance(self.left_out, LeftOutTable):
            object.__setattr__(self, "left_out", LeftOutTable(os.fspath(self.left_out)))

    @property
    def windows(self) -> WindowSettings:
        """Window, stride and frame rate."""
        from halp.data.windows import WindowSettings

        return WindowSettings(self.window, self.stride, self.fps)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the format, including those that are fields of their own here."""
        own = {"person": None if self.person is None else str(self.person), "persons": self.persons}
        return {**self.options, **{name: value for name, value in own.items() if value is not None}}

    @property
    def place(self) -> Engine:
        """The engine: where shards run."""
        from halp.engine import Engine

        address, executor = (self.engine, None) if isinstance(self.engine, str) else (None, self.engine)
        return Engine(self.workers, address, executor, None if self.shard is None else parse_part(self.shard))

    def cut_by(self, windows: WindowSettings) -> Reading:
        """The same with other windows."""
        return replace(self, window=windows.window, stride=windows.stride, fps=windows.fps)


class ReadingKeywords(TypedDict, total=False):
    """The fields of `Reading` as keywords, for signatures: `**keywords: Unpack[ReadingKeywords]`."""

    format: str
    window: float | None
    stride: float | None
    fps: float | None
    topology: str | Topology | None
    options: Mapping[str, Any]
    person: str | None
    persons: int | None
    labels: str | os.PathLike[str] | None
    pattern: str | None
    workers: int | None
    engine: str | Executor | None
    shard: str | None
    verify: bool
    left_out: str | os.PathLike[str] | None


def combine(reading: Reading | None, keywords: ReadingKeywords) -> Reading:
    """A reading with fields given by keyword; an unknown keyword is a `TypeError`."""
    return replace(reading or Reading(), **keywords)
