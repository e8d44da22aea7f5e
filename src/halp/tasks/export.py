"""Export: an encoder as a package to hand on (config, weights, card), and as an ONNX file that is checked against torch."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import Request, urlopen

import numpy as np
import torch
from safetensors import SafetensorError

from halp.core.errors import InputError
from halp.core.files import building, read_json, write_json
from halp.core.packages import CARD, COMPACT, CONFIG, WEIGHTS
from halp.encoders.pretrained import PretrainedEncoder, describe, load_package, write_package
from halp.features.embed import embed, prepare_for
from halp.features.loading import AnyEncoder, as_encoder
from halp.reports.drawing import render

ONNX = "model.onnx"
BATCHES = (1, 2, 5)  # batch sizes that an ONNX file is checked with
TOLERANCE = 1e-4
_MISSING = "ONNX needs the packages onnx and onnxruntime; install them with `pip install 'halp-motion[onnx]'`"


def export(
    encoder: AnyEncoder,
    out: str | os.PathLike[str],
    *,
    stream: str | None = None,
    onnx: bool = False,
) -> Path:
    """Write an encoder as a package folder, whole or not at all.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str
        An encoder, a run, a package or a shipped name.
    out : path
        The folder to make.
    stream : str, optional
        Which stream of a run.
    onnx : bool
        Also write `model.onnx`, compared with torch for several batch sizes.

    Returns
    -------
    Path
        The folder: config.json, model.safetensors, README.md.

    Raises
    ------
    InputError
        Where the folder exists already, or cannot be written.

    Examples
    --------
    >>> import tempfile, halp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(file.name for file in halp.export("halp-base", f"{folder}/mine").iterdir())
    ['README.md', 'compact.safetensors', 'config.json', 'model.safetensors']
    """
    loaded = as_encoder(encoder, stream=stream)
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


def write_onnx(encoder: PretrainedEncoder, path: Path) -> float:
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


def _export_graph(encoder: PretrainedEncoder, example: torch.Tensor, path: Path) -> None:
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


def check_onnx(encoder: PretrainedEncoder, session: Any) -> float:
    """The largest difference between `halp.embed` and ONNX on the same recordings, relative to the largest feature."""
    draw = np.random.default_rng(1)
    shape = (encoder.persons, len(encoder.topology), encoder.topology.dimensions)
    worst = 0.0
    for batch in BATCHES:
        recordings = [draw.normal(size=(encoder.frames + 11 * number, *shape)) for number in range(batch)]
        recordings[0][:, 1:] = 0  # somebody is absent
        wanted = embed(encoder, recordings, progress=False)
        answer = session.run(None, {"clips": prepare_for(encoder, recordings)})[0]
        if answer.shape != wanted.shape:
            raise InputError(
                f"ONNX gives features of shape {answer.shape} in place of {wanted.shape}; leave out --onnx"
            )
        worst = max(worst, float(np.abs(answer - wanted).max() / max(float(np.abs(wanted).max()), 1e-12)))
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


def model_card(encoder: PretrainedEncoder, name: str, onnx: bool = False) -> str:
    """A README in the layout of model hubs: what the encoder reads, where it comes from, how it is used."""
    facts = {"topology": encoder.topology, "provenance": describe(encoder)["provenance"], "onnx": ONNX if onnx else ""}
    return render("model_card.md", name=name, encoder=encoder, **facts)


FILES = [CONFIG, WEIGHTS, COMPACT, CARD, ONNX]
LARGEST = 4 * 2**30  # bytes that weights may have; the encoders here have some megabytes
SMALL = 2**20  # bytes of the configuration and of the card
PATIENCE, SLOWEST = 60, 20_000  # seconds that a file may take, and bytes per second that it takes beyond them
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def push(package: str | os.PathLike[str], repository: str, *, private: bool = False) -> str:
    """Upload an encoder package to a model hub.

    Parameters
    ----------
    package : path
        A folder that `export` made.
    repository : str
        OWNER/NAME on the hub, created if it does not exist.
    private : bool
        Make a new repository visible to you alone.

    Returns
    -------
    str
        The address of the upload.
    """
    load_package(package)  # only what would load is handed on
    with _talking(repository) as hub:
        hub.create_repo(repository, private=private, exist_ok=True)
        commit = hub.upload_folder(repo_id=repository, folder_path=package, allow_patterns=FILES)
    return str(commit.commit_url)


def pull(repository: str, out: str | os.PathLike[str], *, revision: str | None = None) -> Path:
    """Download an encoder package from a model hub; it is verified before it is installed.

    Parameters
    ----------
    repository : str
        OWNER/NAME on the hub.
    out : path
        The folder to make.
    revision : str, optional
        A branch, tag or commit (default: the newest).

    Returns
    -------
    path
        The package folder, complete or absent.
    """
    out = Path(out)
    if out.exists():
        raise InputError(f"'{out}' exists already; remove it or choose another folder for the package")
    with _talking(repository) as hub, building(out) as partial:
        for name in FILES:
            if name in (CONFIG, WEIGHTS) or hub.file_exists(repository, name, revision=revision):
                _download(hub, repository, name, revision, partial / name)
        load_package(partial)
    return out


def _download(hub: Any, repository: str, name: str, revision: str | None, path: Path) -> None:
    """Write a file as it comes: no byte more than was declared, nothing compressed, and not slower than `SLOWEST`."""
    from huggingface_hub import get_token, hf_hub_url

    address = hf_hub_url(repository, name, revision=revision, endpoint=hub.endpoint)
    facts = hub.get_hf_file_metadata(url=address)
    largest = LARGEST if name in (WEIGHTS, COMPACT, ONNX) else min(SMALL, LARGEST)
    if facts.size is None or facts.size > largest:
        declared = "has no size" if facts.size is None else f"has {facts.size:,} bytes"
        raise InputError(f"'{name}' of '{repository}' {declared}; a package file has {largest:,} bytes at most")
    place = urljoin(address, facts.location)
    if urlsplit(place).scheme not in ("http", "https"):
        raise InputError(f"'{name}' of '{repository}' lies at '{place[:80]}', which is not an address of the web")
    request = Request(place, headers={"Accept-Encoding": "identity", "User-Agent": "halp"})  # noqa: S310  (checked above)
    token = get_token()
    if token and urlsplit(place).netloc == urlsplit(address).netloc:
        request.add_unredirected_header("Authorization", f"Bearer {token}")  # for the hub alone
    deadline = time.monotonic() + PATIENCE + facts.size / SLOWEST
    received = 0
    with urlopen(request, timeout=PATIENCE) as answer, open(path, "wb") as file:  # noqa: S310
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise InputError(
                f"'{name}' of '{repository}' comes compressed, so that its size is not known; it is refused"
            )
        while block := answer.read1(1 << 16):
            received += len(block)
            if received > facts.size:
                raise InputError(f"'{name}' of '{repository}' is longer than the {facts.size:,} bytes it declared")
            if time.monotonic() > deadline:
                raise InputError(
                    f"'{name}' of '{repository}' comes too slowly ({received:,} of {facts.size:,} bytes); try again later"
                )
            file.write(block)
    if received != facts.size:
        raise InputError(f"'{name}' of '{repository}' ended after {received:,} of {facts.size:,} bytes; try again")


@contextmanager
def _talking(repository: str) -> Iterator[Any]:
    """The hub's interface; what goes wrong on the way is said in a sentence."""
    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"'{repository}' is not the name of a repository; write OWNER/NAME")
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise InputError(
            "a model hub needs huggingface_hub; install it with `pip install 'halp-motion[hub]'`"
        ) from None
    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        yield hub
    except InputError:
        raise
    except Exception as error:  # of the hub's library, and of whichever library it speaks HTTP with
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"'{repository}' on {hub.endpoint}: {words[0][:200]}; check the name, the network and your rights (HF_TOKEN)"
        ) from error
