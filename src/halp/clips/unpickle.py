"""A loader for other people's pickles that can build plain data and NumPy arrays, and nothing else.

No class and no function named in the file is ever looked up: the few names that arrays need are bound to functions of this
module, which check what they are given. Before anything is built the file is scanned for damage and for waste of memory.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from halp.errors import InputError

_PLAIN = re.compile(r"[<>=|]?(?:[?bBhHiIlLqQefdg]|[biufSU]\d{1,5})", re.ASCII)
_REFUSED = "it is no pose file but could be an attack, do not open it otherwise"


class _Dtype:
    """Stands for `numpy.dtype`: plain numbers and texts only, never objects or records."""

    def __init__(self, spec: object, align: object = False, copy: object = False) -> None:
        text = spec.decode("latin1") if isinstance(spec, bytes) else spec
        if not isinstance(text, str) or not _PLAIN.fullmatch(text):
            raise pickle.UnpicklingError(f"an array of type {str(text)[:20]!r} is not plain numbers")
        self.value = np.dtype(text)

    def __setstate__(self, state: object) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        order = order.decode("latin1") if isinstance(order, bytes) else order
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("an array type is damaged")
        if order != "|":
            self.value = self.value.newbyteorder(order)  # type: ignore[arg-type]


class _Array(np.ndarray[Any, Any]):
    """An array that takes its content only as plain bytes of a plain type."""

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array is damaged")
        _, shape, dtype, fortran, raw = state
        filled = _filled(raw, dtype, shape, bool(fortran))
        content: Any = (1, filled.shape, filled.dtype, bool(fortran), filled.tobytes("F" if fortran else "C"))
        super().__setstate__(content)


def _filled(raw: object, dtype: object, shape: object, fortran: bool) -> npt.NDArray[Any]:
    """Bytes as an array of this type and shape, everything checked."""
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    sound = isinstance(shape, tuple) and all(type(size) is int and 0 <= size < 2**40 for size in shape)
    if (
        not isinstance(dtype, _Dtype)
        or not isinstance(data, bytes | bytearray)
        or not sound
        or dtype.value.itemsize == 0
    ):
        raise pickle.UnpicklingError("an array is damaged")
    sizes: tuple[int, ...] = shape  # type: ignore[assignment]
    return np.frombuffer(data, dtype=dtype.value).reshape(sizes, order="F" if fortran else "C")


def _reconstruct(kind: object, shape: object, code: object) -> _Array:
    if kind is not _Array or shape != (0,):
        raise pickle.UnpicklingError("an array is damaged")
    return np.empty((0,), dtype=np.int8).view(_Array)


def _from_buffer(raw: object, dtype: object, shape: object, order: object) -> npt.NDArray[Any]:
    return _filled(raw, dtype, shape, order == "F")


def _scalar(dtype: object, raw: object = b"") -> Any:
    return _filled(raw, dtype, (1,), False)[0]


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("bytes are written in an unknown way")
    return text.encode("latin1")


def _bytes(*content: object) -> bytes:
    if content:
        raise pickle.UnpicklingError("bytes are written in an unknown way")
    return b""


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
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
        for name, kind in {"set": set, "frozenset": frozenset, "bytes": _bytes}.items()
    },
    ("collections", "OrderedDict"): dict,
}


class _Loader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it wants to use '{module[:60]}.{name[:60]}', which is no plain data")
        return _ALLOWED[module, name]

    def persistent_load(self, identifier: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside of the file")


def load_pickle(path: Path) -> Any:
    """What a pickle file holds: containers, numbers, texts and NumPy arrays; anything else is refused before it is built."""
    try:
        with open(path, "rb") as file:
            _scan(file, path)
            file.seek(0)
            return _Loader(file, encoding="latin1").load()
    except OSError as error:
        raise InputError(
            f"'{path}' cannot be read ({error.strerror}); check that it exists and its permissions"
        ) from error
    except pickle.UnpicklingError as error:
        raise InputError(f"'{path}' is refused: {error}; {_REFUSED}") from None
    except InputError:
        raise
    except (
        ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, MemoryError, OverflowError, RecursionError,
        ImportError,
    ) as error:  # fmt: skip
        what = f"{type(error).__name__}: {str(error)[:80]}"
        raise InputError(f"'{path}' is no whole pickle file ({what}); fetch or write it again") from None


def _scan(file: BinaryIO, path: Path) -> None:
    """Read all instructions without carrying them out: a damaged file, or one that only wastes memory, ends here."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    for number, (instruction, argument, position) in enumerate(pickletools.genops(file), start=1):
        # The loader makes room up to the highest number a file names, and no honest file skips any.
        if instruction.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > min(number, size):
            raise InputError(f"'{path}', byte {position}: place {argument} is used out of turn; {_REFUSED}")
        if instruction.name in ("EXT1", "EXT2", "EXT4"):
            raise InputError(f"'{path}', byte {position}: it uses codes that stand for programs; {_REFUSED}")
