"""Fixtures that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

# idle threads that spin would slow everything else on a small machine; this has to be said before torch is loaded
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest

from halp.clips.store import Store
from halp.clips.synthetic import make_synthetic_store

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and reference outputs, where there is one."""
    folder = Path(os.environ.get("HALP_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"real data is not at '{folder}'; say where with HALP_SHARED")
    return folder


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A few synthetic clips, normalised as the authors do."""
    return make_synthetic_store(tmp_path_factory.mktemp("stores") / "synthetic", count=192, subjects=6)


TINY = (
    "epochs=3",
    "batch_size=16",
    "views.frames=12",
    "encoder.hidden=8",
    "encoder.layers=1",
    "contrast.queue=32",
    "contrast.dimension=16",
    "halp.start_epoch=1",
    "halp.prototypes=4",
    "halp.count=6",
    "halp.recent=32",
    "saving.every=1",
    "saving.watch=1",
)


@pytest.fixture(scope="session")
def tiny() -> tuple[str, ...]:
    """Overrides that make any recipe run in a moment."""
    return TINY
