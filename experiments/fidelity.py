"""`python -m experiments.fidelity`: what the simplifications on the way from Eq. 2 to Eq. 7 cost, in figures.

Measured over many keys and targets: how often the similarity to P* that Eq. 6 makes small is smallest
elsewhere than at t*, how far t* of the pair is from the exact limit t° under all prototypes, and how many
positives the rank filter keeps.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from experiments.files import RESULTS
from halp.hallucinate import plan_positives
from halp.sphere import angle, kmeans, log_map, slerp, unit

PROTOTYPES, RECENT, DIRECTIONS, GRID = 20, 256, 60, 512


@dataclass(frozen=True)
class Figures:
    """One configuration, averaged over keys and targets."""

    configuration: str
    dimensions: int
    cases: int
    minimum_elsewhere: float  # share of cases whose least similarity to P* on [0, t*] is not at t*
    minimum_at_key: float  # share of cases in which it is at t = 0, at the key itself
    excess_similarity: (
        float  # how much nearer to P* the positive at t* is than the least possible, where they differ
    )
    arctan_wrong: float  # share of cases in which the plain arctan of Eq. 7 leaves [0, 1]
    third_binds: float  # share of cases in which another prototype than the target limits the step
    exact_over_pair: float  # mean of t° / t*
    kept_paper: float  # kept by the rank filter, t ~ U(0, 0.8 t*)
    kept_authors: float  # kept, t = (1 − u) t*, u ~ U(0, 0.8)
    kept_hardest: float  # kept at t = t*


def measure(configuration: str, dimensions: int, batches: int, seed: int = 0) -> Figures:
    """Draw `batches` scenes of 64 keys and 20 prototypes and average over their positives."""
    generator = torch.Generator().manual_seed(seed)
    parts: list[Tensor] = []
    for _ in range(batches):
        key, prototypes = scene(configuration, dimensions, generator)
        parts.append(torch.stack([value.double().mean() for value in one_scene(key, prototypes, generator)]))
    mean = torch.stack(parts).nanmean(0).tolist()
    return Figures(configuration, dimensions, batches * 64 * 50, *[round(value, 4) for value in mean])


def one_scene(key: Tensor, prototypes: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The quantities of `Figures` for every positive of a scene, the minimum by a dense search along the
    geodesics.
    """
    hardest = plan_positives(key, prototypes, count=50, step="hardest", generator=generator)
    closest = prototypes[(key @ prototypes.T).argmax(1)][:, None]
    target = prototypes[hardest.target]
    limit = hardest.step
    # similarity to P* along the way, cos θ · z·P* + sin θ · u·P*, with u the direction in which the walk sets
    # out
    heading = unit(log_map(key[:, None], target))
    theta = (limit * angle(key[:, None], target))[..., None] * torch.linspace(0, 1, GRID + 1, dtype=key.dtype)
    at_key, ahead = (key[:, None] * closest).sum(-1, keepdim=True), (heading * closest).sum(-1, keepdim=True)
    path = theta.cos() * at_key + theta.sin() * ahead
    least, place = path.min(-1)
    elsewhere = path[..., -1] > least + 1e-9
    lead = (key[:, None] * (closest - target)).sum(-1)
    # Eq. 7 without atan2: κ + cos Ω < 0 puts the arctan on the wrong branch
    wrong = (1 - (target * closest).sum(-1)) / lead + (key[:, None] * target).sum(-1) < 0
    exact = exact_limit(key, prototypes, closest, target)
    kept = [
        plan_positives(key, prototypes, count=50, step=step, generator=generator).kept
        for step in ("paper", "authors", "hardest")
    ]
    return [
        elsewhere,
        (place == 0) & elsewhere,
        torch.where(elsewhere, path[..., -1] - least, torch.nan)[elsewhere],
        wrong,
        exact < limit - 1e-9,
        torch.minimum(exact, limit) / limit.clamp_min(1e-12),
        *kept,
    ]


def exact_limit(key: Tensor, prototypes: Tensor, closest: Tensor, target: Tensor) -> Tensor:
    """t°: the furthest step at which no prototype is nearer than P*, by bisection on the geodesic, not by the
    formula.
    """
    low, high = torch.zeros(target.shape[:2], dtype=key.dtype), torch.ones(target.shape[:2], dtype=key.dtype)
    for _ in range(40):
        middle = (low + high) / 2
        point = slerp(key[:, None], target, middle)
        fine = (point * closest).sum(-1) >= (point @ prototypes.T).amax(-1) - 1e-14
        low, high = torch.where(fine, middle, low), torch.where(fine, high, middle)
    return low


def scene(configuration: str, dimensions: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """64 keys and 20 prototypes in float64.

    `random`: all uniform. `tight`, `loose`: keys around 60 directions, prototypes by k-means of 256 other
    such keys.
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dimensions, generator=generator, dtype=torch.float64)

    if configuration == "random":
        return unit(normal(64)), unit(normal(PROTOTYPES))
    noise = {"tight": 0.5, "loose": 1.0}[configuration]
    directions = unit(normal(DIRECTIONS))
    owner = torch.randint(DIRECTIONS, (RECENT + 64,), generator=generator)
    keys = unit(directions[owner] + noise * unit(normal(RECENT + 64)))
    return keys[RECENT:], kmeans(keys[:RECENT], PROTOTYPES, generator=generator)


def main() -> None:
    """Measure all configurations, print a table, write `results/fidelity.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--batches", type=int, default=10, help="scenes of 64 keys × 50 positives a configuration"
    )
    batches = parser.parse_args().batches
    found = [measure("random", d, batches) for d in (2, 3, 8, 32, 128)]
    found += [measure(kind, d, batches) for kind in ("tight", "loose") for d in (8, 32, 128)]
    table = Table(title="Eq. 6 and 7 measured")
    for name in asdict(found[0]):
        table.add_column(name.replace("_", " "))
    for figures in found:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in asdict(figures).values()))
    Console(width=160).print(table)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "fidelity.json").write_text(
        json.dumps([asdict(figures) for figures in found], indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
