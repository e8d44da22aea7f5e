"""Errors of predicted frames: a number per clip, so that processes can be averaged."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_error(found: Tensor, target: Tensor, frames: Tensor | None = None) -> Tensor:
    """Mean squared difference over all frames, or the `frames` `(B, T)`; `(B, T, N)` → `(B,)`.

    A clip none of whose frames counts has an error of 0.

    >>> x = torch.tensor([[[1.0, 3.0], [5.0, 5.0]]])
    >>> squared_error(torch.zeros_like(x), x, torch.tensor([[True, False]])).tolist()
    [5.0]
    """
    per_frame = (found - target).square().mean(2)
    if frames is None:
        return per_frame.mean(1)
    weight = frames.to(per_frame)
    return (per_frame * weight).sum(1) / weight.sum(1).clamp_min(torch.finfo(weight.dtype).tiny)
