"""Losses: pure functions from tensors to a scalar. The loss of the paper itself is `halp.hallucinate.halp_loss`."""

from halp.losses.adversarial import discriminator_loss, fooling_loss
from halp.losses.distillation import distillation_loss, self_distillation
from halp.losses.distribution_match import distribution_match
from halp.losses.infonce import info_nce, info_nce_in_batch, nt_xent_of_pairs
from halp.losses.mined_positives import mining_loss
from halp.losses.nearest_positives import nearest_positives_loss
from halp.losses.positives_in_batch import positives_in_batch
from halp.losses.reconstruction import frame_distance, squared_error
from halp.losses.vicreg import vicreg

__all__ = [
    "discriminator_loss",
    "distillation_loss",
    "distribution_match",
    "fooling_loss",
    "frame_distance",
    "info_nce",
    "info_nce_in_batch",
    "mining_loss",
    "nearest_positives_loss",
    "nt_xent_of_pairs",
    "positives_in_batch",
    "self_distillation",
    "squared_error",
    "vicreg",
]
