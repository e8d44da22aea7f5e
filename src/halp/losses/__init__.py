"""Losses: pure functions from tensors to a scalar. The paper's is `halp.hallucinate.halp_loss`.

Those of other published systems stand in their files in `halp.zoo`.
"""

from halp.losses.distillation import distillation_loss
from halp.losses.infonce import (
    contrast_accuracy,
    info_nce,
    info_nce_in_batch,
    log_partition,
    log_sum_exp,
    nt_xent_of_pairs,
)
from halp.losses.mined_positives import mining_loss
from halp.losses.reconstruction import squared_error

__all__ = [
    "contrast_accuracy",
    "distillation_loss",
    "info_nce",
    "info_nce_in_batch",
    "log_partition",
    "log_sum_exp",
    "mining_loss",
    "nt_xent_of_pairs",
    "squared_error",
]
