"""Features on disk: computed once, found again by a hash of encoder, store and crop rule, read through a memory map."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation.features import Features, fingerprint


def feature_key(encoder: PackagedEncoder, store: Store, crop: str) -> str:
    """Content hash of what features depend on: weights, architecture, stream, layouts, clips and the rule of the crops."""
    facts: dict[str, Any] = {
        "weights": fingerprint(encoder),
        "parts": [_plain_facts(name, part) for name, part in encoder.named_modules()],
        "encoder": [list(encoder.topology.joints), list(encoder.topology.parents), encoder.normalisation],
        "store": [store.hash, list(store.topology.joints), store.normalisation],
        "crop": crop,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _plain_facts(name: str, module: nn.Module) -> list[Any]:
    """Type and plain settings of a module: the same weights mean something else in another direction or pooling."""
    plain = {
        key: value
        for key, value in vars(module).items()
        if key != "training" and not key.startswith("_") and isinstance(value, (int, float, str, bool, type(None)))
    }
    return [name, type(module).__qualname__, plain]


class FeatureCache:
    """A folder of `.npy` files. Without a folder nothing is kept."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.hits = 0

    def get(self, encoder: PackagedEncoder, store: Store, crop: str, compute: Callable[[], Features]) -> Features:
        """The features `(N, F)` of these crops, from disk where they are there, computed and kept otherwise."""
        if self.folder is None:
            return compute()
        path = self.folder / f"{feature_key(encoder, store, crop)}.npy"
        if path.exists():
            try:
                found = np.load(path, mmap_mode="r", allow_pickle=False)
                self.hits += 1
                return found
            except (OSError, ValueError):
                path.unlink(missing_ok=True)  # damaged: computed anew below
        features = compute()
        partial = path.with_name(f".{path.stem}-{os.getpid()}.partial.npy")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            np.save(partial, features, allow_pickle=False)
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise InputError(f"features cannot be kept in '{self.folder}' ({error}); choose another folder") from error
        return features
