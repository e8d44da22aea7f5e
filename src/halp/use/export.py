"""Export: an encoder as a package to hand on (config, weights, card), and as an ONNX file that is checked against torch."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from halp.clips.partial import building
from halp.encoders.packaged import PackagedEncoder, describe, write_package
from halp.errors import InputError
from halp.files import read_json, write_json
from halp.training import load_encoder

ONNX = "model.onnx"
BATCHES = (1, 2, 5)  # batch sizes that an ONNX file is checked with
TOLERANCE = 1e-4
_MISSING = "ONNX needs the packages onnx and onnxruntime; install them with `pip install 'halp[onnx]'`"


def export(
    encoder: PackagedEncoder | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    stream: str | None = None,
    onnx: bool = False,
) -> Path:
    """Write an encoder as a package folder, with `onnx` also as `model.onnx`; the folder is there whole or not at all."""
    loaded = encoder if isinstance(encoder, PackagedEncoder) else load_encoder(encoder, stream)
    out = Path(out)
    if not loaded.architecture:
        raise InputError("this encoder does not know its architecture; export one that `load_encoder` gave")
    if out.exists():
        raise InputError(f"'{out}' exists already; remove it or choose another folder for the package")
    try:
        with building(out) as partial:
            write_package(loaded, partial, card=model_card(loaded, out.name, onnx))
            if onnx:
                error = write_onnx(loaded, partial / ONNX)
                config = read_json(partial / "config.json")
                write_json(partial / "config.json", {**config, "onnx": {"file": ONNX, "largest_difference": error}})
    except (OSError, SafetensorError) as error:
        raise InputError(f"the package '{out}' cannot be written ({error}); choose another folder") from error
    return out


def write_onnx(encoder: PackagedEncoder, path: Path) -> float:
    """Export `(B, frames, persons, joints, coordinates)` → `(B, F)` for any batch size; returns the largest difference.

    The stream is derived inside. Normalisation and resizing to so many frames are done before, as `config.json` states.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError:
        raise InputError(_MISSING) from None
    shape = (encoder.frames, encoder.persons, len(encoder.topology), encoder.topology.dimensions)
    # two clips: one would be taken for a constant
    example = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    encoder = encoder.cpu().eval()
    try:
        with _quietly(), torch.no_grad():
            _export_graph(encoder, example, path)
    except Exception as error:  # whatever an encoder's operations make the exporter say
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"encoder '{encoder.architecture.get('name', '?')}' cannot be exported to ONNX ({words[0][:200]}); leave out --onnx"
        ) from error
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return check_onnx(encoder, session)


def _export_graph(encoder: PackagedEncoder, example: torch.Tensor, path: Path) -> None:
    """By tracing; by torch.export where tracing fails. The latter unrolls a GRU frame by frame, which takes minutes."""
    names: dict[str, Any] = {"input_names": ["clips"], "output_names": ["features"]}
    try:
        axes = {"clips": {0: "batch"}, "features": {0: "batch"}}
        torch.onnx.export(encoder, (example,), str(path), dynamo=False, dynamic_axes=axes, opset_version=17, **names)
    except Exception:
        shapes = ({0: torch.export.Dim("batch", min=1, max=1 << 20)},)
        torch.onnx.export(
            encoder,
            (example,),
            str(path),
            dynamo=True,
            external_data=False,
            verbose=False,
            dynamic_shapes=shapes,
            **names,
        )


def check_onnx(encoder: PackagedEncoder, session: Any) -> float:
    """The largest difference between torch and ONNX over several batch sizes, relative to the largest feature."""
    draw = torch.Generator().manual_seed(1)
    shape = (encoder.frames, encoder.persons, len(encoder.topology), encoder.topology.dimensions)
    worst = 0.0
    for batch in BATCHES:
        clips = torch.randn(batch, *shape, generator=draw)
        clips[0, :, 1:] = 0  # somebody is absent
        with torch.no_grad():
            wanted = encoder(clips).numpy()
        found = session.run(None, {"clips": clips.numpy()})[0]
        if found.shape != wanted.shape:
            raise InputError(f"ONNX gives features of shape {found.shape} in place of {wanted.shape}; leave out --onnx")
        worst = max(worst, float(np.abs(found - wanted).max() / max(float(np.abs(wanted).max()), 1e-12)))
    if not worst <= TOLERANCE:
        raise InputError(f"ONNX differs from torch by {worst:.2g} of the largest feature; leave out --onnx")
    return worst


@contextmanager
def _quietly() -> Iterator[None]:
    """Exporters tell of their progress on standard output and print graphs from C++: both streams are shut meanwhile."""
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


def model_card(encoder: PackagedEncoder, name: str, onnx: bool = False) -> str:
    """A README in the layout of model hubs: what the encoder reads, where it comes from, how it is used."""
    facts = describe(encoder)
    topology = encoder.topology
    provenance = "\n".join(f"- {key}: {value}" for key, value in facts["provenance"].items())
    settings = ", ".join(f"{key} = {value}" for key, value in encoder.architecture.items())
    steps = ", ".join(encoder.normalisation) or "none"
    onnx_part = (
        f"\n## ONNX\n\n`{ONNX}` takes `clips`, float32 (batch, {encoder.frames}, {encoder.persons}, {len(topology)}, "
        f"{topology.dimensions}): joints in the order below, normalised and resized linearly to {encoder.frames} frames; an "
        f"absent person is all zeros. It derives the stream '{encoder.stream}' itself and gives `features` "
        f"(batch, {encoder.output_size}).\n"
        if onnx
        else ""
    )
    return f"""---
library_name: halp
tags:
- skeleton
- action-recognition
- self-supervised-learning
---
# {name}

An encoder of skeleton sequences, trained without labels. It turns a clip into a vector of {encoder.output_size} numbers.

```python
import halp

encoder = halp.load_encoder("{name}")  # this folder
vectors = halp.embed(encoder, [clip])  # arrays (frames, persons, {len(topology)}, {topology.dimensions})
```

| what | value |
| --- | --- |
| architecture | {settings} |
| topology | {topology.name}, {len(topology)} joints, {topology.dimensions} coordinates |
| stream | {encoder.stream} |
| persons | up to {encoder.persons} |
| frames | clips are resized to {encoder.frames} |
| normalisation | {steps} |

Joints in order: {", ".join(topology.joints)}.
{onnx_part}
## Provenance

{provenance}

The SHA-256 of the weights stands in `config.json` and is checked when the package is loaded. Nothing here is pickled.
"""
