"""Resolve the name of an encoder to a package, a shipped encoder or a run, without loading torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from halp.core.errors import InputError
from halp.core.files import read_json

CONFIG, WEIGHTS, COMPACT, CARD = "config.json", "model.safetensors", "compact.safetensors", "README.md"
_SHIPPED = Path(__file__).parents[1] / "encoders" / "shipped"


def list_shipped() -> dict[str, Path]:
    """Encoders that come with halp, by name; they are read from disk, never from a network."""
    return {path.name: path for path in sorted(_SHIPPED.glob("*")) if (path / CONFIG).is_file()}


def find_package(source: str | os.PathLike[str]) -> Path | None:
    """The package folder that a path or the name of a shipped encoder means; None if it is something else."""
    path = Path(source)
    if path.exists():
        # a classifier carries the package of its encoder
        path = path / "encoder" if (path / "encoder" / CONFIG).is_file() else path
        return path if (path / CONFIG).is_file() and (path / WEIGHTS).is_file() else None
    return list_shipped().get(str(source))


def find_encoder(source: str | os.PathLike[str]) -> Path:
    """The package or run folder for a path or shipped name; an error lists what there is."""
    path = find_package(source)
    if path is None and (Path(source) / "run.json").is_file():
        path = Path(source)
    if path is None:
        wrong = "is neither a run folder nor a package" if Path(source).exists() else "does not exist"
        shipped = ", ".join(list_shipped())
        raise InputError(
            f"there is no encoder '{source}' (the path {wrong}): give a run folder, a package, or a name that"
            f" comes with halp ({shipped}; see `halp encoders`), or make one with `halp pretrain small --data"
            " STORE`"
        )
    return path


def is_package(path: Path) -> bool:
    """Whether a folder is a package, not a run."""
    return (path / CONFIG).is_file()


def list_encoders() -> dict[str, dict[str, Any]]:
    """Encoders that come with halp, as `halp encoders` lists them.

    Returns
    -------
    dict of str to dict
        What `config.json` of each says: topology, persons, normalisation, size of its vectors.

    Examples
    --------
    >>> list_encoders()["halp-base"]["topology"]["dimensions"]
    3
    """
    return {name: dict(read_json(path / CONFIG)) for name, path in list_shipped().items()}
