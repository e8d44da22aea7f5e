"""Losses of an adversarial pair, from a discriminator's logits: a number per clip, so that a mean over processes can be taken."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def discriminator_loss(true: Tensor, made: Tensor) -> Tensor:
    """−log σ(D(true)) − log(1 − σ(D(made))): what is true should have large logits, what was made small ones; `(B,)`.

    >>> import torch
    >>> [round(value, 4) for value in discriminator_loss(torch.tensor([0.0, 9.0]), torch.tensor([0.0, -9.0])).tolist()]
    [1.3863, 0.0002]
    """
    return F.softplus(-true) + F.softplus(made)


def fooling_loss(made: Tensor) -> Tensor:
    """−log σ(D(made)), the non-saturating loss of what made it: `(B,)`; it is large where the discriminator sees through it.

    >>> import torch
    >>> round(float(fooling_loss(torch.tensor(0.0))), 4)
    0.6931
    """
    return F.softplus(-made)
