"""Lifting: 2D joints of a virtual camera → 3D joints in the body's frame, from motion capture.

The view `query` passes through the recipe's cameras and faults; `body` is the same window in space, turned so
that its mean trunk lies on z and its mean shoulder line on x (the step `rotate-mean`). No labels, no queue,
no key encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.core.config import CheckedSettings, limited
from halp.core.distributed import gather
from halp.core.errors import InputError
from halp.encoders.lifted import LiftedEncoder, own_frame
from halp.methods.base import BuildContext, Method, Metrics, StepContext, StepOutput, register_method
from halp.methods.predictive import check_frames, refuse_chunks
from halp.skeleton import Topology


@dataclass(frozen=True)
class LiftSettings(CheckedSettings):
    """Weight of the error of motion (between neighbouring frames) beside position; frames per step."""

    motion: float = limited(2.0, least=0)
    frames: int = limited(0, least=0)  # a run of this many frames of the views, at a random place; 0: all
    speeds: bool = False  # runs of half as many frames up to all of them, resized to `frames`
    mirror: bool = False  # every other step lifts mirrored bodies


@register_method("lift", LiftSettings)
class LiftMethod(Method):
    """Trains the lifting network of a `lifted` encoder; the layers that read the lifted body stay fixed."""

    views = MappingProxyType({"query": None, "body": ()})

    def __init__(self, settings: LiftSettings, context: BuildContext) -> None:
        super().__init__()
        self.settings, self.topology = settings, context.topology
        encoders = context.build_encoders(("lift", "reader"), "method 'lift' lifts key points")
        self.backbones = nn.ModuleDict(encoders)
        for encoder in encoders.values():
            cast(LiftedEncoder, encoder).reader.requires_grad_(False)

    @classmethod
    def check(cls, settings: LiftSettings, recipe: Any) -> None:
        check_frames(recipe)
        refuse_chunks(recipe)
        first = recipe.views.policy[0]
        if first.samples:
            raise InputError(
                f"views.augmentations: '{first.name}' would cut other frames than those to predict;"
                " leave it out"
            )

    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        views = self._run(views, context)
        bodies = views["body"].transpose(1, 2)
        target = own_frame(bodies.flatten(0, 1), self.topology).view_as(bodies).transpose(1, 2)
        total = context.batch_size(len(target))
        losses: list[Tensor] = []
        metrics: Metrics = {}
        for name, encoder in self.backbones.items():
            lifted = cast(LiftedEncoder, encoder).lift(views["query"])
            there = (views["body"] != 0).any(4).any(3)[..., None, None]
            gap = (lifted - target) * there
            places = F.smooth_l1_loss(gap, torch.zeros_like(gap), beta=0.5, reduction="none").mean(
                (1, 2, 3, 4)
            )
            motion = (gap[:, 1:] - gap[:, :-1]).abs().mean((1, 2, 3, 4))
            losses.append(gather((places + self.settings.motion * motion)[:, None], total).mean())
            if context.log_metrics:
                distance = torch.linalg.vector_norm(gap.detach(), dim=4).mean()
                metrics |= {f"{name}/joint_error": distance, f"{name}/loss_motion": motion.detach().mean()}
        loss = torch.stack(losses).sum()
        return StepOutput(loss, metrics | {"loss": loss.detach()})

    def _run(self, views: Mapping[str, Tensor], context: StepContext) -> Mapping[str, Tensor]:
        """The frames that this step lifts, the same of both views."""
        length, frames = views["body"].shape[1], self.settings.frames

        def draw(low: int, high: int) -> int:
            return int(torch.randint(low, high + 1, (1,), generator=context.generator))

        if 0 < frames < length:
            span = draw(frames // 2, length) if self.settings.speeds else frames
            start = draw(0, length - span)
            views = {view: resized(clips[:, start : start + span], frames) for view, clips in views.items()}
        if self.settings.mirror and draw(0, 1):
            views = {view: mirrored(clips, self.topology) for view, clips in views.items()}
        return views


def resized(clips: Tensor, frames: int) -> Tensor:
    """Clips `(B, T, …)` with this many frames, first and last the same, others on straight lines."""
    places = torch.linspace(0, clips.shape[1] - 1, frames, device=clips.device)
    below = places.long()
    share = (places - below).view(-1, *[1] * (clips.ndim - 2)).to(clips)
    return torch.lerp(clips[:, below], clips[:, (below + 1).clamp_max(clips.shape[1] - 1)], share)


def mirrored(clips: Tensor, topology: Topology) -> Tensor:
    """Clips `(B, T, P, V, C)` as a mirror shows them, with left and right joints exchanged."""
    return clips[:, :, :, list(topology.mirror)] * clips.new_tensor([-1.0, 1.0, 1.0])
