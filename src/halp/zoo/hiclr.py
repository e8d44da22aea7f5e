"""HiCLR (Zhang et al., AAAI 2023): ever stronger views, each follows the distribution of the last.

L = contrast + weight · ½ [CE(p(query) ‖ p(strong)) + CE(p(strong) ‖ p(masked))]; the contrast is AimCLR's,
InfoNCE and later with nearest neighbours of all three queries. Where AimCLR matches all views to the query,
HiCLR matches them in a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from halp.extend import StreamBatch, Views, build_policy, limited, register_term
from halp.zoo.aimclr import AUGMENTATIONS, AimClrTerm, NeighbourSettings, check_neighbours, distribution_match

STRONG, MASKED = "strong", "masked"


@dataclass(frozen=True)
class HiClrSettings(NeighbourSettings):
    """HiCLR. The defaults are those of the public code for NTU-60."""

    section: ClassVar[str] = "hiclr"
    # share of the joints that are hidden in every frame of the strongest view
    masked: float = limited(0.1, least=0, most=1)


def _views(settings: HiClrSettings) -> Views:
    strong = AUGMENTATIONS[settings.augmentations]
    mask = {"name": "joint-mask", "joints": settings.masked, "every_frame": True}
    return {STRONG: strong, MASKED: strong + build_policy([mask], "views.masked.augmentations")}


@register_term("hiclr", HiClrSettings, views=_views, contrast=True, check=check_neighbours)
class HiClrTerm(AimClrTerm):
    """AimCLR's contrast with a chain of growing views."""

    queries = (STRONG, MASKED)

    def _match(self, batch: StreamBatch, keys: Tensor) -> Tensor:
        chain = [batch.query, *(batch.extra[name] for name in self.queries)]
        links = [
            distribution_match(milder, [stronger], batch.key, keys, self.temperature)
            for milder, stronger in pairwise(chain)
        ]
        return torch.stack(links).mean()
