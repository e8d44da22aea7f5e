"""The one cache of features: entries found by a hash of all inputs and verified before use.

An entry is a folder with `vectors.npy` `(N, F)`, further arrays, and `entry.json`, which states the SHA-256
of each. It lies in a run's `features`, or in the user's cache folder: `HALP_CACHE`, where that is set (empty:
nothing is kept), else what the system has for it. Bytes are compared where size or times of a file are not
those that were written. A damaged entry is recomputed with a warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import building, cache_home, file_state, sha256, write_text
from halp.core.locks import CannotLock, InUse, locked

if TYPE_CHECKING:
    from torch import nn

Vectors = npt.NDArray[np.float32]
Arrays = dict[str, npt.NDArray[Any]]
ENTRY = "entry.json"
_FORMAT = 6
_PATIENCE = 24 * 3600.0  # seconds to wait for a process that computes the same features
_PLAIN = (int, float, str, bool, type(None))
BATCH = 256  # clips encoded together


def module_fingerprint(module: nn.Module) -> str:
    """Hash of every weight and buffer; an equal hash proves that the backbone did not change."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def feature_key(encoder: Any, content: str, crop: str = "centre 0.95") -> str:
    """Hash of everything features depend on: version, weights, modules, preparation, clips and crops."""
    own = getattr(encoder, "key_facts", None) or key_facts(encoder)
    facts = {**own, "halp": __version__, "format": _FORMAT, "content": content, "crop": crop}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def key_facts(encoder: Any) -> dict[str, Any]:
    """What features depend on of an encoder: weights, modules and preparation."""
    layout = encoder.topology
    return {
        "weights": module_fingerprint(encoder),
        "parts": [_plain_facts(name, part) for name, part in encoder.named_modules()],
        "encoder": [list(layout.joints), list(layout.parents), layout.centre, layout.up, layout.across],
        "normalisation": list(encoder.normalisation),
    }


def rows_key(content: str) -> str:
    """Hash of everything the rows of a source depend on, for any encoder."""
    facts = {"halp": __version__, "format": _FORMAT, "rows": content}
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _plain_facts(name: str, module: nn.Module) -> list[Any]:
    """Type and plain settings of a module: modules with equal weights may differ in direction, stride or
    dilation.
    """
    plain = {
        key: value
        for key, value in vars(module).items()
        if key != "training" and not key.startswith("_") and _is_plain(value)
    }
    return [name, type(module).__qualname__, plain]


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a setting: scalars, and lists or tuples such as the stride of a convolution."""
    return isinstance(value, _PLAIN) or (isinstance(value, (tuple, list)) and all(map(_is_plain, value)))


@dataclass(frozen=True)
class CachedVectors:
    """Vectors with their arrays and facts; `folder` is where they are cached, None for memory only."""

    vectors: Vectors
    arrays: Arrays = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None


Rest = Callable[[], tuple[Arrays, Mapping[str, Any]]]


class FeatureCache:
    """Entries in a folder. Without a writable folder nothing is kept."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.hits = 0

    def get(
        self, key: str, width: int, blocks: Callable[[], Iterable[Vectors]], rest: Rest | None = None
    ) -> CachedVectors:
        """An intact entry from disk; otherwise computed and saved.

        `blocks` gives the vectors `(n, width)` one block after the other; `rest`, asked afterwards, what
        belongs to them.
        """
        return self.keep(key, width, blocks, rest) or _in_memory(blocks(), width, rest)

    def keep(
        self, key: str, width: int, blocks: Callable[[], Iterable[Vectors]], rest: Rest | None = None
    ) -> CachedVectors | None:
        """An entry on disk, found or computed now; None if nothing can be kept."""
        if self.folder is None:
            return None
        path = self.folder / key
        entry = open_entry(path, width)
        if entry is None:
            with _computing(path):
                entry = open_entry(path, width, again=True)  # somebody else may have kept it meanwhile
                if entry is None:
                    return self._make(path, width, blocks, rest)
        self.hits += 1
        return entry

    def _make(
        self, path: Path, width: int, blocks: Callable[[], Iterable[Vectors]], rest: Rest | None
    ) -> CachedVectors | None:
        try:
            _remove(path)
            with building(path) as partial:
                _write(partial, width, blocks(), rest)
            entry = open_entry(path, width)
            if entry is not None:
                return entry
            reason = "the written entry cannot be read back"
        except (OSError, CannotLock) as error:
            reason = str(error)
        warnings.warn(f"features cannot be cached in '{self.folder}' ({reason})", stacklevel=3)
        self.folder = None
        return None


def _in_memory(blocks: Iterable[Vectors], width: int, rest: Rest | None) -> CachedVectors:
    vectors = np.concatenate([np.zeros((0, width), dtype=np.float32), *blocks])
    arrays, facts = rest() if rest is not None else ({}, {})
    return CachedVectors(vectors, arrays, dict(facts))


