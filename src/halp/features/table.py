"""The feature table: vectors of a source with recordings, times, labels and persons; facts of all rows."""

from __future__ import annotations

import csv
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice
from halp.core.files import atomic_path, release, spreadsheet_cell
from halp.data.clip import Dropped
from halp.data.spans import Event, Events


def _column(name: str, doc: str) -> Any:
    return property(lambda table: table.rows[name], doc=doc)


class RowColumns:
    """Columns of rows, see `halp.features.content.ROW`; −1 marks an unknown class, person or frame rate."""

    rows: Any
    recordings: Any
    labels: npt.NDArray[np.int64] = _column("label", "The class of every row.")
    subjects: npt.NDArray[np.int64] = _column("subject", "The person of every row.")
    starts: npt.NDArray[np.float64] = _column("start", "Where every row starts, in seconds of its recording.")
    stops: npt.NDArray[np.float64] = _column("stop", "Where every row stops, in seconds of its recording.")
    fps: npt.NDArray[np.float64] = _column("fps", "Frames per second of every row.")
    seen: npt.NDArray[np.float32] = _column("seen", "The share of frames in which anybody is visible.")

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def names(self) -> list[str]:
        """The recording of every row, by name."""
        return [self.recordings[place] for place in self.rows["recording"]]


@dataclass(frozen=True)
class FeatureTable(RowColumns):
    """Vectors of the clips or windows of a source, with the metadata of each; made by `halp.embed_table`.

    Attributes
    ----------
    vectors : array (N, F) float32
        In memory or mapped; all zeros if nobody is seen.
    recordings : list of str
        Names of the recordings, each once; `recording` (N,) is a row's place in it.
    starts, stops : array (N,)
        Seconds of the recording's own clock (frames if the rate is unknown), half-open.
    labels, subjects : array (N,)
        Class and person, −1 if they are unknown; `class_names` names the classes.
    seen : array (N,)
        Share of the frames in which somebody is there.
    absences : list of (recording, start, stop)
        Spans in which nobody is seen; `absent` gives those of one recording.
    folder : path or None
        Where the table is kept.
    warnings : tuple of str
        What a user should know about the recordings: those left out, files that were not read, gaps that were
        filled.
    left_out : tuple of Dropped
        Recordings that could not be read, with `name` and `reason`.

    Examples
    --------
    >>> import numpy as np, halp
    >>> table = halp.embed_table("halp-base", [np.ones((30, 25, 3))], topology="kinect-v2", cache=False, progress=False)
    >>> len(table), table.names, table.labels.tolist()
    (1, ['clip-000000'], [-1])
    """

    vectors: npt.NDArray[np.float32]
    rows: npt.NDArray[Any]
    recordings: list[str]
    class_names: tuple[str, ...] = ()
    absences: Sequence[tuple[int, float, float]] = ()
    folder: Path | None = None
    warnings: tuple[str, ...] = ()
    left_out: tuple[Dropped, ...] = ()

    @property
    def recording(self) -> npt.NDArray[np.int64]:
        """The recording of every row, by its place in `recordings`."""
        return self.rows["recording"]

    def absent(self, recording: int) -> list[tuple[float, float]]:
        """Spans of a recording, by its place in `recordings`, in which nobody is seen."""
        return self._absent.get(recording, [])

    @cached_property
    def _absent(self) -> dict[int, list[tuple[float, float]]]:
        spans: dict[int, list[tuple[float, float]]] = {}
        for place, start, stop in self.absences:
            spans.setdefault(place, []).append((start, stop))
        return spans

    def rows_by_recording(self) -> list[npt.NDArray[np.int64]]:
        """The rows of every recording, in the order of `recordings`."""
        order = np.argsort(self.recording, kind="stable")
        edges = np.searchsorted(self.recording[order], np.arange(1, len(self.recordings)))
        return np.split(order, edges)

    def name(self, row: int) -> str:
        """The recording of a row."""
        return self.recordings[self.recording[row]]

    def event(self, row: int, **values: Any) -> Event:
        """A row's span as an event, with its own label, if any; `values` are further fields of the event."""
        label = int(self.labels[row])
        known = self.class_names[label] if 0 <= label < len(self.class_names) else ""
        subject = int(self.subjects[row])
        fields = {
            "label": known,
            "subject": str(subject) if subject >= 0 else "",
            "source": "model",
            **values,
        }
        return Event(self.name(row), float(self.starts[row]), float(self.stops[row]), **fields)

    def events(self) -> Events:
        """The spans of all rows."""
        return Events([self.event(row) for row in range(len(self))])


