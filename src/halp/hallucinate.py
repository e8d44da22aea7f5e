"""Hallucinated latent positives (HaLP): prototypes → targets → hardest step → positives → filter → loss. Torch only.

A positive is `from_key · key + from_target · target`, so its similarity to anything is the same combination of products
of keys, targets and prototypes. `plan` works out these coefficients and which positives survive the filter from the
products alone; `hallucinate` then materialises the `(B, G, D)` positives for whoever wants to look at them, and
`halp_loss` never does: the sum of the kept positives of a key is one `(B, D)` combination of its key and the prototypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.errors import InputError, choose
from halp.sphere import kmeans, reachable_angle

STEPS = ("paper", "authors", "hardest", "ranked")
FILTERS = ("rank", "variant-1", "variant-2", "none")
ANCHORS = ("key", "query")
DIRECTIONS = ("prototype", "query")
REDUCTIONS = ("positives", "anchors")
SOURCES = ("queue", "batch", "keys")


@dataclass(frozen=True)
class Plan:
    """How every positive is made: `(B, G)` each. Positive g of key b is from_key·anchor + from_target·targets[target]."""

    anchor: Tensor  # (B, D) where the walk starts
    targets: Tensor  # (N, D) prototypes shared by all keys, or (B, 1, D) a target of its own for each key
    target: Tensor  # index of the target
    step: Tensor  # t, the fraction of the geodesic that is walked
    from_key: Tensor
    from_target: Tensor
    kept: Tensor  # bool: survives the filter

    def positives(self) -> Tensor:
        """The positives themselves, `(B, G, D)` of unit length."""
        towards = self.targets if self.targets.ndim == 3 else self.targets[self.target]
        return F.normalize(
            self.from_key[..., None] * self.anchor[:, None] + self.from_target[..., None] * towards, dim=-1
        )

    def kept_sum(self, weight: Tensor | None = None) -> Tensor:
        """Sum of the kept positives of each key, `(B, D)`, without making them; `weight` `(B, 1)` scales each key's."""
        mask = self.kept.to(self.from_key.dtype)
        if weight is not None:
            mask = mask * weight
        from_target = self.from_target * mask
        own = (self.from_key * mask).sum(1, keepdim=True) * self.anchor
        if self.targets.ndim == 3:
            return own + from_target.sum(1, keepdim=True) * self.targets[:, 0]
        share = from_target.new_zeros(len(own), len(self.targets)).scatter_add_(1, self.target, from_target)
        return torch.addmm(own, share, self.targets)


@torch.no_grad()
def plan(
    key: Tensor,
    prototypes: Tensor,
    *,
    query: Tensor | None = None,
    count: int = 100,
    hardness: float = 0.8,
    step: str = "paper",
    filter: str = "rank",
    anchor: str = "key",
    direction: str = "prototype",
    generator: torch.Generator | None = None,
) -> Plan:
    """Draw targets and steps for `count` positives of every key `(B, D)` and decide which are kept.

    step: `paper` t ~ U(0, λt*) as the paper writes; `authors` t = (1 − u)·t*, u ~ U(0, λ), as their code draws it;
        `hardest` t = t*; `ranked` t ~ U(0, λt°) with t° the furthest step that the ranking over *all* prototypes admits,
        so that nothing is left to filter.
    filter: `rank` the closest prototype stays the closest (Eq. 2); `variant-1` closer to the query than the key is;
        `variant-2` closer to the key than the target is; `none`.
    anchor: walk from the `key` or from the `query`. direction: towards a random other `prototype`, or from key to `query`.
    """
    if anchor == "query" or direction == "query" or filter == "variant-1":
        if query is None:
            raise InputError("anchor 'query', direction 'query' and filter 'variant-1' need the query; pass query=")
        query = query.detach()
    start = query if anchor == "query" and query is not None else key
    if len(prototypes) < 2:
        raise InputError(f"hallucination needs at least two prototypes to walk between, not {len(prototypes)}")

    similarity = start @ prototypes.T  # (B, N)
    nearest, closest = similarity.max(1, keepdim=True)
    # how far ahead the closest prototype is of the others; the floor keeps ties finite, infinity leaves itself out
    lead = (nearest - similarity).clamp_min_(8 * torch.finfo(key.dtype).eps).scatter_(1, closest, torch.inf)
    between = (prototypes @ prototypes.T).fill_diagonal_(1)
    if direction == "query":
        other = key if anchor == "query" else query
        assert other is not None  # noqa: S101  (checked above; for the type checker)
        targets = other.detach()[:, None]
        cosine = (start * other.detach()).sum(1, keepdim=True)  # (B, 1)
        target_prototype = targets @ prototypes.T  # (B, 1, N)
        gap = target_prototype - target_prototype.gather(2, closest[:, None])
        limit = cosine.clamp(-1, 1).arccos()
    else:
        targets, cosine = prototypes, similarity
        gap = between[None] - between[closest[:, 0]][:, :, None]  # (B, N, N): p·(p_j − p*)
        limit = None
    cosine = cosine.clamp(-1, 1)
    sine = (1 - cosine.square()).sqrt_()
    ranked = reachable_angle(sine, cosine, torch.ones_like(cosine), (gap / lead[:, None]).amax(2))
    if limit is None:
        spread = (1 - between[closest[:, 0]]).clamp_min_(0)  # (B, N): 1 − p·p*
        limit = reachable_angle(sine, cosine, torch.ones_like(cosine), spread / lead)

    target = _draw_targets(closest, targets, count, generator)
    draw = _uniform((len(key), count), key, generator)
    omega = cosine.arccos().gather(1, target)
    reach, ranked = limit.gather(1, target), ranked.gather(1, target)
    if step == "paper":
        theta = reach * (draw * hardness)
    elif step == "authors":
        theta = reach * (1 - draw * hardness)
    elif step == "ranked":
        theta = torch.minimum(reach, ranked) * (draw * hardness)
    else:
        choose("step", step, STEPS)
        theta = reach
    swing = theta.sin() / sine.gather(1, target).clamp_min_(torch.finfo(key.dtype).eps)
    from_key = theta.cos() - swing * cosine.gather(1, target)

    if filter == "rank":
        kept = theta <= ranked
    elif filter == "variant-1" and query is not None:
        own = (query * start).sum(1, keepdim=True)
        towards = (query[:, None] * targets).sum(2) if targets.ndim == 3 else query @ targets.T
        kept = from_key * own + swing * towards.gather(1, target) >= (query * key).sum(1, keepdim=True)
    elif filter == "variant-2":
        kept = theta <= omega
    else:
        choose("filter", filter, FILTERS)
        kept = torch.ones_like(theta, dtype=torch.bool)
    walked = theta / omega.clamp_min(torch.finfo(key.dtype).eps)
    return Plan(start, targets, target, walked, from_key, swing, kept)


