"""The protocol `finetune`: a copy of the whole network and a classifier are trained with labels; transfer, on other data.

The given encoder stays as it is.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from halp.augment import ClipPool
from halp.config import CheckedSettings, limited
from halp.encoders.pretrained import PretrainedEncoder
from halp.errors import InputError
from halp.evaluation.protocol import Labels, Predictions, ProtocolContext, register_protocol, training_crops
from halp.evaluation.protocols.linear import HEADS, build_head, linear_scores, stepped_rate
from halp.features.embed import encode_centres
from halp.progress import Bar
from halp.sampling import generator


@dataclass(frozen=True)
class FinetuneSettings(CheckedSettings):
    """The defaults are those of CMD, which the paper follows; crops are drawn anew in every epoch."""

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
    head = build_head(settings.head, encoder.output_size, classes, generator(seed, "finetune head"), settings.hidden)
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
            optimiser.param_groups[0]["lr"] = stepped_rate(settings.learning_rate, epoch, settings.milestones)
            order = torch.randperm(len(rows), generator=generator(seed, "finetune order", epoch))
            for step, batch in enumerate(order.split(settings.batch_size)):
                draws = generator(seed, "finetune crops", epoch, step)
                cut = pool.cut(rows[batch], *training_crops(pool, rows[batch], draws), encoder.frames)
                loss = nn.functional.cross_entropy(model.head(model.encoder(cut)), target[batch].to(pool.device))
                if not bool(torch.isfinite(loss)):
                    raise InputError(
                        f"fine-tuning diverged in epoch {epoch}; lower learning_rate = {settings.learning_rate}"
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
