"""MS2L (Lin et al., ACM MM 2020): three tasks on one encoder: predict the frames that were cut off, put
segments in order, and agree on all three inputs (whole, cut, shuffled) by contrast.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.extend import (
    BuildContext,
    CheckedSettings,
    GRUStack,
    InputError,
    Predicted,
    PredictiveMethod,
    WholeBatch,
    at_frames,
    initialise,
    limited,
    register_method,
)
from halp.losses import nt_xent_of_pairs, squared_error

# what stands for the similarity of a vector with itself: the public code's value, or nothing
OWN_SIMILARITY = {"minus-one": -1.0, "removed": -math.inf}
MOST_SEGMENTS = 5


@dataclass(frozen=True)
class MS2LSettings(CheckedSettings):
    """The defaults are those of the public code."""

    mask: float = limited(0.3, above=0, below=1)  # share of the frames, at the end, that are set to zero
    segments: int = limited(3, least=2, most=MOST_SEGMENTS)
    temperature: float = limited(0.9, above=0)
    own_similarity: str = limited("minus-one", among=OWN_SIMILARITY)
    head: int = limited(2048, least=1)  # hidden units of both heads
    projection: int = limited(1024, least=1)
    decoder_layers: int = limited(2, least=1)
    motion_weight: float = limited(1.0, least=0)
    jigsaw_weight: float = limited(1.0, least=0)
    contrast_weight: float = limited(1.0, least=0)

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the losses by name."""
        return {"motion": self.motion_weight, "jigsaw": self.jigsaw_weight, "nt_xent": self.contrast_weight}


@register_method("ms2l", MS2LSettings)
class MS2LMethod(PredictiveMethod):
    """Every clip is encoded as it is, without its end, and with its segments shuffled."""

    settings: MS2LSettings
    needs = ("sequence", "pool", "frame_size")
    why = "method 'ms2l' decodes the states of all frames"

    @classmethod
    def check(cls, settings: MS2LSettings, recipe: Any) -> None:
        super().check(settings, recipe)
        if recipe.views.frames < settings.segments:
            raise InputError(
                f"views.frames = {recipe.views.frames} cannot be cut into ms2l.segments = {settings.segments}"
            )

    def decoder(self, encoder: Any, settings: MS2LSettings, context: BuildContext) -> nn.Module:
        return initialise(Heads(context.numbers_per_frame, encoder, settings))

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder, heads = cast(Any, self.backbones[name]), cast(Heads, self.decoders[name])
        label = batch.randint(math.factorial(self.settings.segments)).to(clips.device)
        cut, shuffled = (
            cut_off(clips, self.settings.mask),
            shuffle_segments(clips, label, self.settings.segments),
        )
        states = [encoder.sequence(part) for part in (clips, cut, shuffled)]
        pooled = [encoder.pool(part) for part in states]
        guess = heads.jigsaw(pooled[2])
        losses = {
            "motion": batch.mean(squared_error(heads.motion(states[1]), clips.flatten(2))),
            "jigsaw": batch.mean(F.cross_entropy(guess, label, reduction="none")),
            "nt_xent": self._contrast([batch.gather(heads.contrast(part)) for part in pooled]),
        }
        right = batch.mean((guess.argmax(1) == label).to(guess.dtype))
        return Predicted(losses, pooled[0], {"jigsaw_accuracy": right})

    def _contrast(self, projections: list[Tensor]) -> Tensor:
        """NT-Xent of each of the three with their mean, averaged."""
        centre, own = torch.stack(projections).mean(0), OWN_SIMILARITY[self.settings.own_similarity]
        losses = [nt_xent_of_pairs(part, centre, self.settings.temperature, own=own) for part in projections]
        return torch.stack(losses).mean()


class Heads(nn.Module):
    """Heads of the three tasks; `motion` reads states of all frames, the others pooled features."""

    def __init__(self, numbers: int, encoder: Any, settings: MS2LSettings) -> None:
        super().__init__()
        width, pooled = encoder.frame_size, encoder.output_size
        self.motion = nn.Sequential(
            GRUStack(width, width, settings.decoder_layers), nn.Linear(width, numbers)
        )
        self.jigsaw = head(pooled, settings.head, math.factorial(settings.segments))
        self.contrast = head(pooled, settings.head, settings.projection)


def head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Linear, BatchNorm, ReLU, Linear; no first bias: BatchNorm removes it, Adam would drift it."""
    first = nn.Linear(inputs, hidden, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def cut_off(clips: Tensor, share: float) -> Tensor:
    """Clips `(B, T, …)` whose last frames, a share of all, are zero."""
    kept = torch.arange(clips.shape[1], device=clips.device) < clips.shape[1] * (1 - share)
    return clips * kept.to(clips)[:, None, None, None]


def shuffle_segments(clips: Tensor, label: Tensor, segments: int) -> Tensor:
    """Clips `(B, T, …)` with equal segments permuted by `label` `(B,)`; a remainder stays last."""
    frames = clips.shape[1]
    length = frames // segments
    orders = torch.tensor(list(itertools.permutations(range(segments))), device=clips.device)
    moved = (orders[:, :, None] * length + torch.arange(length, device=clips.device)).flatten(1)
    rest = torch.arange(segments * length, frames, device=clips.device).expand(len(orders), -1)
    return at_frames(clips, torch.cat([moved, rest], dim=1)[label])
