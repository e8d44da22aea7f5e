"""What readers of pose estimators share: persons detected frame by frame, followed over time, unsure joints left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from halp.clips.clip import Clip, Dropped, Frames
from halp.clips.readers import Info
from halp.clips.readers.sources import Entry
from halp.clips.text_files import forget_unsure, unless_empty
from halp.clips.tracking import Detection, follow
from halp.skeleton import Topology


@dataclass
class DetectionReader:
    """Base of these readers.

    At most `persons` are kept, those seen longest; joints with a score below `min_score` are missing.
    """

    name: str
    description: str
    persons: int = 2
    min_score: float = 0.0

    def source_info(self, topology: Topology, classes: tuple[str, ...]) -> Info:
        """What holds for the whole source."""
        return Info(topology, self.persons, classes, normalisation=("drop-empty", "interpolate-gaps", "centre"))

    def sure_joints(self, joints: Frames, scores: npt.NDArray[Any]) -> Frames:
        """Joints with zeros for those that are not sure enough."""
        return forget_unsure(joints, scores, self.min_score)[0]

    def clip(self, frames: Sequence[Sequence[Detection]], entry: Entry, topology: Topology) -> Clip | Dropped:
        """The persons of all frames as one clip."""
        tracked, left_out = follow(frames, self.persons, len(topology), topology.dimensions)
        return unless_empty(Clip(tracked, entry.name, entry.label, repairs=left_out))
