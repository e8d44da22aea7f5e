"""Options that several commands have, said once: how recordings are read and where labels come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes

from halp.cli.app import Settings, flat
from halp.errors import InputError


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
