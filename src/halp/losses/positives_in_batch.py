"""Contrast of positives with predictions (NNCLR): a positive has to find the prediction of its clip among those of the batch."""

from __future__ import annotations

import torch
from torch import Tensor


def positives_in_batch(prediction: Tensor, positives: Tensor, kept: Tensor, temperature: float = 0.07) -> Tensor:
    """− log softmax over the batch of positive·prediction / T at the own clip, mean over the kept positives of all clips.

    Predictions are `(B, D)`, positives `(B, G, D)`, which of them count `(B, G)`; all of unit length. The negatives of a positive
    are the predictions of the other clips. Gradient through the predictions only; 0 where no positive is kept.

    >>> axes = torch.eye(3)
    >>> round(float(positives_in_batch(axes, axes[:, None], torch.ones(3, 1, dtype=torch.bool), 1.0)), 4)
    0.5514
    """
    similarity = torch.einsum("bgd,cd->bgc", positives.detach(), prediction) / temperature
    own = similarity.diagonal(dim1=0, dim2=2).T
    loss = similarity.logsumexp(2) - own
    return (loss * kept).sum() / kept.sum().clamp_min(1)
