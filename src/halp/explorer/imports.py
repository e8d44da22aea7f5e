"""Slow imports, one thread after the other: threads that import parts of scikit-learn at once can see half of
it.
"""

from __future__ import annotations

import importlib
import threading

_PARTS = ("linear_model", "metrics", "model_selection", "cluster", "neighbors", "manifold")
_LOCK = threading.Lock()


def import_sklearn() -> None:
    """Import all that the explorer's threads use of scikit-learn; returns when it is there."""
    with _LOCK:
        for part in _PARTS:
            importlib.import_module(f"sklearn.{part}")