class ShardRows(NamedTuple):
    """The rows of a shard: its key, their numbers, and its total."""

    key: str
    numbers: npt.NDArray[np.int64]
    size: int


class ShardedVectors:
    """Vectors `(N, F)` of several mapped arrays, in any order, of which only the requested rows are read.

    Examples
    --------
    >>> vectors = ShardedVectors([np.eye(2), 5 * np.eye(2)], np.array([2, 0, 1, 3]))
    >>> vectors.shape, vectors[1:3].tolist(), np.asarray(vectors[[0]]).tolist()
    ((4, 2), [[1.0, 0.0], [0.0, 1.0]], [[5.0, 0.0]])
    """

    def __init__(
        self,
        parts: Sequence[npt.NDArray[Any]],
        order: npt.NDArray[np.int64] | None = None,
        shards: Sequence[ShardRows] = (),
        home: Path | None = None,
    ) -> None:
        self.parts, self._order, self._shards = list(parts), order, shards
        self.home = home  # a folder for what is derived from these shards and is kept as they change
        self._begins = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        rows = int(self._begins[-1]) if order is None else len(order)
        self.shape, self.dtype, self.ndim = (rows, self.parts[0].shape[1]), np.dtype(np.float32), 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> npt.NDArray[np.float32]:
        places = np.arange(len(self))[rows] if self._order is None else self._order[rows]
        flat = np.ravel(places)
        order = None if bool((np.diff(flat) >= 0).all()) else np.argsort(flat, kind="stable")
        sorted_places = flat if order is None else flat[order]
        bounds = np.searchsorted(sorted_places, self._begins)
        found = np.empty((len(flat), self.shape[1]), dtype=np.float32)
        for number in np.flatnonzero(np.diff(bounds)):
            here = slice(int(bounds[number]), int(bounds[number + 1]))
            values = self.parts[number][sorted_places[here] - self._begins[number]]
            found[here if order is None else order[here]] = values
        return found.reshape(*np.shape(places), self.shape[1])

    def pieces(self) -> Iterator[tuple[str, Any, npt.NDArray[np.int64], npt.NDArray[np.int64], int]]:
        """Of every shard its key, its vectors, their numbers in it, their rows here, and its size."""
        for (part, rows), shard in zip(self.placed(), self._shards):
            yield shard.key, part, shard.numbers, rows, shard.size

    def placed(self) -> Iterator[tuple[Any, npt.NDArray[np.int64]]]:
        """The vectors of every shard with their rows here."""
        rows = np.arange(len(self))
        if self._order is not None:
            rows[self._order] = np.arange(len(self))
        for part, first in zip(self.parts, self._begins.tolist()):
            yield part, rows[first : first + len(part)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[:].astype(dtype or np.float32, copy=False)


@dataclass(frozen=True)
class ChosenRows:
    """Some rows of vectors, read block by block."""

    vectors: Any
    rows: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, block: slice) -> npt.NDArray[np.float32]:
        return np.asarray(self.vectors[self.rows[block]])


_IN_MEMORY = 256 << 20  # bytes


