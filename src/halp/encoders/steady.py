"""Jitter of a recording, estimated from the clip, and smoothing in proportion to it.

White noise of variance σ² makes neighbouring second differences of a course opposite: their mean product is
−4 σ². A movement makes them alike. So `noise` is 0 for clean movements unless they turn within a few frames,
and a clip below the limit is left as it is, to the bit. Differences are taken over every other frame: short
clips were stretched to the frames that an encoder reads, and neighbouring frames of these share their noise.
"""

from __future__ import annotations

import torch
from torch import Tensor

STRIDE = 2
NARROW, WIDE = 5, 9  # frames that are averaged
# times the limit: noise at which the narrow average, and then the wide one, has taken over
FULL, WIDEST = (1.6, 4.0)


def noise(clips: Tensor) -> Tensor:
    """Standard deviation of the jitter `(B, P)` of clips `(B, T, P, V, C)`, from joints always seen."""
    seen = _always_seen(clips)
    bend = clips[:, 2 * STRIDE :] - 2 * clips[:, STRIDE:-STRIDE] + clips[:, : -2 * STRIDE]
    product = (bend[:, STRIDE:] * bend[:, :-STRIDE]).mean(1).mean(3)  # (B, P, V)
    opposite = -(product * seen).sum(2) / seen.sum(2).clamp(min=1) / 4
    return opposite.clamp(min=0).sqrt()


def steady(clips: Tensor, limit: float) -> Tensor:
    """Clips `(B, T, P, V, C)`, smoothed over 5 to 9 frames as their jitter exceeds the limit; 0: never.

    Joints that are missing in a frame are left as they are.
    """
    if not limit or clips.shape[1] < WIDE:
        return clips
    excess = noise(clips) / limit
    narrow = ((excess - 1) / (FULL - 1)).clamp(0, 1)
    wide = ((excess - FULL) / (WIDEST - FULL)).clamp(0, 1)
    seen = _always_seen(clips)
    first, second = ((share[:, :, None] * seen)[:, None, :, :, None] for share in (narrow * (1 - wide), wide))
    return clips * (1 - first - second) + _average(clips, NARROW) * first + _average(clips, WIDE) * second


def _always_seen(clips: Tensor) -> Tensor:
    """Joints present in every frame `(B, P, V)`, as numbers."""
    return (clips != 0).any(4).all(1).to(clips.dtype)


def _average(clips: Tensor, width: int) -> Tensor:
    """Moving average over time; the first and last frames are repeated."""
    reach, frames = width // 2, int(clips.shape[1])
    padded = torch.cat([clips[:, :1]] * reach + [clips] + [clips[:, -1:]] * reach, dim=1)
    rows = padded.reshape(-1, 1, frames + 2 * reach, clips.shape[2:].numel())
    return torch.nn.functional.avg_pool2d(rows, (width, 1), 1).view_as(clips)
