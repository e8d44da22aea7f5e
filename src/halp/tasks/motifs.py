"""Motifs: recurring movements with durations, found in window vectors without labels.

A hidden Markov model with Gaussian states and a prior on staying (sticky) is fitted to principal components
of the vectors. It can be saved and applied to new recordings. How far it depends on chance is measured by
other seeds and by halves of the data.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import atomic_path
from halp.core.progress import Bar
from halp.tasks.hmm import HiddenMarkov

Floats = npt.NDArray[np.float64]
COMPONENTS = 12
MOST = 12  # motifs tried if no number is given
SAMPLE = 20_000  # windows that principal axes are computed from
FITTED = 100_000  # windows that are enough to find motifs in
BLOCK = 4096  # vectors read at once
STICKY = 20.0  # prior counts of staying in a motif, of a window each
_FORMAT = 1
_ARRAYS = ("mean", "axes", "means", "variances", "start", "transitions")


@dataclass(frozen=True)
class MotifModel:
    """A fitted model: projection of vectors; means, variances, start and transitions of `K` motifs."""

    mean: Floats
    axes: Floats
    means: Floats
    variances: Floats
    start: Floats
    transitions: Floats
    facts: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.means)

    @property
    def names(self) -> list[str]:
        return motif_names(len(self))

    def probabilities(self, sequences: Sequence[Any]) -> list[Floats]:
        """Probabilities `(T, K)` of motifs for every sequence of vectors `(T, F)`, given all its windows."""
        model = HiddenMarkov(self.means, self.variances, self.start, self.transitions)
        passes = model.passes(_projected(rows, self.mean, self.axes) for rows in sequences if len(rows))
        known = np.concatenate([np.zeros((0, len(self))), *(posterior for _, posterior, *_ in passes)])
        return np.split(known, np.cumsum([len(rows) for rows in sequences])[:-1])

    def motifs(self, sequences: Sequence[Any]) -> list[npt.NDArray[np.int64]]:
        """The likeliest motif of every window."""
        return [rows.argmax(1) for rows in self.probabilities(sequences)]

    def tree(self) -> Floats:
        """Merges `(K − 1, 4)` of similar motifs, as of `scipy.cluster.hierarchy.linkage` (average)."""
        from scipy.cluster.hierarchy import linkage

        scaled = self.means / np.sqrt(self.variances.mean(axis=0))
        return np.asarray(linkage(scaled, "average")) if len(self) > 1 else np.zeros((0, 4))

    def merged(self, count: int) -> npt.NDArray[np.int64]:
        """The group of every motif after merging the most similar ones until `count` are left."""
        from scipy.cluster.hierarchy import fcluster

        if len(self) == 1:
            return np.zeros(1, dtype=np.int64)
        groups = fcluster(self.tree(), count, "maxclust")
        places = {group: number for number, group in enumerate(dict.fromkeys(groups.tolist()))}
        return np.array([places[group] for group in groups.tolist()], dtype=np.int64)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as one `.npz` file without pickles."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        note = json.dumps({"format": _FORMAT, **self.facts})
        try:
            with atomic_path(path) as partial, open(partial, "wb") as file:
                np.savez_compressed(file, facts=np.array(note), **arrays)
        except OSError as error:
            raise InputError(f"'{path}' cannot be written ({error}); choose another path") from error
        return Path(path)


def motif_names(count: int) -> list[str]:
    """Names that sort alphabetically in the order of their numbers."""
    return [f"motif {number + 1:0{len(str(count))}}" for number in range(count)]


def load_motifs(path: str | os.PathLike[str]) -> MotifModel:
    """Load a model that `MotifModel.save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in _ARRAYS}
            facts = json.loads(str(file["facts"]))
        model = MotifModel(**arrays, facts=facts)
        k, d = model.means.shape
        shapes = {
            "mean": (len(model.axes),),
            "axes": (len(model.mean), d),
            "variances": (k, d),
            "start": (k,),
            "transitions": (k, k),
        }
        if any(arrays[name].shape != shape for name, shape in shapes.items()) or not all(
            np.isfinite(array).all() for array in arrays.values()
        ):
            raise ValueError("its arrays do not match")
    except FileNotFoundError:
        raise InputError(f"there is no file '{path}'; `halp motifs --save` writes one") from None
    except (OSError, ValueError, KeyError, EOFError, AttributeError) as error:
        raise InputError(f"'{path}' is not a complete file of motifs; find them again with --save") from error
    return model


def fit_motifs(
    sequences: Sequence[Any],
    count: int | None = None,
    *,
    sticky: float = STICKY,
    seed: int = 0,
    progress: bool = False,
) -> MotifModel:
    """Find motifs in sequences of window vectors `(T, F)`, one per recording or part of it.

    Parameters
    ----------
    count : how many; by default the number up to 12 with the lowest BIC.
    sticky : prior counts of staying; larger means longer bouts.
    """
    total = sum(map(len, sequences))
    if total < 4 or (count is not None and not 1 <= count <= total // 2):
        raise InputError(
            f"{total} windows cannot make {count or 'any'} motifs; use more recordings or shorter strides"
        )
    if not 0 <= sticky < math.inf:
        raise InputError(f"sticky = {sticky:g} cannot be used; 0 leaves durations free, more lengthens them")
    parts = _some_parts(sequences, seed)
    mean, axes = _projection(parts, seed)
    projected = [_projected(part, mean, axes) for part in parts]
    tried = (
        [count] if count is not None else [k for k in (2, 3, 4, 5, 6, 8, 10, MOST) if k <= total // 4] or [1]
    )
    models: dict[int, HiddenMarkov] = {}
    with Bar("finding motifs", len(tried), shown=progress) as bar:
        for k in tried:
            model = _fitted(projected, k, sticky, seed)
            models |= {} if model is None else {k: model}
            bar.advance()
    if not models:
        raise InputError(f"the windows form fewer than {tried[0]} motifs, as one stays empty; ask for fewer")
    bic = {k: model.bic(projected) for k, model in models.items()}
    best = models[min(bic, key=lambda k: bic[k])]
    windows = sum(
        np.bincount(posterior.argmax(1), minlength=len(best.means))
        for _, posterior, *_ in best.passes(projected)
    )
    order = np.argsort(-np.asarray(windows), kind="stable")  # the motif with the most windows comes first
    return MotifModel(
        mean,
        axes,
        best.means[order],
        best.variances[order],
        best.start[order],
        best.transitions[order][:, order],
        {"sticky": sticky, "seed": seed, "bic": {str(k): value for k, value in bic.items()}},
    )


def _some_parts(sequences: Sequence[Any], seed: int) -> list[Any]:
    """Sequences with windows; of many, a random choice of whole ones with enough windows."""
    parts = [part for part in sequences if len(part)]
    if sum(map(len, parts)) <= FITTED:
        return parts
    order = np.random.default_rng(seed).permutation(len(parts))
    enough = int(np.searchsorted(np.cumsum([len(parts[place]) for place in order]), FITTED)) + 1
    return [parts[place] for place in np.sort(order[:enough])]


def _projected(part: Any, mean: Floats, axes: Floats) -> Floats:
    """Vectors `(T, F)` as `(T, D)`, read block by block."""
    blocks = [np.asarray(part[at : at + BLOCK]) for at in range(0, len(part), BLOCK)]
    if any(block.ndim != 2 or block.shape[1] != len(mean) for block in blocks):
        raise InputError(
            f"vectors {(len(part), *blocks[0].shape[1:])} do not fit motifs of {len(mean)} features; use their encoder"
        )
    return np.concatenate([(block - mean) @ axes for block in blocks])


def _projection(parts: Sequence[Any], seed: int) -> tuple[Floats, Floats]:
    """Mean `(F,)` and principal axes `(F, D)` of vectors; of many vectors a sample is enough for both."""
    from scipy.sparse.linalg import svds

    ends = np.cumsum([len(part) for part in parts])
    chosen = np.arange(ends[-1])
    if len(chosen) > SAMPLE:
        chosen = np.sort(np.random.default_rng(seed).choice(len(chosen), SAMPLE, replace=False))
    inside = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    rows = np.concatenate(
        [part[here - end + len(part)] for part, here, end in zip(parts, inside, ends) if len(here)]
    )
    mean = rows.mean(axis=0, dtype=np.float64)
    centred = rows - mean
    if min(centred.shape) > 4 * COMPONENTS:
        # a few axes of many: steps are short, so that one can interrupt them
        start = np.random.default_rng(seed).normal(size=min(centred.shape))
        _, size, axes = svds(centred, k=COMPONENTS, v0=start)
        size, axes = size[::-1], axes[::-1]
    else:
        _, size, axes = np.linalg.svd(centred, full_matrices=False)
    known = int((size > 1e-9 * max(size[0], 1e-300)).sum())
    return mean, np.ascontiguousarray(axes[: max(1, min(COMPONENTS, known, len(rows) - 1))].T)


def _fitted(parts: Sequence[Floats], count: int, sticky: float, seed: int) -> HiddenMarkov | None:
    """A fitted model whose states start at groups found by k-means; None if a state ran empty."""
    from sklearn.cluster import KMeans

    rows = np.concatenate(parts)
    groups = KMeans(count, n_init=5, random_state=seed).fit(rows)
    inside = ((rows - groups.cluster_centers_[groups.labels_]) ** 2).mean(axis=0)
    variances = np.tile(np.maximum(inside, 1e-6 * max(float(rows.var()), 1e-9)), (count, 1))
    change = np.full((count, count), 0.1 / count) + 0.9 * np.eye(count)
    model = HiddenMarkov(groups.cluster_centers_, variances, np.full(count, 1 / count), change)
    with np.errstate(all="ignore"):
        model = model.fitted(parts, sticky, max(1e-2 * float(rows.var(axis=0).mean()), 1e-9))
    whole = (model.means, model.variances, model.start, model.transitions)
    return model if all(np.isfinite(values).all() for values in whole) else None


def stability(
    sequences: Sequence[Any],
    count: int,
    *,
    sticky: float = STICKY,
    seeds: int = 3,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, float | None]:
    """Adjusted Rand index (1: same motifs, 0: chance) of models of other seeds and of two halves.

    Halves are every other recording, or the first and second half of time if there is one; both models are
    applied to all.
    """
    parts = [part for part in sequences if len(part)]
    bar = Bar("other seeds and halves", seeds + 2, shown=progress)

    def labels(fitted_on: Sequence[Any], number: int) -> npt.NDArray[np.int64]:
        found = np.concatenate(fit_motifs(fitted_on, count, sticky=sticky, seed=number).motifs(parts))
        bar.advance()
        return found

    with bar:
        return _agreements(parts, labels, count, seeds, seed)


def _agreements(
    parts: Sequence[Any],
    labels: Callable[[Sequence[Any], int], npt.NDArray[np.int64]],
    count: int,
    seeds: int,
    seed: int,
) -> dict[str, float | None]:
    from sklearn.metrics import adjusted_rand_score

    answers = [labels(parts, seed + number) for number in range(seeds)]
    pairs = [float(adjusted_rand_score(one, other)) for one, other in combinations(answers, 2)]
    halves = (
        [parts[::2], parts[1::2]]
        if len(parts) > 1
        else [[parts[0][: len(parts[0]) // 2]], [parts[0][len(parts[0]) // 2 :]]]
    )
    both = None
    if all(sum(map(len, half)) >= 2 * count for half in halves):
        both = float(adjusted_rand_score(*(labels(half, seed) for half in halves)))
    return {"seeds": float(np.mean(pairs)) if pairs else None, "halves": both}
