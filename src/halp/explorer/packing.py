"""Arrays and facts in one binary message: length of a JSON header, header, arrays aligned to 8 bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def pack(facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> bytes:
    """A message for the page; integers of 64 bits and floats of 64 bits are narrowed to 32."""
    listed, parts, offset = {}, [], 0
    for name, array in (arrays or {}).items():
        narrow = {"i8": "<i4", "f8": "<f4"}.get(array.dtype.str[1:], array.dtype.newbyteorder("<").str)
        data = np.ascontiguousarray(array, dtype=narrow).tobytes()
        listed[name] = {"type": np.dtype(narrow).str.lstrip("<|="), "shape": array.shape, "offset": offset}
        data += bytes(-len(data) % 8)
        parts.append(data)
        offset += len(data)
    header = json.dumps(
        {**facts, "arrays": listed}, ensure_ascii=False, allow_nan=False, default=_plain
    ).encode()
    header += b" " * (-(len(header) + 4) % 8)
    return b"".join([struct.pack("<I", len(header)), header, *parts])


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be sent")
