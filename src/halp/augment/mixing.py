"""Mixes of two clips of a batch (PCM3): body parts of another clip for a while, or both clips blended whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from halp.skeleton import Topology

BLOCKS = 16  # a clip in time; runs of these are replaced
PARTS = 5


class DrawnMix(NamedTuple):
    """How the clips of a batch are mixed: one draw for all of them."""

    partner: Tensor  # (B,) which clip of the batch each is mixed with
    share: float  # of the clip that comes from its partner
    mask: Tensor  # (T, V) cells that are replaced; none where whole clips are blended
    squeezed: bool = False  # the region shows the partner's beginning at twice its pace


class ClipMix:
    """Mixes each clip with the one that stands a random number of rows further in the batch.

    With probability `paste` some body parts of the partner take the place of the clip's own for a run of blocks; with
    probability `squeeze` the partner's first 2r frames are squeezed into the r frames of that region; otherwise both clips are
    blended by U(0, 1). `parts` and `run` are the smallest and largest numbers of body parts and of the 16 blocks of time.
    """

    def __init__(
        self,
        body_parts: Sequence[Sequence[int]],
        *,
        paste: float = 0.5,
        squeeze: float = 0.25,
        parts: tuple[int, int] = (2, 3),
        run: tuple[int, int] = (7, 11),
    ) -> None:
        self.body_parts, self.paste, self.squeeze = body_parts, paste, squeeze
        self.parts, self.run = parts, run

    def draw(self, batch: int, frames: int, generator: torch.Generator) -> DrawnMix:
        """One mix for a whole batch of views; the same numbers are drawn whichever kind it is."""
        partner = (torch.arange(batch) + _between(1, max(batch - 1, 1), generator)) % batch
        kind, share = torch.rand(2, generator=generator).tolist()
        chosen = torch.randperm(len(self.body_parts), generator=generator)[: _between(*self.parts, generator)]
        run = _between(*self.run, generator)
        first = _between(0, BLOCKS - run, generator)
        mask = torch.zeros(frames, sum(map(len, self.body_parts)), dtype=torch.bool)
        if kind >= self.paste + self.squeeze:
            return DrawnMix(partner, share, mask)
        start, stop = (round(block * frames / BLOCKS) for block in (first, first + run))
        for part in chosen.tolist():
            mask[start:stop, list(self.body_parts[part])] = True
        return DrawnMix(partner, float(mask.float().mean()), mask, squeezed=kind >= self.paste)

    @staticmethod
    def apply(clips: Tensor, others: Tensor, drawn: DrawnMix) -> Tensor:
        """Clips `(B, T, P, V, C)` mixed with their partners, which are given row by row."""
        if not bool(drawn.mask.any()):
            return torch.lerp(clips, others, drawn.share)
        if drawn.squeezed:
            others = _squeeze_into(others, drawn.mask.any(1).nonzero()[:, 0].tolist())
        return torch.where(drawn.mask[:, None, :, None].to(clips.device), others, clips)


def mixable_parts(topology: Topology) -> list[list[int]]:
    """Five body parts that are replaced as a whole: trunk, arms and legs by the names of their joints.

    Where names do not give all five, the joints are cut into five runs of equal length along the tree, each joint followed by
    all that hang on it, so that a run is made of neighbours.
    """
    named = list(topology.body_parts.values())
    if all(named):
        return named
    children: dict[int, list[int]] = {}
    for child, parent in topology.bones:
        children.setdefault(parent, []).append(child)
    order: list[int] = []
    waiting = [joint for joint, parent in enumerate(topology.parents) if joint == parent][::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += children.get(order[-1], [])[::-1]
    edges = [round(part * len(order) / PARTS) for part in range(PARTS + 1)]
    return [run for run in (order[start:stop] for start, stop in pairwise(edges)) if run]


def _squeeze_into(others: Tensor, region: list[int]) -> Tensor:
    """Clips whose frames of the region show their first 2r frames, as far as there are so many, at r of them."""
    beginning = others[:, : 2 * len(region)]
    signals = beginning.flatten(2).transpose(1, 2)
    squeezed = F.interpolate(signals, size=len(region), mode="linear").transpose(1, 2)
    others = others.clone()
    others[:, region] = squeezed.unflatten(2, others.shape[2:])
    return others


def _between(low: int, high: int, generator: torch.Generator) -> int:
    """A whole number from `low` to `high`, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))
