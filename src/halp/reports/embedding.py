"""The map of an embedding: feature vectors laid out on a plane for `figures.scatter`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halp.errors import InputError, choose

_PRINCIPAL = 50


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
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

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
