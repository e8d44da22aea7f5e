"""The closed-form map keeps what views share and drops what tells them apart."""

from __future__ import annotations

import torch

from benchmarks.invariance import fit_invariance


def views(noise: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    """Two numbers per clip that all views share, beside four louder ones that every view draws anew, mixed by a rotation."""
    draws = torch.Generator().manual_seed(0)
    shared = torch.randn(400, 1, 2, generator=draws)
    own = 3 * torch.randn(400, 5, 4, generator=draws)
    mixed = torch.cat([shared + noise * torch.randn(400, 5, 2, generator=draws), own], dim=2)
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=draws))
    return mixed @ turn, shared[:, 0]


def test_the_first_directions_are_those_that_views_share() -> None:
    features, shared = views()
    projection = fit_invariance(features, 2)
    first = projection(features[:, 0])
    fitted = torch.linalg.lstsq(first, shared).solution
    assert float((first @ fitted - shared).std()) < 0.15
    assert (projection.moved < 0.05).all()
    assert (fit_invariance(features, 6).moved[2:] > 0.9).all()


def test_without_power_all_directions_are_white() -> None:
    features, _ = views()
    output = fit_invariance(features, 6, power=0)(features.flatten(0, 1))
    torch.testing.assert_close(output.T @ output / len(output), torch.eye(6), atol=1e-3, rtol=0)


def test_the_size_is_at_most_what_the_features_have() -> None:
    features, _ = views()
    assert fit_invariance(features, 256)(features[:, 0]).shape == (400, 6)
