"""The manifest: what became of every clip when a store was made, with reasons and the counts that people ask about."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from halp.clips.clip import Clip
from halp.clips.readers import Dropped


@dataclass
class Manifest:
    """Filled while a store is made and saved in it as `manifest.json`.

    `dropped` holds the clips left out, `repaired` those that were mended, `notes` what else a user should know; counts are
    by class, subject and camera number.
    """

    format: str
    source: str
    normalisation: list[str]
    clips: int = 0
    frames: int = 0
    dropped: list[dict[str, Any]] = field(default_factory=list)
    repaired: list[dict[str, Any]] = field(default_factory=list)
    classes: Counter[str] = field(default_factory=Counter)
    subjects: Counter[int] = field(default_factory=Counter)
    cameras: Counter[int] = field(default_factory=Counter)
    splits: dict[str, dict[str, int] | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def expected(self) -> int:
        """How many of the dropped clips were published as unusable."""
        return sum(1 for one in self.dropped if one["expected"])

    def keep(self, clip: Clip, class_name: str) -> None:
        """Count a clip that goes into the store."""
        self.clips += 1
        self.frames += len(clip.frames)
        self.classes[class_name] += 1
        self.subjects[clip.subject] += 1
        self.cameras[clip.camera] += 1
        if clip.repairs:
            self.repaired.append({"name": clip.name, "repairs": list(clip.repairs)})

    def drop(self, dropped: Dropped) -> None:
        """Note a clip that is left out."""
        self.dropped.append(asdict(dropped))

    def to_json(self) -> dict[str, Any]:
        """Plain data; numbers as keys become text."""
        data = asdict(self)
        for key in ("classes", "subjects", "cameras"):
            data[key] = {str(value): count for value, count in sorted(getattr(self, key).items())}
        data["counts"] = {
            "clips": self.clips,
            "frames": self.frames,
            "dropped": len(self.dropped),
            "dropped as published": self.expected,
            "repaired": len(self.repaired),
        }
        return data

    def summary(self) -> str:
        """One sentence for the end of a run.

        >>> Manifest("ntu", "tree", [], clips=3, frames=210).summary()
        '3 clips, 210 frames; 0 dropped, 0 repaired'
        """
        published = f" ({self.expected} as published)" if self.expected else ""
        return (
            f"{self.clips} clips, {self.frames} frames; "
            f"{len(self.dropped)} dropped{published}, {len(self.repaired)} repaired"
        )
