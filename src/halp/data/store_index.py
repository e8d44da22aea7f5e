"""The index of a store: a column per fact and a value per clip, in `index.parquet`.

Stores of format 1 have the same columns as `index.json`. The fingerprint of a store is made of the columns, so
that it does not depend on the version of pyarrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError

INDEX, JSON_INDEX = "index.parquet", "index.json"
NEEDED_COLUMNS = ("name", "length", "label", "subject", "camera")
_KINDS = {"string": np.str_, "large_string": np.str_, "int64": np.int64, "double": np.float64}
_MOST_BYTES = 4096  # per clip, unpacked
Columns = dict[str, npt.NDArray[Any]]


def damaged(path: Path, file: str, what: str) -> InputError:
    """The error for a store that cannot be used as it is."""
    return InputError(f"store '{path}' is damaged: {file}: {what}; prepare it again")


def read_json(path: Path) -> dict[str, Any]:
    """One of the tables of a store."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _missing(path) from None
    except NotADirectoryError:
        raise InputError(
            f"'{path.parent}' is a file, not a store; make one with `halp prepare auto"
            f" {quote(str(path.parent))} STORE`"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' cannot be read ({str(error)[:120]}); prepare the store again") from error
    if not isinstance(data, dict):
        raise InputError(
            f"'{path}' is not part of a store (it holds a {type(data).__name__}); prepare the store again"
        )
    return data


def _missing(path: Path) -> InputError:
    return InputError(
        f"'{path.parent}' is not a store: '{path.name}' is missing; make one with `halp prepare`"
    )


def encodable(texts: Iterable[str]) -> bool:
    """Whether texts can be written as UTF-8: JSON can contain unpaired surrogates."""
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        return False
    return True


def index_file(store: Path) -> Path:
    """The file that holds the index of a store."""
    old = store / JSON_INDEX
    return old if old.exists() and not (store / INDEX).exists() else store / INDEX


def write_index(folder: Path, columns: Mapping[str, list[Any]]) -> bytes:
    """Write the index of a store; returns the bytes that its fingerprint is computed from."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = pyarrow.table({name: _typed(values) for name, values in columns.items()})
    except (UnicodeEncodeError, OverflowError, TypeError, pyarrow.ArrowException) as error:
        raise InputError(
            f"the columns of a store hold whole numbers, numbers or texts; one does not ({error})"
        ) from error
    parquet.write_table(table, folder / INDEX, compression="zstd", write_page_checksum=True)
    return index_content({name: _array(table[name]) for name in table.column_names})


def _typed(values: list[Any]) -> Any:
    import pyarrow

    kinds = set(map(type, values))
    if kinds <= {int, float} and float in kinds:
        if not np.isfinite(values).all():
            raise TypeError("a number is not finite")
        return pyarrow.array(values, pyarrow.float64(), from_pandas=False)
    if kinds not in ({int}, {str}):
        raise TypeError(
            f"{min(kind.__name__ for kind in kinds)} among {max(kind.__name__ for kind in kinds)}"
        )
    return pyarrow.array(values, pyarrow.int64() if kinds == {int} else pyarrow.string())


def index_content(columns: Columns) -> bytes:
    """The columns as the bytes that a fingerprint is computed from."""
    return json.dumps({name: values.tolist() for name, values in columns.items()}).encode()


def fingerprinted(store: Path) -> bytes:
    """The part of a store's fingerprint that comes from its index."""
    file = index_file(store)
    return file.read_bytes() if file.name == JSON_INDEX else index_content(_read_parquet(store, None))


def read_index(store: Path, frames: int) -> Columns:
    """The columns of a store with this many frames, checked: numbers or texts, a value per clip."""
    file = index_file(store)
    if file.name == JSON_INDEX:
        columns = {name: _column(store, name, values) for name, values in read_json(file).items()}
    else:
        columns = _read_parquet(store, frames)
    if missing := [name for name in NEEDED_COLUMNS if name not in columns]:
        raise damaged(store, file.name, f"column '{missing[0]}' is missing")
    count = len(columns["name"])
    for name, values in columns.items():
        if len(values) != count:
            what = f"columns differ in length: '{name}' has {len(values)} values, 'name' {count}"
            raise damaged(store, file.name, what)
        if name in NEEDED_COLUMNS and values.dtype.kind != ("U" if name == "name" else "i"):
            raise damaged(store, file.name, f"column '{name}' has values of another type")
    if not count or (columns["length"] < 1).any():
        raise damaged(store, file.name, "there is no clip, or one without frames")
    if len(set(columns["name"].tolist())) != count:
        raise damaged(store, file.name, "two clips have the same name")
    return columns


def _read_parquet(store: Path, frames: int | None) -> Columns:
    import pyarrow
    from pyarrow import parquet

    try:
        with open(store / INDEX, "rb") as file:
            opened = parquet.ParquetFile(file, page_checksum_verification=True)
            facts = opened.metadata
            size = sum(facts.row_group(group).total_byte_size for group in range(facts.num_row_groups))
            if frames is not None and (facts.num_rows > frames or size > _MOST_BYTES * (frames + 1)):
                raise damaged(store, INDEX, f"it states {facts.num_rows} clips in {frames} frames")
            table = opened.read()
        table.validate(full=True)
        if len(set(table.column_names)) != table.num_columns:
            raise damaged(store, INDEX, "two columns have the same name")
        if wrong := [name for name in table.column_names if not _plain(table[name])]:
            raise damaged(store, INDEX, f"column '{wrong[0]}' is not a list of numbers or of texts")
        return {name: _array(table[name]) for name in table.column_names}
    except FileNotFoundError:
        raise _missing(store / INDEX) from None
    except (OSError, ValueError, MemoryError, pyarrow.ArrowException) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"'{store / INDEX}' cannot be read ({reason}); prepare the store again") from error


def _plain(column: Any) -> bool:
    kind = _KINDS.get(str(column.type))
    if kind is None or column.null_count:
        return False
    return kind is not np.float64 or bool(np.isfinite(_array(column)).all())


def _array(column: Any) -> npt.NDArray[Any]:
    # not by to_numpy, which loads pandas where that is installed
    kind = _KINDS[str(column.type)]
    if kind is np.str_ or not len(column):
        return np.array(column.to_pylist(), dtype=kind)
    return np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks])


def _column(store: Path, name: str, values: Any) -> npt.NDArray[Any]:
    kinds = set(map(type, values)) if isinstance(values, list) else {dict}
    if kinds == {str} and encodable(values):
        return np.array(values, dtype=np.str_)
    if kinds == {int} and all(abs(value) < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    if kinds <= {int, float} and kinds and all(abs(value) < 2**63 for value in values):
        return np.array(values, dtype=np.float64)
    raise damaged(store, JSON_INDEX, f"column '{name}' is not a list of numbers or of texts")
