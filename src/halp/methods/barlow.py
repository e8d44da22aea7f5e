"""Barlow Twins for skeletons (SkeletonBT): two views through one encoder, whose embeddings correlate column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from halp.errors import InputError
from halp.losses.barlow import barlow_twins
from halp.methods.two_views import TwoViewSettings, register_two_views


@register_two_views
@dataclass(frozen=True)
class BarlowSettings(TwoViewSettings):
    """The projection head and the loss. The defaults are those of SkeletonBT."""

    section: ClassVar[str] = "barlow"
    off_diagonal: float = 2e-4  # weight of the correlations between different columns

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.off_diagonal < 0:
            raise InputError(f"barlow: off_diagonal = {self.off_diagonal} cannot be negative")

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        return barlow_twins(first, second, self.off_diagonal)
