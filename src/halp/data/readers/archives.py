"""Arrays of `.npz` files, read member by member within a memory budget.

Without a limit of the user's own, a file may expand to 100 times its size and 64 MiB more, and never beyond 4
GiB;
`halp prepare --max-memory` sets another limit.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.sandbox import load_pickle
from halp.data.source_files import BROKEN, MIB, short_reason, unreadable
from halp.data.text_files import problem

_ALLOWANCE = 64 * MIB
_RATIO = 100
_MOST_BYTES = 4096 * MIB
_BLOCK = 16 * MIB
# The environment carries the limit to the processes that read clips.
_VARIABLE = "HALP_MAX_MEMORY"


@contextmanager
def memory_limit(size: int | None) -> Iterator[None]:
    """Limit the expanded size of archives read in this context to `size` bytes; None keeps the present limit."""
    before = os.environ.get(_VARIABLE)
    if size is not None:
        if size <= 0:
            raise InputError(
                f"a memory limit of {size} bytes is too small to read anything; raise it with --max-memory"
            )
        os.environ[_VARIABLE] = str(size)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before


def expansion_limit(packed: int) -> int:
    """Bytes that `packed` bytes of an archive may become."""
    chosen = os.environ.get(_VARIABLE, "")
    return int(chosen) if chosen.isdecimal() else min(_ALLOWANCE + _RATIO * packed, _MOST_BYTES)


def member_names(path: Path) -> frozenset[str]:
    """Names of the arrays in an `.npz` file, for sniffing; empty if it is not an archive that can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return frozenset(name.removesuffix(".npy") for name in archive.namelist())
    # the last is what zipfile raises for a way of packing that it does not know
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return frozenset()


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; errors in it, or in the arrays read from it, are reported in one sentence."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        raise unreadable(path, error) from error
    except InputError:
        raise
    except BROKEN as error:
        raise InputError(f"'{path}' is not a whole .npz file ({short_reason(error)}); replace it") from error


def _members(path: Path, archive: zipfile.ZipFile, *wanted: str) -> dict[str, bytearray]:
    """The arrays of an archive, all or those of these names, as the bytes of `.npy` files; size-limited."""
    members = {file.filename[:-4]: file for file in archive.infolist() if file.filename.endswith(".npy")}
    members = {name: file for name, file in members.items() if name in wanted or not wanted}
    if sum(file.file_size for file in members.values()) > (limit := expansion_limit(os.path.getsize(path))):
        fault = f"it would expand beyond {limit // MIB} MiB, the most that a file of its size may take"
        raise problem(path, "", fault, "if you trust it, raise the limit with --max-memory")
    for name, file in members.items():
        if file.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or file.flag_bits & 1:
            raise ValueError(f"{name[:60]}.npy is encrypted or compressed in an unusual way")
    return {name: _content(archive, file) for name, file in members.items()}


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytearray:
    """Exactly the declared number of bytes, in blocks: reading all at once would unpack extra data too."""
    content = bytearray()
    with suppress(EOFError), archive.open(member) as file:  # what ends too early does not fit its header
        while block := file.read(min(_BLOCK, member.file_size - len(content))):
            content += block
    return content


def load_npz(path: Path, *wanted: str) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an `.npz` file, or those of these names; nothing is unpickled or read beyond the limit."""
    with _opened(path) as archive:
        return {name: _array(path, name, data) for name, data in _members(path, archive, *wanted).items()}


def load_pickled_member(path: Path, name: str) -> Any:
    """An array of Python objects from an `.npz` file, loaded by the unpickler that allows plain data only."""
    with _opened(path) as archive:
        data = _members(path, archive, name)[name]
    return load_pickle_in_npy(path, bytes(data), f"array '{name}'")


def _array(path: Path, name: str, data: bytearray) -> npt.NDArray[Any]:
    """One array: its header, and exactly as many bytes as that asks for."""
    file = io.BytesIO(data[: 1 << 17])  # the header is far shorter
    shape, fortran, dtype = _header(file)
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        remedy = (
            "prepare it with the format h36m"
            if name.startswith("positions_")
            else "save plain arrays of numbers"
        )
        raise problem(
            path, f"array '{name[:60]}'", "it holds Python objects, which are not read from here", remedy
        )
    if file.tell() + size != len(data) and dtype.itemsize:
        raise ValueError(f"{name[:60]}.npy declares {size} bytes and holds another number")
    if not size:
        return np.empty(shape, dtype)
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if fortran else "C")


def load_pickle_in_npy(path: Path, data: bytes, where: str = "") -> Any:
    """The Python object in the bytes of a `.npy` file, loaded as plain data only."""
    file = io.BytesIO(data)
    try:
        if not _header(file)[2].hasobject:
            raise ValueError("it holds plain numbers")
    except BROKEN as error:
        raise problem(
            path, where, f"it is not a pickled array ({short_reason(error)})", "fetch it again"
        ) from None
    content = load_pickle(path, data[file.tell() :])
    return content[0] if isinstance(content, list) and len(content) == 1 else content


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"an array of version {version} is unknown")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("an array has an invalid shape")
    return shape, fortran, dtype
