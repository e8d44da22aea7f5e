"""Checks of a store's files before anything relies on them: types of fields, and their consistency.

A store may come from elsewhere or be damaged; whatever is wrong ends here, in one sentence that names the
file and field.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.config import build_settings
from halp.core.errors import InputError
from halp.core.files import cache_home, write_text
from halp.core.progress import Bar
from halp.data.clip import Runs
from halp.data.source_files import load_npy, short_reason
from halp.data.splits import SplitRule, rule_from_json
from halp.data.store_index import damaged, encodable, fingerprinted, index_file
from halp.skeleton import Topology

_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOST_JOINTS = 1000


def check_header(path: Path, header: Mapping[str, Any]) -> None:
    """Raise if a field of `store.json` is missing or has another type."""
    file = "store.json"
    for name in ("class_names", "normalisation"):
        if not isinstance(value := header.get(name), list) or not all(
            isinstance(text, str) for text in value
        ):
            raise damaged(path, file, f"'{name}' is not a list of texts")
    for name in ("topology", "splits", "origin"):
        if not isinstance(header.get(name), dict):
            raise damaged(path, file, f"'{name}' is missing or not a table")
    if not isinstance(header.get("hash"), str) or not _HASH.fullmatch(header["hash"]):
        raise damaged(path, file, "'hash' is not a fingerprint")
    if not encodable([json.dumps(header, ensure_ascii=False)]):
        raise damaged(path, file, "it contains unpaired surrogates")


def check_absent(path: Path, absent: Any, lengths: npt.NDArray[np.int64]) -> dict[int, Runs]:
    """Runs of left-out frames by number of their clip: in order, separate, and within the clip."""
    runs: dict[int, Runs] = {}
    try:
        for clip, rows in absent.items():
            runs[int(clip)] = tuple((first, count) for first, count in rows)
            span = int(lengths[int(clip)]) + sum(count for _, count in rows)
            end = -1
            for first, count in rows:
                if type(first) is not int or type(count) is not int or first <= end or count < 1:
                    raise ValueError(f"clip {clip} has no run {first}, {count}")
                end = first + count
            if int(clip) < 0 or end > span:
                raise ValueError(f"clip {clip} has {span} frames, not {end}")
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
        raise damaged(path, "store.json", f"'absent' cannot be read ({str(error)[:80]})") from None
    return runs


def check_seal(path: Path, header: Mapping[str, Any]) -> None:
    """Raise if `store.json` was changed by anything but halp."""
    if header.get("header_hash") != header_hash(header):
        raise damaged(path, "store.json", "it was changed after it was saved")


def header_hash(header: Mapping[str, Any]) -> str:
    """Fingerprint of all other fields of `store.json`."""
    rest = json.loads(json.dumps({name: value for name, value in header.items() if name != "header_hash"}))
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_splits(path: Path, splits: Mapping[str, Any]) -> dict[str, SplitRule]:
    """The rules of a store by name."""
    rules = {}
    for name, data in splits.items():
        try:
            rules[name] = rule_from_json(name, data)
        except InputError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            raise damaged(path, "store.json", f"split '{name[:60]}' cannot be read ({error})") from None
    return rules


def topology_from_json(data: Mapping[str, Any]) -> Topology:
    """The topology recorded in a store or run; an inconsistent one is refused."""
    try:
        if len(data["joints"]) > _MOST_JOINTS:
            raise ValueError(f"it has {len(data['joints'])} joints")
        topology = build_settings(Topology, {field.name: data[field.name] for field in fields(Topology)})
        pairs = [pair for pair in (topology.up, topology.across) if pair is not None]
        named = {topology.centre or topology.joints[0]}.union(*pairs)
        if not all(0 <= parent < len(topology) for parent in topology.parents) or topology.dimensions not in (
            2,
            3,
        ):
            raise ValueError("a parent or the number of dimensions is not possible")
        if not named <= set(topology.joints) or any(len(pair) != 2 for pair in pairs):
            raise ValueError("it names a joint that it does not have, or no pair of joints")
        return topology
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise InputError(f"a recorded topology is damaged ({reason}); prepare or train again") from None


def map_frames(path: Path) -> np.memmap[Any, np.dtype[np.float32]]:
    """`frames.npy` as a read-only memory map, after its header and its size were checked."""
    try:
        frames = load_npy(path / "frames.npy")
    except InputError as error:
        raise damaged(
            path, "frames.npy", f"it is not a whole array ({short_reason(error.__cause__ or error)})"
        ) from None
    sound = isinstance(frames, np.memmap) and frames.ndim == 4 and frames.size and frames.flags.c_contiguous
    if not isinstance(frames, np.memmap) or not sound or frames.dtype != np.dtype("<f4"):
        raise damaged(path, "frames.npy", f"it holds {frames.dtype} in shape {str(frames.shape)[:80]}")
    size, expected = os.path.getsize(path / "frames.npy"), frames.offset + frames.nbytes
    if size != expected:
        raise damaged(path, "frames.npy", f"it has {size} bytes, its header states {expected}")
    return frames


def check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise if the lists of dropped and repaired clips are malformed."""
    for name in ("dropped", "repaired"):
        rows = manifest.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise damaged(path, "manifest.json", f"'{name}' is not a list of clips")
    if not encodable([json.dumps(manifest, ensure_ascii=False)]):
        raise damaged(path, "manifest.json", "it contains unpaired surrogates")


