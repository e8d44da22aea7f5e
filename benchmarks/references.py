"""What the benchmarks compare with: the same results the obvious way, written independently of the
library.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def contrast_with_queue(query: Tensor, key: Tensor, queue: Tensor, temperature: float = 0.07) -> Tensor:
    """MoCo's own loss: query times key and queue `(K, D)`, cross entropy with the key as the right class."""
    positive = (query * key).sum(1, keepdim=True)
    logits = torch.cat([positive, query @ queue.T], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


def materialised_loss(
    query: Tensor,
    key: Tensor,
    prototypes: Tensor,
    *,
    count: int = 100,
    hardness: float = 0.8,
    temperature: float = 0.07,
    generator: torch.Generator | None = None,
) -> Tensor:
    """L_HaLP with all `(B, G, D)` positives made and compared with all prototypes; vectorised, nothing
    repeated.
    """
    with torch.no_grad():
        similarity = key @ prototypes.T
        nearest, closest = similarity.max(1, keepdim=True)
        drawn = torch.randint(len(prototypes) - 1, (len(key), count), generator=generator)
        target = drawn + (drawn >= closest)
        chosen = prototypes[target]  # (B, G, D)
        cosine = similarity.gather(1, target).clamp(-1, 1)
        omega = cosine.acos()
        spread = 1 - (chosen @ prototypes[closest[:, 0]][:, :, None])[..., 0]
        lead = nearest - similarity.gather(1, target)
        limit = torch.atan2(lead * omega.sin(), spread + lead * cosine) / omega
        t = torch.rand(len(key), count, generator=generator) * hardness * limit
        sine = omega.sin()
        from_key, from_target = ((1 - t) * omega).sin() / sine, (t * omega).sin() / sine
        positives = from_key[..., None] * key[:, None] + from_target[..., None] * chosen
        positives = F.normalize(positives, dim=-1)
        kept = (positives @ prototypes.T).argmax(-1) == closest
    similarity_to_query = (positives @ query[:, :, None])[..., 0] / temperature
    return -(similarity_to_query * kept).sum() / kept.sum().clamp_min(1)


def repeated_loss(
    query: Tensor,
    key: Tensor,
    prototypes: Tensor,
    *,
    count: int = 100,
    hardness: float = 0.8,
    temperature: float = 0.07,
    generator: torch.Generator | None = None,
) -> Tensor:
    """L_HaLP one anchor at a time, with the prototype set repeated for every positive, as the authors' code
    goes about it.

    Prototypes are sorted by similarity to the key, the closest is skipped, one of the others is drawn for
    each positive.
    """
    made, owners = [], []
    with torch.no_grad():
        for b in range(len(key)):
            z = key[b]
            order = (prototypes @ z).argsort(descending=True)
            ranked = prototypes[order]
            repeated = ranked[None].repeat(count, 1, 1)  # (G, N, D)
            pick = 1 + torch.randint(len(prototypes) - 1, (count,), generator=generator)
            first, chosen = repeated[:, 0], repeated[torch.arange(count), pick]
            anchors = z[None].repeat(count, 1)
            cosine = (anchors * chosen).sum(1).clamp(-1, 1)
            omega = cosine.acos()
            kappa = (1 - (chosen * first).sum(1)) / ((anchors * (first - chosen)).sum(1) + 1e-8)
            limit = torch.atan(omega.sin() / (kappa + cosine + 1e-8)) / (omega + 1e-8)
            t = (1 - torch.rand(count, generator=generator) * hardness) * limit
            sine = omega.sin() + 1e-8
            from_key, from_target = ((1 - t) * omega).sin() / sine, (t * omega).sin() / sine
            positives = F.normalize(from_key[:, None] * anchors + from_target[:, None] * chosen, dim=1)
            similarity = (repeated * positives[:, None]).sum(2)  # (G, N)
            for g in range(count):
                if int(similarity[g].argmax()) == 0:
                    made.append(positives[g])
                    owners.append(b)
    if not made:
        return query.sum() * 0
    return -(query[torch.tensor(owners)] * torch.stack(made)).sum(1).mean() / temperature


def textbook_kmeans(
    x: Tensor,
    k: int,
    *,
    generator: torch.Generator | None = None,
    tolerance: float = 1e-3,
    iterations: int = 100,
) -> Tensor:
    """Riemannian k-means as geometry libraries write it: per cluster a full Karcher mean by log and exp
    maps.
    """
    centres = _plus_plus(x, k, generator)
    for _ in range(iterations):
        nearest = (x @ centres.T).clamp(-1, 1).acos().argmin(1)
        moved = []
        for j in range(k):
            members = x[nearest == j]
            spare = x[int(torch.randint(len(x), (1,), generator=generator))]
            moved.append(_karcher_mean(members) if len(members) else spare)
        new = torch.stack(moved)
        shift = (new * centres).sum(1).clamp(-1, 1).acos().max()
        centres = new
        if float(shift) < tolerance:
            break
    return centres


def _plus_plus(x: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    chosen = [int(torch.randint(len(x), (1,), generator=generator))]
    for _ in range(1, k):
        angle = (x @ x[chosen].T).clamp(-1, 1).acos().amin(1)
        chosen.append(int(torch.multinomial(angle.square() + 1e-12, 1, generator=generator)))
    return x[chosen]


def _karcher_mean(points: Tensor, tolerance: float = 1e-3, iterations: int = 100) -> Tensor:
    mean = F.normalize(points.mean(0), dim=0)
    for _ in range(iterations):
        cosine = (points @ mean).clamp(-1, 1)
        omega = cosine.acos()
        scale = torch.where(omega < 1e-4, torch.ones_like(omega), omega / omega.sin().clamp_min(1e-12))
        step = (scale[:, None] * (points - cosine[:, None] * mean)).mean(0)
        length = float(step.norm())
        if length < 1e-12:
            break
        mean = F.normalize(math.cos(length) * mean + math.sin(length) / length * step, dim=0)
        if length < tolerance:
            break
    return mean
