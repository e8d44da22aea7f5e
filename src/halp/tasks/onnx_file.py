"""A self-contained ONNX file: raw key points in; class probabilities and rejection, or features, out.

Preparation, encoder and classifier lie in one graph, for any number of clips, frames and persons. A file is
checked against the library on recordings with gaps, absent and too many persons before it is kept.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from halp._version import __version__
from halp.core.errors import InputError
from halp.encoders.pretrained import PretrainedEncoder, compacted
from halp.features.cache import module_fingerprint
from halp.features.embed import embed
from halp.features.prepare_graph import PrepareGraph
from halp.skeleton import Topology
from halp.tasks.heads import FAINT, SHARPNESS, to_eight_bit
from halp.tasks.model_folder import Model

TOLERANCE = 1e-4
EXACT = 1e-7  # of labelled vectors of length one
OPSET = 17
_MISSING = "ONNX needs the packages onnx and onnxruntime; install them with `pip install 'halp-motion[onnx]'`"
Clips = list[npt.NDArray[np.float32]]


class EncoderGraph(nn.Module):
    """Points `(B, T, P, V, C)` → vectors `(B, F)`; all zeros if nobody is seen."""

    def __init__(self, encoder: PretrainedEncoder, layout: Topology) -> None:
        super().__init__()
        self.prepare = PrepareGraph(
            layout, encoder.topology, encoder.persons, encoder.frames, encoder.normalisation
        )
        self.encoder = encoder

    def forward(self, points: Tensor) -> Tensor:
        return self.vectors(self.prepare(points))

    def vectors(self, clips: Tensor) -> Tensor:
        return self.encoder(clips) * somebody(clips)


def somebody(clips: Tensor) -> Tensor:
    """Whether anybody is seen in clips `(B, 1)`."""
    return (clips != 0).flatten(1).any(1, keepdim=True)


class ModelGraph(nn.Module):
    """Points → probabilities `(B, classes)` and rejections `(B,)`; clips without anybody are rejected."""

    axes: Tensor
    removed: Tensor

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    bank: Tensor
    steps: Tensor
    votes: Tensor

    def __init__(self, model: Model, layout: Topology) -> None:
        super().__init__()
        self.vectors = EncoderGraph(model.encoder, layout)
        classifier, head = model.classifier, model.classifier.head
        self.kind, self.neighbours = head.candidate.kind, min(int(head.candidate.setting), len(head.bank))
        self.temperature, self.threshold = classifier.temperature, classifier.threshold()
        self.rejects = classifier.can_reject()
        parts: dict[str, Any] = {
            "mean": head.mean,
            "scale": head.scale,
            "weight": head.weight,
            "bias": head.bias,
        }
        if len(head.left):
            parts |= {"axes": head.axes, "removed": 1 - head.left}
        if self.rejects or self.kind == "knn":
            parts |= bank_parts(head.bank)
        if self.kind == "knn":
            parts["votes"] = np.eye(head.classes, dtype=np.float64)[head.labels]
        for name, values in parts.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(values)))

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        clips = self.vectors.prepare(points)
        rows = (self.vectors.vectors(clips) - self.mean) / self.scale
        if hasattr(self, "axes"):
            rows = rows - ((rows @ self.axes) * self.removed) @ self.axes.T
        directions = rows / rows.square().sum(1, keepdim=True).sqrt().clamp(min=1e-12)
        similarity = directions @ self.bank.T.float() * self.steps if hasattr(self, "bank") else None
        probabilities = (self._logits(rows, directions, similarity) / self.temperature).softmax(1)
        rejected = ~somebody(clips)[:, 0]
        if self.rejects and similarity is not None:
            rejected = rejected | (similarity.amax(1).double() < self.threshold)
        return probabilities.float(), rejected

    def _logits(self, rows: Tensor, directions: Tensor, similarity: Tensor | None) -> Tensor:
        if self.kind == "linear":
            return (rows @ self.weight.T + self.bias).double()
        if self.kind in ("prototypes", "adapted") or similarity is None:
            return (SHARPNESS * (directions @ self.weight.T)).double()
        nearest, index = similarity.topk(self.neighbours, dim=1)
        weight = (nearest.double() * SHARPNESS).exp()
        votes = (self.votes[index] * weight[..., None]).sum(1)
        return (votes / votes.sum(1, keepdim=True) + FAINT).log()


def bank_parts(bank: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[Any]]:
    """Labelled vectors with their step size: eight bits per number if that is exact."""
    numbers, steps = to_eight_bit(bank)
    if np.abs(numbers * steps[:, None] - bank).max(initial=0) <= EXACT:
        return {"bank": numbers, "steps": steps}
    return {"bank": bank, "steps": np.ones_like(steps)}


def write_onnx(what: PretrainedEncoder | Model, path: Path, layout: Topology | None = None) -> dict[str, Any]:
    """Write a model or a bare encoder as one file, checked against the library.

    Parameters
    ----------
    what : PretrainedEncoder or Model
        An encoder gives `features`, compact where it has a projection; a model `probabilities` and
        `rejected`.
    path : path
        The file to write.
    layout : Topology, optional
        Joint layout of the points; by default that of the encoder.

    Returns
    -------
    dict
        What the file says of itself, and `largest_difference` from the library.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise InputError(_MISSING) from None
    encoder = what.encoder if isinstance(what, Model) else what
    layout = encoder.topology if layout is None else layout
    encoder.cpu().eval()
    graph = ModelGraph(what, layout) if isinstance(what, Model) else EncoderGraph(compacted(what), layout)
    outputs = ["probabilities", "rejected"] if isinstance(what, Model) else ["features"]
    _export_graph(graph.eval(), path, layout, outputs, encoder)
    facts = onnx_facts(what, layout)
    file = onnx.load(str(path))
    for name, value in facts.items():
        entry = file.metadata_props.add()
        entry.key, entry.value = name, value if isinstance(value, str) else json.dumps(value)
    onnx.save(file, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return {**facts, "outputs": outputs, "largest_difference": check_onnx(what, session, layout)}


def onnx_facts(what: PretrainedEncoder | Model, layout: Topology) -> dict[str, Any]:
    """The metadata of the file."""
    encoder = what.encoder if isinstance(what, Model) else what
    facts: dict[str, Any] = {
        "topology": layout.name,
        "joints": list(layout.joints),
        "coordinates": layout.dimensions,
        "persons": encoder.persons,
        "normalisation": list(encoder.normalisation),
        "encoder_sha256": module_fingerprint(encoder),
        "halp": __version__,
    }
    if isinstance(what, Model):
        windows = {"window": what.cutting.window, "stride": what.cutting.stride, "fps": what.cutting.fps}
        facts |= {"classes": list(what.classifier.classes), "rejects": what.can_reject, "windows": windows}
    return facts


def _export_graph(
    graph: nn.Module, path: Path, layout: Topology, outputs: list[str], encoder: PretrainedEncoder
) -> None:
    # two clips of two persons: one of either would be taken for a constant
    shape = (2, 40, 2, len(layout), layout.dimensions)
    example = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    axes: dict[str, dict[int, str]] = {name: {0: "batch"} for name in outputs}
    axes["points"] = {0: "batch", 1: "frames", 2: "persons"}
    names: Mapping[str, Any] = {"input_names": ["points"], "output_names": outputs, "dynamic_axes": axes}
    try:
        with _quietly(), torch.no_grad():
            # constants stay in half precision where they are; runtimes fold them when they load the file
            torch.onnx.export(
                graph,
                (example,),
                str(path),
                dynamo=False,
                opset_version=OPSET,
                do_constant_folding=False,
                **names,
            )
    except Exception as error:  # whatever an encoder's operations make the exporter say
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"encoder '{encoder.architecture.get('name', '?')}' cannot be exported to ONNX"
            f" ({words[0][:200]}); leave out --onnx"
        ) from error


