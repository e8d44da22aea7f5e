"""Options shared by several commands: how recordings are read and where labels come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, Suppress, UseAppendAction, arg

from halp.core.errors import InputError
from halp.data.reading import Reading

From = Annotated[str, arg(name="from")]
Assignments = UseAppendAction[tuple[tuple[str, ...], ...]]
# what an option means wherever it stands; a command describes those of its own, and these where it means
# something else
SHARED = {
    "accelerator": "cpu, cuda, mps or auto.",
    "cache": "keep vectors for the next time (--no-cache recomputes them).",
    "concurrent": "allow events of different labels to overlap.",
    "encoder": (
        "a run folder, a package, the name of an encoder that comes with halp (see `halp encoders`), or auto."
    ),
    "format": "how recordings are written (see `halp formats`).",
    "fps": "frames per second, for recordings that do not state it.",
    "gap": "seconds; closer bouts of a label are merged.",
    "html": "also write a page, one HTML file.",
    "json": "print as JSON.",
    "labelled": "a store with labels, or recordings in a folder for each class.",
    "out": "also write a CSV table.",
    "overwrite": "replace an existing store.",
    "reject": "share of known clips that may be rejected as unlike all labelled ones (auto: as fitted; none: never).",
    "shard": (
        "do only part i/n of the work, such as 2/8, in a job array; `halp join OUT` puts the parts together."
    ),
    "engine": "a Dask scheduler, such as tcp://HOST:8786, whose workers do the work.",
    "workers": "processes (default: as many as cores, if there is enough to do).",
    "shortest": "seconds; shorter bouts are then dropped.",
    "source": "a store, or recordings of any format.",
    "stream": "which stream of a run.",
}


@dataclass(frozen=True)
class ReadingOptions(Reading):
    """How recordings are read."""

    topology: Suppress[Any] = None
    options: Suppress[Mapping[str, Any]] = field(default_factory=dict)
    labels: Suppress[str | os.PathLike[str] | None] = None
    pattern: Suppress[str | None] = None
    engine: str | None = None
    """A Dask scheduler, such as tcp://HOST:8786, whose workers read and embed."""
    shard: Suppress[str | None] = None
    left_out: Path | None = None
    """Also write a CSV table of the recordings that were left out, with reasons."""
    option: Assignments = ()
    """Settings of the format as key=value (see `halp formats`)."""

    @property
    def reading(self) -> Reading:
        """What the library takes."""
        given = {each.name: getattr(self, each.name) for each in fields(Reading)}
        return Reading(**{**given, "options": parse_options(flat(self.option))})


@dataclass(frozen=True)
class WholeOptions(ReadingOptions):
    """How whole recordings are read."""

    window: Suppress[float | None] = None
    stride: Suppress[float | None] = None


@dataclass(frozen=True)
class PoseOptions(WholeOptions):
    """How whole recordings are read by a command that has `--from` and `--to`."""

    format: Suppress[str] = "auto"


@dataclass(frozen=True)
class LabelOptions:
    """Where labels come from, and the share of known recordings that may be rejected."""

    labels: Path | None = None
    """A CSV table with the columns name (or path) and label; subject separates people in cross-validation."""
    pattern: str | None = None
    """A pattern of paths that names labels, such as "{subject}/{label}/*.bvh"."""
    events: Path | None = None
    """Labelled spans in any format of `halp events`; windows take the label that covers most of them."""
    rejection_rate: float = 0.05
    """Share of known recordings that may be rejected as unlike everything labelled."""


def flat(settings: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(setting for group in settings for setting in group)


def parse_options(settings: tuple[str, ...]) -> dict[str, str]:
    """Settings `key=value` of a format by name."""
    pairs = {}
    for setting in settings:
        name, _, value = (part.strip() for part in setting.partition("="))
        if not name or not value:
            raise InputError(f"--option takes name=value, for example min_score=0.3, not '{setting}'")
        pairs[name] = value
    return pairs


READING, WHOLE, POSES, LABELS = ReadingOptions(), WholeOptions(), PoseOptions(), LabelOptions()
ReadingArgs = Annotated[ReadingOptions, OmitArgPrefixes]
WholeArgs = Annotated[WholeOptions, OmitArgPrefixes]
PoseArgs = Annotated[PoseOptions, OmitArgPrefixes]
Labels = Annotated[LabelOptions, OmitArgPrefixes]
