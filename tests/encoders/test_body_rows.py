"""Encoders on the CPU without gradients: rows of numbers side by side give what a graph of torch operations
gives.
"""

from __future__ import annotations

import copy

import pytest
import torch
from encoders.test_fusion import clips
from torch import Tensor, nn

import halp
from halp.encoders import kernel_fusion
from halp.encoders.body_rows import can_use_row_kernels, convolve_rows, read_both_ways
from halp.encoders.kernel_fusion import KernelFusionEncoder


def by_graph(encoder: nn.Module, batch: Tensor) -> Tensor:
    """With gradients, which rows do not have."""
    with torch.enable_grad():
        assert not can_use_row_kernels(batch)
        return encoder(batch).detach()


def movements(count: int, frames: int, dimensions: int) -> Tensor:
    """Smooth clips of one or two persons, of whom one misses a joint, another is absent."""
    batch = clips(count, frames=frames)[..., :dimensions].cumsum(1) / frames**0.5
    batch = torch.cat([batch, batch.flip(0)], 2)
    batch[0, :, 0, 5] = 0
    batch[1, :, 1] = 0
    return batch


@pytest.mark.parametrize("name", ["halp-base", "halp-view"])
def test_vectors_of_shipped_encoders_are_those_of_the_graph_in_parts_of_any_size(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = halp.load_encoder(name)
    batch = movements(5, 64, encoder.topology.dimensions)
    expected, exact = by_graph(encoder, batch), by_graph(copy.deepcopy(encoder).double(), batch.double())
    rounding, largest = (
        float(x.abs().max()) for x in (expected - exact, exact)
    )  # of the graph, in single precision
    assert rounding < 1e-4 * largest
    with torch.inference_mode():
        for bodies in (kernel_fusion.BODIES, 2):
            monkeypatch.setattr(kernel_fusion, "BODIES", bodies)
            assert float((encoder(batch) - exact).abs().max()) < 2 * rounding + 1e-5 * largest


@pytest.mark.parametrize("frames", [1, 5, 30])
def test_short_clips_and_refitted_kernels_are_read_as_by_the_graph(frames: int) -> None:
    encoder = halp.load_encoder("halp-base").encoder
    assert isinstance(encoder, KernelFusionEncoder)
    batch = movements(4, frames, 3)
    for _ in range(2):  # what was prepared for the old biases does not stay
        with torch.no_grad():
            found = encoder(batch)
        expected = by_graph(encoder, batch)
        assert torch.allclose(found, expected, atol=1e-5 * float(expected.abs().max()), rtol=0)
        encoder.kernels.bias.add_(0.5)


@torch.no_grad()
def test_a_dilated_convolution_of_rows_is_that_of_torch() -> None:
    for dilation in (1, 2, 8):
        conv = nn.Conv1d(4, 6, 3, padding=dilation, dilation=dilation)
        x = torch.randn(3, 4, 7)
        rows = convolve_rows(x.permute(1, 2, 0).contiguous(), conv)
        assert torch.allclose(rows.permute(2, 0, 1), conv(x), atol=1e-5)


@torch.no_grad()
def test_two_grus_in_rows_are_one_that_reads_both_ways() -> None:
    both = nn.GRU(5, 6, bidirectional=True)
    grus = []
    for ending in ("", "_reverse"):
        gru = nn.GRU(5, 6)
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            getattr(gru, name).copy_(getattr(both, name + ending))
        grus.append(gru)
    x = torch.randn(11, 3, 5)
    states = read_both_ways(grus, x.transpose(1, 2).contiguous())
    assert torch.allclose(states.transpose(1, 2), both(x)[0], atol=1e-6)