def join_vectors(
    parts: Sequence[npt.NDArray[Any]],
    order: npt.NDArray[np.int64] | None,
    shards: Sequence[ShardRows] = (),
    home: Path | None = None,
) -> Any:
    """Vectors of several arrays as one: mapped if there is one array, in memory if they are small, else read on demand."""
    if len(parts) == 1 and order is None:
        return parts[0]
    joined = ShardedVectors(parts, order, shards, home)
    if len(joined) * joined.shape[1] * 4 > _IN_MEMORY:
        return joined
    whole = np.empty(joined.shape, dtype=np.float32)
    for part, rows in joined.placed():
        whole[rows] = part
        release(part)  # or the largest tables would be in memory twice
    return whole


_ROWS = 16_384  # of a group in a .parquet file


def write_vectors(
    path: str | os.PathLike[str], table: FeatureTable, encoder: Mapping[str, str] | None = None
) -> Path:
    """Write names, starts, ends and vectors of a table; the suffix selects the format.

    `encoder` is its name, release and SHA-256, kept as JSON: an array of a `.npz` file, the last column of a
    `.csv` file, and metadata of a `.parquet` file, all called encoder.
    """
    path = Path(path)
    write = check_vector_file(path)
    try:
        with atomic_path(path) as partial:
            write(partial, table, json.dumps(dict(encoder)) if encoder else "")
    except OSError as error:
        raise InputError(f"'{path}' cannot be written ({error}); choose another path") from error
    return path


def check_vector_file(path: Path) -> Callable[[Path, FeatureTable, str], None]:
    """The writer for this suffix; unknown suffixes are refused before anything is computed."""
    writers = {".npz": _write_npz, ".csv": _write_csv, ".parquet": _write_parquet}
    check_choice("ending of a file of vectors", path.suffix.lower(), writers)
    return writers[path.suffix.lower()]


def _write_npz(path: Path, table: FeatureTable, encoder: str) -> None:
    """Arrays `names`, `starts`, `ends` `(N,)` and `vectors` `(N, F)`, held in memory in parts."""
    arrays = {
        "names": np.array(table.names),
        "starts": table.starts,
        "ends": table.stops,
        "vectors": table.vectors,
    }
    arrays["encoder"] = np.array(encoder)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                values = np.ascontiguousarray(values) if name in ("starts", "ends") else values
                np.lib.format.write_array(entry, values, allow_pickle=False)


def _write_csv(path: Path, table: FeatureTable, encoder: str) -> None:
    """Columns name, start, end, v0 … with nine significant digits, which give the same float32."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        lines, more = csv.writer(file), ["encoder"] if encoder else []
        lines.writerow(
            ["name", "start", "end", *(f"v{number}" for number in range(table.vectors.shape[1])), *more]
        )
        for name, start, end, vector in zip(table.names, table.starts, table.stops, table.vectors):
            lines.writerow(
                [
                    spreadsheet_cell(name),
                    f"{start:.10g}",
                    f"{end:.10g}",
                    *(f"{value:.9g}" for value in vector.tolist()),
                    *([encoder] if more else []),
                ]
            )


def _write_parquet(path: Path, table: FeatureTable, encoder: str) -> None:
    """Columns name, start, end and vector (a list of float32)."""
    import pyarrow as arrow
    from pyarrow import parquet

    width = table.vectors.shape[1]
    vector = arrow.list_(arrow.float32(), width)
    kinds = [
        ("name", arrow.string()),
        ("start", arrow.float64()),
        ("end", arrow.float64()),
        ("vector", vector),
    ]
    schema = arrow.schema(kinds, metadata={"encoder": encoder})
    with parquet.ParquetWriter(path, schema) as file:
        for first in range(0, len(table), _ROWS):
            rows = slice(first, first + _ROWS)
            columns = [arrow.array(values[rows]) for values in (table.names, table.starts, table.stops)]
            vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(np.ravel(table.vectors[rows])), width)
            file.write_table(arrow.Table.from_arrays([*columns, vectors], schema=schema))
