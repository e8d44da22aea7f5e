"""Hallucinated latent positives (HaLP): prototypes → targets → hardest step → positives → filter → loss.

A positive is `cos θ · key + sin θ · (target − cos Ω · key) / sin Ω`, so its similarity to anything is the
same combination of products of keys, targets and prototypes. `plan_positives` works out the angles θ and
which positives survive the filter from the products alone; `hallucinate` then materialises the `(B, G, D)`
positives for whoever wants to look at them, and
`halp_loss` never does: the sum of the kept positives of a key is one `(B, D)` combination of its key and the
prototypes.

This file and `sphere.py` work alone: copy the two into any project that has torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

try:
    from .sphere import InputError, check_choice, kmeans, precise
except ImportError:  # two files beside a script, outside any package
    from sphere import InputError, check_choice, kmeans, precise  # type: ignore[import-not-found,no-redef]

STEPS = ("paper", "authors", "hardest", "ranked")
FILTERS = ("rank", "variant-1", "variant-2", "none")
ANCHORS = ("key", "query")
DIRECTIONS = ("prototype", "query")
AVERAGES = ("positives", "anchors")
SOURCES = ("queue", "batch", "keys")


@dataclass(frozen=True)
class PositivePlan:
    """Courses of positives: positive g of key b at angle theta[b, g] from its anchor towards its target."""

    anchor: Tensor  # (B, D) where the walk starts
    targets: Tensor  # (N, D) prototypes shared by all keys, or (B, 1, D) a target of its own for each key
    cosine: Tensor  # (B, N) of the angle Ω between anchor and target
    sine: Tensor  # (B, N), never zero
    target: Tensor  # (B, G) index of the target
    theta: Tensor  # (B, G) angle walked, in [0, Ω]
    kept: Tensor  # (B, G) bool: survives the filter

    @property
    def step(self) -> Tensor:
        """t, the fraction of the geodesic that is walked, `(B, G)`."""
        omega = torch.atan2(self.sine, self.cosine).gather(1, self.target)
        return (self.theta / omega).clamp(0, 1)

    def positives(self) -> Tensor:
        """The positives themselves, `(B, G, D)` of unit length (Eq. 4)."""
        towards = self.targets if self.targets.ndim == 3 else self.targets[self.target]
        from_target = self.theta.sin() / self.sine.gather(1, self.target)
        from_key = self.theta.cos() - from_target * self.cosine.gather(1, self.target)
        return F.normalize(
            from_key[..., None] * self.anchor[:, None] + from_target[..., None] * towards, dim=-1
        )

    def kept_sum(self, weight: Tensor | None = None) -> Tensor:
        """Sum of each key's kept positives, `(B, D)`, without making them; `weight` `(B, 1)` scales it."""
        mask = self.kept.to(self.theta.dtype)
        if weight is not None:
            mask = mask * weight
        share = torch.zeros_like(self.sine).scatter_add_(1, self.target, self.theta.sin() * mask) / self.sine
        own = (self.theta.cos() * mask).sum(1, keepdim=True) - (share * self.cosine).sum(1, keepdim=True)
        if self.targets.ndim == 3:
            return own * self.anchor + share * self.targets[:, 0]
        with torch.autocast(share.device.type, enabled=False):
            return torch.addmm(own * self.anchor, share, self.targets)


