"""The protocols: kNN, linear, semi-supervised, fine-tuning (also transfer), ensemble and retrieval."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.splits import FewLabels
from halp.errors import InputError, choose
from halp.evaluation.ensemble import EncoderGroup, EnsembleSettings, Scores, fuse
from halp.evaluation.finetune import FinetuneSettings, finetune
from halp.evaluation.knn import class_similarities, knn_votes
from halp.evaluation.linear import LinearSettings, choose_penalty, fit_linear, linear_scores
from halp.evaluation.retrieval import retrieve
from halp.evaluation.task import Outcome, Task, register_protocol
from halp.sampling import generator

VARIANTS = ("head", "network")


@dataclass(frozen=True)
class KnnSettings:
    """k = 1 by cosine similarity is the paper's; a temperature weights votes by exp(similarity / temperature)."""

    k: int = 1
    temperature: float | None = None
    similarity: str = "cosine"

    def __post_init__(self) -> None:
        choose("similarity", self.similarity, ("cosine",))
        if self.temperature is not None and not self.temperature > 0:
            raise InputError(f"knn: temperature = {self.temperature} has to be above 0")


@register_protocol("knn", KnnSettings)
def _knn(task: Task, settings: KnnSettings) -> Outcome:
    train, test = task.features[task.train], task.features[task.test]
    votes = knn_votes(
        train, task.train_labels, test, settings.k, classes=task.classes, temperature=settings.temperature
    )
    return Outcome(votes.argmax(1))


@register_protocol("linear", LinearSettings)
def _linear(task: Task, settings: LinearSettings) -> Outcome:
    return Outcome(_linear_logits(task, settings).argmax(1))


def _linear_logits(task: Task, settings: LinearSettings) -> npt.NDArray[np.float32]:
    crops: Any
    if settings.fresh:
        crops = partial(task.fresh_crops, "linear epoch")
    else:
        crops = [task.crops(number) for number in range(settings.crops)] or [task.features[task.train]]
    draws = generator(task.seed, "linear")
    if settings.solver == "exact" and not settings.penalty:
        held_out = _held_out(task)
        # too few clips to hold any out: a penalty that is never far off
        penalty = 1.0
        if held_out.any() and not held_out.all():
            penalty = choose_penalty(task.features[task.train], task.train_labels, held_out, task.classes)
        settings = replace(settings, penalty=penalty)
    classifier = fit_linear(crops, task.train_labels, settings, draws, classes=task.classes, progress=task.progress)
    return linear_scores(classifier, task.features[task.test])


def _held_out(task: Task) -> npt.NDArray[np.bool_]:
    """A quarter of the training clips to choose by: whole subjects or cameras, whatever the split goes by."""
    column = getattr(task.store.splits[task.split], "column", "")
    values = task.store.columns[column][task.train] if column in task.store.columns else np.arange(len(task.train))
    groups = np.unique(values)
    if len(groups) < 2:
        values, groups = np.arange(len(task.train)), np.arange(len(task.train))
    return np.isin(values, groups[:: max(2, min(4, len(groups)))])


@register_protocol("finetune", FinetuneSettings)
def _finetune(task: Task, settings: FinetuneSettings) -> Outcome:
    model = finetune(
        task.encoder,
        task.pool,
        task.train,
        task.train_labels,
        settings,
        classes=task.classes,
        seed=task.seed,
        progress=task.progress,
    )
    return Outcome(model.scores(task.pool, task.test, progress=task.progress).argmax(1))


@dataclass(frozen=True)
class SemiSettings:
    """A share of the labels, drawn by the seed; the `head` alone is trained on them, or the whole `network`.

    The draw is from all training clips at once as in CMD and HaLP, or from every class where it is `stratified`.
    """

    share: float = 0.1
    variant: str = "head"
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
        choose("variant", self.variant, VARIANTS)
        self.inner()

    def inner(self) -> LinearSettings | FinetuneSettings:
        """The settings of the protocol that the few labels go to."""
        kind: Any = LinearSettings if self.variant == "head" else FinetuneSettings
        known = {entry.name for entry in fields(kind)}
        shared = {key: value for key, value in asdict(self).items() if key in known}
        if not self.learning_rate:
            del shared["learning_rate"]
        return kind(**shared)


@register_protocol("semi", SemiSettings)
def _semi(task: Task, settings: SemiSettings) -> Outcome:
    base = task.store.splits[task.split]
    rule = FewLabels(f"{task.split}-few", base, settings.share, seed=task.seed, stratified=settings.stratified)
    few, _ = rule.indices(task.store.columns)
    few = few[np.isin(few, task.train)]
    if not len(few):
        raise InputError(f"semi: a share of {settings.share} of split '{task.split}' holds no labelled clip")
    inner = settings.inner()
    if isinstance(inner, FinetuneSettings):
        return replace(_finetune(replace(task, train=few), inner), trained_on=len(few))
    # the central crops are those of the whole task; only the training clips differ
    return replace(_linear(replace(task, train=few, given=task.features), inner), trained_on=len(few))


@dataclass(frozen=True)
class RetrievalSettings:
    """Test clips ask for training clips of their class; `at` are the ranks whose precision is taken."""

    at: tuple[int, ...] = (1, 5, 10)


@register_protocol("retrieval", RetrievalSettings)
def _retrieval(task: Task, settings: RetrievalSettings) -> Outcome:
    labels = task.store.labels
    figures, nearest = retrieve(
        task.features[task.train], labels[task.train], task.features[task.test], labels[task.test], at=settings.at
    )
    return Outcome(labels[task.train][nearest], figures)


@register_protocol("ensemble", EnsembleSettings)
def _ensemble(task: Task, settings: EnsembleSettings) -> Outcome:
    if not isinstance(task.encoder, EncoderGroup):
        task = replace(task, encoder=EncoderGroup({task.encoder.stream: task.encoder}))
    parts, names = [], task.store.names[task.test]
    for _, encoder in task.encoder.items():
        parts.append(member_scores(replace(task, encoder=encoder, given=None), settings))
    alone = [part.ordered(names).argmax(1) == task.store.labels[task.test] for part in parts]
    fused = fuse(parts, settings.weights, fusion=settings.fusion).ordered(names)
    figures = {name: round(100 * float(right.mean()), 4) for (name, _), right in zip(task.encoder.items(), alone)}
    return Outcome(fused.argmax(1), figures)


def member_scores(task: Task, settings: EnsembleSettings) -> Scores:
    """What one encoder of an ensemble says of the test clips, by their names."""
    if settings.base == "knn":
        train, test = task.features[task.train], task.features[task.test]
        values: Any = class_similarities(train, task.train_labels, test, classes=task.classes)
    else:
        shared = {key: getattr(settings, key) for key in ("solver", "crops", "epochs", "penalty")}
        values = _linear_logits(task, LinearSettings(**shared))
    return Scores(task.store.names[task.test], values)
