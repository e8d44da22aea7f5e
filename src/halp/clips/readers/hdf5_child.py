"""The process that opens HDF5 files: it reads requests from its input and answers on its output, and may crash alone.

Run as a script, without halp: one JSON line with a path and name patterns comes in; a JSON line that says what was found
and then the bytes of all arrays go out.
"""

from __future__ import annotations

import fnmatch
import json
import sys
from typing import Any, BinaryIO

MOST_OBJECTS = 2000
MOST_BYTES = 1 << 30
MEMORY = 6 << 30


def read(path: str, patterns: list[str]) -> tuple[dict[str, Any], list[bytes]]:
    """Arrays whose names fit the patterns, and the texts among the attributes of all objects passed on the way."""
    import h5py

    arrays: dict[str, Any] = {}
    attributes: dict[str, dict[str, str]] = {}
    parts: list[bytes] = []
    count = 0

    def keep(name: str, values: Any) -> None:
        data, kind = plain(values)
        arrays[name] = {"dtype": kind, "shape": list(values.shape), "size": len(data)}
        parts.append(data)
        if sum(map(len, parts)) > MOST_BYTES:
            raise ValueError("it holds more than a pose file does")

    def visit(name: str, item: Any) -> None:
        nonlocal count
        count += 1
        if count > MOST_OBJECTS:
            raise ValueError(f"it holds more than {MOST_OBJECTS} objects")
        attributes[name] = texts(item)
        if not isinstance(item, h5py.Dataset) or not any(fnmatch.fnmatchcase(name, one) for one in patterns):
            return
        if item.external or item.is_virtual:
            raise ValueError(f"'{name}' lies in another file")
        if item.nbytes > MOST_BYTES:
            raise ValueError(f"'{name}' would take {item.nbytes} bytes")
        if item.dtype.names:
            for field in item.dtype.names:
                keep(f"{name}/{field}", item.fields(field)[()])
        else:
            keep(name, item[()])

    with h5py.File(path, "r") as file:
        attributes[""] = texts(file)
        file.visititems(visit)
    return {"arrays": arrays, "attributes": attributes}, parts


def texts(item: Any) -> dict[str, str]:
    """Attributes that are texts (byte by byte, latin-1, at most a megabyte each) or single numbers, as texts."""
    found = {}
    for key in list(item.attrs)[:200]:
        try:
            value = item.attrs[key]
        except (OSError, TypeError, ValueError, RuntimeError):
            continue
        data = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else None
        if data is not None and len(data) < 1 << 20:
            found[key] = bytes(data).decode("latin-1")
        elif getattr(value, "size", 0) == 1 and value.dtype.kind in "iuf":
            found[key] = repr(float(value.ravel()[0]))
    return found


def plain(values: Any) -> tuple[bytes, str]:
    """Numbers as they are, texts as JSON."""
    import numpy as np

    if values.dtype.kind in "fiub":
        array = np.ascontiguousarray(values)
        return array.tobytes(), array.dtype.str
    if values.dtype.kind in "SUO":
        words = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in values.ravel().tolist()]
        if all(isinstance(word, str) for word in words):
            return json.dumps(words).encode(), "text"
    raise ValueError(f"values of type {values.dtype} are not numbers or texts")


def answer(line: bytes, out: BinaryIO) -> None:
    """One request and its answer."""
    try:
        request = json.loads(line)
        head, parts = read(request["path"], request["patterns"])
    except MemoryError:
        head, parts = {"error": "it asks for more memory than a pose file needs"}, []
    except Exception as error:
        head, parts = {"error": " ".join(str(error).split())[:200] or type(error).__name__}, []
    out.write(json.dumps(head).encode() + b"\n")
    for part in parts:
        out.write(part)
    out.flush()


def main() -> None:
    """Answer requests until the input ends."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        sys.stderr.write("")
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        answer(line, out)


if __name__ == "__main__":
    main()
