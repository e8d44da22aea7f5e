"""Cluster permutation test of curves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.tasks.pose_tracks import Floats

FEWEST = 2  # people or cycles of a side for a test


def cluster_permutation(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    paired: bool = False,
    threshold: float = 0.05,
    resamples: int = 9999,
    seed: int = 0,
) -> dict[str, Any]:
    """Moments at which two sets of curves `(n, T)` and `(m, T)` differ, with p-values for the whole curve.

    A moment is a candidate where the two-sided t-test has p < `threshold`; neighbouring candidates of one
    sign are a cluster, whose mass is the sum of |t|. Its p-value is the share of permutations whose largest
    mass is at least as large. Rows are exchanged between the sets, or, where `paired`, signs of the
    differences are flipped. All permutations are tried where they are no more than `resamples`.
    """
    from scipy.stats import t as student

    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if (
        one.ndim != 2
        or other.ndim != 2
        or one.shape[1] != other.shape[1]
        or (paired and len(one) != len(other))
    ):
        raise InputError(f"curves of shapes {one.shape} and {other.shape} cannot be compared")
    if min(len(one), len(other)) < FEWEST:
        raise InputError(f"a test needs {FEWEST} or more curves in each set, not {len(one)} and {len(other)}")
    freedom = len(one) - 1 if paired else len(one) + len(other) - 2
    limit = float(student.ppf(1 - threshold / 2, freedom))
    if paired:
        statistic, orders, exact = _flips(one - other, resamples, seed)
    else:
        statistic, orders, exact = _exchanges(np.concatenate([one, other]), len(one), resamples, seed)
    observed = statistic(np.ones(len(one)) if paired else np.arange(len(one)))
    clusters = _clusters(observed, limit)
    largest = np.array(
        [max((mass for *_, mass in _clusters(statistic(order), limit)), default=0.0) for order in orders]
    )
    rows = []
    for start, stop, mass in clusters:
        reached = int((largest >= mass * (1 - 1e-9)).sum())
        p = reached / len(largest) if exact else (1 + reached) / (1 + len(largest))
        rows.append(
            {"start": start, "stop": stop - 1, "mass": mass, "sign": int(np.sign(observed[start])), "p": p}
        )
    return {
        "test": "cluster permutation, " + ("paired" if paired else "two groups"),
        "t": observed.tolist(),
        "threshold": limit,
        "permutations": len(largest),
        "exact": exact,
        "clusters": rows,
        "p": min((row["p"] for row in rows), default=1.0),
    }


def _flips(differences: Floats, resamples: int, seed: int) -> tuple[Any, Iterator[npt.NDArray[Any]], bool]:
    """t of differences with signs `(n,)`, and all signs or random ones."""
    count = len(differences)

    def statistic(signs: npt.NDArray[Any]) -> Floats:
        rows = differences * signs[:, None]
        return _ratio(rows.mean(0), rows.std(0, ddof=1) / np.sqrt(count))

    if 2**count <= resamples:
        return statistic, (np.array(signs) for signs in product((1.0, -1.0), repeat=count)), True
    rng = np.random.default_rng(seed)
    return statistic, (rng.choice([-1.0, 1.0], count) for _ in range(resamples)), False


def _exchanges(
    rows: Floats, first: int, resamples: int, seed: int
) -> tuple[Any, Iterator[npt.NDArray[Any]], bool]:
    """t of two groups for each choice of the rows `(first,)` of the first: all choices or random ones."""
    count = len(rows)
    total, squares = rows.sum(0), (rows**2).sum(0)

    def statistic(chosen: npt.NDArray[Any]) -> Floats:
        part = rows[chosen]
        means = part.mean(0), (total - part.sum(0)) / (count - first)
        inner = squares - first * means[0] ** 2 - (count - first) * means[1] ** 2
        error = np.sqrt(np.maximum(inner, 0) / (count - 2) * (1 / first + 1 / (count - first)))
        return _ratio(means[0] - means[1], error)

    if comb(count, first) <= resamples:
        return statistic, (np.array(chosen) for chosen in combinations(range(count), first)), True
    rng = np.random.default_rng(seed)
    return statistic, (rng.permutation(count)[:first] for _ in range(resamples)), False


def _ratio(difference: Floats, error: Floats) -> Floats:
    """t; zero if nothing varies or differs, very large if something differs without varying."""
    return difference / np.maximum(error, 1e-9 * np.maximum(np.abs(difference), 1e-9))


def _clusters(t: Floats, limit: float) -> list[tuple[int, int, float]]:
    """Runs of one sign beyond the limit: first moment, the one after the last, and the sum of |t|."""
    sign = np.where(np.abs(t) > limit, np.sign(t), 0).astype(int)
    edges = [0, *(np.flatnonzero(np.diff(sign)) + 1).tolist(), len(t)]
    return [(a, b, float(np.abs(t[a:b]).sum())) for a, b in pairwise(edges) if sign[a]]
