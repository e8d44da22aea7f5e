"""Virtual cameras: 3D clips become 2D key points, with the errors of pose estimators.

The steps of a policy in their order: `bone-lengths` (in space), `camera`, faults (`jitter`, `side-swaps`,
`picture-edge`,
`lost-frames`), `picture`. Clips stay `(B, T, P, V, 3)`; behind a camera x points right, y up, in units of the
body's size, and depth is 0. A key point at (0, 0) is missing, as pose files write it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halp.augment.base import (
    AugmentationBase,
    Drawn,
    FactorSettings,
    ViewShape,
    at_frames,
    hide,
    register_augmentation,
    uniform,
)
from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.skeleton import Topology

NEAREST = 0.2  # of the distance between camera and body: nothing comes closer to the camera


@dataclass(frozen=True)
class CameraSettings(CheckedSettings):
    """Angles in degrees; distances in body sizes (RMS of the joints, about 0.6 m); focal length in widths."""

    yaw: float = 180.0  # U(-yaw, yaw) about the vertical
    pitch_min: float = -20.0  # from below …
    pitch_max: float = 50.0  # … to above
    roll: float = 10.0
    distance_min: float = limited(4.0, least=3)  # nearer cameras stand inside the body
    distance_max: float = 20.0
    focal_min: float = limited(1.0, above=0)  # 90 degrees across the picture
    focal_max: float = 3.0
    # the body stands within this share of the half width from the middle
    off_centre: float = limited(0.6, least=0, most=1)
    orthographic: bool = False  # no perspective: distances and focal lengths do not count

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pitch", "distance", "focal"):
            if getattr(self, f"{name}_min") > getattr(self, f"{name}_max"):
                raise InputError(f"camera needs {name}_min ≤ {name}_max")


@register_augmentation("camera", CameraSettings)
class Camera(AugmentationBase[CameraSettings]):
    """One pinhole camera per clip. Missing joints (all zeros) stay missing; the centre joint is not one."""

    def __init__(self, settings: CameraSettings, topology: Topology) -> None:
        super().__init__(settings, topology)
        if topology.dimensions != 3:
            raise InputError(f"camera: clips of '{topology.name}' are flat already; give it a 3D store")
        self.centre = topology.index(topology.centre) if topology.centre else 0

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        s, batch = self.settings, shape.batch

        def angle(low: float, high: float) -> Tensor:
            return uniform(math.radians(low), math.radians(high), batch, generator=generator)

        yaw, pitch, roll = angle(-s.yaw, s.yaw), angle(s.pitch_min, s.pitch_max), angle(-s.roll, s.roll)
        focal = uniform(s.focal_min, s.focal_max, batch, 1, generator=generator)
        # most films are made from a few metres: distances are spread evenly on a logarithmic scale
        distance = uniform(
            math.log(s.distance_min), math.log(s.distance_max), batch, generator=generator
        ).exp()
        place = uniform(-s.off_centre, s.off_centre, batch, 2, generator=generator) / focal
        return {"rotation": camera_rotation(yaw, pitch, roll), "distance": distance, "place": place}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        seen = (clips != 0).any(4)
        seen[:, :, :, self.centre] |= seen.any(3)
        size = (clips.square().sum((1, 2, 3, 4)) / seen.sum((1, 2, 3)).clamp_min(1)).sqrt().clamp_min(1e-6)
        body = clips.flatten(1, 3) @ drawn["rotation"].to(clips).transpose(1, 2) / size[:, None, None]
        place = drawn["place"].to(clips)[:, None]
        if self.settings.orthographic:
            picture = body[:, :, :2] + place
        else:
            distance = drawn["distance"].to(clips)[:, None, None]
            depth = (distance - body[:, :, 2:]).clamp_min(NEAREST * distance)
            picture = (body[:, :, :2] + place * distance) * (distance / depth)
        flat = torch.nn.functional.pad(picture, (0, 1)).view_as(clips)
        return flat * seen[..., None]


def camera_rotation(yaw: Tensor, pitch: Tensor, roll: Tensor) -> Tensor:
    """Rotations `(B, 3, 3)`: about the vertical (y), about x (positive pitch: camera from above), about z."""
    zero, unit = torch.zeros_like(yaw), torch.ones_like(yaw)

    def matrix(*rows: Tensor) -> Tensor:
        return torch.stack(rows, dim=1).view(-1, 3, 3)

    about_y = matrix(yaw.cos(), zero, yaw.sin(), zero, unit, zero, -yaw.sin(), zero, yaw.cos())
    about_x = matrix(unit, zero, zero, zero, pitch.cos(), -pitch.sin(), zero, pitch.sin(), pitch.cos())
    about_z = matrix(roll.cos(), -roll.sin(), zero, roll.sin(), roll.cos(), zero, zero, zero, unit)
    return about_z @ about_x @ about_y


@dataclass(frozen=True)
class BoneLengthSettings(FactorSettings):
    """Every bone of a clip is U(min, max) times as long, left and right alike."""


@register_augmentation("bone-lengths", BoneLengthSettings)
class BoneLengths(AugmentationBase[BoneLengthSettings]):
    """Bodies with other proportions and joint positions. Clips have no gaps; the root stays in place."""

    def __init__(self, settings: BoneLengthSettings, topology: Topology) -> None:
        super().__init__(settings, topology)
        self.parents, self.counterparts = list(topology.parents), torch.tensor(topology.mirror)
        depth = [0] * len(topology)
        for joint in range(len(topology)):
            step = joint
            while self.parents[step] != step:
                step, depth[joint] = self.parents[step], depth[joint] + 1
        self.order = sorted((j for j in range(len(topology)) if depth[j]), key=lambda joint: depth[joint])

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        factor = self.settings.factors(shape.batch, shape.joints, generator=generator)
        return {
            "factor": torch.where(
                self.counterparts > torch.arange(shape.joints), factor[:, self.counterparts], factor
            )
        }

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        bones = (clips - clips[:, :, :, self.parents]) * drawn["factor"].to(clips)[:, None, None, :, None]
        joints = list(clips.unbind(3))
        for joint in self.order:
            joints[joint] = joints[self.parents[joint]] + bones[:, :, :, joint]
        return torch.stack(joints, dim=3)


@register_augmentation("jitter")
@dataclass(frozen=True)
class Jitter(CheckedSettings):
    """Key-point noise of a pose estimator, in body sizes; missing points stay missing.

    The noise's standard deviation is U(0, sigma) for every clip, and there are spikes beside it.
    """

    sigma: float = limited(0.05, least=0)
    spikes: float = limited(0.01, least=0, most=1)  # share of the key points of a frame that jump …
    spike: float = limited(0.5, least=0)  # … by this standard deviation

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        points = (shape.batch, shape.frames, shape.persons, shape.joints)
        sigma = uniform(0, self.sigma, shape.batch, 1, 1, 1, 1, generator=generator)
        hit = torch.rand(*points, 1, generator=generator) < self.spikes
        noise = torch.randn(*points, 2, generator=generator)
        return {"noise": noise * torch.where(hit, torch.tensor(self.spike), sigma)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        noise = torch.nn.functional.pad(drawn["noise"].to(clips), (0, clips.shape[4] - 2))
        return clips + noise * (clips != 0).any(4, keepdim=True)


@dataclass(frozen=True)
class SideSwapSettings(CheckedSettings):
    """Left and right legs, arms or both are exchanged during a run of up to this share of the frames."""

    frames: float = limited(0.3, least=0, most=1)


@register_augmentation("side-swaps", SideSwapSettings)
class SideSwaps(AugmentationBase[SideSwapSettings]):
    """A run of frames at a random position in which left limbs are taken for right ones."""

    def __init__(self, settings: SideSwapSettings, topology: Topology) -> None:
        super().__init__(settings, topology)
        parts = topology.body_parts
        limbs = torch.zeros(2, len(topology), dtype=torch.bool)
        for row, limb in enumerate(("arm", "leg")):
            limbs[row, parts[f"{limb}_left"] + parts[f"{limb}_right"]] = True
        self.limbs, self.counterparts = limbs, torch.tensor(topology.mirror)

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        longest = max(1, round(self.settings.frames * shape.frames))
        length = torch.randint(1, longest + 1, (shape.batch, 1), generator=generator)
        start = (torch.rand(shape.batch, 1, generator=generator) * (shape.frames - length + 1)).long()
        frame = torch.arange(shape.frames)
        limbs = torch.randint(1, 4, (shape.batch, 1), generator=generator)  # 1 arms, 2 legs, 3 both
        joints = ((limbs & 1).bool() & self.limbs[0]) | ((limbs & 2).bool() & self.limbs[1])
        return {"frames": (frame >= start) & (frame < start + length), "joints": joints}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        swapped = drawn["frames"][:, :, None, None, None] & drawn["joints"][:, None, None, :, None]
        return torch.where(
            swapped.to(clips.device), clips[:, :, :, self.counterparts.to(clips.device)], clips
        )


@register_augmentation("picture-edge")
@dataclass(frozen=True)
class PictureEdge(CheckedSettings):
    """Joints whose median place lies beyond an edge are missing: the legs behind a table, an arm at the side.

    Up to the share `outside` of the body's height (bottom edge) or width (left and right edge) lies outside
    the picture.
    """

    outside: float = limited(0.6, least=0, most=1)

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        share = uniform(0, self.outside, shape.batch, generator=generator)
        # half of the edges are at the bottom, where films cut people; sides cut half as much
        # 0 bottom, 1 left, 2 right
        edge = torch.randint(4, (shape.batch,), generator=generator).clamp_min(1) - 1
        return {"share": torch.where(edge == 0, share, share / 2), "edge": edge}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        places = clips.median(1).values[..., :2]  # (B, P, V, 2)
        edge, share = drawn["edge"].to(clips.device), drawn["share"].to(clips)[:, None, None]
        along = torch.where(edge[:, None, None] == 0, places[..., 1], places[..., 0])
        along = torch.where(edge[:, None, None] == 2, -along, along)
        seen = (clips != 0).any(4).any(1)
        low = along.masked_fill(~seen, torch.inf).amin(2, keepdim=True)
        high = along.masked_fill(~seen, -torch.inf).amax(2, keepdim=True)
        return hide(clips, (seen & (along < low + share * (high - low)))[:, None, ..., None])


@register_augmentation("lost-frames")
@dataclass(frozen=True)
class LostFrames(CheckedSettings):
    """Lost frames, up to this share, interpolated from their neighbours; the first frame is always kept."""

    frames: float = limited(0.5, least=0, most=1)

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        share = uniform(0, self.frames, shape.batch, 1, generator=generator)
        kept = torch.rand(shape.batch, shape.frames, generator=generator) >= share
        kept[:, 0] = True
        return {"kept": kept}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        kept, frames = drawn["kept"].to(clips.device), clips.shape[1]
        time = torch.arange(frames, device=clips.device).expand_as(kept)
        before = torch.where(kept, time, 0).cummax(1).values
        after = torch.where(kept, time, frames).flip(1).cummin(1).values.flip(1)
        after = torch.where(after == frames, before, after)  # at the end the last frame stays
        share = (time - before) / (after - before).clamp_min(1)
        return torch.lerp(
            at_frames(clips, before), at_frames(clips, after), share[:, :, None, None, None].to(clips)
        )


@register_augmentation("picture")
class Picture(AugmentationBase[Any]):
    """The normalisation step `picture` for batches: persons centred in each frame and scaled to unit size."""

    def __init__(self, settings: Any, topology: Topology) -> None:
        super().__init__(settings, topology)
        self.anchors = [topology.index(joint) for joint in ("hip_center", "shoulder_center")]

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        seen = (clips != 0).any(4)  # (B, T, P, V)
        anchor = clips.new_zeros(*clips.shape[:3], clips.shape[4])
        known = torch.zeros(clips.shape[0], 1, clips.shape[2], 1, dtype=torch.bool, device=clips.device)
        for joint in self.anchors:
            there = seen[:, :, :, joint].any(1)[:, None, :, None]
            anchor = torch.where(
                there & ~known, _last_seen(clips[:, :, :, joint], seen[:, :, :, joint]), anchor
            )
            known = known | there
        mean = clips.sum((1, 3)) / seen.sum((1, 3)).clamp_min(1)[..., None]
        anchor = torch.where(known, anchor, mean[:, None])
        moved = (clips - anchor[:, :, :, None]) * seen[..., None]
        points = seen.sum((1, 3)).clamp_min(1)
        size = (moved[..., :2].square().sum((1, 3, 4)) / (2 * points)).sqrt()
        return moved / (2 * size).clamp_min(1e-6)[:, None, :, None, None]


def _last_seen(points: Tensor, seen: Tensor) -> Tensor:
    """Points `(B, T, P, C)` of a joint; missing ones repeat the last one seen (at the start the next)."""
    time = torch.arange(points.shape[1], device=points.device)[None, :, None].expand_as(seen)
    first = seen.to(torch.uint8).argmax(1, keepdim=True)
    place = torch.maximum(torch.where(seen, time, 0).cummax(1).values, first.expand_as(seen))
    return points.gather(1, place[..., None].expand_as(points))
