"""Distillation between streams over aligned queues (CMD): what is near in the teacher's queue should be near in the student's."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from halp.contrast.losses import logits


class Lesson(NamedTuple):
    """What a teacher says about every clip of a batch: which rows of the queues count, and how near each is."""

    rows: Tensor  # (B, k) of the queue
    log_probability: Tensor  # (B, k), normalised over these rows


@torch.no_grad()
def teach(key: Tensor, queue: Tensor, count: int, temperature: float = 0.05) -> Lesson:
    """A teacher's lesson: its keys `(B, D)` against its own queue `(L, D)`, the `count` nearest rows of each key."""
    similarity, rows = torch.topk(key @ queue.T, count, dim=1, sorted=False)
    return Lesson(rows, F.log_softmax(similarity / temperature, dim=1))


def learn(student: Tensor, lesson: Lesson) -> Tensor:
    """KL(teacher ‖ student) over the lesson's rows, mean over the batch.

    `student` `(B, L)` are the logits of its queries and its own queue; the gradient goes there alone.
    """
    student = F.log_softmax(student.gather(1, lesson.rows), dim=1)
    return F.kl_div(student, lesson.log_probability, log_target=True, reduction="batchmean")


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
    """One ordered pair of CMD: the student's queries `(B, D)` and queue `(L, D)` follow a teacher's keys and queue.

    Row i of both queues has to be the same clip. The positive is in neither distribution; gradient through `query` only.

    >>> axes = torch.eye(3)
    >>> round(float(distillation_loss(axes[:1], axes, axes[:1], axes, count=3, student_temperature=0.05)), 6)
    0.0
    """
    lesson = teach(teacher_key.detach(), teacher_queue.detach(), count, teacher_temperature)
    return learn(logits(query, queue, student_temperature), lesson)
