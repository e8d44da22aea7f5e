"""The process that opens HDF5, MATLAB and pickle files: it may crash, hang or run out of memory without harm.

Run as a script, without halp: a JSON line with a task (and bytes, where the content is not a file) comes in;
a JSON line with the answer, and the bytes of its arrays, go out. Answers are plain data: nothing that is sent
can do anything.
"""

from __future__ import annotations

import fnmatch
import gc
import io
import json
import math
import pickle
import re
import sys
from typing import Any

MIB = 1 << 20
MOST_OBJECTS = 2000
MOST_BYTES = 1 << 30
DEEPEST = 100
# Memory of the process, and what an answer may take: so much, and so many times the size of the file.
MEMORY, MEMORY_PER_BYTE = 3 << 30, 4
ANSWER, ANSWER_PER_BYTE = 32 * MIB, 32


def main() -> None:
    """Answer requests until the input ends."""
    gc.disable()  # plain data has no cycles, and looking for them in a million containers takes longer than making them
    given, out = sys.stdin.buffer, sys.stdout.buffer
    for line in given:
        request = json.loads(line)
        data = given.read(request["size"])
        try:
            limit_memory(MEMORY + MEMORY_PER_BYTE * request["weight"])
            answer = Reply(ANSWER + ANSWER_PER_BYTE * request["weight"])
            head = {"value": answer.encoded(TASKS[request["task"]](request, data)), "sizes": answer.sizes}
        except pickle.UnpicklingError as error:
            head, answer = {"refused": reason(error)}, Reply(0)
        except MemoryError:
            head, answer = {"refused": "it needs far more memory than its size explains"}, Reply(0)
        except Exception as error:
            head, answer = {"error": reason(error)}, Reply(0)
        del data
        out.write(json.dumps(head).encode() + b"\n")
        for part in answer.parts:
            out.write(part)
        out.flush()
        del head, answer


def limit_memory(size: int) -> None:
    """Limit this process's memory, if the system supports it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        return


def reason(error: Exception) -> str:
    """An error in a few words on one line."""
    words = " ".join(str(error).split())[:200]
    return words or type(error).__name__


class Reply:
    """Plain data as JSON, with arrays and bytes beside it; data far larger than its file is refused."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.parts: list[Any] = []
        self.sizes: list[int] = []
        self.containers: dict[int, tuple[Any, int]] = {}  # identity → as JSON, and what that cost

    def pay(self, cost: int) -> None:
        self.budget -= cost
        if self.budget < 0:
            raise pickle.UnpicklingError("it refers to its own parts without end")

    def bytes(self, data: Any) -> int:
        """The number of a part of the answer."""
        self.parts.append(data)
        self.sizes.append(memoryview(data).nbytes)
        self.pay(self.sizes[-1])
        return len(self.parts) - 1

    def encoded(self, value: Any, depth: int = 0) -> Any:
        """A value as JSON: lists, texts and numbers unchanged, anything else as a table with its type."""
        self.pay(32)
        if depth > DEEPEST:
            raise pickle.UnpicklingError(f"it is nested more than {DEEPEST} deep, or holds itself")
        if value is None or type(value) in (bool, float):
            return value
        if type(value) is int:
            if value.bit_length() > 1024:
                raise pickle.UnpicklingError(f"a number has {value.bit_length()} bits")
            return value
        if type(value) is str:
            self.pay(len(value))
            return value
        if type(value) in (list, tuple, set, frozenset, dict):
            return self.container(value, depth)
        if type(value) in (bytes, bytearray):
            return {type(value).__name__: self.bytes(value)}
        if type(value) is Array and value.content is not None:
            return self.encoded(value.content, depth)
        import numpy as np

        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiubSU":
            array = np.ascontiguousarray(value)
            name = "array" if isinstance(value, np.ndarray) else "scalar"
            return {
                name: [
                    array.dtype.str,
                    list(np.shape(value)),
                    self.bytes(array.reshape(-1).view(np.uint8).data),
                ]
            }
        raise pickle.UnpicklingError(f"a {type(value).__name__} is left over, which is not plain data")

    def container(self, value: Any, depth: int) -> Any:
        """A container as JSON; repeated ones are charged again without being traversed."""
        if id(value) in self.containers:
            known, cost = self.containers[id(value)]
            self.pay(cost)
            return known
        before = self.budget
        if type(value) is dict:
            known = {"dict": [[self.encoded(part, depth + 1) for part in pair] for pair in value.items()]}
        else:
            known = [self.encoded(item, depth + 1) for item in value]
            known = known if type(value) is list else {type(value).__name__: known}
        self.containers[id(value)] = known, before - self.budget
        return known


