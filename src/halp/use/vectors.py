"""Vectors on disk: computed once for an encoder and a source, found again by a hash of both, whole or absent."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.partial import building
from halp.clips.windows import Cutting
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation.features import fingerprint
from halp.files import read_json, write_json
from halp.use.embed import Block, EmbeddedClips, embed_blocks
from halp.use.sources import Source, describe_source, source_key

FORMAT = 1


@dataclass(frozen=True)
class VectorTable(EmbeddedClips):
    """All clips of a source, in memory or mapped, with the place of their recording; `folder` is where they are kept."""

    recordings: list[str]
    recording: npt.NDArray[np.int64]
    class_names: tuple[str, ...] = ()
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.recording)

    def name(self, row: int) -> str:
        """The recording of a row."""
        return self.recordings[self.recording[row]]

    @cached_property
    def names(self) -> list[str]:
        """The recordings of all rows."""
        return [self.recordings[one] for one in self.recording]


def embed_table(
    encoder: PackagedEncoder,
    source: Source,
    cutting: Cutting | None = None,
    *,
    format: str = "auto",
    cache: bool = True,
    progress: bool = True,
) -> VectorTable:
    """All vectors of a source. With `cache` they are read from, or kept in, a folder under `cache_home()`."""
    names = describe_source(source, format=format).class_names
    if not cache:
        return _in_memory(embed_blocks(encoder, source, cutting, format=format, progress=progress), names)
    folder = cache_home() / f"vectors-{table_key(encoder, source, cutting, format)}"
    if not (folder / "table.json").is_file():
        _write(folder, encoder, embed_blocks(encoder, source, cutting, format=format, progress=progress), names)
    return _read(folder)


def cache_home() -> Path:
    """`HALP_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("HALP_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halp"


def table_key(encoder: PackagedEncoder, source: Source, cutting: Cutting | None, format: str = "auto") -> str:
    """A hash of weights, architecture and reading rules of the encoder, and of the content of the source."""
    facts: list[Any] = [
        FORMAT,
        fingerprint(encoder),
        encoder.architecture,
        [encoder.stream, encoder.frames, encoder.persons, encoder.normalisation, list(encoder.topology.joints)],
        list(encoder.topology.parents),
        source_key(source, cutting, format=format),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _in_memory(blocks: Iterable[Block], class_names: tuple[str, ...]) -> VectorTable:
    found = list(blocks)
    recordings, recording = _numbered(name for block in found for name in block.names)
    columns: dict[str, Any] = {
        column: np.concatenate([getattr(block, column) for block in found])
        for column in ("starts", "ends", "labels", "subjects", "vectors")
    }
    return VectorTable(**columns, recordings=recordings, recording=recording, class_names=class_names)


def _numbered(names: Iterable[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Different names in their order, and for every entry the place of its name."""
    places: dict[str, int] = {}
    rows = np.array([places.setdefault(name, len(places)) for name in names], dtype=np.int64)
    return list(places), rows


def _write(folder: Path, encoder: PackagedEncoder, blocks: Iterable[Block], class_names: tuple[str, ...]) -> None:
    """Write a table block by block; the folder takes its name when everything is in it."""
    places: dict[str, int] = {}
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    try:
        with building(folder) as partial:
            with VectorFile(partial / "vectors.npy", encoder.output_size) as file:
                for block in blocks:
                    file.add(block.vectors)
                    rows = [places.setdefault(name, len(places)) for name in block.names]
                    columns.setdefault("recording", []).append(np.array(rows, dtype=np.int64))
                    for name in ("starts", "ends", "labels", "subjects"):
                        columns.setdefault(name, []).append(getattr(block, name))
            for name, parts in columns.items():
                np.save(partial / f"{name}.npy", np.concatenate(parts), allow_pickle=False)
            write_json(partial / "table.json", {"recordings": list(places), "class_names": list(class_names)})
    except OSError as error:
        if (folder / "table.json").is_file():  # somebody else was faster
            return
        raise InputError(
            f"vectors cannot be kept in '{folder.parent}' ({error}); set HALP_CACHE to a folder with room"
        ) from error


def _read(folder: Path) -> VectorTable:
    try:
        facts = read_json(folder / "table.json")
        columns = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r" if name == "vectors" else None, allow_pickle=False)
            for name in ("recording", "starts", "ends", "labels", "subjects", "vectors")
        }
        return VectorTable(**columns, **{**facts, "class_names": tuple(facts["class_names"])}, folder=folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"the kept vectors in '{folder}' are damaged ({error}); remove that folder") from error


class VectorFile:
    """A `.npy` file `(N, width)` that grows row by row; its header is completed at the end."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width, self.rows = path, width, 0

    def __enter__(self) -> VectorFile:
        self._file = open(self.path, "wb")
        self._header()
        return self

    def _header(self) -> None:
        shape = (self.rows, self.width)
        # NumPy leaves room for the first axis to grow, so the header keeps its length
        np.lib.format.write_array_header_1_0(self._file, {"descr": "<f4", "fortran_order": False, "shape": shape})

    def add(self, vectors: npt.NDArray[np.float32]) -> None:
        """Append rows."""
        self._file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        self.rows += len(vectors)

    def __exit__(self, *problem: object) -> None:
        try:
            self._file.seek(0)
            self._header()
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()
