"""ASSL (Si et al., ECCV 2020): labels of a few clips, and all other clips for what needs none.

Four losses share an encoder: cross-entropy on the labelled clips; a decoder fills a hidden region of every
clip; a clip and its neighbourhood (clips of its class if it is known, the nearest ones elsewhere, joined
by attention) are to be classified alike; and a discriminator that tells labelled from unlabelled features is
to fail. No code of it is public. From the description are these four parts; sizes, weights, the region that
is hidden, the attention and the schedule are ours, each a setting.

It is a protocol, since it needs labels while it trains: `halp evaluate RUN --protocol assl --set
assl.share=0.05` trains a copy of the run's encoder. The method `inpainting` is the part that needs no labels,
for a start from there.
"""

from __future__ import annotations

import copy
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
    Predictions,
    PredictiveMethod,
    ProtocolContext,
    WholeBatch,
    generator,
    initialise,
    limited,
    register_method,
    register_protocol,
)
from halp.zoo.longt_gan import constant, fooling_loss


@dataclass(frozen=True)
class RegionSettings(CheckedSettings):
    """The region that is hidden and the decoder that fills it: ours."""

    # share of the frames, one after the other, that a region takes in
    frames: float = limited(0.3, above=0, most=1)
    joints: float = limited(0.5, above=0, most=1)  # share of the joints
    width: int = limited(256, least=1)  # units of the decoder
    layers: int = limited(1, least=1)


@dataclass(frozen=True)
class ASSLSettings(RegionSettings):
    """The share of labels is that of a table; everything else is ours, as the paper does not say it."""

    share: float = limited(0.05, above=0, most=1)
    stratified: bool = True  # labels are drawn from every class
    neighbours: int = limited(4, least=1)
    inpainting: float = limited(1.0, least=0)  # weights of the losses beside cross-entropy
    consistency: float = limited(1.0, least=0)
    adversarial: float = limited(0.1, least=0)
    discriminator: int = limited(128, least=1)  # units of the discriminator
    epochs: int = limited(80, least=1)
    batch_size: int = limited(64, least=2)  # labelled clips of a step; as many without labels go with them
    learning_rate: float = limited(1e-3, above=0)  # of Adam
    milestones: tuple[int, ...] = (50, 70)


def hidden_region(place: Tensor, noise: Tensor, frames: int, settings: RegionSettings) -> Tensor:
    """Which joints are hidden in which frames, `(B, T, V)`: a stretch of frames and a share of the joints.

    `place` `(B,)` in [0, 1) says where the stretch begins; the joints with the smallest of `noise` `(B, V)`
    are hidden.
    """
    length = max(1, round(settings.frames * frames))
    start = (place * (frames - length + 1)).long()[:, None]
    time = torch.arange(frames, device=place.device)
    stretch = (time >= start) & (time < start + length)
    joints = noise.argsort(1).argsort(1) < max(1, round(settings.joints * noise.shape[1]))
    return stretch[:, :, None] & joints[:, None]


def region_error(found: Tensor, clips: Tensor, hidden: Tensor) -> Tensor:
    """Mean squared error `(B,)` of frames `(B, T, N)` over the hidden joints of clips `(B, T, P, V, C)`."""
    square = (found.view_as(clips) - clips).square().mean((2, 4))
    return (square * hidden).sum((1, 2)) / hidden.sum((1, 2))


