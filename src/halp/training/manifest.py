"""The manifest of a checkpoint: one file that vouches for all the others and says where they belong.

It holds the SHA-256 of every part, the step, the name of the folder, and the run, recipe and data that the checkpoint belongs
to, and a fingerprint of itself. Everything is compared before anything is used; a difference is named.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from halp.errors import InputError
from halp.files import read_json, sha256, write_json
from halp.training.run_folder import RunFolder

FORMAT = 2
MANIFEST, STATE = "manifest.json", "state.json"
PARTS = ("model.safetensors", "optimiser.safetensors", STATE)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Identity:
    """Which run a checkpoint is of; what is None is not known, as in runs of older versions, and not compared."""

    run: str | None = None
    recipe: str | None = None
    data: str | None = None


def identity_of(run: Path) -> Identity:
    """The identity of the run in a folder: its number, the fingerprint of its recipe file and of its store."""
    folder = RunFolder(run)
    if not folder.holds_run():
        return Identity()
    info = read_json(folder.info_file)
    data = info.get("data") if isinstance(info, dict) else None
    recipe = sha256(folder.recipe_file) if folder.recipe_file.exists() else None
    return Identity(_text(info, "id"), recipe, _text(data, "hash"))


def _text(table: Any, name: str) -> str | None:
    value = table.get(name) if isinstance(table, dict) else None
    return value if isinstance(value, str) else None


def write_manifest(folder: Path, name: str, state: Mapping[str, Any], identity: Identity) -> None:
    """Vouch for the parts in `folder`, which is to be called `name`."""
    manifest = {
        "format": FORMAT,
        "folder": name,
        "step": state["step"],
        **asdict(identity),
        "files": {part: sha256(folder / part) for part in PARTS},
    }
    write_json(folder / MANIFEST, {**manifest, "manifest": _own_hash(manifest)})


def _own_hash(manifest: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != "manifest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_manifest(path: Path, expected: Identity) -> dict[str, Any]:
    """The state of a checkpoint after everything about it was compared; raises with the first difference."""
    if not (path / MANIFEST).exists():
        return _check_older(path)
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _damaged(path, f"{MANIFEST} is of another format than {FORMAT}")
    if manifest.get("manifest") != _own_hash(manifest):
        raise _damaged(path, f"{MANIFEST} is not what was written")
    if manifest["folder"] != path.name:
        raise _damaged(path, f"it was written as '{manifest['folder']}'")
    for name, value in asdict(expected).items():
        if value is not None and manifest[name] is not None and manifest[name] != value:
            raise _damaged(path, f"it belongs to another {name} (fingerprint {str(manifest[name])[:12]}…)")
    _check_parts(path, manifest["files"])
    state = _state(path, FORMAT)
    if state["step"] != manifest["step"] or (manifest["data"] or state["data"]) != state["data"]:
        raise _damaged(path, f"{STATE} and {MANIFEST} differ in step or data")
    return state


def _check_parts(path: Path, files: Any, parts: tuple[str, ...] = PARTS) -> None:
    if not isinstance(files, dict) or sorted(files) != sorted(parts):
        raise _damaged(path, "the list of its parts is not that of a checkpoint")
    for name, fingerprint in files.items():
        if not isinstance(fingerprint, str) or not _HASH.fullmatch(fingerprint):
            raise _damaged(path, f"{name} has no fingerprint")
        try:
            found = sha256(path / name)
        except OSError as error:
            raise _damaged(path, f"{name} cannot be read ({error.strerror})") from error
        if found != fingerprint:
            raise _damaged(path, f"{name} is not what was written")


def _state(path: Path, format: int) -> dict[str, Any]:
    """`state.json`, each entry of the type that training relies on, the step that of the folder's name."""
    state = read_json(path / STATE)
    if not isinstance(state, dict) or state.get("format") != format:
        raise _damaged(path, f"{STATE} is of another format than {format}, or {MANIFEST} is missing")
    for name in ("step", "epoch"):
        if type(state.get(name)) is not int or not 0 <= state[name] < 2**53:
            raise _damaged(path, f"{STATE}: '{name}' is not a number of steps or epochs")
    if not isinstance(state.get("data"), str) or not isinstance(state.get("scaler", {}), dict):
        raise _damaged(path, f"{STATE}: 'data' or 'scaler' is damaged")
    if path.name.startswith("step-") and path.name != folder_name(state["step"]):
        raise _damaged(path, f"its state is that of step {state['step']}")
    return state


def _check_older(path: Path) -> dict[str, Any]:
    """A checkpoint of format 1, whose state holds the fingerprints of the tensors and is itself not covered by any."""
    state = _state(path, 1)
    _check_parts(path, state.get("files"), tuple(part for part in PARTS if part != STATE))
    return state


def folder_name(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:09d}"


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"checkpoint '{path}' is damaged: {what}; use an earlier one")