def _draw_targets(closest: Tensor, targets: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """One target a positive: uniformly any prototype but the closest; the only one where a key has its own."""
    if targets.ndim == 3:
        return closest.new_zeros(len(closest), count)
    device = generator.device if generator is not None else closest.device
    others = len(targets) - 1
    drawn = torch.randint(others, (len(closest), count), generator=generator, device=device).to(closest.device)
    return drawn + (drawn >= closest)


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    device = generator.device if generator is not None else like.device
    return torch.rand(shape, generator=generator, device=device).to(like)


def hallucinate(
    key: Tensor,
    prototypes: Tensor,
    *,
    count: int = 100,
    hardness: float = 0.8,
    generator: torch.Generator | None = None,
    **settings: Any,
) -> tuple[Tensor, Tensor]:
    """Positives `(B, G, D)` of unit length and which of them are kept `(B, G)`, for unit keys `(B, D)`.

    `settings` are those of `plan`: query, step, filter, anchor, direction.

    >>> g = torch.Generator().manual_seed(0)
    >>> keys, prototypes = torch.eye(8)[:2], torch.eye(8)
    >>> positives, kept = hallucinate(keys, prototypes, count=5, generator=g)
    >>> positives.shape, bool(kept.all())
    (torch.Size([2, 5, 8]), True)
    """
    made = plan(key, prototypes, count=count, hardness=hardness, generator=generator, **settings)
    return made.positives(), made.kept


def halp_loss(
    query: Tensor,
    key: Tensor,
    prototypes: Tensor,
    *,
    count: int = 100,
    hardness: float = 0.8,
    temperature: float = 0.07,
    reduction: str = "positives",
    generator: torch.Generator | None = None,
    **settings: Any,
) -> Tensor:
    """L_HaLP of Eq. 8: minus the mean similarity of the query to its kept positives, over the temperature.

    The mean is taken over all kept `positives` of the batch, or over the `anchors` of each anchor's own mean. Only the
    query receives a gradient. The same generator state draws the same positives as `hallucinate`.
    """
    made = plan(key, prototypes, query=query, count=count, hardness=hardness, generator=generator, **settings)
    return pull(query, made, temperature, reduction)


def pull(query: Tensor, made: Plan, temperature: float, reduction: str = "positives") -> Tensor:
    """The loss for positives that are planned already; zero where none is kept."""
    if reduction == "anchors":
        total = made.kept_sum(1 / made.kept.sum(1, keepdim=True).clamp_min(1))
        number = made.kept.any(1).sum()
    else:
        choose("reduction", reduction, REDUCTIONS)
        total = made.kept_sum()
        number = made.kept.sum()
    return -(query * total).sum() / (number.clamp_min(1) * temperature)


class HallucinatedPositives(nn.Module):
    """HaLP as a loss term: keeps the prototypes, refits them every `refresh` calls, returns L_HaLP.

    `term(query, key, recent_keys)` takes unit rows `(B, D)` and the newest keys, newest last, of which the last `recent`
    are clustered. `source`: prototypes from those recent keys (`queue`), from clustering the batch's keys (`batch`), or
    the batch's keys as they are (`keys`); the latter two need no memory. Prototypes and the call counter are state.

    >>> term = HallucinatedPositives(prototypes=4, count=10, recent=32)
    >>> keys = nn.functional.normalize(torch.randn(32, 8), dim=1)
    >>> loss = term(keys[:2], keys[2:4], keys)
    >>> sorted(term.state_dict())
    ['calls', 'centres']
    """

    centres: Tensor
    calls: Tensor

    def __init__(
        self,
        prototypes: int = 20,
        count: int = 100,
        hardness: float = 0.8,
        refresh: int = 5,
        recent: int = 256,
        *,
        temperature: float = 0.07,
        step: str = "paper",
        filter: str = "rank",
        anchor: str = "key",
        direction: str = "prototype",
        source: str = "queue",
        reduction: str = "positives",
        warm_start: bool = False,
    ) -> None:
        super().__init__()
        if prototypes < 2:
            raise InputError(f"prototypes = {prototypes}: there have to be at least two to walk between")
        if source == "queue" and prototypes > recent:
            raise InputError(
                f"prototypes = {prototypes} is more than recent = {recent}: there cannot be more clusters than recent keys; "
                "raise recent or lower prototypes"
            )
        if count < 1:
            raise InputError(
                f"count = {count}: at least one positive a key is needed; to train without, set the weight to 0"
            )
        if not 0 < hardness <= 1:
            raise InputError(
                f"hardness = {hardness} is out of range; it is the share of the hardest step t*, in (0, 1]"
            )
        if refresh < 1:
            raise InputError(f"refresh = {refresh}: prototypes are refitted every so many steps, at least 1")
        if temperature <= 0:
            raise InputError(f"temperature = {temperature} has to be positive")
        self.prototypes, self.refresh, self.recent = prototypes, refresh, recent
        self.source = choose("source", source, SOURCES)
        self.temperature, self.reduction = temperature, choose("reduction", reduction, REDUCTIONS)
        self.warm_start = warm_start
        self.settings: dict[str, Any] = {
            "count": count,
            "hardness": hardness,
            "step": choose("step", step, STEPS),
            "filter": choose("filter", filter, FILTERS),
            "anchor": choose("anchor", anchor, ANCHORS),
            "direction": choose("direction", direction, DIRECTIONS),
        }
        self.register_buffer("centres", torch.empty(0, 0))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.last: Plan | None = None

    def forward(
        self, query: Tensor, key: Tensor, recent_keys: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        key = key.detach()
        if self.source == "keys":
            self.centres = key
        elif self.source == "batch" or int(self.calls) % self.refresh == 0:
            self.fit(key if self.source == "batch" else recent_keys, generator)
        self.calls += 1
        # angles do not survive half precision
        with torch.autocast(query.device.type, enabled=False):
            query = query.float() if query.dtype in (torch.float16, torch.bfloat16) else query
            key = key.to(query.dtype)
            self.last = plan(key, self.centres.to(query.dtype), query=query, generator=generator, **self.settings)
            return pull(query, self.last, self.temperature, self.reduction)

    def fit(self, keys: Tensor | None, generator: torch.Generator | None = None) -> None:
        """Cluster these keys into fresh prototypes (from the present ones where `warm_start` is on)."""
        if keys is None:
            raise InputError("the term clusters recent keys: call it as term(query, key, recent_keys)")
        keys = keys.detach()
        keys = keys.float() if keys.dtype in (torch.float16, torch.bfloat16) else keys
        if self.source == "queue":
            keys = keys[-self.recent :]
        if len(keys) < self.prototypes:
            raise InputError(
                f"{len(keys)} keys cannot give {self.prototypes} prototypes; wait until there are more, or lower prototypes"
            )
        start = self.centres.to(keys) if self.warm_start and len(self.centres) == self.prototypes else None
        self.centres = kmeans(keys, self.prototypes, generator=generator, start=start)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # the width of the prototypes is known only once keys were seen: take it from what is loaded
        saved = state_dict.get(prefix + "centres")
        if saved is not None:
            self.centres = torch.empty_like(saved, device=self.centres.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)
