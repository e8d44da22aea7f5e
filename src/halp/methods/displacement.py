"""Multi-interval pose displacement prediction (GL-Transformer): how has every joint moved since 1, 5 and 10 frames before?

Directions and magnitudes are classes, asked for in every frame, so that an encoder has to look at other frames to answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from halp.encoders.global_local import centre_joint, relative_to_centre
from halp.encoders.transformer import persons_present
from halp.errors import InputError, choose
from halp.losses.displacement import displacement_classes, token_weights, weighted_cross_entropy
from halp.methods.base import BuildContext, register_method
from halp.methods.predictive import Predicted, PredictiveMethod, PredictiveSettings, WholeBatch, require_encoder
from halp.skeleton import Topology

ENCODERS = ("global-local", "hierarchical", "gru")
CENTRES = ("all", "first")


@dataclass(frozen=True)
class DisplacementSettings(PredictiveSettings):
    """The defaults are those of the public code of GL-Transformer, in metres and frames."""

    intervals: tuple[int, ...] = (1, 5, 10)
    bin: float = 0.01  # width of a class of magnitudes, in the store's unit
    bins: int = 14
    magnitude_weight: float = 1.0
    centre_weight: float = 0.05  # of the centre joint beside the others
    centre_intervals: str = "all"  # in which intervals it is weighted so; "first" as the public code does

    def __post_init__(self) -> None:
        if not self.intervals or min(self.intervals) < 1 or len(set(self.intervals)) != len(self.intervals):
            raise InputError(
                f"displacement: intervals = {list(self.intervals)} have to be numbers of frames, each once"
            )
        if not self.bin > 0 or self.bins < 1:
            raise InputError(f"displacement: bin = {self.bin} has to be above 0 and bins = {self.bins} at least 1")
        if min(self.magnitude_weight, self.centre_weight) < 0:
            raise InputError("displacement: magnitude_weight and centre_weight cannot be negative")
        choose("centre_intervals", self.centre_intervals, CENTRES)

    @property
    def weights(self) -> dict[str, float]:
        return {"magnitude": self.magnitude_weight}


class DisplacementMethod(PredictiveMethod):
    """Linear heads on the features of every frame, two for each interval."""

    settings: DisplacementSettings

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder = cast(Any, self.backbones[name])
        states, centre = encoder.sequence(clips), centre_joint(self.topology)
        places, present = relative_to_centre(clips, centre), persons_present(clips)
        tokens = self._token_weights(centre).to(states.device)
        losses, metrics = {}, {}
        found = zip(("direction", "magnitude"), self.decoders[name](states), self._targets(places, present))
        for task, logits, classes in found:
            losses[task] = batch.mean(weighted_cross_entropy(logits, classes, tokens))
            right = (logits.argmax(5) == classes).to(logits.dtype)
            metrics[f"{task}_accuracy"] = batch.mean(right.flatten(1).mean(1))
        return Predicted(losses, encoder.pool(states), metrics)

    def _token_weights(self, centre: int) -> Tensor:
        """How much every joint counts in every interval, `(R, V)`."""
        settings, everywhere = self.settings, self.settings.centre_intervals == "all"
        shape = (len(settings.intervals), len(self.topology), centre)
        return token_weights(*shape, settings.centre_weight, all_intervals=everywhere)

    def _targets(self, places: Tensor, present: Tensor) -> tuple[Tensor, ...]:
        """Classes of direction and of magnitude, `(B, T, R, P, V)`."""
        settings = self.settings
        pairs = [
            displacement_classes(places, interval, settings.bin, settings.bins, present)
            for interval in settings.intervals
        ]
        return tuple(torch.stack(classes, dim=2) for classes in zip(*pairs))


class Heads(nn.Module):
    """Logits of directions and magnitudes, `(B, T, R, P, V, K)` each, from features `(B, T, F)` of every frame."""

    def __init__(self, features: int, settings: DisplacementSettings, topology: Topology, persons: int) -> None:
        super().__init__()
        self.shape = (len(settings.intervals), persons, len(topology))
        tokens = len(settings.intervals) * persons * len(topology)
        self.direction = nn.Linear(features, tokens * 3**topology.dimensions)
        self.magnitude = nn.Linear(features, tokens * (settings.bins + 2))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        shape = (*features.shape[:2], *self.shape, -1)
        return self.direction(features).view(shape), self.magnitude(features).view(shape)


def _check(settings: DisplacementSettings, recipe: Any) -> None:
    require_encoder(recipe, ENCODERS, "predicts from the features of single frames")
    if max(settings.intervals) >= recipe.views.frames:
        raise InputError(
            f"displacement.intervals = {list(settings.intervals)} do not fit in views.frames = {recipe.views.frames}"
        )


@register_method("displacement", DisplacementSettings, check=_check)
def build_displacement(settings: DisplacementSettings, context: BuildContext) -> DisplacementMethod:
    """Displacement prediction in every stream of the recipe."""
    parts = context.build_pairs(lambda encoder: Heads(encoder.frame_size, settings, context.topology, context.persons))
    return DisplacementMethod(*parts, settings, context.topology)
