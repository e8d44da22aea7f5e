"""Augmentation-free tuning (after STARS, Mehraban et al. 2024): discriminate the clips of a batch.

The view is the whole clip as it is. Its positive is the nearest past projection of another clip (NNCLR, as in
STARS), a hallucinated one around its own projection (HaLP), or both. No key encoder; a memory of past
projections. A run starts from the encoder of another one: `halp pretrain small-tune --init RUN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from halp.extend import (
    BuildContext,
    CheckedSettings,
    InputError,
    KeyQueue,
    Method,
    Metrics,
    SharedPositives,
    StepContext,
    StepOutput,
    ViewSettings,
    check_frames,
    derive,
    gather,
    limited,
    refuse_chunks,
    register_method,
)
from halp.sphere import unit


def positives_in_batch(
    prediction: Tensor, positives: Tensor, kept: Tensor, temperature: float = 0.07
) -> Tensor:
    """−log softmax over the batch of positive·prediction / T at the own clip, mean over kept positives.

    Predictions are `(B, D)`, positives `(B, G, D)`, which of them count `(B, G)`; all of unit length. The
    negatives of a positive are the predictions of the other clips. Gradient through the predictions only; 0
    if no positive is kept.

    >>> axes = torch.eye(3)
    >>> round(float(positives_in_batch(axes, axes[:, None], torch.ones(3, 1, dtype=torch.bool), 1.0)), 4)
    0.5514
    """
    similarity = torch.einsum("bgd,cd->bgc", positives.detach(), prediction) / temperature
    at_clip = similarity.diagonal(dim1=0, dim2=2).T
    loss = similarity.logsumexp(2) - at_clip
    return (loss * kept).sum() / kept.sum().clamp_min(1)


KINDS = {
    "neighbour": ("neighbour",),
    "hallucinated": ("hallucinated",),
    "both": ("neighbour", "hallucinated"),
}
UNKNOWN = -1  # the clip of a projection, where training does not say which it is


@dataclass(frozen=True)
class TuneSettings(CheckedSettings):
    """Settings of tuning. Predictor, memory and temperature are those of STARS, the rest HaLP's."""

    positives: str = limited("neighbour", among=KINDS)
    width: int = limited(4096, least=1)  # of the predictor between its two layers
    memory: int = limited(32768, least=1)  # past projections
    temperature: float = 0.07
    prototypes: int = 20  # this and the following: of hallucinated positives
    count: int = 100
    hardness: float = 0.8
    refresh: int = 5
    recent: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if "hallucinated" in self.kinds and self.recent > self.memory:
            raise InputError(
                f"tune: recent = {self.recent} projections are clustered, and memory = {self.memory} holds"
                " fewer; lower recent or raise memory"
            )
        self.hallucination()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of positives, whose losses are averaged."""
        return KINDS[self.positives]

    def hallucination(self) -> SharedPositives:
        """Hallucinated positives of one stream; building them checks the settings."""
        try:
            return SharedPositives(
                self.prototypes,
                self.count,
                self.hardness,
                self.refresh,
                self.recent,
                temperature=self.temperature,
            )
        except InputError as error:
            raise InputError(f"tune: {error}") from None


class ClipMemory(KeyQueue):
    """The newest projections of one stream, and which clip each is of."""

    owners: Tensor

    def __init__(self, size: int, dimension: int, generator: torch.Generator | None = None) -> None:
        super().__init__(("clip",), size, dimension, generator)
        self.register_buffer("owners", torch.full((size,), UNKNOWN))

    @torch.no_grad()
    def remember(self, projections: Tensor, clips: Tensor) -> None:
        """Append projections `(B, D)` of these clips `(B,)`; the oldest make room."""
        rows = self.next_rows(len(clips))
        self.owners.index_copy_(0, rows, clips[len(clips) - len(rows) :])
        self.push({"clip": projections})

    @torch.no_grad()
    def nearest(self, projections: Tensor, clips: Tensor) -> Tensor:
        """The nearest past projection of another clip `(B, D)`, or the clip's own if there is none yet."""
        number = int(self.filled)
        if number == 0:
            return projections
        past, owners = self.keys("clip")[:number], self.owners[:number]
        same_clip = (owners == clips[:, None]) & (owners != UNKNOWN)
        similarity, row = (projections @ past.T).masked_fill(same_clip, -torch.inf).max(1)
        return torch.where(similarity.isfinite()[:, None], past[row], projections)


def predictor(features: int, width: int) -> nn.Sequential:
    """Linear, BatchNorm, ReLU, Linear: `(B, features)` → `(B, features)`."""
    return nn.Sequential(
        nn.Linear(features, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, features)
    )


