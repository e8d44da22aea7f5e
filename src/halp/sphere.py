"""Geometry on the unit hypersphere: angles, geodesics, means, k-means, and the hardest step of HaLP (Eq. 7).

Pure functions of torch tensors whose last axis holds the coordinates; they broadcast over all other axes.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

try:
    from halp.core.errors import InputError, check_choice
except ImportError:  # this file was copied into another project
    InputError = ValueError  # type: ignore[assignment,misc]

    def check_choice(kind: str, name: str, known: Iterable[str]) -> str:
        """Return `name` if it is one of `known`."""
        if name not in known:
            raise InputError(f"unknown {kind} '{name}'. Known: {', '.join(sorted(known))}.")
        return name


def _tiny(x: Tensor) -> float:
    """Below this, a sine of an angle in this precision is noise."""
    return float(torch.finfo(x.dtype).eps) ** 0.5


def precise(x: Tensor) -> Tensor:
    """The tensor in at least float32: angles do not survive half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length one; a row of zeros has no direction and becomes the first axis.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [1.0, 0.0]]
    """
    length = x.norm(dim=-1, keepdim=True)
    first = (torch.arange(x.shape[-1], device=x.device) == 0).to(x.dtype)
    return torch.where(length > 0, x / length.clamp_min(torch.finfo(x.dtype).tiny), first)


def angle(x: Tensor, y: Tensor) -> Tensor:
    """Geodesic distance in [0, π], exact for nearly equal and nearly opposite vectors too.

    >>> round(float(angle(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))), 4)
    1.5708
    """
    return 2 * torch.atan2((x - y).norm(dim=-1), (x + y).norm(dim=-1))


def slerp(x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
    """Point at the fraction `t` of the geodesic from x to y (Eq. 4); `t` lacks the coordinate axis.

    Opposite vectors have no single geodesic: nothing says where to go, and the result stays at x.

    >>> slerp(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 0.5).tolist()
    [0.70710..., 0.70710...]
    """
    omega = angle(x, y)
    t = torch.as_tensor(t, dtype=x.dtype, device=x.device)
    sine = omega.sin()
    flat = sine < _tiny(x)
    safe = torch.where(flat, torch.ones_like(sine), sine)
    from_x = torch.where(
        flat, torch.where(omega < 1, 1 - t, torch.ones_like(t)), ((1 - t) * omega).sin() / safe
    )
    from_y = torch.where(flat, torch.where(omega < 1, t, torch.zeros_like(t)), (t * omega).sin() / safe)
    return unit(from_x[..., None] * x + from_y[..., None] * y)


def log_map(base: Tensor, point: Tensor) -> Tensor:
    """Tangent vector at `base` that leads to `point`; its length is the angle (zero for opposite points)."""
    chord = point - base
    # point − cos Ω · base, written so that nothing cancels where the two are close
    tangent = chord + chord.square().sum(-1, keepdim=True) / 2 * base
    length = tangent.norm(dim=-1, keepdim=True)
    omega = angle(base, point)[..., None]
    nowhere = (length == 0) | ((omega > 2) & (length < _tiny(base)))
    return torch.where(
        nowhere, torch.zeros_like(tangent), tangent * (omega / torch.where(nowhere, 1, length))
    )


def exp_map(base: Tensor, tangent: Tensor) -> Tensor:
    """Point reached from `base` along the geodesic that starts as `tangent`."""
    length = tangent.norm(dim=-1, keepdim=True)
    return unit(length.cos() * base + torch.sinc(length / torch.pi) * tangent)


def hardest_step(key: Tensor, closest: Tensor, target: Tensor) -> Tensor:
    """t* of Eq. 7 in [0, 1]: how far to go from `key` towards `target` with `closest` still the nearer.

    With a = key·(closest − target) and b = 1 − target·closest, Eq. 7's κ is b / a; written with atan2 the
    step is right for angles beyond 90° and finite for every input. Where all steps are admissible (closest =
    target) it is 1; where none is (target already nearer), or where key and target are opposite and no
    geodesic is defined, it is 0.

    >>> axes = torch.eye(2)
    >>> round(hardest_step(axes[0], axes[0], axes[1]).item(), 4)
    0.5
    """
    chord, opposite = (key - target).norm(dim=-1), (key + target).norm(dim=-1)
    sine, cosine = chord * opposite / 2, (opposite.square() - chord.square()) / 4
    lead = (key * (closest - target)).sum(-1)
    spread = (closest - target).square().sum(-1) / 2
    omega = 2 * torch.atan2(chord, opposite)
    reach = torch.atan2(lead.clamp_min(0) * sine, spread + lead.clamp_min(0) * cosine)
    reach = torch.where((sine < _tiny(sine)) & (cosine < 0), torch.zeros_like(reach), reach)
    step = (reach / omega.clamp_min(torch.finfo(key.dtype).tiny)).clamp(0, 1)
    return torch.where((lead >= 0) & ((spread == 0) | (omega == 0)), torch.ones_like(step), step)


@torch.no_grad()
def kmeans(
    x: Tensor,
    k: int,
    *,
    generator: torch.Generator | None = None,
    starts: int = 1,
    start: Tensor | None = None,
    iterations: int = 100,
    tolerance: float = 1e-3,
) -> Tensor:
    """Riemannian k-means on the sphere: unit rows `(n, d)` → `k` unit centres `(k, d)`.

    Lloyd's alternation with geodesic distances: assign, then move every centre by one step of its Karcher
    mean, until no centre moves by more than `tolerance`. Starts are drawn by k-means++ (`generator` makes
    them repeatable) and the best of `starts` wins; `start` gives the centres to begin with instead (a warm
    start). A cluster that loses all its members resumes from the point that is worst served. On other devices
    than the CPU no value is read back: all iterations are queued, and those after convergence change nothing.
    """
    if x.ndim != 2:
        raise InputError(f"k-means takes rows (n, d), not a tensor of shape {tuple(x.shape)}")
    if not 1 <= k <= len(x):
        raise InputError(f"k-means cannot make {k} clusters out of {len(x)} points; ask for at most {len(x)}")
    if x.is_cpu and not torch.isfinite(x).all().tolist():
        raise InputError("k-means got a point that is not finite; an encoder diverged or a clip holds NaN")
    if start is not None and start.shape != (k, x.shape[1]):
        raise InputError(f"k-means needs {k} start centres ({k}, {x.shape[1]}), not {tuple(start.shape)}")
    x = precise(x)
    # autocast would round the products to half precision, in which centres do not come to rest
    with torch.autocast(x.device.type, enabled=False):
        if start is not None:
            return _lloyd(x, start.to(x), iterations, tolerance)
        candidates = [_lloyd(x, _spread_start(x, k, generator), iterations, tolerance) for _ in range(starts)]
        return (
            candidates[0] if starts == 1 else min(candidates, key=lambda centres: float(inertia(x, centres)))
        )


def inertia(x: Tensor, centres: Tensor) -> Tensor:
    """Sum over the rows of x of the squared angle to the nearest centre: what k-means makes small."""
    return (x @ centres.T).amax(1).clamp(-1, 1).arccos().square().sum()


def _spread_start(x: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    """k-means++: each further centre is a point drawn with probability proportional to its squared angle."""
    device = generator.device if generator is not None else x.device
    draws = torch.rand(k, generator=generator, device=device).to(x)
    chosen = (draws[:1] * len(x)).long()
    weight = x.new_full((len(x),), torch.inf)
    for i in range(1, k):
        # a cosine just below one lets copies of a chosen point be drawn when nothing else is left
        distance = (
            (x @ x.index_select(0, chosen[-1:])[0])
            .clamp_(-1, 1 - torch.finfo(x.dtype).eps)
            .arccos_()
            .square_()
        )
        cumulative = torch.minimum(weight, distance, out=weight).cumsum(0)
        following = torch.searchsorted(cumulative, draws[i : i + 1] * cumulative[-1])
        chosen = torch.cat([chosen, following.clamp_max_(len(x) - 1)])
    return x[chosen]


def _lloyd(
    x: Tensor, centres: Tensor, iterations: int, tolerance: float, *, read: bool | None = None
) -> Tensor:
    """Lloyd's iterations; `read` stops early by looking at values (default: on the CPU, where cheap)."""
    read = x.is_cpu if read is None else read
    member = x.new_empty(len(centres), len(x))
    one = torch.ones_like(x[:, 0], dtype=torch.long)
    # θ/sin θ is 0/0 at one and infinite at minus one
    nearly_one, nearly_opposite = 1 - torch.finfo(x.dtype).eps, 1e-6 - 1
    done = torch.zeros((), dtype=torch.bool, device=x.device)
    for _ in range(iterations):
        cosine, nearest = (x @ centres.T).max(1)
        cosine = cosine.clamp_(nearly_opposite, nearly_one)
        count = one.new_zeros(len(centres)).scatter_add_(0, nearest, one)
        # fewer distinct points than clusters: every point is a centre already
        exhausted = cosine.amin() > 1 - 1e-6
        if read and count.amin().tolist() == 0:
            if exhausted.tolist():
                break
            centres = _reseed(x, centres, cosine, count)
            continue
        # log map in products only: Σ θ/sin θ · (x − cos θ · c), summed over the members of each cluster
        scale = cosine.arccos().mul_(((1 - cosine) * (1 + cosine)).rsqrt_())
        member.zero_().scatter_(0, nearest[None], scale[None])
        tangent = (member @ x - (member @ cosine)[:, None] * centres).div_(count[:, None].clamp_min(1))
        length = tangent.norm(dim=1, keepdim=True)
        moved = F.normalize(length.cos() * centres + torch.sinc(length / torch.pi) * tangent, dim=1)
        settled = length.amax() < tolerance
        if read:
            centres = moved
            if settled.tolist():
                break
            continue
        empty = count == 0
        lost = empty.any()
        worst = x[cosine.topk(len(centres), largest=False).indices[(empty.cumsum(0) - 1).clamp_min_(0)]]
        moved = torch.where(lost, torch.where(empty[:, None], worst, centres), moved)
        done = done | (lost & exhausted)
        centres = torch.where(done, centres, moved)
        done = done | (settled & ~lost)
    return centres


def _reseed(x: Tensor, centres: Tensor, cosine: Tensor, count: Tensor) -> Tensor:
    """Move the centres without members to the points that are worst served, one after the other."""
    centres = centres.clone()
    for empty in (count == 0).nonzero()[:, 0]:
        centres[empty] = x[cosine.argmin()]
        cosine = torch.maximum(cosine, x @ centres[empty])
    return centres
