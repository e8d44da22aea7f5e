"""Features on disk: computed once, found again by a hash of encoder, store and crop rule, read through a memory map."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from torch import nn

from halp._version import __version__
from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.evaluation.features import Features, fingerprint
from halp.files import atomic_path
from halp.locks import CannotLock, InUse, locked
from halp.progress import console

_PATIENCE = 24 * 3600.0  # seconds to wait for a process that is known to live and computes the same features
_PLAIN = (int, float, str, bool, type(None))


def feature_key(encoder: PackagedEncoder, store: Store, crop: str) -> str:
    """Content hash of what features depend on: halp, weights, architecture, stream, layouts, clips and the crop rule."""
    facts: dict[str, Any] = {
        "halp": __version__,
        "weights": fingerprint(encoder),
        "parts": [_plain_facts(name, part) for name, part in encoder.named_modules()],
        "encoder": [list(encoder.topology.joints), list(encoder.topology.parents), encoder.normalisation],
        "store": [store.hash, list(store.topology.joints), store.normalisation],
        "crop": crop,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _plain_facts(name: str, module: nn.Module) -> list[Any]:
    """Type and plain settings of a module: the same weights mean something else in another direction, stride or dilation."""
    plain = {
        key: value
        for key, value in vars(module).items()
        if key != "training" and not key.startswith("_") and _is_plain(value)
    }
    return [name, type(module).__qualname__, plain]


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a setting: scalars, and lists or tuples of them such as the stride of a convolution."""
    return isinstance(value, _PLAIN) or (isinstance(value, (tuple, list)) and all(map(_is_plain, value)))


class FeatureCache:
    """A folder of `.npy` files. Without a folder, or where it cannot be written, nothing is kept."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.hits = 0

    def get(
        self,
        encoder: PackagedEncoder,
        store: Store,
        crop: str,
        shape: tuple[int, int],
        compute: Callable[[], Features],
    ) -> Features:
        """Features of this `shape` from disk where they are there, computed and kept otherwise."""
        if self.folder is None:
            return compute()
        path = self.folder / f"{feature_key(encoder, store, crop)}.npy"
        found = _read(path, shape)
        if found is None:
            with _computing(path) as keep:
                found = _read(path, shape)  # somebody else may have kept them meanwhile
                if found is None:
                    features = compute()
                    if keep:
                        self._keep(path, features)
                    return features
        self.hits += 1
        return found

    def _keep(self, path: Path, features: Features) -> None:
        try:
            with atomic_path(path) as partial:
                np.save(partial, features, allow_pickle=False)
        except OSError as error:
            console.print(
                f"[yellow]warning:[/] features cannot be kept in '{self.folder}' ({error}); they are not cached"
            )
            self.folder = None


@contextmanager
def _computing(path: Path) -> Iterator[bool]:
    """Own features while they are computed: a second process waits for the first one's instead of computing them too.

    The body is told whether to keep them. It does not wait for an owner of which nobody knows whether it still lives.
    """
    lock, what = path.with_name(f".{path.stem}.lock"), f"features '{path}'"
    with ExitStack() as held:
        keep = True
        try:
            held.enter_context(locked(lock, what))
        except InUse as busy:
            remedy = "waiting for them" if busy.waits else "they are computed here as well, and not kept"
            console.print(f"[yellow]note:[/] {escape(str(busy).partition(';')[0])}: {remedy}", soft_wrap=True)
            try:
                held.enter_context(locked(lock, what, wait=_PATIENCE if busy.waits else 0))
            except InUse:
                keep = False
        except CannotLock:
            pass  # they cannot be kept either, which is said when that is tried
        yield keep


def _read(path: Path, shape: tuple[int, int]) -> Features | None:
    """Features from a file; None where there is none, or where it is damaged or holds something else."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == shape and found.dtype == np.float32 else None
