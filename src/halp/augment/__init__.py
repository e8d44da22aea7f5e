"""Augmentation: random views of clips, made for whole batches at once on the device that holds them."""

from halp.augment import cameras, spatial, temporal  # noqa: F401  (they register their augmentations)
from halp.augment.base import AUGMENTATIONS, ViewShape, register_augmentation
from halp.augment.paper import PaperSettings, draw_crops, draw_matrices, transform
from halp.augment.policy import Policy, Step, ViewMaker, ViewSettings, build_policy, build_views, random_views
from halp.augment.pool import ClipPool, centre_crops, centre_views

__all__ = [
    "AUGMENTATIONS",
    "ClipPool",
    "PaperSettings",
    "Policy",
    "Step",
    "ViewMaker",
    "ViewSettings",
    "ViewShape",
    "build_policy",
    "build_views",
    "centre_crops",
    "centre_views",
    "draw_crops",
    "draw_matrices",
    "random_views",
    "register_augmentation",
    "transform",
]
