"""Losses across streams, loop by loop in plain NumPy float64, with their gradients; nothing here imports
`halp`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def softmax(logits: list[float]) -> list[float]:
    """exp(l_i) / Σ exp(l_j), shifted by the largest."""
    most = max(logits)
    weights = [math.exp(logit - most) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def distillation(
    queries: Matrix,
    queue: Matrix,
    teacher_keys: Matrix,
    teacher_queue: Matrix,
    count: int,
    teacher_temperature: float,
    student_temperature: float,
) -> tuple[float, Matrix]:
    """CMD, one ordered pair: KL(softmax(s_teacher / 0.05) ‖ softmax(s_student / 0.1)) over the teacher's
    nearest keys.

    Returns the mean over the batch and its gradient with respect to the queries.
    """
    loss, gradient = 0.0, np.zeros(queries.shape)
    for b, (query, key) in enumerate(zip(queries, teacher_keys)):
        teacher = [float(np.dot(key, past)) for past in teacher_queue]
        chosen = sorted(range(len(teacher_queue)), key=lambda i: -teacher[i])[:count]
        p = softmax([teacher[i] / teacher_temperature for i in chosen])
        q = softmax([float(np.dot(query, queue[i])) / student_temperature for i in chosen])
        for i, p_i, q_i in zip(chosen, p, q):
            if p_i > 0:
                loss += p_i * (math.log(p_i) - math.log(q_i)) / len(queries)
            gradient[b] += (q_i - p_i) * queue[i] / student_temperature / len(queries)
    return loss, gradient


def mutual_distillation(
    queries: dict[str, Matrix],
    keys: dict[str, Matrix],
    queues: dict[str, Matrix],
    count: int,
    teacher_temperature: float = 0.05,
    student_temperature: float = 0.1,
) -> tuple[float, dict[str, Matrix]]:
    """CMD's second sum: every ordered pair of streams, teacher a and student b."""
    total, gradients = 0.0, {stream: np.zeros(query.shape) for stream, query in queries.items()}
    for a in queries:
        for b in queries:
            if a != b:
                loss, gradient = distillation(
                    queries[b], queues[b], keys[a], queues[a], count, teacher_temperature, student_temperature
                )
                total += loss
                gradients[b] += gradient
    return total, gradients


def mining(
    queries: dict[str, Matrix],
    keys: dict[str, Matrix],
    queues: dict[str, Matrix],
    top: int,
    temperature: float,
) -> tuple[dict[str, float], dict[str, Matrix]]:
    """CrosSCLR's cross stage: loss of every stream, and the gradient of their sum with respect to all
    queries.
    """
    losses = dict.fromkeys(queries, 0.0)
    gradients = {stream: np.zeros(query.shape) for stream, query in queries.items()}
    partners = len(queries) - 1
    for a in queries:
        for b in queries:
            if a == b:
                continue
            length, batch = len(queues[a]), len(queries[a])
            for i in range(batch):
                q_a, q_b = queries[a][i], queries[b][i]
                s_a = [float(np.dot(q_a, past)) for past in queues[a]]
                s_b = [float(np.dot(q_b, past)) for past in queues[b]]
                logits = [float(np.dot(q_a, keys[a][i]))] + s_a + [x * y for x, y in zip(s_a, s_b)]
                logits = [logit / temperature for logit in logits]
                mined = sorted(range(length), key=lambda j: -s_b[j])[:top]
                positive = [0] + [1 + j for j in mined] + [1 + length + j for j in mined]
                probability = softmax(logits)
                share = 1 / (partners * batch)
                losses[a] -= share * sum(math.log(probability[j]) for j in positive) / len(positive)
                for j, p in enumerate(probability):
                    slope = share * (p - (j in positive) / len(positive)) / temperature
                    if j == 0:
                        gradients[a][i] += slope * keys[a][i]
                    elif j <= length:
                        gradients[a][i] += slope * queues[a][j - 1]
                    else:
                        past = j - 1 - length
                        gradients[a][i] += slope * s_b[past] * queues[a][past]
                        gradients[b][i] += slope * s_a[past] * queues[b][past]
    return losses, gradients


def cross(
    queries: dict[str, Matrix], keys: dict[str, Matrix], queues: dict[str, Matrix], temperature: float
) -> tuple[float, dict[str, Matrix]]:
    """ISC: query of a against the key of b and queue b, for both orders, summed; gradient for the queries."""
    total, gradients = 0.0, {stream: np.zeros(query.shape) for stream, query in queries.items()}
    for a in queries:
        for b in queries:
            if a == b:
                continue
            for i, (query, key) in enumerate(zip(queries[a], keys[b])):
                candidates = [key, *queues[b]]
                probability = softmax(
                    [float(np.dot(query, candidate)) / temperature for candidate in candidates]
                )
                total -= math.log(probability[0]) / len(queries[a])
                for j, (p, candidate) in enumerate(zip(probability, candidates)):
                    gradients[a][i] += (p - (j == 0)) * candidate / temperature / len(queries[a])
    return total, gradients


def guided_means(keys: Matrix, guide: Matrix, centres: Matrix) -> Matrix:
    """Karcher mean, in one stream, of the clips that another stream puts together around each of its
    centres.
    """
    nearest = [max(range(len(centres)), key=lambda c: float(np.dot(row, centres[c]))) for row in guide]
    means = []
    for cluster in range(len(centres)):
        members = [keys[i] for i in range(len(keys)) if nearest[i] == cluster]
        if not members:
            members = [keys[max(range(len(guide)), key=lambda i: float(np.dot(guide[i], centres[cluster])))]]
        mean = np.sum(members, axis=0)
        mean = mean / np.linalg.norm(mean)
        for _ in range(200):
            step = np.zeros_like(mean)
            for point in members:
                cosine = min(1.0, max(-1.0, float(np.dot(mean, point))))
                angle = math.acos(cosine)
                if angle > 1e-9:
                    step += angle / math.sin(angle) * (point - cosine * mean) / len(members)
            length = float(np.linalg.norm(step))
            if length > 0:
                mean = math.cos(length) * mean + math.sin(length) * step / length
        means.append(mean)
    return np.stack(means)
