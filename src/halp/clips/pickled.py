"""What may come out of a pickle: NumPy arrays and scalars in NumPy's own sequence, sets, bytes, dictionaries, plain values.

Nothing named in a file is looked up or called. Each known name stands for a function of this module, which checks its
arguments; the array types that it hands on are plain numbers and texts, and an array is never larger than its bytes.
"""

from __future__ import annotations

import math
import pickle
import re
from typing import Any

import numpy as np
import numpy.typing as npt

Damaged = pickle.UnpicklingError
_PLAIN = re.compile(r"[<>=|]?(?:[?bBhHiIlLqQefdg]|[biufSU]\d{1,5})", re.ASCII)
_LONGEST_AXIS = 2**40
_MOST_AXES = 32
_DEEPEST = 100
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
_SCALARS = frozenset({str, bytes, bytearray, int, float, bool, type(None)})


class Dtype:
    """Stands for `numpy.dtype`: plain numbers and texts, never records; objects stand for a plain list."""

    def __init__(self, spec: object, align: object = False, copy: object = False) -> None:
        text = spec.decode("latin1") if isinstance(spec, bytes) else spec
        self.objects = text in ("O", "O8", "|O", "|O8")
        if self.objects:
            self.value = np.dtype("V1")
            return
        if not isinstance(text, str) or not _PLAIN.fullmatch(text):
            raise Damaged(f"an array of type {str(text)[:20]!r} is not plain numbers")
        self.value = np.dtype(text)

    def build(self, state: object) -> None:
        """The second half of a dtype: its byte order; sizes and flags in the state are not used."""
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        order = order.decode("latin1") if isinstance(order, bytes) else order
        if order not in ("<", ">", "|", "="):
            raise Damaged("an array type is damaged")
        if order != "|":
            self.value = self.value.newbyteorder(order)  # type: ignore[arg-type]


class Pending:
    """An array between `_reconstruct`, which names no size, and its state, which holds type, shape and bytes."""

    def __init__(self) -> None:
        self.array: npt.NDArray[Any] | list[Any] | None = None

    def build(self, state: object) -> None:
        """Take the content, once."""
        if self.array is not None or not isinstance(state, tuple) or len(state) != 5:
            raise Damaged("an array is damaged")
        _, shape, dtype, fortran, raw = state
        if isinstance(dtype, Dtype) and dtype.objects:
            self.array = _items(raw, shape)
        else:
            self.array = filled(raw, dtype, shape, bool(fortran))


class NdarrayName:
    """Stands for the name `numpy.ndarray`, which only `_reconstruct` may be given; it cannot be called."""


NDARRAY = NdarrayName()


def filled(raw: object, dtype: object, shape: object, fortran: bool) -> npt.NDArray[Any]:
    """Bytes as an array of this type and shape that takes up exactly these bytes."""
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    if not isinstance(dtype, Dtype) or not isinstance(data, bytes | bytearray) or not isinstance(shape, tuple):
        raise Damaged("an array is damaged")
    if dtype.objects:
        raise Damaged("an array of objects is damaged")
    sizes = tuple(size for size in shape if type(size) is int and 0 <= size < _LONGEST_AXIS)
    if len(sizes) != len(shape) or len(shape) > _MOST_AXES or dtype.value.itemsize == 0:
        raise Damaged("an array is damaged")
    if math.prod(sizes) * dtype.value.itemsize != len(data):
        raise Damaged(f"an array of shape {sizes} and type {dtype.value} does not fit its {len(data)} bytes")
    if not data:
        return np.empty(sizes, dtype=dtype.value)
    return np.frombuffer(data, dtype=dtype.value).reshape(sizes, order="F" if fortran else "C")


def _items(raw: object, shape: object) -> list[Any]:
    """The members of an array of objects with at most one axis, as a plain list of plain values."""
    if not isinstance(raw, list) or not isinstance(shape, tuple) or len(shape) > 1 or (shape and shape[0] != len(raw)):
        raise Damaged("an array of objects is damaged")
    if not shape and len(raw) != 1:
        raise Damaged("an array of objects is damaged")
    return list(raw)


def _reconstruct(kind: object, shape: object, code: object) -> Pending:
    if kind is not NDARRAY or shape != (0,):
        raise Damaged("an array is damaged")
    return Pending()


