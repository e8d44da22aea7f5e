"""Matrices of numbers from MATLAB 5 files (`save -v6` and `-v7`), and nothing else that such files can hold.

Written here from the published file format because general readers do this in C, where one changed bit of a header can end
the process. Every length is compared with the bytes that are there before it is used.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from halp.clips.source_files import MIB, read_bytes
from halp.clips.text_files import problem

LARGEST = 64 * MIB
_LARGEST_TOTAL = 4 * LARGEST
_HEADER, _MATRIX, _COMPRESSED = 128, 14, 15
_INT8, _INT32, _UINT32 = 1, 5, 6
_COMPLEX = 0x0800
# How numbers are stored, by the type of a data element.
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
# What they mean, by the class of an array; small whole numbers of any class may be stored in fewer bytes.
_NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_OTHERS = {1: "cells", 2: "a structure", 3: "an object", 4: "text", 5: "a sparse matrix"}
_MOST_AXES = 16
Order = Literal["little", "big"]


class _DamagedElement(ValueError):
    """What is wrong inside an element."""


@dataclass(frozen=True)
class _Fields:
    """The parts of a matrix element in their order, each as (type, content)."""

    parts: Iterator[tuple[int, bytes]]

    def take(self, what: str, *kinds: int) -> tuple[int, bytes]:
        kind, content = next(self.parts, (0, b""))
        if kind not in kinds:
            raise _DamagedElement(f"it has no {what}")
        return kind, content


def load_matrix(path: Path, name: str) -> npt.NDArray[Any]:
    """The array `name` of a MATLAB 5 file; real numbers only."""
    data = read_bytes(path, LARGEST)
    order: Order | None = {b"IM": "little", b"MI": "big"}.get(data[126:128])  # type: ignore[assignment]
    if len(data) < _HEADER or order is None or int.from_bytes(data[124:126], order) >> 8 != 1:
        raise problem(path, "", "it has no header of a MATLAB 5 file", "save it with MATLAB's option -v6 or -v7")
    for position, body in _elements(path, data, order):
        try:
            found = _matrix(body, name, order)
        except _DamagedElement as error:
            what = f"it is not a whole MATLAB 5 file ({error})"
            raise problem(path, f"byte {position}", what, "fetch it again or leave it out") from None
        if found is not None:
            return found
    raise problem(path, "", f"it has no array '{name}'", "check that this is a UTD-MHAD skeleton")


def _elements(path: Path, data: bytes, order: Order) -> Iterator[tuple[int, bytes]]:
    """Position and content of the matrices of a file, unpacked where they are compressed, within a bound."""
    position, total = _HEADER, 0
    while position + 8 <= len(data):
        kind = int.from_bytes(data[position : position + 4], order)
        size = int.from_bytes(data[position + 4 : position + 8], order)
        if size > len(data) - position - 8 or kind not in (_MATRIX, _COMPRESSED):
            raise problem(path, f"byte {position}", "an element is cut off or of an unknown kind", "fetch it again")
        body = data[position + 8 : position + 8 + size]
        if kind == _COMPRESSED:
            body = _unpacked(path, position, body)
            total += len(body)
            if total > _LARGEST_TOTAL:
                raise problem(path, f"byte {position}", f"it swells beyond {_LARGEST_TOTAL} bytes", "leave it out")
            inner = int.from_bytes(body[:4], order), int.from_bytes(body[4:8], order)
            if inner[0] != _MATRIX or inner[1] > len(body) - 8:
                raise problem(path, f"byte {position}", "an element is cut off or of an unknown kind", "fetch it again")
            body = body[8 : 8 + inner[1]]
        yield position, body
        position += 8 + size


def _unpacked(path: Path, position: int, packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(packed, LARGEST)
    except zlib.error as error:
        raise problem(path, f"byte {position}", f"an element cannot be unpacked ({error})", "fetch it again") from None
    if unpacker.unconsumed_tail:
        raise problem(path, f"byte {position}", f"an element swells beyond {LARGEST} bytes", "leave it out")
    if not unpacker.eof:
        raise problem(path, f"byte {position}", "a compressed element is cut off", "fetch it again")
    return body


def _matrix(body: bytes, wanted: str, order: Order) -> npt.NDArray[Any] | None:
    """The array of a matrix element, or None where it has another name."""
    fields = _Fields(_fields(body, order))
    _, flags = fields.take("array flags", _UINT32)
    _, dimensions = fields.take("dimensions", _INT32)
    _, name = fields.take("name", _INT8)
    if name.decode("latin1").rstrip("\0") != wanted:
        return None
    if len(flags) != 8 or len(dimensions) % 4 or not 8 <= len(dimensions) <= 4 * _MOST_AXES:
        raise _DamagedElement("its flags or dimensions are damaged")
    word = int.from_bytes(flags[:4], order)
    if word & 0xFF not in _NUMBERS or word & _COMPLEX:
        held = "complex numbers" if word & _COMPLEX else _OTHERS.get(word & 0xFF, "something unknown")
        raise _DamagedElement(f"array '{wanted}' holds {held} instead of real numbers")
    shape = tuple(
        int.from_bytes(dimensions[start : start + 4], order, signed=True) for start in range(0, len(dimensions), 4)
    )
    kind, content = fields.take("numbers", *_STORED)
    stored = np.dtype(_STORED[kind]).newbyteorder("<" if order == "little" else ">")
    if min(shape) < 0 or math.prod(shape) * stored.itemsize != len(content):
        raise _DamagedElement(f"shape {shape} does not fit {len(content)} bytes of {stored.name}")
    numbers = np.frombuffer(content, stored).reshape(shape, order="F")
    return numbers.astype(_NUMBERS[word & 0xFF], order="F")


def _fields(body: bytes, order: Order) -> Iterator[tuple[int, bytes]]:
    """The parts of a matrix element; parts of up to four bytes may share the eight bytes of their tag."""
    position = 0
    while position + 8 <= len(body):
        word = int.from_bytes(body[position : position + 4], order)
        small = word >> 16
        if small:
            if small > 4:
                raise _DamagedElement("a part is too long for its place")
            yield word & 0xFFFF, body[position + 4 : position + 4 + small]
            position += 8
            continue
        size = int.from_bytes(body[position + 4 : position + 8], order)
        if size > len(body) - position - 8:
            raise _DamagedElement("a part is cut off")
        yield word, body[position + 8 : position + 8 + size]
        position += 8 + size + (-size % 8)
