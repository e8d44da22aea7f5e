"""The cache of features: what its key sees, and files that are damaged, of another shape, or cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import halp.evaluation.feature_cache as feature_cache
from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.evaluation import ProtocolContext
from halp.evaluation.feature_cache import FeatureCache, feature_key
from halp.evaluation.features import embed


class Convolutional(nn.Module):
    """A small network over frames whose weights say nothing about its dilation, stride or padding."""

    def __init__(self, width: int, **options: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.output_size = 4
        self.layer = nn.Conv2d(1, 4, (3, width), **options)  # type: ignore[arg-type]

    def forward(self, clips: Tensor) -> Tensor:
        return self.layer(clips.flatten(2)[:, None]).mean((2, 3))


def convolutional(store: Store, **options: object) -> PackagedEncoder:
    width = store.persons * len(store.topology) * store.topology.dimensions
    network = Convolutional(width, **options)
    return PackagedEncoder(
        network, store.topology, persons=store.persons, frames=12, normalisation=store.normalisation
    ).eval()


@pytest.mark.parametrize("option", [{"dilation": (2, 1)}, {"stride": (2, 1)}, {"padding": (1, 0)}])
def test_the_key_sees_settings_that_are_tuples(store: Store, option: dict[str, object]) -> None:
    plain, other = convolutional(store), convolutional(store, **option)
    assert not np.allclose(embed(plain, store, progress=False), embed(other, store, progress=False))
    assert feature_key(plain, store, "centre") != feature_key(other, store, "centre")
    assert feature_key(plain, store, "centre") == feature_key(convolutional(store), store, "centre")


def test_the_key_sees_the_version_of_the_library(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = feature_key(convolutional(store), store, "centre")
    monkeypatch.setattr(feature_cache, "__version__", "0.0.1")
    assert feature_key(convolutional(store), store, "centre") != before


@pytest.mark.parametrize("wrong", ["shape", "kind", "text", "nothing"])
def test_a_file_that_holds_something_else_is_computed_anew(store: Store, tmp_path: Path, wrong: str) -> None:
    context = ProtocolContext(convolutional(store), store, "xsub", *store.split("xsub"), cache=FeatureCache(tmp_path))
    features = np.array(context.features)
    (path,) = tmp_path.glob("*.npy")
    if wrong in ("shape", "kind"):
        np.save(path, features[:-1] if wrong == "shape" else features.astype(np.float64))
    else:
        path.write_text(json.dumps("features") if wrong == "text" else "")
    cache = FeatureCache(tmp_path)
    again = ProtocolContext(context.encoder, store, "xsub", context.train, context.test, cache=cache)
    np.testing.assert_array_equal(again.features, features)
    assert cache.hits == 0
    np.testing.assert_array_equal(np.load(path), features)


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_cache(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "features").write_text("in the way")
    cache = FeatureCache(tmp_path / "features")
    context = ProtocolContext(convolutional(store), store, "xsub", *store.split("xsub"), cache=cache, progress=False)
    np.testing.assert_array_equal(context.features, embed(context.encoder, store, progress=False))
    assert "cannot be kept" in capsys.readouterr().err
    assert cache.folder is None
