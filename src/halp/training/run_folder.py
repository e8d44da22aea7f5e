"""The layout of a run folder: the one place that knows where the parts of a run lie.

`run.json` what, where and with which versions · `recipe.toml` every setting · `metrics.jsonl` logged steps ·
`online.jsonl` evaluations during training · `timing.jsonl` seconds and memory per epoch · `cost.json` a measurement of
its own · `checkpoints/` · `diverged/` the dump of a step with a non-finite loss · `features/` and `results/` of evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run folder; nothing has to exist yet."""

    path: Path

    @property
    def info_file(self) -> Path:
        return self.path / "run.json"

    @property
    def recipe_file(self) -> Path:
        return self.path / "recipe.toml"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def online_file(self) -> Path:
        return self.path / "online.jsonl"

    @property
    def timing_file(self) -> Path:
        return self.path / "timing.jsonl"

    @property
    def cost_file(self) -> Path:
        return self.path / "cost.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def diverged(self) -> Path:
        return self.path / "diverged"

    @property
    def features(self) -> Path:
        return self.path / "features"

    @property
    def results(self) -> Path:
        return self.path / "results"

    def holds_run(self) -> bool:
        """Whether a run was started here: `run.json` is written last, so its presence makes the folder a run."""
        return self.info_file.exists()
