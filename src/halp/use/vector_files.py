"""Vectors for other programs: `.npz` (NumPy), `.csv` (R, spreadsheets) or `.parquet` (pandas, DuckDB), written block by block."""

from __future__ import annotations

import csv
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from halp.errors import InputError, choose
from halp.files import atomic_path
from halp.use.embed import Block
from halp.use.vectors import VectorFile


def write_vectors(path: str | os.PathLike[str], blocks: Iterable[Block], width: int) -> int:
    """Write names, starts, ends and vectors of all blocks; the ending says how. Returns the number of vectors."""
    path = Path(path)
    write = check_vector_file(path)
    try:
        with atomic_path(path) as partial:
            return write(partial, blocks, width)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written ({error}); choose another place") from error


def check_vector_file(path: Path) -> Callable[[Path, Iterable[Block], int], int]:
    """What writes a file of this ending; refused before anything is computed where it cannot be written."""
    writers = {".npz": _write_npz, ".csv": _write_csv, ".parquet": _write_parquet}
    choose("ending of a file of vectors", path.suffix.lower(), writers)
    if path.suffix.lower() == ".parquet":
        _pyarrow()
    return writers[path.suffix.lower()]


def _write_npz(path: Path, blocks: Iterable[Block], width: int) -> int:
    """Arrays `names`, `starts`, `ends` `(N,)` and `vectors` `(N, F)`; vectors wait in a file of their own, not in memory."""
    rows = path.with_name(f"{path.name}.rows.npy")
    names: list[str] = []
    spans: list[Any] = []
    try:
        with VectorFile(rows, width) as file:
            for block in blocks:
                file.add(block.vectors)
                names += block.names
                spans.append(np.stack([block.starts, block.ends], axis=1))
        columns = np.concatenate(spans)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, values in {"names": np.array(names), "starts": columns[:, 0], "ends": columns[:, 1]}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.ascontiguousarray(values), allow_pickle=False)
            with archive.open("vectors.npy", "w", force_zip64=True) as entry, open(rows, "rb") as source:
                shutil.copyfileobj(source, entry, 1 << 20)
        return len(names)
    finally:
        rows.unlink(missing_ok=True)


def _write_csv(path: Path, blocks: Iterable[Block], width: int) -> int:
    """Columns name, start, end, v0 … with seven significant digits, which give the same float32."""
    count = 0
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["name", "start", "end", *(f"v{number}" for number in range(width))])
        for block in blocks:
            for name, start, end, vector in zip(block.names, block.starts, block.ends, block.vectors):
                table.writerow([name, f"{start:.10g}", f"{end:.10g}", *(f"{value:.9g}" for value in vector.tolist())])
            count += len(block.names)
    return count


def _write_parquet(path: Path, blocks: Iterable[Block], width: int) -> int:
    """Columns name, start, end and vector (a list of so many float32), a row group per block."""
    arrow, parquet = _pyarrow()
    schema = arrow.schema(
        [
            ("name", arrow.string()),
            ("start", arrow.float64()),
            ("end", arrow.float64()),
            ("vector", arrow.list_(arrow.float32(), width)),
        ]
    )
    count = 0
    with parquet.ParquetWriter(path, schema) as file:
        for block in blocks:
            vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(block.vectors.ravel()), width)
            columns = [block.names, block.starts, block.ends, vectors]
            file.write_table(
                arrow.Table.from_arrays([arrow.array(one) for one in columns[:3]] + [vectors], schema=schema)
            )
            count += len(block.names)
    return count


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "a .parquet file is written by pyarrow, which is missing; install it with `pip install 'halp[parquet]'`, or "
            "write .npz or .csv"
        ) from None
    return pyarrow, pyarrow.parquet
