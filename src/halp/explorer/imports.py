"""Slow imports, one thread at a time: concurrent imports can see a half-loaded scikit-learn."""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PARTS = ("linear_model", "metrics", "model_selection", "cluster", "neighbors", "manifold")
_LOCK = threading.Lock()


def import_sklearn() -> None:
    """Import the parts of scikit-learn that the explorer's threads use."""
    with _LOCK:
        for part in _PARTS:
            importlib.import_module(f"sklearn.{part}")


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend garbage collection, and exempt objects that exist at the end from it.

    Modules make a million objects that stay. Looking through them again and again takes a fifth of the time
    of a start, and most of the time in which 100,000 names are read.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()