_BLOCK = 16 * 2**20
# A file changed within this time may change again without its times showing it: clocks of file systems are
# coarse.
_SETTLED = 2.0
_SHOWN_FROM = 512 * 2**20
_known: dict[str, list[Any]] = {}


def verify(
    path: Path, expected: str, frames: np.memmap[Any, Any], lengths: npt.NDArray[np.int64], names: Any
) -> None:
    """Raise unless frames and index have the expected fingerprint and every number is finite."""
    state = _state(path)
    if state is not None and _remembered(path) == [expected, state]:
        return
    fingerprint, bad = content_hash(path, frames.offset)
    if fingerprint != expected:
        raise damaged(
            path,
            f"frames.npy or {index_file(path).name}",
            "the content was changed after it was written (its fingerprint differs)",
        )
    if bad is not None:
        frame = bad // int(np.prod(frames.shape[1:]))
        clip = int(np.searchsorted(np.cumsum(lengths), frame, side="right"))
        within = frame - int(lengths[:clip].sum())
        raise InputError(
            f"store '{path}': clip '{names[clip]}', frame {within} holds a number that is not finite; prepare"
            " it again"
        )
    if state is not None and state == _state(path):
        _remember(path, [expected, state])


def content_hash(path: Path, offset: int) -> tuple[str, int | None]:
    """Fingerprint of frames and index, and the position of the first number that is not finite."""
    digest, bad, done = hashlib.sha256(), None, 0
    try:
        # Read, not through the map: pages that were only hashed should not stay in this process.
        with open(path / "frames.npy", "rb") as file:
            size = os.fstat(file.fileno()).st_size - offset
            file.seek(offset)
            with Bar("verify store (MiB)", size // 2**20, shown=size > _SHOWN_FROM) as bar:
                while block := file.read(_BLOCK):
                    digest.update(block)
                    numbers = np.frombuffer(block[: len(block) // 4 * 4], "<f4")
                    if bad is None and not np.isfinite(numbers).all():
                        bad = done // 4 + int(np.argmin(np.isfinite(numbers)))
                    done += len(block)
                    bar.advance(len(block) // 2**20)
        digest.update(fingerprinted(path))
    except OSError as error:
        raise InputError(f"store '{path}' cannot be read ({error}); check disk and permissions") from error
    return digest.hexdigest(), bad


def _state(path: Path) -> list[list[int]] | None:
    """A value that changes with a file; None while the file is too recent to be sure."""
    rows, newest = [], 0.0
    for file in (path / "frames.npy", index_file(path)):
        try:
            status = os.stat(file)
        except OSError:
            return None
        rows.append([status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns])
        newest = max(newest, status.st_mtime, status.st_ctime)
    return rows if time.time() - newest > _SETTLED else None


def _record(path: Path) -> Path | None:
    """The file in the user's cache folder that remembers this store; None if there is no such folder."""
    home = cache_home()
    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:32]
    return None if home is None else home / "verified" / f"{name}.json"


def _remembered(path: Path) -> list[Any] | None:
    key = os.path.realpath(path)
    with suppress(OSError, ValueError, RuntimeError):
        if key not in _known and (record := _record(path)) is not None:
            _known[key] = json.loads(record.read_text(encoding="utf-8"))
    return _known.get(key)


def _remember(path: Path, outcome: list[Any]) -> None:
    _known[os.path.realpath(path)] = outcome
    with suppress(OSError, RuntimeError):
        if (record := _record(path)) is not None:
            write_text(record, json.dumps(outcome))
