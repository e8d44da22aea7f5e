"""The HaLP term against MoCo's own product, materialised positives and the authors' way; k-means against the
textbook.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness import Row, interleaved, milliseconds
from benchmarks.references import contrast_with_queue, materialised_loss, repeated_loss, textbook_kmeans
from halp.hallucinate import HallucinatedPositives, halp_loss
from halp.sphere import inertia, kmeans

BATCH, WIDTH, QUEUE, COUNT, PROTOTYPES, REFRESH, RECENT = 64, 128, 16384, 100, 20, 5, 256


def rows() -> list[Row]:
    """Four timings of the loss and one each for the speed and the quality of k-means."""
    generator = torch.Generator().manual_seed(0)
    queue = clustered(QUEUE, generator)
    key = queue[-BATCH:].clone()
    query = nearby(key, generator).requires_grad_()
    centres = kmeans(queue[-RECENT:], PROTOTYPES, generator=generator)
    term = HallucinatedPositives(PROTOTYPES, COUNT, refresh=REFRESH, recent=RECENT)

    check_equal(query, key, centres)

    moco = forward_backward(query, lambda: contrast_with_queue(query, key, queue))
    amortised = forward_backward(query, lambda: term(query, key, queue[-RECENT:], generator=generator))
    closed = forward_backward(query, lambda: halp_loss(query, key, centres, count=COUNT, generator=generator))
    made = forward_backward(
        query, lambda: materialised_loss(query, key, centres, count=COUNT, generator=generator)
    )
    repeated = forward_backward(
        query, lambda: repeated_loss(query, key, centres, count=COUNT, generator=generator)
    )

    # whole refresh cycles only, so that every timed stretch holds its share of clustering
    moco_time, term_time = interleaved(moco, amortised, repeats=30, inner=(1, 2 * REFRESH), warm_up=REFRESH)
    closed_time, made_time = interleaved(closed, made, repeats=100, inner=(4, 1))
    closed_again, repeated_time = interleaved(closed, repeated, repeats=7, inner=(10, 1), warm_up=1)
    name = f"batch {BATCH}, {COUNT} positives, {PROTOTYPES} prototypes"
    return [
        Row(
            f"HaLP term with refresh ÷ MoCo query × queue ({QUEUE})",
            milliseconds(term_time),
            milliseconds(moco_time),
            term_time / moco_time,
            0.5,
            at_most=True,
        ),
        Row(
            f"closed form vs materialised positives, {name}",
            milliseconds(closed_time),
            milliseconds(made_time),
            made_time / closed_time,
            4,
        ),
        Row(
            f"closed form vs the authors' way, {name}",
            milliseconds(closed_again),
            milliseconds(repeated_time),
            repeated_time / closed_again,
            50,
        ),
        *kmeans_rows(queue[-RECENT:], generator),
    ]


def check_equal(query: Tensor, key: Tensor, centres: Tensor) -> None:
    """The references reach the library's loss: exactly with the same draws, closely with draws in another
    order.
    """
    ours = halp_loss(query, key, centres, count=COUNT, generator=torch.Generator().manual_seed(1))
    made = materialised_loss(query, key, centres, count=COUNT, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ours, made, rtol=1e-4, atol=1e-4)
    authors = halp_loss(
        query, key, centres, count=COUNT, step="authors", generator=torch.Generator().manual_seed(1)
    )
    repeated = repeated_loss(query, key, centres, count=COUNT, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(authors, repeated, rtol=2e-2, atol=0)


def kmeans_rows(keys: Tensor, generator: torch.Generator) -> list[Row]:
    """Speed of one fit, and the median inertia of single starts relative to the textbook's."""
    ours, textbook = interleaved(
        lambda: kmeans(keys, PROTOTYPES, generator=generator),
        lambda: textbook_kmeans(keys, PROTOTYPES, generator=generator),
        repeats=15,
        inner=(5, 1),
    )
    reached = [float(inertia(keys, kmeans(keys, PROTOTYPES, generator=generator))) for _ in range(40)]
    wanted = [float(inertia(keys, textbook_kmeans(keys, PROTOTYPES, generator=generator))) for _ in range(40)]
    return [
        Row(
            f"k-means of {len(keys)} keys into {PROTOTYPES} vs textbook",
            milliseconds(ours),
            milliseconds(textbook),
            textbook / ours,
            10,
        ),
        Row(
            "inertia ÷ textbook, best of 40 starts",
            f"{min(reached):.4g}",
            f"{min(wanted):.4g}",
            min(reached) / min(wanted),
            1.01,
            at_most=True,
        ),
    ]


def clustered(number: int, generator: torch.Generator) -> Tensor:
    """Unit vectors around 60 directions, about as close to theirs as keys of a trained encoder are."""
    directions = F.normalize(torch.randn(60, WIDTH, generator=generator), dim=1)
    return nearby(directions[torch.randint(60, (number,), generator=generator)], generator, 0.05)


def nearby(x: Tensor, generator: torch.Generator, noise: float = 0.02) -> Tensor:
    """The rows of x, moved a little and put back on the sphere."""
    return F.normalize(x + noise * torch.randn(x.shape, generator=generator), dim=1)


def forward_backward(query: Tensor, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """One training use of a loss: its value and the gradient of the query."""

    def action() -> None:
        query.grad = None
        loss().backward()

    return action
