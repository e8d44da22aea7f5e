"""Positives mined across streams over aligned queues (CrosSCLR): a partner names further positives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from halp.losses.infonce import logits


class Mined(NamedTuple):
    """Losses of one batch by stream, and which queue rows every stream proposes to its partners."""

    losses: dict[str, Tensor]  # scalar: mean over the stream's partners
    contrast: dict[str, Tensor]  # scalar: plain InfoNCE of the same batch, to watch
    rows: dict[str, Tensor]  # (B, top)


def mining_loss(
    queries: Mapping[str, Tensor],
    keys: Mapping[str, Tensor],
    queues: Mapping[str, Tensor],
    *,
    top: int = 1,
    temperature: float = 0.07,
) -> Mined:
    """CrosSCLR's cross-stream loss for unit queries and keys `(B, D)` and aligned queues `(L, D)`.

    For a stream a with partner b the logits are [key, negatives, context] / T, context_i = s_a,i · s_b,i; its
    positives are the key and, in both other blocks, the `top` rows nearest to b's query: − mean over
    positives of log-softmax. The context carries gradient to both queries. The logits are never concatenated:
    a sum of exponentials over the negatives serves all partners of a stream, one over a context both of its
    streams.
    """
    near = {stream: logits(queries[stream], queues[stream], temperature) for stream in queries}
    to_key = {stream: (queries[stream] * keys[stream].detach()).sum(1) / temperature for stream in queries}
    rows = {stream: torch.topk(near[stream].detach(), top, dim=1).indices for stream in queries}
    against = {
        stream: torch.logaddexp(to_key[stream], torch.logsumexp(near[stream], dim=1)) for stream in queries
    }
    names = list(queries)
    collected: dict[str, list[Tensor]] = {stream: [] for stream in names}
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            context = near[first] * near[second] * temperature
            total = torch.logsumexp(context, dim=1)
            for stream, partner in ((first, second), (second, first)):
                mined = near[stream].gather(1, rows[partner]) + context.gather(1, rows[partner])
                positives = to_key[stream] + mined.sum(1)
                loss = torch.logaddexp(against[stream], total) - positives / (1 + 2 * top)
                collected[stream].append(loss.mean())
    losses = {stream: torch.stack(found).mean() for stream, found in collected.items()}
    contrast = {stream: (against[stream] - to_key[stream]).detach().mean() for stream in names}
    return Mined(losses, contrast, rows)
