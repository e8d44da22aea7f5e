"""What an encoder sees: its features of test clips laid out on a plane, and the training clips nearest to some of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halp.clips.splits import Indices
from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError, choose
from halp.evaluation.features import embed
from halp.evaluation.protocols.knn import neighbours

_PRINCIPAL = 50


@dataclass(frozen=True)
class EmbeddedSplit:
    """Test clips on a plane, and the nearest training clips of one test clip per class."""

    clips: Indices  # (N,) test clips on the map
    places: npt.NDArray[np.float64]  # (N, 2)
    queries: Indices  # (Q,) test clips
    neighbours: Indices  # (Q, k) training clips, nearest first
    similarity: npt.NDArray[np.float32]  # (Q, k) cosine


def embed_split(
    encoder: PackagedEncoder, store: Store, split: str, *, most: int = 900, queries: int = 12, k: int = 3
) -> EmbeddedSplit:
    """Embed a store and map at most `most` of the test clips of a split, with the k nearest training clips of `queries`."""
    features = embed(encoder, store, progress=False)
    train, test = store.split(split)
    shown = np.sort(np.random.default_rng(0).permutation(test)[:most])
    _, first = np.unique(store.labels[test], return_index=True)
    asked = test[first][:queries]
    nearest, similarity = neighbours(features[train], features[asked], k=min(k, len(train)))
    return EmbeddedSplit(shown, embedding_map(features[shown]), asked, train[nearest], similarity)


def embedding_map(vectors: npt.ArrayLike, *, method: str = "tsne", seed: int = 0) -> npt.NDArray[np.float64]:
    """Vectors `(N, F)` → places `(N, 2)` by t-SNE (`"tsne"`, neighbourhoods) or principal components (`"pca"`, distances).

    The same vectors and seed give the same map. Fewer than six vectors have no neighbourhoods and are laid out by `"pca"`.
    """
    choose("embedding map", method, ("pca", "tsne"))
    x = np.asarray(vectors, dtype=np.float64)
    if x.ndim != 2:
        raise InputError(f"an embedding map needs vectors (N, F), not an array of shape {x.shape}")
    if not np.isfinite(x).all():
        raise InputError(f"vector {np.argwhere(~np.isfinite(x))[0][0]} has a value that is not finite; leave it out")
    if not x.size:
        return np.zeros((len(x), 2))
    principal = _principal(x)
    if method == "pca" or len(x) < 6:
        return np.pad(principal[:, :2], ((0, 0), (0, max(0, 2 - principal.shape[1]))))

    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(30.0, (len(x) - 1) / 3)
    flat = principal[:, :_PRINCIPAL]
    if not flat.any():
        return np.zeros((len(x), 2))
    init = np.pad(flat[:, :2], ((0, 0), (0, max(0, 2 - flat.shape[1])))) / flat[:, 0].std() * 1e-4
    tsne = TSNE(
        2, perplexity=perplexity, init=init.astype(np.float32), random_state=seed, learning_rate="auto", n_jobs=1
    )
    # One thread: sums over several are rounded differently from one number of cores to another.
    with threadpool_limits(1):
        return np.asarray(tsne.fit_transform(flat), dtype=np.float64)


def _principal(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Coordinates along the principal axes, largest variance first; the largest loading of each axis is positive."""
    centred = x - x.mean(axis=0)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(np.take_along_axis(right, np.abs(right).argmax(axis=1)[:, None], axis=1))[:, 0]
    return left * sizes * np.where(signs == 0, 1.0, signs)
