"""The protocol `semi`: a few of the labels, and a classifier on frozen features or the whole network trained on them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from halp.clips.splits import FewLabels
from halp.config import CheckedSettings, limited
from halp.errors import InputError
from halp.evaluation.protocol import Predictions, ProtocolContext, register_protocol
from halp.evaluation.protocols.finetune import FinetuneSettings, evaluate_finetune
from halp.evaluation.protocols.linear import BASELINE_SETTINGS, LinearSettings, evaluate_linear

VARIANTS = ("head", "network")


@dataclass(frozen=True)
class SemiSettings(CheckedSettings):
    """A share of the labels, drawn by the seed; the `head` alone is trained on them, or the whole `network`.

    The draw is from all training clips at once as in CMD and HaLP, or from every class where it is `stratified`.
    """

    share: float = 0.1
    variant: str = limited("head", among=VARIANTS)
    stratified: bool = False
    head: str = "linear"
    hidden: int = 512
    solver: str = "sgd"  # of the head alone
    crops: int = 4  # of the head alone
    penalty: float = 1e-2
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
    """Draw the few labels and hand the task on to linear evaluation or fine-tuning."""
    base = context.store.splits[context.split]
    rule = FewLabels(f"{context.split}-few", base, settings.share, seed=context.seed, stratified=settings.stratified)
    few, _ = rule.indices(context.store.columns)
    few = few[np.isin(few, context.train)]
    if not len(few):
        raise InputError(f"semi: a share of {settings.share} of split '{context.split}' holds no labelled clip")
    inner, part = settings.inner(), replace(context, train=few)
    run: Any = evaluate_finetune if isinstance(inner, FinetuneSettings) else evaluate_linear
    return replace(run(part, inner), trained_on=len(few))
