"""Optional loggers beside `metrics.jsonl`: TensorBoard through Fabric, Weights & Biases by a thin adapter."""

from __future__ import annotations

import importlib
import os
from typing import Any, Protocol

from halp.errors import InputError, choose
from halp.training.run import Run


class Logger(Protocol):
    """What the watch asks of a logger."""

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None: ...

    def finalize(self, status: str) -> None: ...


def open_logger(name: str, run: Run, step: int = 0) -> Logger:
    """The logger of that name for a run that stands at `step`; later steps that were logged before are taken back."""
    try:
        return LOGGERS[choose("logger", name, LOGGERS)](run, step)
    except ImportError as error:
        raise InputError(
            f"the logger '{name}' needs a package that is not installed ({error.name}); "
            "install it with: pip install 'halp[loggers]'"
        ) from error


def _tensorboard(run: Run, step: int) -> Logger:
    importlib.import_module("tensorboard")  # Fabric's own complaint would not name the extra
    from lightning_fabric.loggers import TensorBoardLogger

    return TensorBoardLogger(run.path, name="tensorboard", version="", purge_step=step or None)


class _WeightsAndBiases:
    """Online or offline as its own environment says (`WANDB_MODE=offline`); files stay in the run folder."""

    def __init__(self, run: Run, step: int) -> None:
        wandb: Any = importlib.import_module("wandb")
        identity = run.path.resolve().name
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "halp"),
            name=identity,
            dir=str(run.path),
            config=run.recipe.flat(),
            resume="allow" if step else None,
        )

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None:
        self._run.log(metrics, step=step)

    def finalize(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "success" else 1)


LOGGERS: dict[str, Any] = {"tensorboard": _tensorboard, "wandb": _WeightsAndBiases}