def _write(folder: Path, width: int, blocks: Iterable[Vectors], rest: Rest | None) -> None:
    with VectorFile(folder / "vectors.npy", width) as file:
        for block in blocks:
            file.add(block)
    arrays, facts = rest() if rest is not None else ({}, {})
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values, allow_pickle=False)
    files = {name: folder / f"{name}.npy" for name in ("vectors", *arrays)}
    hashes = {name: sha256(path) for name, path in files.items()}
    states = {name: file_state(path) for name, path in files.items()}
    write_text(folder / ENTRY, json.dumps({"sha256": hashes, "state": states, "facts": dict(facts)}))


def open_entry(
    folder: Path, width: int, *, again: bool = False, verify: bool = False
) -> CachedVectors | None:
    """A cache entry that passes its check; None if it is missing, or damaged, with a warning."""
    if not os.path.lexists(folder):
        return None
    try:
        stated = json.loads(_regular(folder / ENTRY).read_text(encoding="utf-8"))
        arrays: Arrays = {}
        for name, expected in stated["sha256"].items():
            path = _regular(folder / f"{name}.npy")
            trusted = not verify and stated.get("state", {}).get(name) == file_state(path)
            if not trusted and sha256(path) != expected:
                raise ValueError(f"{path.name} was changed after it was written")
            arrays[name] = np.load(path, mmap_mode="r" if name == "vectors" else None, allow_pickle=False)
        vectors = arrays.pop("vectors")
        if vectors.ndim != 2 or vectors.shape[1] != width or vectors.dtype != np.float32:
            raise ValueError(f"vectors.npy has shape {vectors.shape}")
        return CachedVectors(vectors, arrays, dict(stated["facts"]), folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        if not again:
            warnings.warn(f"cached features '{folder}' are damaged ({error}); recomputing", stacklevel=3)
        return None


def _regular(path: Path) -> Path:
    """A path that is a regular file; reading anything else could block."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path.name} is not a file")
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


@contextmanager
def _computing(path: Path) -> Iterator[None]:
    """Hold the lock of features while computing them: a second process waits instead of computing too."""
    lock, title = path.with_name(f".{path.name}.lock"), f"features '{path}'"
    with ExitStack() as held:
        try:
            held.enter_context(locked(lock, title))
        except InUse as busy:
            warnings.warn(f"{str(busy).partition(';')[0]}: waiting for them", stacklevel=4)
            held.enter_context(locked(lock, title, wait=_PATIENCE))
        except CannotLock:
            pass  # they cannot be kept either, which is said when that is tried
        yield


class VectorFile:
    """A `.npy` file `(N, width)` that grows row by row; its header is completed at the end."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width, self.rows = path, width, 0

    def __enter__(self) -> VectorFile:
        self._file = open(self.path, "wb")
        self._header()
        return self

    def _header(self) -> None:
        shape = (self.rows, self.width)
        # NumPy leaves room for the first axis to grow, so the header keeps its length
        np.lib.format.write_array_header_1_0(
            self._file, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )

    def add(self, vectors: Vectors) -> None:
        """Append rows."""
        if vectors.shape[1] != self.width:
            raise InputError(f"vectors of {vectors.shape[1]} numbers do not fit a file of {self.width}")
        self._file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        self.rows += len(vectors)

    def __exit__(self, *problem: object) -> None:
        try:
            self._file.seek(0)
            self._header()
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()


_NAME = re.compile(r"\.?[0-9a-f]{32}(\.lock|\.json|[.-].*)?")
_ROOMS = {"vectors": "", "files": "files", "folders": "looks", "stores": "verified", "encoders": "encoders"}


@dataclass(frozen=True)
class CacheUse:
    """Sizes of parts of the cache: vectors and rows of sources, hashes of files, stores and encoders that were
    checked.
    """

    folder: Path | None
    entries: dict[str, int]
    bytes: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "folder": None if self.folder is None else str(self.folder),
            "entries": self.entries,
            "bytes": self.bytes,
        }


def cache_use() -> CacheUse:
    """The contents of the user's cache folder."""
    found = {kind: _kept_in(room) for kind, room in _ROOMS.items()}
    sizes = {kind: sum(map(_size, paths)) for kind, paths in found.items()}
    return CacheUse(cache_home(), {kind: len(paths) for kind, paths in found.items()}, sizes)


def clear_cache() -> CacheUse:
    """Remove halp's entries from the user's cache folder; returns their numbers and sizes."""
    use = cache_use()
    for room in _ROOMS.values():
        for path in _kept_in(room):
            _remove(path)
    return use


def _kept_in(room: str) -> list[Path]:
    home = cache_home()
    folder = None if home is None else home / room
    if folder is None or not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if _NAME.fullmatch(path.name)]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files)
