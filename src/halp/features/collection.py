"""Collections: compact vectors of a source as a folder of plain files; every SOURCE takes them.

`collection.json` says what it is of; `shards/KEY.parquet` has a row per clip or window (recording, start,
stop, label, subject, camera, file, …), `vectors/KEY.npy` the vectors of these rows in float16, memory-mapped.
Frames stay where they are. Writing a collection again writes what is new and removes what is gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import atomic_path, read_json, write_json
from halp.core.remote import fetched, upload_folder
from halp.core.urls import remote_url
from halp.data.reading import Reading
from halp.features.cache import CachedVectors
from halp.features.content import ROW, RecordingFiles, StoredClips
from halp.features.opening import open_source
from halp.features.shards import Part, item_places, join_parts
from halp.features.source import MANIFEST, Source, edges

FORMAT = 1
_FOLDERS = ("shards", "vectors")
_SHARD_FILE = re.compile(r"(shards/[0-9a-f]{32}\.parquet|vectors/[0-9a-f]{32}\.npy)")
_INNER = ("item", "place", "first", "length", "fps", "seen")


@dataclass(frozen=True)
class Collection:
    """A collection on disk; made by `write_collection`, opened by `open_collection`."""

    folder: Path
    facts: dict[str, Any]

    def source(self, reading: Reading) -> Source:
        """The recordings or the store behind it, cut as before unless other windows are requested."""
        told = self.facts["source"]
        path = fetched(told) if remote_url(told) else Path(os.path.normpath(self.folder / told))
        if not path.exists():
            raise InputError(f"the recordings of collection '{self.folder}' are not at '{path}'; rewrite it")
        asked = reading.windows
        if asked.window is not None or asked.fps is not None:
            return open_source(path, reading)
        source = open_source(path, reading, **self.facts["reading"])
        source.collection = self
        return source

    def vectors(self, source: Source, series: str) -> Any:
        """Vectors of all rows, which the source learns; None if encoder or recordings differ."""
        if series != self.facts["series"]:
            return None
        if source.content.digest() != self.facts["content"]:
            sentence = f"recordings changed after collection '{self.folder}' was written; write it again"
            warnings.warn(sentence, stacklevel=4)
            return None
        places = item_places(source.content)
        return join_parts(
            source, [self._part(name, places) for name in self.facts["shards"]], {}, self.folder / "index"
        )

    def _part(self, name: str, places: Mapping[str, int]) -> Part:
        from pyarrow import parquet

        try:
            table = parquet.read_table(self.folder / "shards" / f"{name}.parquet")
            vectors = np.load(self.folder / "vectors" / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            facts = json.loads(table.schema.metadata[b"halp"])
            rows = np.zeros(table.num_rows, dtype=ROW)
            for column in (*_INNER, "start", "stop", "subject", "camera"):
                rows[column] = table[column].to_numpy()
            rows["recording"], rows["label"] = facts.pop("recording"), facts.pop("label")
            numbers = np.array([places.get(item, -1) for item in facts["items"]], dtype=np.int64)
            met = np.array(facts.pop("met"), dtype=np.int64)
            if vectors.shape != (len(rows), self.facts["features"]) or vectors.dtype != np.float16:
                raise ValueError(f"its vectors have shape {vectors.shape}")
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise InputError(
                f"collection '{self.folder}' is damaged: shard {name}: {error}; remove the folder and write"
                " it again"
            ) from None
        return Part(name, numbers, [], CachedVectors(vectors, {"rows": rows, "met": met}, facts))


def open_collection(folder: str | os.PathLike[str]) -> Collection:
    """Open a collection; nothing but its manifest is read."""
    facts = read_json(Path(folder) / MANIFEST)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"'{folder}' is not a collection of this version of halp; write it again")
    return Collection(Path(folder), facts)


def write_collection(
    folder: str | os.PathLike[str], source: Source, series: str, reading: Reading, encoder: str
) -> Collection:
    """Write the vectors of a source shard by shard; existing shards are kept.

    Parameters
    ----------
    folder : path
        The collection, new or to be brought up to date; also an address such as `s3://bucket/folder`.
    source : Source
        Embedded with `compact=True` and the cache.
    series : str
        The key of the encoder and of how recordings are read.
    reading : Reading
        How the source was opened.
    encoder : str
        Its name, for people.
    """
    check_collection_place(Path(folder))
    url, folder = remote_url(folder), fetched(folder, may_be_absent=True)
    if not source.shards:
        raise InputError("a collection is written from the cache; set HALP_CACHE to a writable folder")
    new = not (folder / MANIFEST).exists()
    try:
        names = [_write_shard(folder, part, source, series) for part in source.shards]
        facts = {
            "format": FORMAT,
            "encoder": encoder,
            "series": series,
            "content": source.content.digest(),
            "features": int(source.shards[0].entry.vectors.shape[1]),
            "rows": len(source),
            "source": source.origin or os.path.relpath(Path(source.name).resolve(), folder.resolve()),
            "store": isinstance(source.content, StoredClips),
            "topology": source.topology.name,
            "class_names": list(source.class_names),
            "reading": {**asdict(source.cutting), "format": reading.format, "options": dict(reading.options)},
            "left_out": [asdict(drop) for drop in source.left_out],
            "shards": names,
        }
        write_json(folder / MANIFEST, facts)
        for path in folder.glob("*/*"):
            if _SHARD_FILE.fullmatch(path.relative_to(folder).as_posix()) and path.stem not in names:
                path.unlink()
    except OSError as error:
        if new:
            _remove_shards(folder)
        reason = error.strerror or "no room is left on the disk"  # NumPy only counts what it could write
        raise InputError(
            f"collection '{folder}' cannot be written ({reason}); choose another path"
        ) from error
    if url is not None and not url.startswith("file:"):
        upload_folder(folder, url, last=MANIFEST, replaceable=_SHARD_FILE)
    return Collection(folder, facts)


def _remove_shards(folder: Path) -> None:
    """Remove the shards of a collection that has no manifest, and folders that are empty then; nothing else."""
    with suppress(OSError):
        for path in folder.glob("*/*"):
            if _SHARD_FILE.fullmatch(path.relative_to(folder).as_posix()):
                path.unlink()
    for place in (*(folder / name for name in _FOLDERS), folder):
        with suppress(OSError):
            place.rmdir()


def check_collection_place(folder: Path) -> None:
    """Refuse a path that exists and is not a collection, nor what an interrupted command left of one."""
    there = fetched(folder, may_be_absent=True)
    free = not there.exists() or (there.is_dir() and ((there / MANIFEST).exists() or not any(_others(there))))
    if not free:
        name = remote_url(folder) or folder
        raise InputError(f"'{name}' exists and is not a collection; choose another path")


def _others(folder: Path) -> Iterator[Path]:
    """What a folder holds beside files of shards."""
    places = ((path, path.relative_to(folder).as_posix()) for path in folder.rglob("*"))
    return (path for path, place in places if place not in _FOLDERS and not _SHARD_FILE.fullmatch(place))


def _write_shard(folder: Path, part: Part, source: Source, series: str) -> str:
    """Write rows and vectors of a shard to two files named by content and encoder."""
    entry = part.entry
    if entry is None:
        raise InputError(f"a shard of '{source.name}' could not be computed; run the command again")
    items = [item if number >= 0 else "" for item, number in zip(part.items, part.numbers.tolist())]
    name = hashlib.sha256(json.dumps([series, part.key, items]).encode()).hexdigest()[:32]
    if (folder / "shards" / f"{name}.parquet").exists():
        return name
    import pyarrow as arrow
    from pyarrow import parquet

    rows = entry.arrays["rows"]
    there = part.numbers[rows["item"]] >= 0
    begins = np.concatenate([[0], edges(rows)])[: len(rows)].astype(np.int64)
    clips = [clip for clip, kept in zip(entry.facts["clips"], there[begins].tolist()) if kept]
    facts = {**entry.facts, "items": items, "clips": clips, "met": entry.arrays["met"].tolist()}
    facts |= {column: rows[column][there].tolist() for column in ("recording", "label")}
    columns = {**_shown(source, part, entry), **{column: rows[column] for column in _INNER}}
    table = arrow.table({column: arrow.array(values[there]) for column, values in columns.items()})
    with atomic_path(folder / "vectors" / f"{name}.npy") as partial:
        np.save(partial, np.asarray(entry.vectors[there], dtype=np.float16), allow_pickle=False)
    with atomic_path(folder / "shards" / f"{name}.parquet") as partial:
        parquet.write_table(
            table.replace_schema_metadata({"halp": json.dumps(facts)}), partial, compression="zstd"
        )
    return name


def _shown(source: Source, part: Part, entry: CachedVectors) -> dict[str, npt.NDArray[Any]]:
    """Columns for people and other programs: names instead of numbers."""
    facts, rows, content = entry.facts, entry.arrays["rows"], source.content
    recordings, classes = np.array(facts["recordings"]), np.array([*facts["class_names"], ""])
    shown: dict[str, npt.NDArray[Any]] = {
        "recording": recordings[rows["recording"]],
        "start": rows["start"],
        "stop": rows["stop"],
        "label": classes[np.where(rows["label"] < len(classes) - 1, rows["label"], -1)],
        "subject": rows["subject"],
        "camera": rows["camera"],
    }
    numbers = part.numbers[rows["item"]]
    if isinstance(content, StoredClips):
        return shown | {"name": content.store.columns["name"][numbers]}
    if isinstance(content, RecordingFiles):
        files = [str(content.files[number].path) if number >= 0 else "" for number in part.numbers.tolist()]
        shown["file"] = np.array(files)[rows["item"]]
    return shown