# --- pickles
# ---------------------------------------------------------------------------------------------------------

PLAIN = re.compile(r"[<>=|]?(?:[?bBhHiIlLqQefdg]|[biufSU]\d{1,5})", re.ASCII)


def unpickle(request: dict[str, Any], data: bytes) -> Any:
    """The content of a pickle: containers, numbers, texts and NumPy arrays."""
    if request["path"] is None:
        return Unpickler(io.BytesIO(data), encoding="latin1").load()
    with open(request["path"], "rb") as file:
        return Unpickler(file, encoding="latin1").load()


class Unpickler(pickle.Unpickler):
    """No name in a file is imported: each allowed name maps to a function of this script."""

    def find_class(self, module: str, name: str) -> Any:
        known = KNOWN.get((module, name))
        if known is None:
            raise pickle.UnpicklingError(f"it refers to '{module[:60]}.{name[:60]}', which is not plain data")
        return known

    def persistent_load(self, identity: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of it")


class Dtype:
    """Replaces `numpy.dtype`: plain numbers and text, no records; objects become a plain list."""

    __slots__ = ("objects", "value")

    def __init__(self, spec: object) -> None:
        import numpy as np

        text = spec.decode("latin1") if isinstance(spec, bytes) else spec
        self.objects = text in ("O", "O8", "|O", "|O8")
        if not self.objects and (not isinstance(text, str) or not PLAIN.fullmatch(text)):
            raise pickle.UnpicklingError(f"an array of type {str(text)[:20]!r} is not plain numbers")
        self.value: Any = np.dtype("V1" if self.objects else str(text))

    def __setstate__(self, state: object) -> None:
        """The second half of a dtype: its byte order; sizes and flags in the state are not used."""
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        order = order.decode("latin1") if isinstance(order, bytes) else order
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("an array type is damaged")
        if order != "|":
            self.value = self.value.newbyteorder(order)


class Array:
    """An array between `_reconstruct`, which has no size, and its state, with type, shape and bytes."""

    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content: Any = None

    def __setstate__(self, state: object) -> None:
        if self.content is not None or not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array is damaged")
        _, shape, dtype, fortran, raw = state
        if isinstance(dtype, Dtype) and dtype.objects:
            if not isinstance(raw, list) or not isinstance(shape, tuple) or shape not in ((), (len(raw),)):
                raise pickle.UnpicklingError("an array of objects is damaged")
            self.content = raw
        else:
            self.content = filled(raw, dtype, shape, bool(fortran))


def filled(raw: object, dtype: object, shape: object, fortran: bool) -> Any:
    """Bytes as an array of this type and shape that takes up exactly these bytes."""
    import numpy as np

    data = raw.encode("latin1") if isinstance(raw, str) else raw
    if type(dtype) is not Dtype or not isinstance(data, bytes | bytearray) or not isinstance(shape, tuple):
        raise pickle.UnpicklingError("an array is damaged")
    if dtype.objects:
        raise pickle.UnpicklingError("an array of objects is damaged")
    sizes = tuple(size for size in shape if type(size) is int and 0 <= size < 1 << 40)
    if len(sizes) != len(shape) or len(shape) > 32 or math.prod(sizes) * dtype.value.itemsize != len(data):
        raise pickle.UnpicklingError(f"an array of shape {str(shape)[:40]} does not fit {len(data)} bytes")
    if not data:
        return np.empty(sizes, dtype=dtype.value)
    return np.frombuffer(data, dtype=dtype.value).reshape(sizes, order="F" if fortran else "C")


class Known:
    """A function that a pickle may call by name; nothing can be set on it."""

    __slots__ = ("_function",)

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *arguments: object) -> Any:
        return self._function(*arguments)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "_function"):
            raise pickle.UnpicklingError("it changes something that is not plain data")
        object.__setattr__(self, name, value)


def reconstruct(kind: object, shape: object, code: object) -> Array:
    """An array that its state will fill."""
    if kind is not NDARRAY or shape != (0,):
        raise pickle.UnpicklingError("an array is damaged")
    return Array()


