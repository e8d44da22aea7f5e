"""Loop-by-loop references in plain NumPy float64, written from the paper's equations; tests compare the
library with them.

Nothing here imports `halp`, nothing is clever, and every function names the equation that it spells out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def normalise(x: Vector) -> Vector:
    """proj(z') = z' / ‖z'‖ of Eq. 3."""
    return np.asarray(x, dtype=np.float64) / math.sqrt(float(np.dot(x, x)))


def angle_between(x: Vector, y: Vector) -> float:
    """Ω ∈ [0, π] with cos Ω = xᵀy."""
    return math.acos(min(1.0, max(-1.0, float(np.dot(x, y)))))


def infonce(queries: Matrix, keys: Matrix, queue: Matrix, temperature: float) -> float:
    """Eq. 1, L_CL, averaged over the batch."""
    losses = []
    for z_q, z_k in zip(queries, keys):
        positive = math.exp(float(np.dot(z_q, z_k)) / temperature)
        negatives = 0.0
        for z_queue in queue:
            negatives += math.exp(float(np.dot(z_q, z_queue)) / temperature)
        losses.append(-math.log(positive / (positive + negatives)))
    return sum(losses) / len(losses)


def slerp(z: Vector, p: Vector, t: float | Vector) -> NDArray[np.float64]:
    """Eq. 4 added to z: sin((1 − t)Ω)/sin Ω · z + sin(tΩ)/sin Ω · p, for vectors that are neither equal nor
    opposite.

    A vector of steps `(S,)` gives one point each, `(S, D)`.
    """
    omega = angle_between(z, p)
    return (
        np.multiply.outer(np.sin((1 - t) * omega), z) + np.multiply.outer(np.sin(t * omega), p)
    ) / math.sin(omega)


def closest_prototype(z: Vector, prototypes: Matrix) -> int:
    """Index of P*: the prototype with the largest similarity to z (Eq. 2)."""
    best, index = -math.inf, -1
    for j, p in enumerate(prototypes):
        if float(np.dot(z, p)) > best:
            best, index = float(np.dot(z, p)), j
    return index


def admissible(z: Vector, closest: Vector, rivals: Sequence[Vector], slack: float = 0.0) -> bool:
    """The constraint of Eq. 2, 5 and 6: sim(z, P*) ≥ sim(z, P) for every rival P."""
    return all(float(np.dot(z, closest)) >= float(np.dot(z, rival)) - slack for rival in rivals)


def furthest_step(
    z: Vector, closest: Vector, target: Vector, rivals: Sequence[Vector], points: int = 1000
) -> float:
    """Largest t of the first admissible stretch [0, t] of the geodesic: a dense search, then bisection; 0 if
    none.
    """
    steps = np.linspace(0, 1, points + 1)
    path = slerp(z, target, steps)
    allowed = np.ones(len(steps), dtype=bool)
    for rival in rivals:
        allowed &= path @ closest >= path @ rival
    if not allowed[0]:
        return 0.0
    if allowed.all():
        return 1.0
    first_refused = int(np.argmin(allowed))
    low, high = float(steps[first_refused - 1]), float(steps[first_refused])
    for _ in range(40):
        middle = (low + high) / 2
        if admissible(slerp(z, target, middle), closest, rivals):
            low = middle
        else:
            high = middle
    return low


def kappa(z: Vector, closest: Vector, target: Vector) -> float:
    """κ of Eq. 7."""
    return (1 - float(np.dot(target, closest))) / float(np.dot(z, closest - target))


def closed_form_step(z: Vector, closest: Vector, target: Vector) -> float:
    """t* of Eq. 7 as printed, with the plain arctan: right where κ + cos Ω > 0."""
    omega = angle_between(z, target)
    return math.atan(math.sin(omega) / (kappa(z, closest, target) + math.cos(omega))) / omega


def step_of_paper(limit: float, uniform: float, hardness: float) -> float:
    """t_c ~ uniform(0, λ t*), from one uniform number in [0, 1)."""
    return hardness * limit * uniform


def step_of_authors(limit: float, uniform: float, hardness: float) -> float:
    """The authors' code: t = (1 − u) t* with u ~ uniform(0, λ)."""
    return (1 - hardness * uniform) * limit


def passes_rank_filter(positive: Vector, anchor: Vector, prototypes: Matrix, slack: float = 0.0) -> bool:
    """Eq. 2: the closest prototype of the anchor is closest to the positive too."""
    own = closest_prototype(anchor, prototypes)
    rivals = [p for j, p in enumerate(prototypes) if j != own]
    return admissible(positive, prototypes[own], rivals, slack)


def passes_variant_1(positive: Vector, query: Vector, key: Vector, slack: float = 0.0) -> bool:
    """Supplement: z_qᵀ z_H ≥ z_qᵀ z_k."""
    return float(np.dot(query, positive)) >= float(np.dot(query, key)) - slack


def passes_variant_2(positive: Vector, anchor: Vector, target: Vector, slack: float = 0.0) -> bool:
    """Supplement: z_kᵀ z_H ≥ P_selᵀ z_k, with z_k the anchor of the walk."""
    return float(np.dot(anchor, positive)) >= float(np.dot(target, anchor)) - slack


def hallucinate(
    query: Vector,
    key: Vector,
    prototypes: Matrix,
    draws: Sequence[tuple[int, float]],
    *,
    hardness: float,
    step: str,
    positive_filter: str,
    anchor: str,
    direction: str,
    slack: float = 1e-9,
) -> tuple[Matrix, NDArray[np.bool_]]:
    """All positives of one key and which are kept, from `draws`: which of the other prototypes, and a uniform
    number.
    """
    z = query if anchor == "query" else key
    own = closest_prototype(z, prototypes)
    others = [j for j in range(len(prototypes)) if j != own]
    rivals = [prototypes[j] for j in others]
    positives, kept = [], []
    for choice, uniform in draws:
        if direction == "query":
            target = key if anchor == "query" else query
            limit = 1.0
        else:
            target = prototypes[others[choice]]
            limit = furthest_step(z, prototypes[own], target, [target])
        if step == "paper":
            t = step_of_paper(limit, uniform, hardness)
        elif step == "authors":
            t = step_of_authors(limit, uniform, hardness)
        elif step == "ranked":
            t = step_of_paper(
                min(limit, furthest_step(z, prototypes[own], target, rivals)), uniform, hardness
            )
        else:
            t = limit
        positive = normalise(slerp(z, target, t))
        positives.append(positive)
        kept.append(
            {
                "rank": passes_rank_filter(positive, z, prototypes, slack),
                "variant-1": passes_variant_1(positive, query, key, slack),
                "variant-2": passes_variant_2(positive, z, target, slack),
                "none": True,
            }[positive_filter]
        )
    return np.stack(positives), np.array(kept)


def halp_loss(
    queries: Matrix,
    positives: NDArray[np.float64],
    kept: NDArray[np.bool_],
    temperature: float,
    reduction: str,
) -> tuple[float, Matrix]:
    """Eq. 8 and its gradient with respect to the queries.

    `positives`: the mean over all kept positives of the batch; `anchors`: the mean over the anchors that kept
    any of each one's own mean. Nothing kept: zero.
    """
    weight = np.zeros(kept.shape)
    anchors_with_any = sum(bool(row.any()) for row in kept)
    for b in range(len(queries)):
        for g in range(kept.shape[1]):
            if kept[b, g]:
                weight[b, g] = (
                    1 / kept.sum() if reduction == "positives" else 1 / (anchors_with_any * kept[b].sum())
                )
    loss, gradient = 0.0, np.zeros(queries.shape)
    for b, z_q in enumerate(queries):
        for g in range(kept.shape[1]):
            loss -= weight[b, g] * float(np.dot(z_q, positives[b, g])) / temperature
            gradient[b] -= weight[b, g] * positives[b, g] / temperature
    return loss, gradient


def log_map(base: Vector, point: Vector) -> Vector:
    """Tangent vector at `base` towards `point`, as long as their angle."""
    omega = angle_between(base, point)
    if omega < 1e-12:
        return np.zeros_like(base)
    return omega / math.sin(omega) * (point - math.cos(omega) * base)


def exp_map(base: Vector, tangent: Vector) -> Vector:
    """Where the geodesic from `base` with initial velocity `tangent` is at time one."""
    length = math.sqrt(float(np.dot(tangent, tangent)))
    return base if length == 0 else math.cos(length) * base + math.sin(length) * tangent / length


def karcher_mean(points: Sequence[Vector], tolerance: float = 1e-9, iterations: int = 200) -> Vector:
    """Point with the least sum of squared angles, by Riemannian gradient descent with step size one."""
    mean = normalise(sum(points, np.zeros_like(points[0])))
    for _ in range(iterations):
        step = sum((log_map(mean, p) for p in points), np.zeros_like(mean)) / len(points)
        mean = exp_map(mean, step)
        if math.sqrt(float(np.dot(step, step))) < tolerance:
            break
    return mean


def inertia(points: Matrix, centres: Matrix) -> float:
    """Sum of squared angles to the nearest centre: what Riemannian k-means makes small."""
    return sum(min(angle_between(p, c) for c in centres) ** 2 for p in points)


def kmeans(
    points: Matrix, k: int, random: np.random.Generator, tolerance: float = 1e-3, iterations: int = 100
) -> Matrix:
    """Textbook Riemannian k-means: k-means++ start, assign by angle, full Karcher mean of every cluster,
    until still.
    """
    centres = [points[random.integers(len(points))]]
    while len(centres) < k:
        weight = np.array([min(angle_between(p, c) for c in centres) ** 2 for p in points])
        centres.append(points[random.choice(len(points), p=weight / weight.sum())])
    for _ in range(iterations):
        clusters: list[list[Vector]] = [[] for _ in range(k)]
        for p in points:
            clusters[int(np.argmin([angle_between(p, c) for c in centres]))].append(p)
        moved = [
            karcher_mean(members, tolerance=1e-6) if members else points[random.integers(len(points))]
            for members in clusters
        ]
        furthest = max(angle_between(old, new) for old, new in zip(centres, moved))
        centres = moved
        if furthest < tolerance:
            break
    return np.stack(centres)


def vicreg(first: Matrix, second: Matrix, invariance: float, variance: float, covariance: float) -> float:
    """VICReg with the reductions of UmURL: MSE over all entries, and for each view the hinge on √(var + 1e-4)
    and cov² / D.
    """
    rows, columns = first.shape
    loss = 0.0
    for b in range(rows):
        for d in range(columns):
            loss += invariance * (first[b, d] - second[b, d]) ** 2 / (rows * columns)
    for view in (first, second):
        means = [sum(view[b, d] for b in range(rows)) / rows for d in range(columns)]
        for i in range(columns):
            for j in range(columns):
                cov = sum((view[b, i] - means[i]) * (view[b, j] - means[j]) for b in range(rows)) / (rows - 1)
                if i == j:
                    loss += variance * max(0.0, 1 - math.sqrt(cov + 1e-4)) / columns
                else:
                    loss += covariance * cov**2 / columns
    return float(loss)


def mixed_key(keys: Matrix, shift: int, share: float) -> Matrix:
    """PCM3: unit((1 − w) k + w k_other), with k_other the key of the clip that stands `shift` rows further in
    the batch.
    """
    mixed = []
    for b, key in enumerate(keys):
        mixed.append(normalise((1 - share) * key + share * keys[(b + shift) % len(keys)]))
    return np.stack(mixed)


def self_distillation(queries: Matrix, keys: Matrix, queue: Matrix, teacher: float, student: float) -> float:
    """PCM3: KL( softmax(k·Q / teacher) ‖ softmax(q·Q / student) ) over the whole queue, averaged over the
    batch.
    """
    losses = []
    for query, key in zip(queries, keys):
        p = [math.exp(float(np.dot(key, row)) / teacher) for row in queue]
        q = [math.exp(float(np.dot(query, row)) / student) for row in queue]
        losses.append(sum(a / sum(p) * math.log((a / sum(p)) / (b / sum(q))) for a, b in zip(p, q)))
    return sum(losses) / len(losses)


def positives_in_batch(
    predictions: Matrix,
    positives: Sequence[Sequence[Vector]],
    kept: Sequence[Sequence[bool]],
    temperature: float,
) -> float:
    """NNCLR with several positives: − log of the share of the own prediction among those of the batch, for
    each kept one.
    """
    losses = []
    for b, own in enumerate(positives):
        for positive, counts in zip(own, kept[b]):
            if counts:
                terms = [
                    math.exp(float(np.dot(positive, prediction)) / temperature) for prediction in predictions
                ]
                losses.append(-math.log(terms[b] / sum(terms)))
    return sum(losses) / len(losses) if losses else 0.0