@torch.no_grad()
def plan_positives(
    key: Tensor,
    prototypes: Tensor,
    *,
    query: Tensor | None = None,
    count: int = 100,
    hardness: float = 0.8,
    step: str = "paper",
    positive_filter: str = "rank",
    anchor: str = "key",
    direction: str = "prototype",
    generator: torch.Generator | None = None,
) -> PositivePlan:
    """Draw targets and steps for `count` positives of every key `(B, D)` and decide which are kept.

    step: `paper` t ~ U(0, λt*) as the paper writes; `authors` t = (1 − u)·t*, u ~ U(0, λ), as their code
        draws it;
        `hardest` t = t*; `ranked` t ~ U(0, λt°) with t° the furthest step that the ranking over *all*
        prototypes admits, so that nothing is left to filter.
    positive_filter: `rank` the closest prototype stays the closest (Eq. 2); `variant-1` closer to the query
        than the key is;
        `variant-2` closer to the anchor than the target is; `none`.
    anchor: walk from the `key` or from the `query`. direction: towards a random other `prototype`, or from
        key to `query` (from query to key, if that is the anchor), where nothing but the target itself ends
        the walk.
    """
    for kind, name, known in (
        ("step", step, STEPS),
        ("filter", positive_filter, FILTERS),
        ("anchor", anchor, ANCHORS),
        ("direction", direction, DIRECTIONS),
    ):
        check_choice(kind, name, known)
    if len(prototypes) < 2:
        raise InputError(f"hallucination needs at least two prototypes, not {len(prototypes)}")
    if query is None and "query" in (anchor, direction):
        raise InputError("anchor 'query' and direction 'query' need the query; pass query=")
    if query is None and positive_filter == "variant-1":
        raise InputError("filter 'variant-1' needs the query; pass query=")
    key = precise(key.detach())
    prototypes = prototypes.detach().to(key)
    query = key if query is None else query.detach().to(key)
    start, other = (query, key) if anchor == "query" else (key, query)
    # angles do not survive the half-precision products of autocast
    with torch.autocast(key.device.type, enabled=False):
        course = _course(start, prototypes, other if direction == "query" else None)
        if direction == "query":
            target = course.closest.new_zeros(len(key), count)
        else:
            target = _draw_others(course.closest, len(prototypes), count, generator)
        reach = _reach(course, target)
        theta = _draw_step(reach, step, hardness, generator)
        kept = _passes(course, reach, target, theta, positive_filter, start, key, query)
    return PositivePlan(start, course.targets, course.cosine, course.sine, target, theta, kept)


def _draw_step(reach: _Reach, step: str, hardness: float, generator: torch.Generator | None) -> Tensor:
    """How far `(B, G)` each positive walks towards its target, as an angle."""
    limit = reach.limit
    if step == "hardest":
        return limit
    if step == "ranked":
        limit = torch.minimum(limit, reach.ranked)
    share = _uniform(limit, generator) * hardness
    return limit * (1 - share if step == "authors" else share)


def _passes(
    course: _Course,
    reach: _Reach,
    target: Tensor,
    theta: Tensor,
    positive_filter: str,
    start: Tensor,
    key: Tensor,
    query: Tensor,
) -> Tensor:
    """Which positives `(B, G)` are kept."""
    if positive_filter == "rank":
        return theta <= reach.ranked
    if positive_filter == "variant-1":
        own = (query * start).sum(1, keepdim=True)
        ends = (
            (query[:, None] * course.targets).sum(2) if course.targets.ndim == 3 else query @ course.targets.T
        )
        tilt = (ends - own * course.cosine) / course.sine  # (B, N): query · the direction of the walk
        # a positive that is the key itself is as close as the key, rounding aside
        least = (query * key).sum(1, keepdim=True) - 8 * torch.finfo(key.dtype).eps
        return theta.cos() * own + theta.sin() * tilt.gather(1, target) >= least
    if positive_filter == "variant-2":
        return theta <= torch.atan2(course.sine, course.cosine).gather(1, target)
    return torch.ones_like(theta, dtype=torch.bool)


class _Course(NamedTuple):
    """The geodesics from every anchor to all N targets it may have."""

    closest: Tensor  # (B, 1) index of the prototype P* closest to the anchor
    targets: Tensor  # (N, D), or (B, 1, D)
    cosine: Tensor  # (B, N)
    sine: Tensor  # (B, N)
    products: (
        Tensor  # (N, N) of prototypes with targets, or (B, N) of each anchor's own target with the prototypes
    )
    urgency: Tensor  # (N, B): 1 / z·(P* − Pj), how soon prototype j overtakes P*; 0 for P* itself


