"""Encoders of packages that are known from their last load: equal keys, and loaded again where in doubt."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from halp.core.packages import list_shipped
from halp.data.reading import Reading
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder, compacted
from halp.features.cache import feature_key
from halp.features.known import KnownEncoder, SomeEncoder, open_compact
from halp.features.loading import load_encoder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a package, and an empty cache."""
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    shutil.copytree(list_shipped()["halp-base"], tmp_path / "package")
    return tmp_path / "package"


def opened(package: Path, clips: Path) -> SomeEncoder:
    return open_compact(str(package), clips, Reading())[0]


def test_known_encoder_finds_the_same_vectors_and_loads_the_same_encoder(package: Path, store: Store) -> None:
    first, again = opened(package, store.path), opened(package, store.path)
    assert isinstance(first, PretrainedEncoder)
    assert isinstance(again, KnownEncoder)
    keys = {
        feature_key(one, "content") for one in (first, again, again.loaded, compacted(load_encoder(package)))
    }
    assert len(keys) == 1
    assert (again.frames, again.persons) == (first.frames, first.persons)
    assert (again.output_size, again.normalisation) == (first.output_size, first.normalisation)
    assert again.topology == first.topology


@pytest.mark.parametrize("damage", ["package", "facts", "nothing can be kept"])
def test_encoder_is_loaded_again_where_something_changed(
    package: Path, store: Store, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(package, store.path)
    (facts,) = (package.parent / "cache" / "encoders").iterdir()
    if damage == "package":
        os.utime(package / "config.json", (1, 1))
    elif damage == "facts":
        facts.write_text('{"persons": 2}')
    else:
        monkeypatch.setenv("HALP_CACHE", "")
    assert isinstance(opened(package, store.path), PretrainedEncoder)
