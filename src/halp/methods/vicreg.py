"""VICReg for skeletons (the loss of UmURL and USDRL): two views through one encoder agree, vary and do not repeat themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from halp.errors import InputError
from halp.losses.vicreg import vicreg
from halp.methods.two_views import TwoViewSettings, register_two_views


@register_two_views
@dataclass(frozen=True)
class VicregSettings(TwoViewSettings):
    """The projection head and the weights of the loss. The defaults are those of UmURL."""

    section: ClassVar[str] = "vicreg"
    width: int = 4096
    invariance: float = 5.0
    variance: float = 5.0
    covariance: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.invariance, self.variance, self.covariance) < 0:
            raise InputError(
                f"vicreg: invariance = {self.invariance}, variance = {self.variance} and covariance = {self.covariance} "
                "cannot be negative"
            )

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        return vicreg(first, second, self.invariance, self.variance, self.covariance)