def _from_buffer(raw: object, dtype: object, shape: object, order: object) -> npt.NDArray[Any]:
    return filled(raw, dtype, shape, order == "F")


def _scalar(dtype: object, raw: object = b"") -> Any:
    return filled(raw, dtype, (1,), False)[0]


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise Damaged("bytes are written in an unknown way")
    return text.encode("latin1")


def _bytes(*content: object) -> bytes:
    if content:
        raise Damaged("bytes are written in an unknown way")
    return b""


def _set(items: object = ()) -> set[Any]:
    return {as_key(item) for item in _sequence(items)}


def _frozenset(items: object = ()) -> frozenset[Any]:
    return frozenset(as_key(item) for item in _sequence(items))


def _ordered(pairs: object = ()) -> dict[Any, Any]:
    result = {}
    for pair in _sequence(pairs):
        key, value = _sequence(pair)
        result[as_key(key)] = value
    return result


def _sequence(items: object) -> list[Any] | tuple[Any, ...]:
    if not isinstance(items, list | tuple):
        raise Damaged("a set or dictionary is damaged")
    return items


def as_key(value: object) -> Any:
    """A value as a key or a member of a set: text, bytes or a number of ordinary size.

    Hashing a nested tuple walks through all of it each time, and of huge numbers thousands share one hash.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in (str, bytes, float, bool, type(None)) or (type(value) is int and abs(value) < 2**64):
        return value
    raise Damaged(f"a {type(value).__name__} is used as a key of a dictionary or in a set")


KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): NDARRAY,
    ("numpy", "dtype"): Dtype,
    ("_codecs", "encode"): _encode,
    **{
        (f"numpy.{core}.{module}", name): function
        for core in ("core", "_core")
        for module, name, function in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
    **{
        (module, name): kind
        for module in ("builtins", "__builtin__")
        for name, kind in {"set": _set, "frozenset": _frozenset, "bytes": _bytes}.items()
    },
    ("collections", "OrderedDict"): _ordered,
}
CALLABLE = frozenset(id(function) for function in KNOWN.values() if function is not NDARRAY)


def check_plain(content: Any, budget: int) -> None:
    """Refuse what is not plain data, cycles, great depth, and shared parts that make a walk endless.

    The size of a container is what a walk through it would meet, shared parts counted as often as they are met. It is
    worked out once for each container, children first, without recursion.
    """
    sizes: dict[int, int] = {}
    depths: dict[int, int] = {}
    waiting: list[tuple[Any, bool]] = [(content, False)]
    open_containers: set[int] = set()
    while waiting:
        value, visited = waiting.pop()
        children = _children(value)
        if children is None or (not visited and id(value) in sizes):
            continue
        if not visited:
            if id(value) in open_containers:
                raise Damaged("a container holds itself")
            open_containers.add(id(value))
            waiting.append((value, True))
            inner = (child for child in children if type(child) in _CONTAINERS and id(child) not in sizes)
            waiting.extend((child, False) for child in inner)
            continue
        open_containers.discard(id(value))
        sizes[id(value)] = 64 + sum(sizes[id(child)] if id(child) in sizes else _leaf(child) for child in children)
        depths[id(value)] = 1 + max((depths.get(id(child), 0) for child in children), default=0)
        if depths[id(value)] > _DEEPEST:
            raise Damaged(f"it is nested more than {_DEEPEST} deep")
        if sizes[id(value)] > budget:
            raise Damaged("its parts are shared so that it is endless to read")
    if _children(content) is None:
        _leaf(content)


def _children(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """What a container holds; None for what is not one. Keys and members of sets are checked when they are put in."""
    if type(value) in (list, tuple):
        return value
    if type(value) is dict:
        return [*value.keys(), *value.values()]
    return list(value) if type(value) in (set, frozenset) else None


def _leaf(value: Any) -> int:
    """Bytes that a plain value takes; anything else is refused."""
    if type(value) in _SCALARS:
        return 8 + (len(value) if isinstance(value, str | bytes | bytearray) else 0)
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return 8 + int(value.nbytes)
    raise Damaged(f"a {type(value).__name__} is left over, which is not plain data")
