"""The GRU's training step against frame-by-frame calls, and what hallucination adds to a whole training
step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.compose import compose_moco
from benchmarks.harness import Row, interleaved, milliseconds, taking_turns
from halp.encoders import EncoderSettings
from halp.encoders.gru import GRUEncoder, GRUSettings
from halp.methods import ContrastSettings, HalpSettings, StepContext
from halp.skeleton import get_topology
from halp.sphere import unit

BATCH, FRAMES, PERSONS, JOINTS = 64, 64, 2, 25
INPUTS = PERSONS * JOINTS * 3


def rows() -> list[Row]:
    """The encoder alone at 256 units, then whole steps at 128 and 1024."""
    return [*encoder_rows(256), step_row(128, cycles=12), step_row(1024, cycles=1)]


def encoder_rows(hidden: int) -> list[Row]:
    """Whole-sequence kernels against the authors' calls, and the share of time that the matrix products alone
    need.
    """
    encoder = GRUEncoder(INPUTS, GRUSettings(hidden, direction="causal"))
    reference = FrameByFrame(encoder)
    clips = torch.randn(BATCH, FRAMES, PERSONS, JOINTS, 3)
    torch.testing.assert_close(encoder(clips), reference(clips), atol=1e-4, rtol=1e-4)
    products = matrix_products(INPUTS, hidden)
    ours, theirs, limit = interleaved(
        training_step(encoder, clips), training_step(reference, clips), products, repeats=7, warm_up=1
    )
    return [
        Row(
            f"GRU training step vs frame by frame, {hidden} units",
            milliseconds(ours),
            milliseconds(theirs),
            theirs / ours,
            1.4,
        ),
        Row(
            f"matrix products alone ÷ GRU training step, {hidden} units",
            milliseconds(ours),
            milliseconds(limit),
            limit / ours,
        ),
    ]


class FrameByFrame(nn.Module):
    """The same function as the causal encoder, by calling a bidirectional GRU on one frame after the
    other.
    """

    def __init__(self, encoder: GRUEncoder) -> None:
        super().__init__()
        layers = len(encoder.layers)
        self.norm: Any = encoder.input_norm
        self.gru = nn.GRU(INPUTS, encoder.output_size // 2, layers, bidirectional=True, batch_first=True)
        state = {}
        for number, layer in enumerate(encoder.layers):
            for part, suffix in zip(layer, ("", "_reverse")):  # type: ignore[call-overload]
                for name, value in part.state_dict().items():
                    state[name.removesuffix("_l0") + f"_l{number}{suffix}"] = value
        self.gru.load_state_dict(state)

    def forward(self, clips: Tensor) -> Tensor:
        x = clips.permute(0, 1, 3, 4, 2).flatten(2)
        x = self.norm(x.reshape(-1, INPUTS)).view_as(x)
        output, state = self.gru(x[:, :1])
        for frame in range(1, FRAMES):
            output, state = self.gru(x[:, frame : frame + 1], state)
        return output[:, 0]


def training_step(module: nn.Module, clips: Tensor) -> Callable[[], None]:
    """Forward and backward."""

    def action() -> None:
        module.zero_grad(set_to_none=True)
        module(clips).square().mean().backward()

    return action


def matrix_products(inputs: int, hidden: int, layers: int = 3) -> Callable[[], None]:
    """All products that a training step of such a GRU cannot do without, in their sizes and their order, and
    nothing else.

    Forward: inputs at once, states one frame after the other. Backward: gradients of states frame by frame,
    of inputs and weights at once. The two GRUs of a layer share the product of a frame, and results go into
    memory that is there
    already: the way in which the products alone take least.
    """
    rows_, gates = BATCH * FRAMES, 3 * hidden
    every_gate, every_state = torch.randn(rows_, gates), torch.randn(rows_, hidden)
    state, gate = torch.randn(2, BATCH, hidden), torch.randn(2, BATCH, gates)
    weight, back = torch.randn(2, hidden, gates), torch.randn(2, gates, hidden)
    new_state, new_gate, new_every_gate = (
        torch.empty_like(state),
        torch.empty_like(gate),
        torch.empty_like(every_gate),
    )
    d_weight = torch.empty(gates, hidden)
    layer_inputs = [torch.randn(rows_, width) for width in [inputs] + [2 * hidden] * (layers - 1)]
    into = [torch.randn(gates, x.shape[1]) for x in layer_inputs]
    d_x, d_into = [torch.empty_like(x) for x in layer_inputs], [torch.empty_like(w) for w in into]

    def action() -> None:
        for layer, x in enumerate(layer_inputs):
            for _ in range(2):
                torch.mm(x, into[layer].T, out=new_every_gate)
            for _ in range(FRAMES):
                torch.bmm(state, weight, out=new_gate)
        for layer, x in reversed(list(enumerate(layer_inputs))):
            for _ in range(FRAMES):
                torch.bmm(gate, back, out=new_state)
            for _ in range(2):
                torch.mm(every_gate.T, x, out=d_into[layer])
                torch.mm(every_gate.T, every_state, out=d_weight)
                if layer:
                    torch.mm(every_gate, into[layer], out=d_x[layer])

    return action


def step_row(hidden: int, cycles: int) -> Row:
    """A training step with hallucinated positives over one without, whole refresh cycles, in turns on one
    model.

    The same model takes both kinds of steps: before the start epoch of the term a step is plain MoCo.
    """
    settings = HalpSettings(start_epoch=1)
    model = compose_moco(
        get_topology("kinect-v2"),
        PERSONS,
        encoder=EncoderSettings(hidden=hidden),
        contrast=ContrastSettings(),
        halp=settings,
    )
    optimiser = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9, weight_decay=1e-4
    )
    model.queue.push({"joint": unit(torch.randn(model.queue.size, 128))})
    first, second = torch.randn(2, BATCH, FRAMES, PERSONS, JOINTS, 3)
    generator = torch.Generator().manual_seed(0)

    def step(epoch: int) -> Callable[[], None]:
        def action() -> None:
            loss, *_ = model(
                {"query": first, "key": second}, StepContext(epoch, generator, log_metrics=False)
            )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

        return action

    moco, halp = taking_turns(step(0), step(1), stretch=settings.refresh, repeats=cycles)
    return Row(
        f"HaLP step ÷ MoCo step, refresh included, {hidden} units",
        milliseconds(halp),
        milliseconds(moco),
        halp / moco,
        1.03,
        at_most=True,
    )