class _Reach(NamedTuple):
    """How far every positive may walk towards its target."""

    limit: Tensor  # (B, G) the angle t*Ω of Eq. 7, where P* and the target are equally near
    ranked: Tensor  # (B, G) the angle t°Ω, where any prototype becomes as near as P*


def _course(start: Tensor, prototypes: Tensor, own_target: Tensor | None) -> _Course:
    """Courses from products alone; `own_target` `(B, D)` replaces the prototypes as targets."""
    similarity = start @ prototypes.T
    nearest, closest = similarity.max(1, keepdim=True)
    eps = torch.finfo(start.dtype).eps
    # how far ahead P* is of the others; the floor keeps ties finite, infinity leaves P* itself out
    lead = (nearest - similarity).clamp_min_(8 * eps).scatter_(1, closest, torch.inf)
    if own_target is None:
        targets, cosine = prototypes, similarity.clamp(-1, 1)
        products = (prototypes @ prototypes.T).fill_diagonal_(1)
    else:
        targets, cosine = own_target[:, None], (start * own_target).sum(1, keepdim=True).clamp(-1, 1)
        products = own_target @ prototypes.T
    sine = (1 - cosine.square()).sqrt_().clamp_min_(eps)
    return _Course(closest, targets, cosine, sine, products, lead.reciprocal_().T)


def _reach(course: _Course, target: Tensor) -> _Reach:
    """How far each walk to its `target` `(B, G)` may go: by κ of Eq. 7 over all rivals, target included.

    If there are more targets than are drawn, the drawn ones alone are looked at.
    """
    cosine, sine, closest = course.cosine, course.sine, course.closest
    drawn = course.targets.ndim == 2 and cosine.shape[1] > target.shape[1]
    if course.targets.ndim == 3:
        at_closest = course.products.gather(1, closest)
        most = _most_urgent(course.products.T[:, :, None], at_closest, course.urgency)
        pair = torch.zeros_like(cosine)
    elif drawn:
        cosine, sine = cosine.gather(1, target), sine.gather(1, target)
        at_closest = course.products[closest, target]
        most = _most_urgent(course.products, at_closest, course.urgency, target)
        pair = ((1 - at_closest) * course.urgency.T.gather(1, target)).clamp_min_(0)
    else:
        at_closest = course.products[closest[:, 0]]
        most = _most_urgent(course.products[:, None], at_closest, course.urgency)
        pair = ((1 - at_closest) * course.urgency.T).clamp_min_(0)
    eps = torch.finfo(cosine.dtype).eps
    # towards the opposite point there is no geodesic, and close to it rounding picks one: stay
    walkable = cosine > eps**0.5 / 2 - 1
    limit, ranked = torch.atan2(sine, torch.stack([pair, most]) + cosine).mul_(walkable)
    # a positive on the boundary is kept, whichever way its last bit was rounded
    reach = _Reach(limit, ranked * (1 + 8 * eps))
    return reach if drawn else _Reach(*(angle.gather(1, target) for angle in reach))


_AT_ONCE = 1 << 22  # numbers of an intermediate result: 16 MB