def check_onnx(what: PretrainedEncoder | Model, session: Any, layout: Topology) -> float:
    """Largest difference between library and session: of probabilities, or relative of features."""
    worst = 0.0
    for clips in sample_clips(layout):
        points = np.stack(clips)
        answers = session.run(
            None, {"points": np.where((points == 0).all(-1, keepdims=True), np.float32(np.nan), points)}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            encoder = what.encoder if isinstance(what, Model) else what
            vectors = embed(
                encoder, clips, topology=layout, compact=not isinstance(what, Model), progress=False
            )
        if isinstance(what, Model):
            wanted: npt.NDArray[Any] = what.classifier.predict(vectors).probabilities
            difference = float(np.abs(answers[0] - wanted).max())
        else:
            wanted = vectors
            difference = float(np.abs(answers[0] - wanted).max() / max(float(np.abs(wanted).max()), 1e-12))
        if answers[0].shape != wanted.shape:
            raise InputError(f"ONNX gives shape {answers[0].shape}, not {wanted.shape}; leave out --onnx")
        worst = max(worst, difference)
    if not worst <= TOLERANCE:
        raise InputError(f"the ONNX file differs from the library by {worst:.2g}; leave out --onnx")
    return worst


def sample_clips(layout: Topology) -> Iterator[Clips]:
    """Batches of random walks: several sizes, missing joints and frames, absent and too many persons."""
    draw = np.random.default_rng(1)
    for batch, frames, persons in ((1, 64, 1), (2, 23, 2), (5, 150, 3)):
        shape = (batch, frames, persons, len(layout), layout.dimensions)
        clips = draw.normal(size=(batch, 1, *shape[2:])) + 0.05 * draw.normal(size=shape).cumsum(1)
        clips = (clips + 3 * draw.normal(size=(batch, 1, persons, 1, layout.dimensions))).astype(np.float32)
        clips[draw.random(shape[:4]) < 0.1] = 0
        clips[draw.random(shape[:2]) < 0.1] = 0
        clips[-1, :, 0] = 0 if persons > 1 else clips[-1, :, 0]
        yield list(clips)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence standard output and error while exporters print progress and graphs from C++."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for stream, copy in zip((1, 2), kept):
            os.dup2(copy, stream)
        for handle in (*kept, nowhere):
            os.close(handle)
        logger.setLevel(level)
