"""Protocol `finetune`: a copy of the whole network and a classifier are trained with labels.

The protocol `semi`: a few of the labels, and a classifier on frozen features or the whole network trained on
them. The given encoder stays as it is.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from halp.augment import ClipPool
from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.core.progress import Bar
from halp.core.sampling import generator
from halp.core.schedules import stepped_rate
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation.protocol import Labels, Predictions, ProtocolContext, register_protocol, training_crops
from halp.evaluation.protocols.linear import (
    BASELINE_SETTINGS,
    HEADS,
    LinearSettings,
    build_head,
    evaluate_linear,
    linear_scores,
)
from halp.features.encode import encode_centres


@dataclass(frozen=True)
class FinetuneSettings(CheckedSettings):
    """The defaults are those of CMD, which the paper follows; crops are drawn again in every epoch."""

    head: str = limited("linear", among=HEADS)
    hidden: int = limited(512, least=1)  # of an MLP head
    epochs: int = limited(80, least=1)
    batch_size: int = limited(64, least=1)
    learning_rate: float = limited(0.01, above=0)
    momentum: float = 0.9
    weight_decay: float = 0.0
    milestones: tuple[int, ...] = (50, 70)


class Finetuned(nn.Module):
    """A network with its classifier."""

    def __init__(self, encoder: PretrainedEncoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def scores(self, pool: ClipPool, clips: Labels, *, progress: bool = True) -> npt.NDArray[np.float32]:
        """Logits `(N, C)` of the central crops of these clips."""
        blocks = encode_centres(self.encoder, pool, torch.from_numpy(clips), progress=progress)
        return linear_scores(self.head.cpu(), np.concatenate(list(blocks)))


def finetune(
    encoder: PretrainedEncoder,
    pool: ClipPool,
    clips: Labels,
    labels: Labels,
    settings: FinetuneSettings,
    *,
    classes: int,
    seed: int = 0,
    progress: bool = True,
) -> Finetuned:
    """Train a copy of the encoder and a head on the given clips `(N,)` with their labels `(N,)`."""
    network = copy.deepcopy(encoder).to(pool.device).requires_grad_(True)
    head = build_head(
        settings.head, encoder.output_size, classes, generator(seed, "finetune head"), settings.hidden
    )
    model = Finetuned(network, head.to(pool.device)).train()
    optimiser = torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    rows, target = torch.from_numpy(np.asarray(clips)), torch.from_numpy(np.asarray(labels))
    with Bar("fine-tuning", settings.epochs, shown=progress) as bar:
        for epoch in range(settings.epochs):
            optimiser.param_groups[0]["lr"] = stepped_rate(
                settings.learning_rate, epoch, settings.milestones, 0.1
            )
            order = torch.randperm(len(rows), generator=generator(seed, "finetune order", epoch))
            for step, batch in enumerate(order.split(settings.batch_size)):
                draws = generator(seed, "finetune crops", epoch, step)
                cut = pool.cut(rows[batch], *training_crops(pool, rows[batch], draws), encoder.frames)
                loss = nn.functional.cross_entropy(
                    model.head(model.encoder(cut)), target[batch].to(pool.device)
                )
                if not bool(torch.isfinite(loss)):
                    raise InputError(
                        f"fine-tuning diverged in epoch {epoch}; lower learning_rate ="
                        f" {settings.learning_rate}"
                    )
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
            bar.advance()
    return model.eval()


@register_protocol("finetune", FinetuneSettings, trains_backbone=True)
def evaluate_finetune(context: ProtocolContext, settings: FinetuneSettings) -> Predictions:
    """Classify the test clips by a copy of the network that was trained on the training clips."""
    model = finetune(
        context.encoder,
        context.pool,
        context.train,
        context.train_labels,
        settings,
        classes=context.classes,
        seed=context.seed,
        progress=context.progress,
    )
    return Predictions(model.scores(context.pool, context.test, progress=context.progress).argmax(1))


VARIANTS = ("head", "network")


@dataclass(frozen=True)
class SemiSettings(CheckedSettings):
    """A share of the labels, drawn by the seed; the `head` alone is trained on them, or the whole `network`.

    The draw is from all training clips at once as in CMD and HaLP, or from every class where it is
    `stratified`.
    """

    share: float = 0.1
    variant: str = limited("head", among=VARIANTS)
    stratified: bool = False
    head: str = "linear"
    hidden: int = 512
    solver: str = "sgd"  # of the head alone
    crops: int = 4  # of the head alone
    penalty: float = 1e-2
    scale: str = "each"  # of the exact solver
    epochs: int = 80
    batch_size: int = 64
    learning_rate: float = 0.0  # 0: that of the protocol, 0.1 for the head and 0.01 for the network
    milestones: tuple[int, ...] = (50, 70)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inner()

    def inner(self) -> LinearSettings | FinetuneSettings:
        """The settings of the protocol that the few labels go to."""
        kind: Any = LinearSettings if self.variant == "head" else FinetuneSettings
        known = {entry.name for entry in fields(kind)}
        shared = {key: value for key, value in asdict(self).items() if key in known}
        if not self.learning_rate:
            del shared["learning_rate"]
        return kind(**shared)


@register_protocol(
    "semi",
    SemiSettings,
    trains_backbone=lambda settings: settings.variant == "network",
    title=lambda settings: f"semi {100 * settings.share:g} %",
    draws_labels=True,
    baseline_settings={key: value for key, value in BASELINE_SETTINGS.items() if key != "fresh"},
)
def evaluate_semi(context: ProtocolContext, settings: SemiSettings) -> Predictions:
    """Draw the few labels, then run linear evaluation or fine-tuning on them."""
    few = context.few_labels(settings.share, stratified=settings.stratified)
    inner, part = settings.inner(), replace(context, train=few)
    run: Any = evaluate_finetune if isinstance(inner, FinetuneSettings) else evaluate_linear
    return replace(run(part, inner), trained_on=len(few))
