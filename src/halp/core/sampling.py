"""Which clips, in which order, with which random draws: a function of (seed, purpose, epoch, step).

A resumed run, and a run on another number of processes, therefore draws the same numbers, and there is no
state to save. Draws are made on the CPU, so that every device sees the same ones.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def generator(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """A generator for one purpose at one step.

    >>> torch.rand(1, generator=generator(0, "views", 3, 1)) == torch.rand(1, generator=generator(0, "views", 3, 1))
    tensor([True])
    """
    text = repr((seed, purpose, *counters)).encode()
    return torch.Generator().manual_seed(
        int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
    )


def steps_in_epoch(clips: int, batch_size: int) -> int:
    """How many whole batches an epoch has; a set smaller than one batch gives one short batch."""
    return max(1, clips // batch_size)


def epoch_batches(clips: int, batch_size: int, seed: int, epoch: int) -> Tensor:
    """Shuffled positions `(steps, batch)` of the clips of an epoch; an incomplete last batch is dropped."""
    order = torch.randperm(clips, generator=generator(seed, "order", epoch))
    batch_size = min(batch_size, clips)
    return order[: steps_in_epoch(clips, batch_size) * batch_size].view(-1, batch_size)
