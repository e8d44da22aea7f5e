"""Addresses such as `s3://bucket/folder` among paths: what they are, and where they cannot be used."""

from __future__ import annotations

import os
import re

from halp.core.errors import InputError

_URL = re.compile(r"([a-z][a-z0-9+]+):/{1,3}(?!/)(.*)", re.DOTALL)


def remote_url(path: object) -> str | None:
    """The address in a path, None for a local path; `Path` has merged its two slashes into one.

    >>> from pathlib import Path
    >>> remote_url("s3://bucket/a"), remote_url(Path("s3://bucket/a")), remote_url("C:/a"), remote_url("a/b")
    ('s3://bucket/a', 's3://bucket/a', None, None)
    >>> remote_url(Path("file:///data/a"))
    'file:///data/a'
    """
    match = _URL.fullmatch(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else None
    if match is None:
        return None
    return f"{match[1]}://{'/' if match[1] == 'file' else ''}{match[2]}".rstrip("/")


def check_local(path: str | os.PathLike[str]) -> None:
    """Raise if the path to write to is an address."""
    if (url := remote_url(path)) is not None:
        raise InputError(
            f"'{url}' cannot be written: only collections can be written to such an address"
            " (`halp embed ENCODER SOURCE ADDRESS`); write to a folder of this machine and copy it"
        )
