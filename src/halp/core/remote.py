"""Paths on object stores and other file systems of fsspec: `s3://…`, `gs://…`, `memory://…`, `file://…`.

`fetched` brings what is there into the cache, where it is read like any other path; files that did not change
are not fetched again. `upload_folder` writes a folder there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.request import url2pathname

from halp.core.errors import InputError
from halp.core.files import atomic_path, cache_home, read_json, write_json
from halp.core.locks import locked
from halp.core.urls import remote_url

# what file systems tell of a file that changes with its content
_CHANGES = ("ETag", "etag", "md5Hash", "content_hash", "generation", "mtime", "LastModified", "created")
_PATIENCE = 3600.0  # seconds to wait for a process that fetches the same


def fetched(path: str | os.PathLike[str], *, may_be_absent: bool = False) -> Path:
    """The local place of a path: itself, or its copy in the cache, fetched from its file system.

    Folders are fetched whole; files that are gone there go here too.

    Parameters
    ----------
    path : path
        A path or an address.
    may_be_absent : bool
        Return the place also if there is nothing yet, for something that is about to be written.
    """
    url = remote_url(path)
    if url is None:
        return Path(path)
    if url.startswith("file://"):
        return Path(url2pathname(url.removeprefix("file://")))
    home = cache_home()
    if home is None:
        raise InputError(f"'{url}' is read through the cache; set HALP_CACHE to a folder that can be written")
    place = home / "remote" / hashlib.sha256(url.encode()).hexdigest()[:32]
    with locked(place.with_suffix(".lock"), f"the cache of '{url}'", wait=_PATIENCE):
        return _fetch(url, place, may_be_absent)


def _fetch(url: str, place: Path, may_be_absent: bool) -> Path:
    listing, folder = place / "listing.json", place / "files"
    before: dict[str, str | None] = read_json(listing) if listing.exists() else {}
    with _file_system(url) as (system, root):
        files = _find(system, root)
        if not files and not may_be_absent:
            raise InputError(f"there is nothing at '{url}'; check the address and the permission to list it")
        states = {name: _state(facts) for name, facts in files.items()}
        if outside := next((name for name in files if not _is_inside(name)), None):
            raise InputError(
                f"'{url}' holds a file called '{outside}', which points outside the folder; rename it"
            )
        for gone in before.keys() - states.keys():  # first: a file may have become a folder, or the reverse
            (folder / gone).unlink(missing_ok=True)
            with suppress(OSError):
                os.removedirs((folder / gone).parent)
        for name, facts in files.items():
            if states[name] is None or before.get(name) != states[name] or not (folder / name).is_file():
                with atomic_path(folder / name) as partial:
                    system.get_file(facts["name"], str(partial))
    if not files:
        shutil.rmtree(folder, ignore_errors=True)
    write_json(listing, states)
    single = [facts["name"] for facts in files.values()] == [root]
    return folder / next(iter(files)) if single else folder


def _find(system: Any, root: str) -> dict[str, Mapping[str, Any]]:
    """Files below a path by their relative names; a path that is a file itself by its own name."""
    system.invalidate_cache()
    found = [facts for facts in system.find(root, detail=True).values() if facts["type"] == "file"]
    return {facts["name"][len(root) :].lstrip("/") or PurePosixPath(root).name: facts for facts in found}


def upload_folder(folder: Path, url: str, *, last: str, replaceable: re.Pattern[str]) -> None:
    """Upload a folder: new files first, then the file `last`, which completes the upload; then delete remote
    files that `replaceable` matches and the folder lacks. Names of all files but `last` depend on their
    content.
    """
    ours = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    with _file_system(url) as (system, root):
        there = {name: facts["size"] for name, facts in _find(system, root).items()}
        for name in sorted(ours.keys() - {last}):
            if there.get(name) != ours[name].stat().st_size:
                system.makedirs(f"{root}/{PurePosixPath(name).parent}", exist_ok=True)
                system.put_file(str(ours[name]), f"{root}/{name}")
        system.put_file(str(ours[last]), f"{root}/{last}")
        for name in there.keys() - ours.keys():
            if replaceable.fullmatch(name):
                system.rm_file(f"{root}/{name}")


def _state(facts: Mapping[str, Any]) -> str | None:
    """A value that changes with the file; None if the file system has none."""
    told = [str(facts[key]) for key in _CHANGES if facts.get(key) is not None]
    return " ".join([str(facts.get("size")), *told]) if told else None


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts


@contextmanager
def _file_system(url: str) -> Iterator[tuple[Any, str]]:
    """The file system and path of an address; errors are reported in one sentence."""
    from fsspec.core import url_to_fs

    try:
        system, root = url_to_fs(url)
        yield system, root.rstrip("/")
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"'{url}' needs a package that is missing ({error})") from None
    except Exception as error:  # every file system has errors of its own
        raise InputError(f"'{url}' cannot be read or written ({type(error).__name__}: {error})") from error
