"""The map while recordings are still being embedded: positions of the rows done so far."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.files import cache_home
from halp.explorer.layout import fit_unit_box
from halp.features.cache import CachedVectors, feature_key
from halp.features.content import ArrayClips
from halp.features.known import SomeEncoder
from halp.features.shards import kept_entries
from halp.features.source import Source

_FITTED = 2_000  # rows that the two directions of the map are computed from
Floats = npt.NDArray[np.float32]


class Preview:
    """Reads cached shards. Axes of the map stay until the rows double, so that points do not jump."""

    def __init__(self, encoder: SomeEncoder, source: Source) -> None:
        self.encoder, self.source = encoder, source
        self._fitted, self._middle, self._axes = 0, np.zeros(0), np.zeros((0, 2))

    @cached_property
    def _folder(self) -> Path | None:
        home = cache_home()
        if home is None or not self.source.whole or isinstance(self.source.content, ArrayClips):
            return None
        return (home / feature_key(self.encoder, self.source.how)).absolute()

    def look(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Names of recordings; and for every row that is done its recording and its place `(n, 2)`."""
        width = self.encoder.output_size
        kept = [] if self._folder is None else kept_entries(self.source, self._folder, width)
        kept = [one for one in kept if len(one.vectors)]
        if sum(len(one.vectors) for one in kept) < 3:
            return {"names": []}, {"recording": np.zeros(0, np.int32), "places": np.zeros((0, 2), np.float32)}
        names = [str(name) for one in kept for name in one.facts["recordings"]]
        return {"names": names}, {"recording": _recordings(kept), "places": self._places(kept)}

    def _places(self, kept: list[CachedVectors]) -> Floats:
        rows = sum(len(one.vectors) for one in kept)
        if rows >= 2 * self._fitted:
            step = -(-rows // _FITTED)
            some = np.concatenate([np.asarray(one.vectors[::step]) for one in kept])
            self._middle = some.mean(0)
            axes = np.linalg.svd(some - self._middle, full_matrices=False)[2][:2].T
            largest = np.take_along_axis(axes, np.abs(axes).argmax(0)[None], 0)
            self._axes, self._fitted = axes * np.sign(largest), rows
        return fit_unit_box(np.concatenate([(one.vectors - self._middle) @ self._axes for one in kept]))


def _recordings(kept: list[CachedVectors]) -> npt.NDArray[np.int32]:
    counts = [len(one.facts["recordings"]) for one in kept]
    before = np.cumsum([0, *counts[:-1]])
    numbers = [one.arrays["rows"]["recording"] + first for one, first in zip(kept, before)]
    return np.concatenate(numbers).astype(np.int32)
