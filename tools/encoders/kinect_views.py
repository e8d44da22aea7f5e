"""Views of motion capture as a Kinect would see it, and the parts of `halp-base`: without its invariance, and
untrained.

The invariance of `halp-base` is fitted to these views: noise that grows towards hands and feet, other bones,
lost frames, missing joints, a tilt, normalised again as recordings are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from halp.augment import ClipPool, centre_views
from halp.augment.base import AugmentationBase, Drawn, ViewShape, register_augmentation, uniform
from halp.augment.policy import ViewSettings, build_policy
from halp.core.initialisation import initialise
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.loading import load_encoder
from halp.skeleton import Topology
from halp.training.recipe import load_recipe

FITTED = 2000  # windows that scales are fitted to, as those of `halp-base`


@dataclass(frozen=True)
class KinectNoiseSettings:
    """Standard deviations in sizes of a bone (about 25 cm): of the trunk, and what each joint further out
    adds.
    """

    trunk: float = 0.03
    outward: float = 0.02


@register_augmentation("kinect-noise", KinectNoiseSettings)
class KinectNoise(AugmentationBase[KinectNoiseSettings]):
    """Noise that grows towards hands and feet, half of it slow; then centred and scaled again, as recordings
    are.
    """

    def __init__(self, settings: KinectNoiseSettings, topology: Topology) -> None:
        super().__init__(settings, topology)
        self.parents, self.centre = (
            list(topology.parents),
            topology.index(topology.centre or topology.joints[0]),
        )
        depth = []
        for joint in range(len(topology)):
            steps, here = 0, joint
            while self.parents[here] != here:
                here, steps = self.parents[here], steps + 1
            depth.append(steps)
        self.sigma = settings.trunk + settings.outward * torch.tensor(depth)
        self.bones = [joint for joint in range(len(topology)) if self.parents[joint] != joint]

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        fast, slow = torch.randn(2, *shape, generator=generator)
        slow = torch.nn.functional.avg_pool1d(slow.transpose(1, -1).flatten(0, -2)[:, None], 9, 1, 4).view(
            shape.batch, shape.coordinates, shape.persons, shape.joints, shape.frames
        )
        noise = (fast + 3 * slow.permute(0, 4, 2, 3, 1)) / 2**0.5
        return {"noise": noise * uniform(0.3, 1.0, shape.batch, 1, 1, 1, 1, generator=generator)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        clips = clips + drawn["noise"] * self.sigma[:, None] * (clips != 0).any(1, keepdim=True)
        clips = clips - clips[:, :, :, self.centre : self.centre + 1]
        bones = (clips[:, :, 0] - clips[:, :, 0, self.parents])[:, :, self.bones].norm(dim=3)
        return clips / bones.median(1).values.mean(1)[:, None, None, None, None].clamp_min(1e-6)


KINECT = [
    {"name": "crop-resize", "min": 0.6, "frames": 16},
    {"name": "lost-frames", "frames": 0.6},
    {"name": "bone-lengths", "min": 0.85, "max": 1.15},
    {"name": "rotation", "amplitude": 0.2},
    {"name": "kinect-noise"},
    {"name": "joint-mask", "joints": 0.15, "probability": 0.2},
]


def policies(frames: int) -> dict[str, ViewSettings]:
    """How views are made: as `halp-base` was trained, and as a Kinect sees."""
    trained = load_recipe("cmu-moco", [f"views.frames={frames}"]).views
    return {"as trained": trained, "Kinect": replace(trained, augmentations=build_policy(KINECT, "Kinect"))}


def plain_base() -> PretrainedEncoder:
    """`halp-base` without its invariance: its GRU and its kernels, as they were in 0.2.0."""
    encoder = load_encoder("halp-base")
    encoder.encoder.invariance = torch.nn.Identity()
    return encoder


def untrained(seed: int, store: Store) -> PretrainedEncoder:
    """`halp-base` with a fresh GRU and without invariance; scales are fitted to CMU windows, as its own
    were.
    """
    encoder = plain_base()
    torch.manual_seed(seed)
    for module in encoder.encoder.modules():
        if isinstance(module, torch.nn.GRU):
            module.reset_parameters()
    initialise(encoder.encoder)
    windows = np.sort(np.random.default_rng(seed).permutation(store.split("xsub")[0])[:FITTED])
    encoder.encoder.fit(centre_views(ClipPool.from_store(store), torch.from_numpy(windows), encoder.frames))
    return encoder
