"""What a run records during training: metrics, timing, loggers, and the alarm when embeddings collapse."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from halp.errors import InputError
from halp.files import write_text
from halp.methods.base import StepOutput, embedding_std
from halp.progress import console
from halp.training.loggers import Logger, open_logger
from halp.training.run import Run, peak_memory, read_lines
from halp.training.run_folder import RunFolder

COLLAPSED = (
    0.05  # share of the standard deviation of evenly distributed directions below which embeddings have collapsed
)


@contextmanager
def writing(run: Run) -> Iterator[None]:
    """Say in one sentence that the records cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the records of run '{run.path}' cannot be written ({error}); its last checkpoint is whole: "
            "make room and resume with --resume"
        ) from error


class RunRecords:
    """The records of a run; on other ranks than 0 it does nothing. Lines reach the disk before a checkpoint does."""

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
            self._look_for_collapse(step, {name: value * math.sqrt(widths[name]) for name, value in spread.items()})
        return line

    def online(self, step: int, epoch: int, metrics: Mapping[str, float] | None) -> None:
        """Note what an evaluation in between found."""
        if self.active and metrics:
            line = {"step": step, "epoch": epoch, **metrics}
            with writing(self.run), open(self.run.online_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            for logger in self._loggers:
                logger.log_metrics(line, step)
            console.print(f"epoch {epoch}: " + ", ".join(f"{name} {value:.1f}" for name, value in metrics.items()))

    def epoch(self, epoch: int, began: float, clips: int) -> None:
        """Note how long an epoch took and how much memory the process has held."""
        if not self.active:
            return
        seconds = max(time.monotonic() - began, 1e-9)
        line = {"epoch": epoch, "seconds": round(seconds, 3), "clips_per_second": round(clips / seconds, 1)}
        with writing(self.run), open(self.run.timing_file, "a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "peak_memory": peak_memory()}) + "\n")

    def flush(self) -> None:
        """Bring all lines to the disk."""
        if self._file is not None:
            with writing(self.run):
                self._file.flush()
                os.fsync(self._file.fileno())

    def _look_for_collapse(self, step: int, shares: Mapping[str, float]) -> None:
        """Warn once when embeddings have nearly one direction; `shares` are relative to evenly spread directions."""
        flat = {name: share for name, share in shares.items() if share < COLLAPSED}
        if flat and not self._alarmed:
            self._alarmed = True
            name, share = next(iter(flat.items()))
            text = f"{name}/embedding_std is {100 * share:.1f} % of that of evenly spread directions at step {step}"
            self.run.add_info(alarm=text)
            console.print(
                f"[yellow]warning:[/] the embeddings collapse: {text}; lower the learning rate or raise the batch size"
            )


def truncate_records(path: Path, step: int) -> None:
    """Drop the records of steps that a resumed run will compute again."""
    folder = RunFolder(path)
    for file in (folder.metrics_file, folder.online_file):
        if file.exists():
            lines = [line for line in read_lines(file) if line["step"] <= step]
            write_text(file, "".join(json.dumps(line) + "\n" for line in lines))
