"""What the tests of `halp.tasks` share."""

from __future__ import annotations

from pathlib import Path

import pytest
from use_samples import fresh_encoder

from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.tasks.export import export


@pytest.fixture(scope="session")
def encoder(store: Store) -> PretrainedEncoder:
    return fresh_encoder(store)


@pytest.fixture(scope="session")
def package(encoder: PretrainedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder as a folder."""
    return export(encoder, tmp_path_factory.mktemp("packages") / "small")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kept vectors of a test are its own."""
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
