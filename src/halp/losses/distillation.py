"""Distillation between the aligned queues of streams (CMD)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from halp.losses.infonce import logits


class TeacherTargets(NamedTuple):
    """A teacher's distribution for each clip of a batch: rows of the queues that count, and their weights."""

    rows: Tensor  # (B, k) of the queue
    probability: Tensor  # (B, k), sums to one over these rows
    entropy: Tensor  # scalar, mean over the batch


@torch.no_grad()
def teacher_targets(key: Tensor, queue: Tensor, count: int, temperature: float = 0.05) -> TeacherTargets:
    """A teacher's targets: its keys `(B, D)` against its own queue `(L, D)`, the nearest `count` rows."""
    similarity = key @ queue.T
    rows = nearest_rows(similarity, count)
    log_probability = F.log_softmax(similarity.gather(1, rows) / temperature, dim=1)
    probability = log_probability.exp()
    # a probability that underflows to zero has a logarithm all the same
    return TeacherTargets(rows, probability, -(probability * log_probability).sum(1).mean())


def kl_to_teacher(student: Tensor, targets: TeacherTargets) -> Tensor:
    """KL(teacher ‖ student) over the target rows, mean over the batch.

    `student` `(B, L)` are the logits of its queries and its own queue; the gradient goes there alone.
    """
    return F.cross_entropy(student.gather(1, targets.rows), targets.probability) - targets.entropy


def nearest_rows(similarity: Tensor, count: int) -> Tensor:
    """Indices `(B, count)` of the largest entries of each row `(B, L)`, in no particular order."""
    numpys = similarity.device.type == "cpu" and similarity.dtype in (torch.float32, torch.float64)
    if not numpys or count == similarity.shape[1]:
        return torch.topk(similarity, count, dim=1, sorted=False).indices
    # selecting half of a long row without sorting it is several times as fast in NumPy
    split = similarity.shape[1] - count
    return torch.from_numpy(np.argpartition(similarity.numpy(), split, axis=1)[:, split:])


def distillation_loss(
    query: Tensor,
    queue: Tensor,
    teacher_key: Tensor,
    teacher_queue: Tensor,
    *,
    count: int,
    teacher_temperature: float = 0.05,
    student_temperature: float = 0.1,
) -> Tensor:
    """One ordered pair of CMD: queries `(B, D)` and queue `(L, D)` follow a teacher's keys and queue.

    Row i of both queues must be the same clip. The positive is in neither distribution; gradient through
    `query` only.

    >>> axes = torch.eye(3)
    >>> round(abs(float(distillation_loss(axes[:1], axes, axes[:1], axes, count=3, student_temperature=0.05))), 6)
    0.0
    """
    targets = teacher_targets(teacher_key.detach(), teacher_queue.detach(), count, teacher_temperature)
    return kl_to_teacher(logits(query, queue, student_temperature), targets)
