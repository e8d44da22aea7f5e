"""Options that several commands have, said once: how recordings are read and where labels come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes

if TYPE_CHECKING:
    from halp.clips.windows import Cutting


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

    @property
    def cutting(self) -> Cutting:
        from halp.clips.windows import Cutting

        return Cutting(self.window, self.stride, self.fps)

    @property
    def spans(self) -> dict[str, Any]:
        """Window, stride and frames per second, as functions of `halp` take them."""
        return {"window": self.window, "stride": self.stride, "fps": self.fps}


@dataclass(frozen=True)
class LabelOptions:
    """Where labels come from, and how many recordings may go without."""

    labels: Path | None = None
    """A CSV table with the columns name (or path) and label; subject keeps people apart in cross-validation."""
    path: str | None = None
    """A pattern of paths that names labels, such as "{subject}/{label}/*.bvh"."""
    unsure: float = 0.05
    """Share of the labelled recordings that may be called none of these."""


READING, LABELS = ReadingOptions(), LabelOptions()
Reading = Annotated[ReadingOptions, OmitArgPrefixes]
Labels = Annotated[LabelOptions, OmitArgPrefixes]
