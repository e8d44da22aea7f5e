"""What an encoder sees: features of test clips on a plane, and their nearest training clips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice, missing_extra
from halp.data.splits import Indices
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation.protocols.knn import neighbours
from halp.features.embed import embed

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
    encoder: PretrainedEncoder, store: Store, split: str, *, most: int = 900, queries: int = 12, k: int = 3
) -> EmbeddedSplit:
    """Embed a store; map at most `most` test clips, with the k nearest training clips of `queries`."""
    features = embed(encoder, store, progress=False)
    train, test = store.split(split)
    shown = np.sort(np.random.default_rng(0).permutation(test)[:most])
    _, first = np.unique(store.labels[test], return_index=True)
    asked = test[first][:queries]
    nearest, similarity = neighbours(features[train], features[asked], k=min(k, len(train)))
    return EmbeddedSplit(shown, embedding_map(features[shown]), asked, train[nearest], similarity)


def embedding_map(vectors: npt.ArrayLike, *, method: str = "tsne", seed: int = 0) -> npt.NDArray[np.float64]:
    """Vectors `(N, F)` → positions `(N, 2)` by principal components (`"pca"`), `"tsne"` or `"umap"`.

    The same vectors and seed give the same map. Fewer than six vectors have no neighbourhoods and are laid
    out by `"pca"`.
    `"umap"` needs the package umap-learn.
    """
    check_choice("embedding map", method, ("pca", "tsne", "umap"))
    x = np.asarray(vectors, dtype=np.float64)
    if x.ndim != 2:
        raise InputError(f"an embedding map needs vectors (N, F), not an array of shape {x.shape}")
    if not np.isfinite(x).all():
        raise InputError(f"vector {np.argwhere(~np.isfinite(x))[0][0]} has a value that is not finite")
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
    if method == "umap":
        return _umap(flat, init * 1e5, seed)
    tsne = TSNE(
        2,
        perplexity=perplexity,
        init=init.astype(np.float32),
        random_state=seed,
        learning_rate="auto",
        n_jobs=1,
    )
    # One thread: sums over several are rounded differently from one number of cores to another.
    with threadpool_limits(1):
        return np.asarray(tsne.fit_transform(flat), dtype=np.float64)


def _umap(
    vectors: npt.NDArray[np.float64], init: npt.NDArray[np.float64], seed: int
) -> npt.NDArray[np.float64]:
    """UMAP from a given start, on one thread."""
    import torch

    threads = torch.get_num_threads()
    try:
        from umap import UMAP

        # starting from principal components spares the spectral start, which fails on separate groups
        umap = UMAP(n_neighbors=min(15, len(vectors) - 1), init=init, random_state=seed, n_jobs=1)
        return np.asarray(umap.fit_transform(vectors), dtype=np.float64)
    except ImportError as error:
        raise missing_extra(f"this map needs {error.name}", "umap") from error
    finally:
        # numba sets it to all cores, and sums would be rounded differently from then on
        torch.set_num_threads(threads)


def principal_places(
    vectors: npt.NDArray[np.float32], count: int, *, sample: int = 2_000, seed: int = 0
) -> npt.NDArray[np.float32]:
    """The first `count` principal components `(N, ≤ count)` of vectors `(N, F)`, read block by block.

    The axes are those of a sample if there are more rows than `sample`.
    """
    from scipy.linalg import eigh

    rows = np.arange(len(vectors))
    if len(rows) > sample:
        rows = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:sample])
    x = np.asarray(vectors[rows], dtype=np.float32)
    mean = x.mean(axis=0)
    # the smaller side is decomposed, its largest values alone: X^T X = V S² V^T, or X X^T = U S² U^T with
    # axes X^T U / S
    wide = x.shape[1] > len(x)
    square = (x - mean) @ (x - mean).T if wide else (x - mean).T @ (x - mean)
    values, sides = eigh(square, subset_by_index=(max(0, len(square) - count), len(square) - 1))
    largest = np.argsort(-values)
    largest = largest[values[largest] > 1e-7 * max(float(values.max()), 1e-30)]
    axes = (x - mean).T @ sides[:, largest] / np.sqrt(values[largest]) if wide else sides[:, largest]
    axes *= np.where(np.take_along_axis(axes, np.abs(axes).argmax(0)[None], 0) < 0, -1.0, 1.0)
    if not axes.shape[1]:
        return np.zeros((len(vectors), 2), dtype=np.float32)
    blocks = [
        (np.asarray(vectors[i : i + 8192], dtype=np.float32) - mean) @ axes
        for i in range(0, len(vectors), 8192)
    ]
    return np.concatenate(blocks).astype(np.float32)


def _principal(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Coordinates along the principal axes, largest variance first; the largest loading is positive."""
    centred = x - x.mean(axis=0)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(np.take_along_axis(right, np.abs(right).argmax(axis=1)[:, None], axis=1))[:, 0]
    return left * sizes * np.where(signs == 0, 1.0, signs)
