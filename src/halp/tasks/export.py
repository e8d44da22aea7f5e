"""Export: an encoder or a model as a package (config, weights, card, ONNX file), and model hubs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import Request, urlopen

from safetensors import SafetensorError

from halp.core.errors import InputError, missing_extra
from halp.core.files import building, read_json, sha256, write_json
from halp.core.packages import CARD, COMPACT, CONFIG, WEIGHTS
from halp.data.topology_file import find_topology
from halp.encoders.pretrained import PretrainedEncoder, load_package, write_package
from halp.features.loading import AnyEncoder, as_encoder
from halp.skeleton import Topology
from halp.tasks.card import model_card
from halp.tasks.model_folder import Model, as_model, is_model, write_model

ONNX = "model.onnx"


def export(
    encoder: AnyEncoder | Model,
    out: str | os.PathLike[str],
    *,
    stream: str | None = None,
    onnx: bool = False,
    web: bool = False,
    topology: str | Topology | None = None,
) -> Path:
    """Export an encoder, or a model with its classifier, as a package; written atomically.

    Parameters
    ----------
    encoder : PretrainedEncoder, Model, path or str
        An encoder, a run, a package or a shipped name; or a model of `classify_fit` or its folder.
    out : path
        The folder to make.
    stream : str, optional
        Which stream of a run.
    onnx : bool
        Also write `model.onnx`, one file that takes raw key points and gives probabilities and rejection
        (features for an encoder), compared with the library on recordings with gaps.
    web : bool
        Write a static page instead that recognises the model's classes in the browser, from a camera or a
        video; it needs the weights of `halp pose-model`, and npm for its libraries.
    topology : str or Topology, optional
        Joint layout of the points that the ONNX file takes (default: that of the encoder).

    Returns
    -------
    Path
        The folder: config.json, model.safetensors, README.md, and the encoder of a model; of a page
        index.html and what belongs to it.

    Raises
    ------
    InputError
        If the folder exists already, cannot be written, or something cannot be put into an ONNX file.

    Examples
    --------
    >>> import tempfile, halp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(file.name for file in halp.export("halp-base", f"{folder}/mine").iterdir())
    ['README.md', 'compact.safetensors', 'config.json', 'model.safetensors']
    """
    out = Path(out)
    what = as_model(encoder) if is_model(encoder) else as_encoder(encoder, stream=stream)
    loaded = what.encoder if isinstance(what, Model) else what
    if not loaded.architecture:
        raise InputError("this encoder does not know its architecture; export one returned by `load_encoder`")
    if out.exists():
        raise InputError(f"'{out}' exists already; remove it or choose another folder for the package")
    if web:
        return _export_page(what, out, topology)
    try:
        with building(out) as partial:
            facts = _write_onnx(what, partial / ONNX, topology) if onnx else None
            if isinstance(what, Model):
                write_model(what, partial, out.name, facts)
            else:
                write_package(what, partial, card=model_card(what, out.name, facts))
                if facts is not None:
                    write_json(partial / CONFIG, {**read_json(partial / CONFIG), "onnx": facts})
    except (OSError, SafetensorError) as error:
        raise InputError(f"the package '{out}' cannot be written ({error}); choose another folder") from error
    return out


def _export_page(what: PretrainedEncoder | Model, out: Path, topology: str | Topology | None) -> Path:
    """Write the page; its libraries are fetched before the folder takes its name."""
    from halp.tasks.web_page import add_libraries, page_model, write_page
    from halp.video.pose_model import find_pose_model

    model, layout = page_model(what, topology)
    pose_model = find_pose_model()
    with building(out) as partial:
        write_page(model, partial, out.name, pose_model, _write_onnx(model, partial / ONNX, layout))
        add_libraries(partial)
    return out


def _write_onnx(
    what: PretrainedEncoder | Model, path: Path, topology: str | Topology | None
) -> dict[str, Any]:
    """Write the ONNX file; returns its facts for the card and the configuration."""
    from halp.tasks.onnx_file import write_onnx

    facts = write_onnx(what, path, None if topology is None else find_topology(topology))
    return {"file": ONNX, "sha256": sha256(path), "bytes": path.stat().st_size, **facts}


FILES = [CONFIG, WEIGHTS, COMPACT, CARD, ONNX]
LARGEST_WEIGHTS = 4 * 2**30  # bytes that weights may have; the encoders here have some megabytes
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
    with _hub_api(repository) as hub:
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
    with _hub_api(repository) as hub, building(out) as partial:
        for name in FILES:
            if name in (CONFIG, WEIGHTS) or hub.file_exists(repository, name, revision=revision):
                _download(hub, repository, name, revision, partial / name)
        load_package(partial)
    return out


def _download(hub: Any, repository: str, name: str, revision: str | None, path: Path) -> None:
    """Write a download as it arrives: at most the declared bytes, uncompressed, at least as fast as
    `SLOWEST`.
    """
    from huggingface_hub import get_token, hf_hub_url

    address = hf_hub_url(repository, name, revision=revision, endpoint=hub.endpoint)
    facts = hub.get_hf_file_metadata(url=address)
    largest = LARGEST_WEIGHTS if name in (WEIGHTS, COMPACT, ONNX) else min(SMALL, LARGEST_WEIGHTS)
    if facts.size is None or facts.size > largest:
        declared = "has no size" if facts.size is None else f"has {facts.size:,} bytes"
        raise InputError(f"'{name}' of '{repository}' {declared}; a package file has at most {largest:,}")
    place = urljoin(address, facts.location)
    if urlsplit(place).scheme not in ("http", "https"):
        raise InputError(f"'{name}' of '{repository}' lies at '{place[:80]}', which is not a web address")
    request = Request(place, headers={"Accept-Encoding": "identity", "User-Agent": "halp"})  # noqa: S310  (checked above)
    token = get_token()
    if token and urlsplit(place).netloc == urlsplit(address).netloc:
        request.add_unredirected_header("Authorization", f"Bearer {token}")  # for the hub alone
    deadline = time.monotonic() + PATIENCE + facts.size / SLOWEST
    received = 0
    with urlopen(request, timeout=PATIENCE) as answer, open(path, "wb") as file:  # noqa: S310
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise InputError(
                f"'{name}' of '{repository}' is compressed, so its size is unknown; it is refused"
            )
        while block := answer.read1(1 << 16):
            received += len(block)
            if received > facts.size:
                raise InputError(
                    f"'{name}' of '{repository}' is longer than the {facts.size:,} bytes it declared"
                )
            if time.monotonic() > deadline:
                raise InputError(
                    f"'{name}' of '{repository}' downloads too slowly ({received:,} of {facts.size:,} bytes); try"
                    " again later"
                )
            file.write(block)
    if received != facts.size:
        raise InputError(
            f"'{name}' of '{repository}' ended after {received:,} of {facts.size:,} bytes; try again"
        )


@contextmanager
def _hub_api(repository: str) -> Iterator[Any]:
    """Wrap calls of the hub's API; errors are reported in one sentence."""
    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"'{repository}' is not the name of a repository; write OWNER/NAME")
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise missing_extra("a model hub needs huggingface_hub", "hub") from None
    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        yield hub
    except InputError:
        raise
    except Exception as error:  # of the hub's library, and of whichever library it speaks HTTP with
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"'{repository}' on {hub.endpoint}: {words[0][:200]}; check the name, the network and your access rights"
            " (HF_TOKEN)"
        ) from error