def encode(text: object, encoding: object = "latin1") -> bytes:
    """Bytes as older protocols write them."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("bytes have an unknown encoding")
    return text.encode("latin1")


def refuse(*arguments: object) -> None:
    """Stands for `numpy.ndarray`, which pickles only refer to."""
    raise pickle.UnpicklingError("it calls something that is not plain data")


def nothing(*content: object) -> bytes:
    """Empty bytes, as older protocols write them."""
    if content:
        raise pickle.UnpicklingError("bytes have an unknown encoding")
    return b""


NDARRAY = Known(refuse)
KNOWN: dict[tuple[str, str], Known] = {
    ("numpy", "ndarray"): NDARRAY,
    ("numpy", "dtype"): Known(lambda spec, align=False, copy=False: Dtype(spec)),
    ("_codecs", "encode"): Known(encode),
    ("collections", "OrderedDict"): Known(lambda pairs=(): dict(pairs)),
    **{
        (f"numpy.{core}.{module}", name): Known(function)
        for core in ("core", "_core")
        for module, name, function in (
            ("multiarray", "_reconstruct", reconstruct),
            ("multiarray", "scalar", lambda dtype, raw=b"": filled(raw, dtype, (1,), False)[0]),
            (
                "numeric",
                "_frombuffer",
                lambda raw, dtype, shape, order: filled(raw, dtype, shape, order == "F"),
            ),
        )
    },
    **{
        (module, name): Known(function)
        for module in ("builtins", "__builtin__")
        for name, function in {"set": set, "frozenset": frozenset, "bytes": nothing}.items()
    },
}


# --- MATLAB and HDF5
# -------------------------------------------------------------------------------------------------


def matlab(request: dict[str, Any], data: bytes) -> Any:
    """The array of this name in a MATLAB 5 file, real numbers only."""
    import numpy as np
    import scipy.io

    matrix = scipy.io.loadmat(request["path"], variable_names=[request["name"]]).get(request["name"])
    if matrix is None:
        raise ValueError(f"it has no array '{request['name']}'")
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "fiu":
        raise ValueError(f"array '{request['name']}' does not hold real numbers")
    return matrix


def hdf5(request: dict[str, Any], data: bytes) -> Any:
    """Arrays whose names match the patterns, and text attributes of all objects passed on the way."""
    import h5py

    arrays: dict[str, Any] = {}
    attributes: dict[str, dict[str, str]] = {}

    def visit(name: str, item: Any) -> None:
        if len(attributes) > MOST_OBJECTS:
            raise ValueError(f"it holds more than {MOST_OBJECTS} objects")
        attributes[name] = texts(item)
        wanted = any(fnmatch.fnmatchcase(name, pattern) for pattern in request["patterns"])
        if not isinstance(item, h5py.Dataset) or not wanted:
            return
        if item.external or item.is_virtual:
            raise ValueError(f"'{name}' lies in another file")
        if item.nbytes > MOST_BYTES:
            raise ValueError(f"'{name}' would take {item.nbytes} bytes")
        for field in item.dtype.names or ("",):
            arrays[f"{name}/{field}" if field else name] = plain(
                item.fields(field)[()] if field else item[()]
            )

    with h5py.File(request["path"], "r") as file:
        attributes[""] = texts(file)
        file.visititems(visit)
    return {"arrays": arrays, "attributes": attributes}


def texts(item: Any) -> dict[str, str]:
    """Attributes that are texts (latin-1, at most a megabyte each) or single numbers, as texts."""
    attributes = {}
    for key in list(item.attrs)[:200]:
        try:
            value = item.attrs[key]
        except (OSError, TypeError, ValueError, RuntimeError):
            continue
        data = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else None
        if data is not None and len(data) < MIB:
            attributes[key] = bytes(data).decode("latin-1")
        elif getattr(value, "size", 0) == 1 and value.dtype.kind in "iuf":
            attributes[key] = repr(float(value.ravel()[0]))
    return attributes


def plain(values: Any) -> Any:
    """Numbers as they are, texts as a list."""
    if values.dtype.kind in "fiub":
        return values
    if values.dtype.kind in "SUO":
        words = [
            word.decode("utf-8", "replace") if isinstance(word, bytes) else word
            for word in values.ravel().tolist()
        ]
        if all(isinstance(word, str) for word in words):
            return words
    raise ValueError(f"values of type {values.dtype} are not numbers or texts")


TASKS: dict[str, Any] = {"hdf5": hdf5, "matlab": matlab, "pickle": unpickle}

if __name__ == "__main__":
    main()
