"""Options that several commands have, said once: how recordings are read and where labels come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, UseAppendAction

from halp.core.errors import InputError

Settings = UseAppendAction[tuple[tuple[str, ...], ...]]
# what an option means wherever it stands; a command describes those of its own, and these where it means something else
SHARED = {
    "accelerator": "cpu, cuda, mps or auto.",
    "cache": "keep vectors for the next time (--no-cache computes them anew).",
    "concurrent": "events of different labels may overlap.",
    "encoder": "a run folder, a package, the name of an encoder that comes with halp (see `halp encoders`), or auto.",
    "format": "how recordings are written (see `halp formats`).",
    "fps": "frames per second, where the recordings do not tell.",
    "gap": "seconds; bouts of a label that are closer are one.",
    "json": "print as JSON.",
    "labelled": "a store with labels, or recordings in a folder for each class.",
    "out": "also write a CSV table.",
    "overwrite": "replace a store that is there already.",
    "reject": "share of known windows that may be rejected as unlike everything labelled; none for never.",
    "shortest": "seconds; shorter bouts are then left out.",
    "source": "a store, or recordings of any format.",
    "stream": "which stream of a run.",
}


@dataclass(frozen=True)
class ReadingOptions:
    """How recordings are read."""

    format: str = "auto"
    """How recordings are written (see `halp formats`)."""
    window: float | None = None
    """Cut recordings into windows of so many seconds (default: as the model was fitted, where there is one)."""
    stride: float | None = None
    """Seconds between the starts of two windows (default: the window)."""
    fps: float | None = None
    """Frames per second, where the recordings do not tell."""
    option: Settings = ()
    """Settings of the format as key=value, as `halp prepare` takes them (see `halp formats`)."""

    @property
    def options(self) -> dict[str, str]:
        """Settings of the format by name."""
        return parse_options(flat(self.option))

    @property
    def spans(self) -> dict[str, Any]:
        """Window, stride and frames per second, as functions of `halp` take them."""
        return {"window": self.window, "stride": self.stride, "fps": self.fps}

    @property
    def source(self) -> dict[str, Any]:
        """What `halp.open_source` takes."""
        return {**self.spans, "file_format": self.format, "options": self.options}


@dataclass(frozen=True)
class LabelOptions:
    """Where labels come from, and how many recordings may go without."""

    labels: Path | None = None
    """A CSV table with the columns name (or path) and label; subject keeps people apart in cross-validation."""
    pattern: str | None = None
    """A pattern of paths that names labels, such as "{subject}/{label}/*.bvh"."""
    events: Path | None = None
    """Labelled spans in any format of `halp events`, matched with recordings by name: windows mostly in one take its label."""
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


READING, LABELS = ReadingOptions(), LabelOptions()
Reading = Annotated[ReadingOptions, OmitArgPrefixes]
Labels = Annotated[LabelOptions, OmitArgPrefixes]