def _most_urgent(
    products: Tensor, at_closest: Tensor, urgency: Tensor, target: Tensor | None = None
) -> Tensor:
    """The largest κ `(B, M)` over rivals j: Pj's gain on P* along the way, P·(Pj − P*), times its urgency.

    `products` are P·Pj, rivals first: `(N, B or 1, M)`, or `(N, N)` of which `target` `(B, M)` picks. Rivals
    are looked at in portions, so that memory grows with B · M alone.
    """
    portion = max(1, _AT_ONCE // at_closest.numel())
    most: Tensor | None = None
    for few, soon in zip(products.split(portion), urgency.split(portion)):
        gained = few - at_closest if target is None else few[:, target].sub_(at_closest)
        largest = gained.mul_(soon[:, :, None]).amax(0)
        most = largest if most is None else torch.maximum(most, largest)
    if most is None:
        raise RuntimeError("there is no prototype")
    return most


def _draw_others(closest: Tensor, prototypes: int, count: int, generator: torch.Generator | None) -> Tensor:
    """One target per positive: uniformly any prototype but the closest."""
    device = generator.device if generator is not None else closest.device
    drawn = torch.randint(prototypes - 1, (len(closest), count), generator=generator, device=device).to(
        closest.device
    )
    return drawn + (drawn >= closest)


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    device = generator.device if generator is not None else like.device
    return torch.rand(like.shape, generator=generator, device=device).to(like)


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

    `settings` are those of `plan_positives`: query, step, positive_filter, anchor, direction.

    >>> g = torch.Generator().manual_seed(0)
    >>> keys, prototypes = torch.eye(8)[:2], torch.eye(8)
    >>> positives, kept = hallucinate(keys, prototypes, count=5, generator=g)
    >>> positives.shape, bool(kept.all())
    (torch.Size([2, 5, 8]), True)
    """
    plan = plan_positives(key, prototypes, count=count, hardness=hardness, generator=generator, **settings)
    return plan.positives(), plan.kept


def halp_loss(
    query: Tensor,
    key: Tensor,
    prototypes: Tensor,
    *,
    count: int = 100,
    hardness: float = 0.8,
    temperature: float = 0.07,
    average_over: str = "positives",
    generator: torch.Generator | None = None,
    **settings: Any,
) -> Tensor:
    """L_HaLP of Eq. 8: minus the mean similarity of the query to its kept positives, over the temperature.

    Parameters
    ----------
    query, key : tensor (B, D)
        Unit rows; only the query receives a gradient.
    prototypes : tensor (K, D)
        Unit rows, cluster centres of recent keys.
    count : int
        Positives per key.
    hardness : float
        Share of the hardest step t* (Eq. 7), in (0, 1].
    temperature : float
        Divides the similarities.
    average_over : str
        All kept `positives` of the batch, or the `anchors` of each anchor's own mean.
    generator : torch.Generator, optional
        The same state draws the same positives as `hallucinate`.
    **settings
        step, positive_filter, anchor, direction: see `HallucinatedPositives`.

    Returns
    -------
    tensor ()
        The loss; zero if no positive is kept.

    Examples
    --------
    >>> rows = nn.functional.normalize(torch.randn(12, 8), dim=1)
    >>> halp_loss(rows[:4], rows[4:8], rows[8:], count=5).shape
    torch.Size([])
    """
    plan = plan_positives(
        key, prototypes, query=query, count=count, hardness=hardness, generator=generator, **settings
    )
    return positive_alignment_loss(query, plan, temperature, average_over)


def positive_alignment_loss(
    query: Tensor, plan: PositivePlan, temperature: float, average_over: str = "positives"
) -> Tensor:
    """The loss for positives that are planned already; zero if none is kept."""
    if check_choice("average_over", average_over, AVERAGES) == "anchors":
        total = plan.kept_sum(plan.kept.sum(1, keepdim=True).clamp_min(1).to(plan.theta.dtype).reciprocal())
        number = plan.kept.any(1).sum()
    else:
        total, number = plan.kept_sum(), plan.kept.sum()
    return (query * (total / number.clamp_min(1) / -temperature)).sum()


class HallucinatedPositives(nn.Module):
    """HaLP as a loss term: keeps the prototypes, refits them every `refresh` calls, returns L_HaLP.

    `term(query, key, recent_keys)` takes unit rows `(B, D)` and the newest keys, newest last. Prototypes and
    the call counter are state. The loss is minus a cosine over the temperature, about −10 with the defaults:
    a weight of 0.1 is not small.

    Parameters
    ----------
    prototypes, count, hardness : int, int, float
        Cluster centres, positives per key, and the share of the hardest step t* (Eq. 7).
    refresh, recent : int
        Prototypes are refitted every this many calls to this many of the newest keys.
    temperature : float
        Divides the similarities.
    step, positive_filter, anchor, direction : str
        How steps are drawn, which positives are kept, where they start and where they go; the defaults are
        the paper's.
    source : str
        Prototypes from the recent keys (`queue`), from clustering the batch's keys (`batch`), or the batch's
        keys as they are (`keys`); the latter two need no memory.
    average_over : str
        See `halp_loss`.
    warm_start : bool
        Refit from the centres of the last time.
    negatives : bool
        Eq. 8 pulls without negatives. With them every positive also pays the denominator of InfoNCE over its
        key and
        `recent_keys` (or the `negatives` of the call; without any, the keys of the batch), which keeps
        embeddings apart.

    Examples
    --------
    >>> term = HallucinatedPositives(prototypes=4, count=10, recent=32)
    >>> keys = nn.functional.normalize(torch.randn(32, 8), dim=1)
    >>> loss = term(keys[:2], keys[2:4], keys)
    >>> sorted(term.state_dict())
    ['calls', 'centres']
    """

    centres: Tensor

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
        positive_filter: str = "rank",
        anchor: str = "key",
        direction: str = "prototype",
        source: str = "queue",
        average_over: str = "positives",
        warm_start: bool = False,
        negatives: bool = False,
    ) -> None:
        super().__init__()
        if prototypes < 2:
            raise InputError(f"prototypes = {prototypes}: at least two are needed")
        if source == "queue" and prototypes > recent:
            raise InputError(
                f"prototypes = {prototypes} is more than recent = {recent}: there cannot be more clusters"
                " than recent keys; raise recent or lower prototypes"
            )
        if count < 1:
            raise InputError(
                f"count = {count}: at least one positive per key is needed; to train without, set the weight"
                " to 0"
            )
        if not 0 < hardness <= 1:
            raise InputError(
                f"hardness = {hardness} is out of range; it is the share of the hardest step t*, in (0, 1]"
            )
        if refresh < 1:
            raise InputError(
                f"refresh = {refresh}: prototypes are refitted every this many steps, at least 1"
            )
        if temperature <= 0:
            raise InputError(f"temperature = {temperature} must be positive")
        self.prototypes, self.refresh, self.recent = prototypes, refresh, recent
        self.source = check_choice("source", source, SOURCES)
        self.temperature, self.average_over = (
            temperature,
            check_choice("average_over", average_over, AVERAGES),
        )
        self.warm_start, self.negatives = warm_start, negatives
        self.settings: dict[str, Any] = {
            "count": count,
            "hardness": hardness,
            "step": check_choice("step", step, STEPS),
            "positive_filter": check_choice("filter", positive_filter, FILTERS),
            "anchor": check_choice("anchor", anchor, ANCHORS),
            "direction": check_choice("direction", direction, DIRECTIONS),
        }
        self.register_buffer("centres", torch.empty(0, 0))
        self.calls = 0  # saved with the state; a plain number, so that no device is asked for it
        self.last: PositivePlan | None = None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        recent_keys: Tensor | None = None,
        generator: torch.Generator | None = None,
        prototypes: Tensor | None = None,
        negatives: Tensor | None = None,
    ) -> Tensor:
        """The loss of one step; given `prototypes` `(N, D)` replace clustering."""
        plan = self.plan(query, key, recent_keys, generator, prototypes)
        loss = positive_alignment_loss(query, plan, self.temperature, self.average_over)
        if not self.negatives:
            return loss
        return loss + self._balance(
            query, key.detach(), plan, recent_keys if negatives is None else negatives
        )

    def plan(
        self,
        query: Tensor,
        key: Tensor,
        recent_keys: Tensor | None = None,
        generator: torch.Generator | None = None,
        prototypes: Tensor | None = None,
    ) -> PositivePlan:
        """The positives of one step, from prototypes that are refitted when it is time."""
        key = key.detach()
        if self.calls % self.refresh == 0:
            for name, rows in (("query", query), ("key", key), ("recent_keys", recent_keys)):
                _check_unit(name, rows)
        if prototypes is not None:
            self.centres = prototypes.detach()
        elif self.source == "keys":
            self.centres = key
        elif self.source == "batch":
            self.fit(key, generator)
        elif self.needs_recent_keys:
            self.fit(recent_keys, generator)
        self.calls += 1
        self.last = plan_positives(key, self.centres, query=query, generator=generator, **self.settings)
        return self.last

    def _balance(self, query: Tensor, key: Tensor, plan: PositivePlan, negatives: Tensor | None) -> Tensor:
        """Negatives in Eq. 8: the denominator of InfoNCE, weighted as the positives of each query."""
        if negatives is None or not len(negatives):
            partition = (query @ key.T / self.temperature).logsumexp(1)
        else:
            partition = self.log_partition(query, key, negatives.detach())
        number = plan.kept.sum(1).to(query)
        share = number if self.average_over == "positives" else (number > 0).to(query)
        return (share / share.sum().clamp_min(1) * partition).sum()

    def log_partition(self, query: Tensor, key: Tensor, negatives: Tensor) -> Tensor:
        """log Σ exp(q·[key, negatives] / τ) for every query `(B,)`."""
        positive = (query * key).sum(1) / self.temperature
        return torch.logaddexp(positive, (query @ negatives.to(query).T / self.temperature).logsumexp(1))

    @property
    def needs_recent_keys(self) -> bool:
        """Whether the next call clusters recent keys: every `refresh` calls, if the source is the queue."""
        return self.source == "queue" and self.calls % self.refresh == 0

    def uncount_call(self) -> None:
        """Take the last call back, so that it can be computed again."""
        self.calls = max(0, self.calls - 1)

    def extra_repr(self) -> str:
        """The settings, as they are given to the constructor."""
        own = (
            "prototypes",
            "refresh",
            "recent",
            "temperature",
            "source",
            "average_over",
            "warm_start",
            "negatives",
        )
        shown = {**{name: getattr(self, name) for name in own}, **self.settings}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    def fit(self, keys: Tensor | None, generator: torch.Generator | None = None) -> None:
        """Cluster these keys into fresh prototypes (from the present ones where `warm_start` is on)."""
        if keys is None:
            raise InputError("the term clusters recent keys: call it as term(query, key, recent_keys)")
        keys = precise(keys.detach())
        if self.source == "queue":
            keys = keys[-self.recent :]
        if len(keys) < self.prototypes:
            raise InputError(
                f"{len(keys)} keys cannot give {self.prototypes} prototypes; wait until there are more, or"
                " lower prototypes"
            )
        start = self.centres.to(keys) if self.warm_start and len(self.centres) == self.prototypes else None
        self.centres = self.cluster(keys, start, generator)

    def cluster(self, keys: Tensor, start: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """The prototypes `(N, D)` of these keys `(n, D)`, from the centres `start` if there are any."""
        return kmeans(keys, self.prototypes, generator=generator, start=start)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "calls"] = torch.tensor(self.calls)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        metadata: Any,
        strict: bool,
        missing: list[str],
        *rest: Any,
    ) -> None:
        # the width of the prototypes is known only once keys were seen: take it from what is loaded
        saved = state_dict.get(prefix + "centres")
        if saved is not None:
            self.centres = torch.empty_like(saved, device=self.centres.device)
        calls = state_dict.pop(prefix + "calls", None)
        if calls is None:
            missing.append(prefix + "calls")
        else:
            self.calls = int(calls)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)


def _check_unit(name: str, rows: Tensor | None) -> None:
    """Raise if rows are not of unit length; only on the CPU, since other devices would have to be awaited.

    A query may be the mean of unit rows, which is shorter.
    """
    if rows is None or not rows.is_cpu or not len(rows):
        return
    # read as a list: a CPU tensor's memory, without a device to wait for
    shortest, longest = torch.stack(torch.aminmax(rows.detach().float().norm(dim=-1))).tolist()
    least = 0.5 if name == "query" else 0.99
    if shortest < least or longest > 1.01:  # not so for NaN, which the loss tells of
        raise InputError(
            f"{name} has rows of length {shortest:.3g} to {longest:.3g}, and HaLP takes unit vectors;"
            f" normalise them first: {name} = torch.nn.functional.normalize({name}, dim=1)"
        )
