"""Views: the augmentations of each named view, drawn for whole batches and computed for some rows.

A policy is a list of named augmentations, each with settings and a probability. Every augmentation draws from
a generator of its own, a function of (seed, view, name, epoch, step), so that adding one shifts no other's
draws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from halp.augment.base import AUGMENTATIONS, Drawn, ViewShape
from halp.augment.paper import PAPER, PaperSettings
from halp.augment.pool import ClipPool
from halp.core.config import build_settings, field_types, limited, plain, section, unknown_setting
from halp.core.errors import InputError
from halp.core.sampling import generator
from halp.skeleton import Topology


@dataclass(frozen=True)
class Step:
    """One augmentation of a policy: its registered name, how often it is applied, and its settings."""

    name: str
    probability: float = 1.0
    settings: Any = None

    def __post_init__(self) -> None:
        if self.settings is None:
            object.__setattr__(self, "settings", AUGMENTATIONS[self.name].settings())
        if not 0 < self.probability <= 1:
            raise InputError(f"{self.name}: probability = {self.probability} must be above 0 and at most 1")

    @property
    def samples(self) -> bool:
        """Whether the step cuts the view out of the clip, which only the first one can."""
        return AUGMENTATIONS[self.name].sampler

    def to_plain(self) -> dict[str, Any]:
        return {"name": self.name, "probability": self.probability, **plain(self.settings)}


Policy = tuple[Step, ...]


def build_policy(data: Any, where: str) -> Policy:
    """A checked policy from a list of names and tables."""
    if not isinstance(data, (list, tuple)) or not data:
        raise InputError(
            f'{where} must be a list of augmentations, for example [{{name = "shear", amplitude = 0.5}}]'
        )
    policy = tuple(
        entry if isinstance(entry, Step) else _build_step(entry, f"{where}[{i}]")
        for i, entry in enumerate(data)
    )
    for position, step in enumerate(policy):
        if step.samples and (position or step.probability != 1):
            raise InputError(
                f"{where}: '{step.name}' cuts the view out of the clip; it must come first, without"
                " probability"
            )
    return policy


def _build_step(entry: Any, where: str) -> Step:
    entry = {"name": entry} if isinstance(entry, str) else dict(section(entry, where))
    if "name" not in entry:
        raise InputError(f"{where} has no name; name one of: {', '.join(AUGMENTATIONS)}")
    name, probability = str(entry.pop("name")), entry.pop("probability", 1.0)
    if isinstance(probability, bool) or not isinstance(probability, (int, float)):
        raise InputError(f"{where}.probability = {probability!r} must be a number")
    return Step(name, float(probability), build_settings(AUGMENTATIONS[name].settings, entry, f"{where}."))


@dataclass(frozen=True)
class ViewSettings(PaperSettings):
    """How views are made: the paper's augmentation as its settings say, or a list of named augmentations.

    `named` holds the policies of single views, from sections like `[views.extreme]`.
    """

    frames: int = limited(64, least=1)  # length every view is resized to
    augmentations: Policy = ()  # instead of the settings above, which then do not count
    named: dict[str, Policy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        changed = [
            name
            for name in field_types(PaperSettings)
            if getattr(self, name) != getattr(PaperSettings(), name)
        ]
        if self.augmentations and changed:
            raise InputError(
                f"views: {changed[0]} would be ignored, since views.augmentations is given; set it in the"
                f" step '{PAPER}' of the list, or leave it out"
            )

    @property
    def policy(self) -> Policy:
        """The policy of every view that has none of its own."""
        if self.augmentations:
            return self.augmentations
        chosen = {name: getattr(self, name) for name in field_types(PaperSettings)}
        return (Step(PAPER, settings=PaperSettings(**chosen)),)

    def policies(self, views: Mapping[str, Policy | None]) -> dict[str, Policy | None]:
        """Policy of every view of a method: the recipe's, else the method's; None for the common one."""
        return {view: self.named.get(view, own) for view, own in views.items()}

    def to_plain(self) -> dict[str, Any]:
        entries = {"frames": self.frames}
        if self.augmentations:
            entries["augmentations"] = plain(self.augmentations)
        else:
            entries |= {name: getattr(self, name) for name in field_types(PaperSettings)}
        return entries | {view: {"augmentations": plain(policy)} for view, policy in self.named.items()}


def build_views(data: Any) -> ViewSettings:
    """Checked view settings from a section of a recipe; sub-sections are policies of single views."""
    given = dict(section(data, "views"))
    named = {}
    for view in [key for key, value in given.items() if isinstance(value, Mapping)]:
        entry = dict(given.pop(view))
        policy = entry.pop("augmentations", None)
        for key in entry:
            raise unknown_setting(key, ["augmentations"], f"views.{view}.")
        named[view] = build_policy(policy, f"views.{view}.augmentations")
    if "augmentations" in given:
        given["augmentations"] = build_policy(given["augmentations"], "views.augmentations")
    known = [name for name in field_types(ViewSettings) if name != "named"]
    for key in given:
        if key not in known:
            raise unknown_setting(key, known, "views.")
    policy = given.pop("augmentations", ())
    return dataclasses.replace(
        build_settings(ViewSettings, given, "views."), augmentations=policy, named=named
    )


Moment = tuple[int, ...]  # epoch, step and, in a batch that is drawn in blocks, the number of the block


class ViewMaker:
    """Makes the named views of batches of clips."""

    def __init__(
        self,
        settings: ViewSettings,
        views: Mapping[str, Policy | None],
        topology: Topology,
        pool: ClipPool,
        seed: int,
        block: int = 0,
    ) -> None:
        """Clips of a batch drawn at once, so that a rank draws little more than its share; 0: all of it."""
        self.frames, self.pool, self.seed, self.block = settings.frames, pool, seed, block
        self.common = [view for view, policy in settings.policies(views).items() if policy is None]
        named = {view: policy for view, policy in settings.policies(views).items() if policy is not None}
        self.policies = {view: _build(policy, topology) for view, policy in named.items()}
        self.common_policy = _build(settings.policy, topology)
        self.order = list(views)

    def make(self, clips: Tensor, epoch: int, step: int, rows: slice = slice(None)) -> dict[str, Tensor]:
        """`{view: (B, frames, P, V, C)}` of these rows, with the draws of the whole batch or block."""
        if not 0 < self.block < len(clips):
            return self._make(clips, (epoch, step), rows)
        start, stop, _ = rows.indices(len(clips))
        parts = []
        for number, first in enumerate(range(0, len(clips), self.block)):
            block = clips[first : first + self.block]
            if start < first + len(block) and stop > first:
                mine = slice(max(start - first, 0), min(stop - first, len(block)))
                parts.append(self._make(block, (epoch, step, number), mine))
        return {view: torch.cat([part[view] for part in parts]) for view in self.order}

    def _make(self, clips: Tensor, moment: Moment, rows: slice) -> dict[str, Tensor]:
        by_view = self._common_views(clips, moment, rows)
        for view, policy in self.policies.items():
            by_view[view] = self._view(view, policy, clips, moment, rows)
        return {view: by_view[view] for view in self.order}

    def _common_views(self, clips: Tensor, moment: Moment, rows: slice) -> dict[str, Tensor]:
        (first, sampler), *_ = self.common_policy
        if not self.common or first.name != PAPER:
            return {view: self._view(view, self.common_policy, clips, moment, rows) for view in self.common}
        # the paper's augmentation of all views is drawn in one sequence and made in one pass
        number, count = len(self.common), len(clips)
        draws = generator(self.seed, "views", *moment)
        mine = torch.arange(count)[rows]
        only = torch.cat([mine + count * view for view in range(number)])
        views = random_views(self.pool, clips.repeat(number), sampler, draws, self.frames, only)
        return {
            view: self._apply(view, self.common_policy[1:], part, count, moment, rows)
            for view, part in zip(self.common, views.chunk(number))
        }

    def _view(
        self, view: str, policy: list[tuple[Step, Any]], clips: Tensor, moment: Moment, rows: slice
    ) -> Tensor:
        if policy and policy[0][0].samples:
            (first, sampler), *policy = policy
            lengths = self.pool.lengths[clips.to(self.pool.lengths.device)]
            joints, dimensions = self.pool.frames.shape[2:]
            drawn = sampler.draw(lengths, joints, dimensions, self._generator(view, first.name, 0, moment))
            cut = sampler.make(
                self.pool, clips[rows], {name: value[rows] for name, value in drawn.items()}, self.frames
            )
        else:
            lengths = self.pool.lengths[clips[rows].to(self.pool.lengths.device)]
            cut = self.pool.cut(clips[rows], torch.zeros_like(lengths), lengths, self.frames)
        return self._apply(view, policy, cut, len(clips), moment, rows)

    def _apply(
        self,
        view: str,
        policy: Sequence[tuple[Step, Any]],
        clips: Tensor,
        count: int,
        moment: Moment,
        rows: slice,
    ) -> Tensor:
        shape = ViewShape(count, *clips.shape[1:])
        seen: dict[str, int] = {}
        for entry, augmentation in policy:
            number = seen[entry.name] = seen.get(entry.name, -1) + 1
            draws = self._generator(view, entry.name, number, moment)
            hit = torch.rand(count, generator=draws)[rows] < entry.probability
            drawn: Drawn = {name: value[rows] for name, value in augmentation.draw(shape, draws).items()}
            if bool(hit.all()):
                clips = augmentation.apply(clips, drawn)
            elif bool(hit.any()):
                changed = {name: value[hit] for name, value in drawn.items()}
                clips = clips.index_put(
                    (hit.to(clips.device),), augmentation.apply(clips[hit.to(clips.device)], changed)
                )
        return clips

    def _generator(self, view: str, name: str, number: int, moment: Moment) -> torch.Generator:
        purpose = f"views/{view}/{name}" + (f"#{number}" if number else "")
        return generator(self.seed, purpose, *moment)


def random_views(
    pool: ClipPool,
    clips: Tensor,
    settings: PaperSettings,
    generator: torch.Generator,
    frames: int | None = None,
    only: Tensor | slice = slice(None),
) -> Tensor:
    """One view of each clip by the paper's augmentation: `(B,)` indices → `(B, frames, P, V, C)`.

    With `only`, all views are drawn but just those rows are made: what a process does with its part of a
    batch.
    """
    if frames is None:
        frames = settings.frames if isinstance(settings, ViewSettings) else 64
    joints, dimensions = pool.frames.shape[2:]
    drawn = settings.draw(pool.lengths[clips.to(pool.lengths.device)], joints, dimensions, generator)
    return settings.make(pool, clips[only], {name: value[only] for name, value in drawn.items()}, frames)


def _build(policy: Policy, topology: Topology) -> list[tuple[Step, Any]]:
    return [(step, AUGMENTATIONS[step.name].build(step.settings, topology)) for step in policy]