@register_method("tune", TuneSettings)
class TuneMethod(Method):
    """An encoder, a BatchNorm as projection head, a predictor and a memory per stream."""

    views = MappingProxyType({"clip": ()})
    fork_optional = ("hallucinated.",)
    tunes = True

    def __init__(self, settings: TuneSettings, context: BuildContext) -> None:
        super().__init__()
        self.settings, self.topology = settings, context.topology
        encoders = context.build_encoders()
        sizes = {stream: encoder.output_size for stream, encoder in encoders.items()}
        self.backbones = nn.ModuleDict(encoders)
        self.heads = nn.ModuleDict({stream: nn.BatchNorm1d(size) for stream, size in sizes.items()})
        self.predictors = nn.ModuleDict(
            {stream: predictor(size, settings.width) for stream, size in sizes.items()}
        )
        self.memories = nn.ModuleDict(
            {stream: ClipMemory(settings.memory, size, context.generator) for stream, size in sizes.items()}
        )
        hallucinates = "hallucinated" in settings.kinds
        self.hallucinated = nn.ModuleDict(
            {stream: settings.hallucination() for stream in sizes} if hallucinates else {}
        )

    @classmethod
    def check(cls, settings: TuneSettings, recipe: Any) -> None:
        refuse_chunks(recipe)
        check_frames(recipe)
        if recipe.views.policy != ViewSettings().policy:
            raise InputError(
                "method 'tune' sees whole clips without augmentation, and the settings of [views] other than"
                " frames would be ignored; leave them out, or describe the view in [views.clip]"
            )

    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        clips = views["clip"]
        total = context.batch_size(len(clips))
        which = torch.full((total,), UNKNOWN) if context.clips is None else context.clips
        losses, projections = [], {}
        metrics: Metrics = {}
        for stream in self.backbones:
            with record_function("halp: forward"):
                projection, prediction = (gather(x, total) for x in self._project(stream, clips))
            projections[stream] = projection.detach()
            # half precision would blur angles and logits: the loss is computed in full
            with torch.autocast(clips.device.type, enabled=False):
                loss, seen = self._loss(
                    stream, projections[stream], prediction, which.to(clips.device), context
                )
            losses.append(loss)
            metrics |= {f"{stream}/{name}": value for name, value in seen.items()}
        loss = torch.stack(losses).sum()
        # projections of a diverged step would spoil later ones
        if not context.check_loss or bool(torch.isfinite(loss)):
            for stream, projection in projections.items():
                self._memory(stream).remember(projection, which.to(clips.device))
        return StepOutput(loss, metrics | {"loss": loss.detach()} if context.log_metrics else {}, projections)

    def _project(self, stream: str, clips: Tensor) -> tuple[Tensor, Tensor]:
        """Projections and predictions, both of unit length and in full precision."""
        projection = self.heads[stream](self.backbones[stream](derive(clips, stream, self.topology)))
        return unit(projection.float()), unit(self.predictors[stream](projection).float())

    def _memory(self, stream: str) -> ClipMemory:
        return cast(ClipMemory, self.memories[stream])

    def _loss(
        self, stream: str, projection: Tensor, prediction: Tensor, clips: Tensor, context: StepContext
    ) -> tuple[Tensor, Metrics]:
        losses, metrics = [], {}
        for kind in self.settings.kinds:
            find = self._neighbours if kind == "neighbour" else self._hallucinate
            positives, kept = find(stream, projection, clips, context)
            losses.append(positives_in_batch(prediction, positives, kept, self.settings.temperature))
            if context.log_metrics:
                similarity = (positives * projection[:, None]).sum(2)
                metrics[f"loss_{kind}"] = losses[-1].detach()
                metrics[f"similarity_{kind}"] = (similarity * kept).sum() / kept.sum().clamp_min(1)
                if kind == "hallucinated":
                    metrics["kept"] = kept.float().mean()
        return torch.stack(losses).mean(), metrics

    def _neighbours(
        self, stream: str, projection: Tensor, clips: Tensor, context: StepContext
    ) -> tuple[Tensor, Tensor]:
        return _only(self._memory(stream).nearest(projection, clips))

    def _hallucinate(
        self, stream: str, projection: Tensor, clips: Tensor, context: StepContext
    ) -> tuple[Tensor, Tensor]:
        """Hallucinated positives around the own projection, used alone until there are enough to cluster."""
        recent = self._memory(stream).recent("clip", self.settings.recent)
        if len(recent) < self.settings.recent:
            return _only(projection)
        term = cast(SharedPositives, self.hallucinated[stream])
        plan = term.plan(projection, projection, recent, context.generator)
        return plan.positives(), plan.kept


def _only(positive: Tensor) -> tuple[Tensor, Tensor]:
    """One positive per clip, `(B, 1, D)`, which is kept."""
    return positive[:, None], torch.ones(len(positive), 1, dtype=torch.bool, device=positive.device)
