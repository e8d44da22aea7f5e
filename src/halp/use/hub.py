"""Packages on a model hub: push one, pull one. The only commands that use a network, and only when they are called.

What is pulled is checked like any package (format, architecture, shapes, hash of the weights) before it takes its name; nothing
in it is executed. The hub is that of huggingface_hub (extra `hub`); `HF_ENDPOINT` names another one, `HF_TOKEN` signs in.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from halp.clips.partial import building
from halp.encoders.packaged import CARD, CONFIG, WEIGHTS, load_package
from halp.errors import InputError
from halp.use.export import ONNX

FILES = [CONFIG, WEIGHTS, CARD, ONNX]
LARGEST = 4 * 2**30  # bytes that a file of a package may have; the encoders here have some megabytes
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def push(package: str | os.PathLike[str], repository: str, *, private: bool = False) -> str:
    """Upload a package folder to OWNER/NAME, which is made where it does not exist; the address of the upload."""
    load_package(package)  # only what would load is handed on
    with _talking(repository) as hub:
        hub.create_repo(repository, private=private, exist_ok=True)
        made = hub.upload_folder(repo_id=repository, folder_path=package, allow_patterns=FILES)
    return str(made.commit_url)


def pull(repository: str, out: str | os.PathLike[str], *, revision: str | None = None) -> Path:
    """Download the package OWNER/NAME into a new folder, whole and checked, or not at all."""
    out = Path(out)
    if out.exists():
        raise InputError(f"'{out}' exists already; remove it or choose another folder for the package")
    with _talking(repository) as hub, tempfile.TemporaryDirectory() as downloads, building(out) as partial:
        for name in FILES:
            if name in (CONFIG, WEIGHTS) or hub.file_exists(repository, name, revision=revision):
                _check_size(hub, repository, name, revision)
                found = hub.hf_hub_download(repository, name, revision=revision, local_dir=downloads)
                shutil.copyfile(found, partial / name)
        load_package(partial)
    return out


def _check_size(hub: Any, repository: str, name: str, revision: str | None) -> None:
    """Refuse a file whose declared size is unknown or out of all proportion, before a byte of it is on the disk."""
    from huggingface_hub import hf_hub_url

    address = hf_hub_url(repository, name, revision=revision, endpoint=hub.endpoint)
    size = hub.get_hf_file_metadata(url=address).size
    if size is None or size > LARGEST:
        said = "has no size" if size is None else f"has {size / 2**30:.1f} GiB"
        raise InputError(f"'{name}' of '{repository}' {said}; a package file has {LARGEST // 2**30} GiB at most")


@contextmanager
def _talking(repository: str) -> Iterator[Any]:
    """The hub's interface; what goes wrong on the way is said in a sentence."""
    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"'{repository}' is not the name of a repository; write OWNER/NAME")
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise InputError("a model hub needs huggingface_hub; install it with `pip install 'halp[hub]'`") from None
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
