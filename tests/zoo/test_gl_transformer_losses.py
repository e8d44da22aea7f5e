"""Classes of displacements and their weighted cross-entropy, against loops."""

from __future__ import annotations

import numpy as np
import pytest
import slow_predictions as slow
import torch

from halp.zoo.gl_transformer import displacement_classes, token_weights, weighted_cross_entropy


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("interval", [1, 3])
def test_classes_are_those_of_the_loops(dimensions: int, interval: int) -> None:
    places = 0.02 * torch.randn(2, 6, 2, 4, dimensions, dtype=torch.double)
    places[0, 2:4, 0, 1] = places[0, 1, 0, 1]  # a joint that rests
    places[0, :, 0, 2, 1] = 0.5  # one that moves along the other axes
    places[1, :, 1] = 0
    places[0, 5, 0, 3] += 9  # further than the last class begins
    present = torch.tensor([[True, True], [True, False]])
    direction, magnitude = displacement_classes(places, interval, 0.01, 5, present)
    for clip in range(2):
        expected = slow.displacement_classes(places[clip].numpy(), interval, 0.01, 5, present[clip].numpy())
        np.testing.assert_array_equal(direction[clip].numpy(), expected[0])
        np.testing.assert_array_equal(magnitude[clip].numpy(), expected[1])
    assert int(direction.max()) < 3**dimensions
    assert (magnitude[1, :, 1] == 6).all()
    assert int(magnitude[0, 5, 0, 3]) == 5
    assert int(magnitude[0, 0].max()) == 0  # nothing comes before the first frame


@pytest.mark.parametrize("first_only", [True, False])
def test_cross_entropy_weights_the_centre_joint_apart(first_only: bool) -> None:
    logits = torch.randn(2, 3, 2, 2, 4, 5, dtype=torch.double)
    classes = torch.randint(5, (2, 3, 2, 2, 4))
    weight = token_weights(2, 4, 1, 0.05, all_intervals=not first_only).double()
    found = weighted_cross_entropy(logits, classes, weight)
    for clip in range(2):
        expected = slow.displacement_loss(logits[clip].numpy(), classes[clip].numpy(), 1, 0.05, first_only)
        assert float(found[clip]) == pytest.approx(expected, rel=1e-6)
    small = logits[:1, :1].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: weighted_cross_entropy(x, classes[:1, :1], weight), [small])