class Decoder(nn.Module):
    """A GRU that fills a region from what can be seen and the features of it."""

    def __init__(self, numbers: int, features: int, settings: RegionSettings) -> None:
        super().__init__()
        self.gru = GRUStack(numbers + features, settings.width, settings.layers)
        self.out = nn.Linear(settings.width, numbers)

    def forward(self, seen: Tensor, features: Tensor) -> Tensor:
        """Frames `(B, T, N)`."""
        given = torch.cat([seen, features[:, None].expand(-1, seen.shape[1], -1)], dim=2)
        return self.out(self.gru(given))

    def error(self, encoder: Any, clips: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Error of the filled region `(B,)`, and features `(B, F)` of the visible part."""
        seen = clips * ~hidden[:, :, None, :, None]
        features = encoder(seen)
        return region_error(self(seen.flatten(2), features), clips, hidden), features


@register_method("inpainting", RegionSettings)
class InpaintingMethod(PredictiveMethod):
    """The self-supervised part alone: fill a hidden region of every clip."""

    settings: RegionSettings

    def decoder(self, encoder: Any, settings: RegionSettings, context: BuildContext) -> nn.Module:
        return initialise(Decoder(context.numbers_per_frame, encoder.output_size, settings))

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        place, noise = batch.rand(1)[:, 0], batch.rand(clips.shape[3])
        hidden = hidden_region(place.to(clips.device), noise.to(clips.device), clips.shape[1], self.settings)
        error, features = cast(Decoder, self.decoders[name]).error(self.backbones[name], clips, hidden)
        return Predicted({"region": batch.mean(error)}, features)


def find_neighbours(features: Tensor, labels: Tensor, anchors: Tensor, count: int) -> Tensor:
    """Neighbours `(A, count)` of some clips among all `(N, F)`, by cosine, nearest first, without itself.

    Of a clip with a label (`labels` `(N,)`, −1 if it is unknown) those of its class are taken first; if
    there are fewer, and for a clip without, whatever is nearest.
    """
    unit = F.normalize(features, dim=1)
    similarity = unit[anchors] @ unit.T
    own = labels[anchors][:, None]
    similarity = similarity + 4.0 * ((own == labels) & (own >= 0))
    similarity.scatter_(1, anchors[:, None], -torch.inf)
    return similarity.topk(min(count, len(features) - 1), dim=1).indices


def attend_to(features: Tensor, neighbours: Tensor) -> Tensor:
    """The neighbourhood of each clip `(B, F)`: neighbours `(B, K, F)` weighted by scaled products."""
    products = (features[:, None] * neighbours).sum(2) / features.shape[1] ** 0.5
    return (products.softmax(1)[..., None] * neighbours).sum(1)


def consistency_loss(own: Tensor, around: Tensor) -> Tensor:
    """KL(p ‖ q) `(B,)` between the classes of a clip and of its neighbourhood, from logits `(B, C)` of both.

    >>> import torch
    >>> consistency_loss(torch.zeros(1, 2), torch.zeros(1, 2)).tolist()
    [0.0]
    """
    return F.kl_div(around.log_softmax(1), own.log_softmax(1), reduction="none", log_target=True).sum(1)


class ASSLNetwork(nn.Module):
    """A copy of the encoder, with classifier, decoder and discriminator."""

    def __init__(self, encoder: Any, classes: int, settings: ASSLSettings) -> None:
        super().__init__()
        self.settings, self.encoder = settings, copy.deepcopy(encoder).requires_grad_(True)
        features, layout = encoder.output_size, encoder.topology
        numbers = encoder.persons * len(layout) * layout.dimensions
        self.classifier = initialise(nn.Linear(features, classes))
        self.decoder = cast(Decoder, initialise(Decoder(numbers, features, settings)))
        self.discriminator = initialise(
            nn.Sequential(
                nn.Linear(features, settings.discriminator), nn.ReLU(), nn.Linear(settings.discriminator, 1)
            )
        )

    def losses(self, clips: Tensor, labels: Tensor, hidden: Tensor, around: Tensor) -> dict[str, Tensor]:
        """All losses of a batch `(B, T, P, V, C)` whose first rows have labels `(L,)`, L < B.

        `hidden` `(B, T, V)` is the region to fill, `around` `(B, K, F)` the features of every clip's
        neighbours.
        """
        features, known = self.encoder(clips), len(labels)
        scores = self.classifier(features)
        error, _ = self.decoder.error(self.encoder, clips, hidden)
        consistency = consistency_loss(scores, self.classifier(attend_to(features, around)))
        told = self.discriminator(features.detach())[:, 0]
        with constant(self.discriminator):
            fooled = self.discriminator(features[known:])[:, 0]
        return {
            "classes": F.cross_entropy(scores[:known], labels),
            "inpainting": error.mean(),
            "consistency": consistency.mean(),
            "adversarial": fooling_loss(fooled).mean(),
            "discriminator": F.softplus(-told[:known]).mean() + F.softplus(told[known:]).mean(),
        }

    def total(self, losses: dict[str, Tensor]) -> Tensor:
        """Their weighted sum."""
        weights = {
            name: getattr(self.settings, name) for name in ("inpainting", "consistency", "adversarial")
        }
        return torch.stack([weights.get(name, 1.0) * loss for name, loss in losses.items()]).sum()


def train_assl(context: ProtocolContext, few: Tensor, settings: ASSLSettings) -> ASSLNetwork:
    """Train on all training clips of a context, of which `few` `(n,)` have labels."""
    every = torch.from_numpy(context.train).sort().values
    rest = every[~torch.isin(every, few)]
    labels = torch.full((len(context.labels),), -1)
    labels[few] = torch.from_numpy(context.labels)[few]
    torch.manual_seed(generator(context.seed, "assl weights").initial_seed())
    network = ASSLNetwork(context.encoder, context.classes, settings).to(context.device).train()
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    joints = len(context.encoder.topology)
    for epoch in range(settings.epochs):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * 0.1 ** sum(
                epoch >= milestone for milestone in settings.milestones
            )
        bank = torch.from_numpy(context.encode_centres(network.encoder, every.numpy()))
        network.train()
        draws = generator(context.seed, "assl", epoch)
        pairs = _batches(few, rest, settings.batch_size, draws)
        for known, unknown in pairs:
            rows = torch.cat([known, unknown])
            place, noise = (
                torch.rand(len(rows), generator=draws),
                torch.rand(len(rows), joints, generator=draws),
            )
            clips = context.crop(rows, draws)
            near = find_neighbours(bank, labels[every], torch.searchsorted(every, rows), settings.neighbours)
            hidden = hidden_region(place, noise, clips.shape[1], settings).to(clips.device)
            target = labels[known].to(clips.device)
            loss = network.total(network.losses(clips, target, hidden, bank[near].to(clips.device)))
            if not bool(torch.isfinite(loss)):
                raise InputError(
                    f"assl diverged in epoch {epoch}; lower assl.learning_rate = {settings.learning_rate}"
                )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
    return network.eval()


def _batches(few: Tensor, rest: Tensor, size: int, draws: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Batches of unlabelled clips, each beside as many labelled ones, which are repeated."""
    unknown = rest[torch.randperm(len(rest), generator=draws)]
    steps = -(-len(unknown) // size)
    turns = torch.cat(
        [few[torch.randperm(len(few), generator=draws)] for _ in range(-(-len(unknown) // len(few)))]
    )
    parts = zip(turns[: len(unknown)].chunk(steps), unknown.chunk(steps))
    return [(known, others) for known, others in parts if len(others) > 1]


@register_protocol(
    "assl",
    ASSLSettings,
    trains_backbone=True,
    draws_labels=True,
    title=lambda settings: f"assl {100 * settings.share:g} %",
)
def evaluate_assl(context: ProtocolContext, settings: ASSLSettings) -> Predictions:
    """Classify the test clips by the network trained with labels of a share of the training clips."""
    few = context.few_labels(settings.share, stratified=settings.stratified)
    if len(few) == len(context.train):
        raise InputError("assl: all clips have labels, and it needs some without; lower assl.share")
    if context.encoder.stream != "joint":
        raise InputError(f"assl reads the joint stream, and this encoder reads '{context.encoder.stream}'")
    network = train_assl(context, torch.from_numpy(few), settings)
    features = torch.from_numpy(context.encode_centres(network.encoder, context.test))
    with torch.inference_mode():
        scores = network.classifier.cpu()(features)
    return Predictions(scores.argmax(1).numpy(), trained_on=len(few))
