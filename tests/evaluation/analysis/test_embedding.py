"""Embedding maps keep what is together together, and are the same every time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halp.core.errors import InputError
from halp.evaluation.analysis.embedding import embedding_map


@pytest.mark.parametrize("method", ["pca", "tsne", pytest.param("umap", marks=pytest.mark.slow)])
def test_clusters_stay_apart_on_the_map(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if method == "umap":
        monkeypatch.setenv("NUMBA_OPT", "0")  # its compiler takes most of the time
        pytest.importorskip("umap", reason="this map needs the extra halp-motion[umap]")
    g = np.random.default_rng(0)
    vectors = np.concatenate([g.normal(0, 0.1, (20, 8)), g.normal(3, 0.1, (20, 8))])
    threads = torch.get_num_threads()
    places = embedding_map(vectors, method=method)
    assert (
        torch.get_num_threads() == threads
    )  # else a training of the same process would be rounded differently
    apart = np.linalg.norm(places[:20].mean(axis=0) - places[20:].mean(axis=0))
    assert apart > 2 * places[:20].std(axis=0).max()
    np.testing.assert_array_equal(places, embedding_map(vectors, method=method))


@pytest.mark.parametrize("shape", [(0, 4), (1, 4), (2, 1), (5, 3), (12, 1)])
def test_few_or_narrow_vectors_have_a_map(shape: tuple[int, int]) -> None:
    places = embedding_map(np.random.default_rng(0).normal(size=shape))
    assert places.shape == (shape[0], 2)
    assert np.isfinite(places).all()


def test_equal_vectors_fall_on_one_place() -> None:
    assert not embedding_map(np.ones((10, 4))).any()


def test_wrong_vectors_and_methods_are_refused() -> None:
    with pytest.raises(InputError, match="vector 1 has a value that is not finite"):
        embedding_map([[0.0, 1.0], [np.nan, 1.0]])
    with pytest.raises(InputError, match="shape"):
        embedding_map(np.zeros(3))
    with pytest.raises(InputError, match="did you mean 'tsne'"):
        embedding_map(np.zeros((3, 2)), method="tnse")
