"""The layout of a run folder: the one place that knows where the parts of a run lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


class _Part:
    """A file or folder of a run, by its name: `folder.results` is `folder.path / "results"`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: RunFolder, owner: Any = None) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run folder; nothing has to exist yet."""

    path: Path

    info_file = _Part("run.json")  # what was trained, on which data and with which versions; written last
    recipe_file = _Part("recipe.toml")  # every setting
    metrics_file = _Part("metrics.jsonl")  # logged steps
    online_file = _Part("online.jsonl")  # evaluations during training
    timing_file = _Part("timing.jsonl")  # seconds and memory per epoch
    cost_file = _Part("cost.json")  # a measurement of its own, by `halp reproduce cost`
    checkpoints = _Part("checkpoints")
    diverged = _Part("diverged")  # the dump of a step with a non-finite loss
    features = _Part("features")  # cached by evaluations
    results = _Part("results")  # of evaluations

    def holds_run(self) -> bool:
        """Whether a run was started here: `run.json` is written last and makes the folder a run."""
        return self.info_file.exists()
