"""Records of training: metrics, timing, loggers, profiles, warnings about collapse and divergence."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TextIO

import torch
from torch import Tensor, profiler

from halp.core.errors import InputError, check_choice
from halp.core.files import atomic_path, save_tensors, write_json, write_text
from halp.core.progress import log
from halp.methods.base import Method, StepOutput, embedding_std
from halp.training.run import Run, peak_memory, read_lines
from halp.training.run_folder import RunFolder

# share of the standard deviation of evenly distributed directions below which embeddings have collapsed
COLLAPSED = 0.05


@contextmanager
def writing(run: Run) -> Iterator[None]:
    """Raise one clear error if the records cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the records of run '{run.path}' cannot be written ({error}); its last checkpoint is whole: "
            "make room and resume with --resume"
        ) from error


class RunRecords:
    """The records of a run; only rank 0 writes. Lines reach the disk before a checkpoint does."""

    def __init__(self, run: Run, loggers: Sequence[str] = (), *, active: bool = True, step: int = 0) -> None:
        self.run, self.active = run, active
        self._file: TextIO | None = None
        self._alarmed = False
        self._loggers: list[Logger] = [open_logger(name, run, step) for name in loggers] if active else []

    def __enter__(self) -> RunRecords:
        if self.active:
            with writing(self.run):
                self._file = open(self.run.metrics_file, "a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError) if kind is not None else writing(self.run):
                self._file.close()
        for logger in self._loggers:
            logger.finalize("success" if kind is None else "failed")

    def step(self, step: int, epoch: int, rate: float, output: StepOutput) -> dict[str, Any]:
        """Record the metrics of one step, with the diagnostics of its embeddings; returns the line."""
        metrics = {name: round(float(value), 6) for name, value in output.metrics.items()}
        spread = {name: float(embedding_std(embeddings)) for name, embeddings in output.embeddings.items()}
        metrics |= {f"{name}/embedding_std": round(value, 6) for name, value in spread.items()}
        line = {"step": step, "epoch": epoch, "learning_rate": rate, **metrics}
        if self._file is not None:
            with writing(self.run):
                self._file.write(json.dumps(line) + "\n")
            for logger in self._loggers:
                logger.log_metrics(line, step)
            widths = {name: embeddings.shape[1] for name, embeddings in output.embeddings.items()}
            self._look_for_collapse(
                step, {name: value * math.sqrt(widths[name]) for name, value in spread.items()}
            )
        return line

    def online(self, step: int, epoch: int, metrics: Mapping[str, float] | None) -> None:
        """Record the result of an evaluation during training."""
        if self.active and metrics:
            line = {"step": step, "epoch": epoch, **metrics}
            with writing(self.run), open(self.run.online_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            for logger in self._loggers:
                logger.log_metrics(line, step)
            log.info(f"epoch {epoch}: " + ", ".join(f"{name} {value:.1f}" for name, value in metrics.items()))

    def epoch(self, epoch: int, began: float, clips: int) -> None:
        """Record the time of an epoch and the peak memory of the process."""
        if not self.active:
            return
        seconds = max(time.monotonic() - began, 1e-9)
        line = {"epoch": epoch, "seconds": round(seconds, 3), "clips_per_second": round(clips / seconds, 1)}
        with writing(self.run), open(self.run.timing_file, "a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "peak_memory": peak_memory(), **_device_memory()}) + "\n")

    def flush(self) -> None:
        """Flush all lines to disk."""
        if self._file is not None:
            with writing(self.run):
                self._file.flush()
                os.fsync(self._file.fileno())

    def _look_for_collapse(self, step: int, shares: Mapping[str, float]) -> None:
        """Warn once if embeddings have nearly one direction; `shares` are relative to a uniform spread."""
        flat = {name: share for name, share in shares.items() if share < COLLAPSED}
        if flat and not self._alarmed:
            self._alarmed = True
            name, share = next(iter(flat.items()))
            text = (
                f"{name}/embedding_std is {100 * share:.1f} % of that of evenly spread directions at step"
                f" {step}"
            )
            self.run.add_info(alarm=text)
            warnings.warn(
                f"the embeddings collapse: {text}; lower the learning rate or raise the batch size",
                stacklevel=2,
            )


def _device_memory() -> dict[str, int]:
    """The most memory that tensors have held on this process's GPU, if there is one."""
    return {"device_memory": torch.cuda.max_memory_allocated()} if torch.cuda.is_initialized() else {}


def truncate_records(path: Path, step: int) -> None:
    """Drop the records of steps that a resumed run will compute again."""
    folder = RunFolder(path)
    for file in (folder.metrics_file, folder.online_file):
        if file.exists():
            lines = [line for line in read_lines(file) if line["step"] <= step]
            write_text(file, "".join(json.dumps(line) + "\n" for line in lines))


class Logger(Protocol):
    """The interface of a logger."""

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None: ...

    def finalize(self, status: str) -> None: ...


def open_logger(name: str, run: Run, step: int = 0) -> Logger:
    """The named logger for a run at `step`; later steps logged before are removed."""
    try:
        return LOGGERS[check_choice("logger", name, LOGGERS)](run, step)
    except ImportError as error:
        raise InputError(
            f"the logger '{name}' needs a package that is not installed ({error.name}); "
            "install it with: pip install 'halp-motion[loggers]'"
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


LABEL = "halp: "


class Profiled(Exception):
    """The requested steps were profiled."""


class StepProfile:
    """Call `step()` after every training step; after `skip + steps` of them it raises `Profiled`."""

    def __init__(self, steps: int = 10, skip: int = 3) -> None:
        self.steps, self.skip, self.seen = steps, skip, 0
        self.parts: dict[str, float] = {}  # milliseconds of every labelled part of a step
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # otherwise the profiler prints lines about itself
        kinds = profiler.supported_activities()
        self._profiler = profiler.profile(activities=list(kinds))

    def step(self) -> None:
        """Count a step; the first ones, in which memory is found and threads start, are left out."""
        self.seen += 1
        if self.seen == self.skip:
            self._profiler.start()
        elif self.seen == self.skip + self.steps:
            self._profiler.stop()
            self.parts = {
                event.key.removeprefix(LABEL): (
                    max(event.cpu_time_total, event.device_time_total) / 1e3 / self.steps
                )
                for event in self._profiler.key_averages()
                if event.key.startswith(LABEL)
            }
            raise Profiled


def dump_step(
    run: Run,
    method: Method,
    views: Mapping[str, Tensor],
    clips: Tensor,
    names: Sequence[str],
    epoch: int,
    index: int,
) -> Path:
    """Save the method's state, the views and the clips (index and name) of one step."""
    tensors = {f"model/{name}": value for name, value in method.state_dict().items()}
    tensors |= {f"views/{name}": view for name, view in views.items()}
    with atomic_path(run.diverged / "step.safetensors") as partial:
        save_tensors(tensors, partial)
    write_json(
        run.diverged / "step.json",
        {"epoch": epoch, "index": index, "clips": list(names), "rows": clips.tolist()},
    )
    return run.diverged
