"""What a run writes down while it goes: metrics, timing, loggers, the alarm of collapse, the dump of a loss gone wrong."""

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

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from halp.errors import InputError
from halp.files import read_json, write_json, write_text
from halp.methods import ContrastiveModel
from halp.methods.terms import Moment
from halp.progress import console
from halp.sampling import generator
from halp.training.loggers import Logger, open_logger
from halp.training.run import Run, build_model, open_run, peak_memory, read_lines

COLLAPSED = 0.05  # share of the spread of evenly distributed directions below which embeddings count as collapsed
RECORDS = ("metrics.jsonl", "online.jsonl")


class Diverged(Exception):
    """The loss is no longer a number."""


@contextmanager
def writing(run: Run) -> Iterator[None]:
    """Say in one sentence that the records cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the records of run '{run.path}' cannot be written ({error}); its last checkpoint is whole: "
            "make room and go on with --resume"
        ) from error


class Watch:
    """The records of a run; on other ranks than 0 it does nothing. Lines reach the disk before a checkpoint does."""

    def __init__(self, run: Run, loggers: Sequence[str] = (), *, active: bool = True, step: int = 0) -> None:
        self.run, self.active = run, active
        self._file: TextIO | None = None
        self._alarmed = False
        self._loggers: list[Logger] = [open_logger(name, run, step) for name in loggers] if active else []

    def __enter__(self) -> Watch:
        if self.active:
            with writing(self.run):
                self._file = open(self.run.path / RECORDS[0], "a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError) if kind is not None else writing(self.run):
                self._file.close()
        for logger in self._loggers:
            logger.finalize("success" if kind is None else "failed")

    def step(self, step: int, epoch: int, rate: float, metrics: Mapping[str, Tensor]) -> dict[str, Any]:
        """Note the metrics of one step; returns the line."""
        seen = {name: round(float(value), 6) for name, value in metrics.items()}
        line = {"step": step, "epoch": epoch, "learning_rate": rate, **seen}
        if self._file is not None:
            with writing(self.run):
                self._file.write(json.dumps(line) + "\n")
            for logger in self._loggers:
                logger.log_metrics(line, step)
            self._look_for_collapse(line)
        return line

    def online(self, step: int, epoch: int, figures: Mapping[str, float] | None) -> None:
        """Note what an evaluation in between found."""
        if self.active and figures:
            line = {"step": step, "epoch": epoch, **figures}
            with writing(self.run), open(self.run.path / RECORDS[1], "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            for logger in self._loggers:
                logger.log_metrics(line, step)
            console.print(f"epoch {epoch}: " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()))

    def epoch(self, epoch: int, began: float, clips: int) -> None:
        """Note how long an epoch took and how much memory the process has held."""
        if not self.active:
            return
        seconds = max(time.monotonic() - began, 1e-9)
        line = {"epoch": epoch, "seconds": round(seconds, 3), "clips_per_second": round(clips / seconds, 1)}
        with writing(self.run), open(self.run.path / "timing.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "peak_memory": peak_memory()}) + "\n")

    def flush(self) -> None:
        """Bring all lines to the disk."""
        if self._file is not None:
            with writing(self.run):
                self._file.flush()
                os.fsync(self._file.fileno())

    def _look_for_collapse(self, line: Mapping[str, Any]) -> None:
        even = 1 / math.sqrt(self.run.recipe.contrast.dimension)
        spreads = {name: value / even for name, value in line.items() if name.endswith("/spread")}
        flat = {name: share for name, share in spreads.items() if share < COLLAPSED}
        if flat and not self._alarmed:
            self._alarmed = True
            name, share = next(iter(flat.items()))
            text = f"{name} is {100 * share:.1f} % of that of evenly spread directions at step {line['step']}"
            self.run.add_info(alarm=text)
            console.print(
                f"[yellow]warning:[/] the embeddings collapse: {text}; lower the learning rate or raise the batch size"
            )


def forget_after(path: Path, step: int) -> None:
    """Drop the records of steps that a resumed run will take again."""
    for name in RECORDS:
        if (path / name).exists():
            lines = [line for line in read_lines(path / name) if line["step"] <= step]
            write_text(path / name, "".join(json.dumps(line) + "\n" for line in lines))


def dump(
    run: Run, model: ContrastiveModel, views: tuple[Tensor, Tensor], names: Sequence[str], epoch: int, index: int
) -> Path:
    """Save what is needed to compute the loss of this very step again: weights, queue, both views, and the clips' names."""
    folder = run.path / "diverged"
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"model/{name}": value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    save_file(
        {**tensors, "first": views[0].cpu().contiguous(), "second": views[1].cpu().contiguous()},
        folder / "step.safetensors",
    )
    write_json(folder / "step.json", {"epoch": epoch, "index": index, "clips": list(names)})
    return folder


def reproduce(path: str | os.PathLike[str]) -> Tensor:
    """The loss of the step that a run dumped, computed again."""
    run = open_run(path)
    facts = read_json(run.path / "diverged" / "step.json")
    try:
        tensors = load_file(run.path / "diverged" / "step.safetensors")
    except OSError as error:
        raise InputError(f"run '{run.path}' has no dump of a step that went wrong ({error})") from error
    model = build_model(run.recipe, run.topology, run.info["data"]["persons"])
    model.load_state_dict({name.removeprefix("model/"): value for name, value in tensors.items() if "/" in name})
    pair: Any
    for pair in model.pairs.values():
        pair.momentum = 1.0  # the key encoder had made its step already
    for name, buffer in model.named_buffers():
        if name.endswith(".calls"):
            buffer.sub_(1).clamp_min_(0)
    draws = generator(run.recipe.seed, "terms", facts["epoch"], facts["index"])
    with torch.no_grad():
        loss, _ = model.train()(tensors["first"], tensors["second"], Moment(facts["epoch"], draws, watched=False))
    return loss
