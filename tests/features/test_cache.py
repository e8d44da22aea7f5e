"""The cache of features: what its key sees, and files that are damaged, of another shape, or cannot be
written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import halp.features.cache as feature_cache
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import ProtocolContext
from halp.features.cache import FeatureCache, feature_key
from halp.features.embed import embed


class Convolutional(nn.Module):
    """A small network over frames whose weights say nothing about its dilation, stride or padding."""

    def __init__(self, width: int, **options: object) -> None:
        super().__init__()
        self.output_size = 4
        self.layer = nn.Conv2d(1, 4, (3, width), **options)  # type: ignore[arg-type]
        # drawn from a generator of its own: another thread of this process may draw from the global one
        generator = torch.Generator().manual_seed(0)
        for parameter in self.layer.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1, generator=generator)

    def forward(self, clips: Tensor) -> Tensor:
        return self.layer(clips.flatten(2)[:, None]).mean((2, 3))


def convolutional(store: Store, **options: object) -> PretrainedEncoder:
    width = store.persons * len(store.topology) * store.topology.dimensions
    network = Convolutional(width, **options)
    return PretrainedEncoder(
        network, store.topology, persons=store.persons, frames=12, normalisation=store.normalisation
    ).eval()


@pytest.mark.parametrize("option", [{"dilation": (2, 1)}, {"stride": (2, 1)}, {"padding": (1, 0)}])
def test_the_key_sees_settings_that_are_tuples(store: Store, option: dict[str, object]) -> None:
    plain, other = convolutional(store), convolutional(store, **option)
    assert not np.allclose(embed(plain, store, progress=False), embed(other, store, progress=False))
    assert feature_key(plain, store.hash, "centre") != feature_key(other, store.hash, "centre")
    assert feature_key(plain, store.hash, "centre") == feature_key(convolutional(store), store.hash, "centre")


def test_the_key_sees_the_version_of_the_library(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = feature_key(convolutional(store), store.hash, "centre")
    monkeypatch.setattr(feature_cache, "__version__", "0.0.1")
    assert feature_key(convolutional(store), store.hash, "centre") != before


def _noise(path: Path) -> None:
    features = np.load(path)
    with open(path, "r+b") as file:
        file.seek(-features.nbytes, 2)
        file.write(np.random.default_rng(0).normal(size=features.shape).astype(np.float32).tobytes())


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "noise": lambda entry: _noise(entry / "vectors.npy"),
    "not a number": lambda entry: np.save(entry / "vectors.npy", np.full((192, 4), np.nan, np.float32)),
    "other width": lambda entry: np.save(entry / "vectors.npy", np.zeros((192, 3), np.float32)),
    "reversed": lambda entry: np.save(entry / "vectors.npy", np.load(entry / "vectors.npy")[::-1]),
    "text": lambda entry: (entry / "vectors.npy").write_text("features"),
    "nothing": lambda entry: (entry / "vectors.npy").write_text(""),
    "no vectors": lambda entry: (entry / "vectors.npy").unlink(),
    "no facts": lambda entry: (entry / "entry.json").unlink(),
    "odd facts": lambda entry: (entry / "entry.json").write_text('{"sha256": []}'),
    "a pipe": lambda entry: _fifo(entry / "vectors.npy"),
    "a pipe of facts": lambda entry: _fifo(entry / "entry.json"),
    "a file": lambda entry: (shutil.rmtree(entry), entry.write_text("")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_recomputed_with_a_warning(store: Store, tmp_path: Path, damage: str) -> None:
    context = ProtocolContext(
        convolutional(store), store, "xsub", *store.split("xsub"), cache=FeatureCache(tmp_path)
    )
    features = np.array(context.features)
    (entry,) = tmp_path.iterdir()
    DAMAGE[damage](entry)
    cache = FeatureCache(tmp_path)
    again = ProtocolContext(context.encoder, store, "xsub", context.train, context.test, cache=cache)
    with pytest.warns(UserWarning, match="damaged"):
        np.testing.assert_array_equal(again.features, features)
    assert cache.hits == 0
    np.testing.assert_array_equal(np.load(entry / "vectors.npy"), features)


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_cache(store: Store, tmp_path: Path) -> None:
    (tmp_path / "features").write_text("in the way")
    cache = FeatureCache(tmp_path / "features")
    context = ProtocolContext(
        convolutional(store), store, "xsub", *store.split("xsub"), cache=cache, progress=False
    )
    with pytest.warns(UserWarning, match="cannot be cached"):
        features = context.features
    np.testing.assert_array_equal(features, embed(context.encoder, store, progress=False))
    assert cache.folder is None
