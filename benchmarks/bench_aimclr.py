"""AimCLR at its published size: HaLP's share of its step, and the ST-GCN step against the machine's
matrix-multiply peak.

The encoders are timed on a part of the batch, to which their work is proportional; the losses on the whole
one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.bench_encoder import training_step
from benchmarks.compose import compose_moco
from benchmarks.harness import Row, interleaved, milliseconds, taking_turns
from halp.core.dropout import begin_step, dropouts, replace_dropout
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.stgcn import TAPS, Block, STGCNEncoder
from halp.methods import ContrastSettings, HalpSettings, MocoMethod, StepContext, StreamBatch
from halp.skeleton import get_topology
from halp.sphere import unit
from halp.zoo.aimclr import AimClrSettings

BATCH, FRAMES, PERSONS, JOINTS, QUEUE, DIMENSION = 128, 50, 2, 25, 32768, 128  # as published
PART = 16  # clips that stand for the batch where the work is proportional to their number
PEAK = 2048  # rows and columns of the matrices whose product is the peak
KINDS = {
    "temporal convolutions": ("convolution",),
    "matrix products": ("mm",),
    "BatchNorm": ("batch_norm",),
    "copies": ("copy_", "contiguous"),
}


def rows() -> list[Row]:
    """HaLP's share of the step, then what the encoder achieves and what it spends its time on."""
    return [share_row(), peak_row(), *operator_rows()]


def share_row(repeats: int = 3) -> Row:
    """The mean time that HaLP adds to a step, clustering included, over the time of an AimCLR step without
    it.
    """
    model = compose_moco(
        get_topology("kinect-v2"),
        PERSONS,
        terms=("aimclr", "halp"),
        encoder=EncoderSettings("stgcn", dropout=0.5, initialisation="normal"),
        contrast=ContrastSettings(dimension=DIMENSION, queue=QUEUE),
        aimclr=AimClrSettings(mining_epoch=0),
        halp=HalpSettings(start_epoch=0),
    )
    replace_dropout(model)
    model.train().queue.push({"joint": unit(torch.randn(QUEUE, DIMENSION))})
    refresh = HalpSettings().refresh
    halp, losses = taking_turns(
        term_step(model, "halp"), term_step(model, "aimclr"), stretch=refresh, repeats=4 * repeats
    )
    (encoders,) = interleaved(encoder_step(model), repeats=repeats, warm_up=1)
    step = encoders * BATCH / PART + losses
    return Row(
        f"HaLP ÷ AimCLR step, ST-GCN, batch {BATCH}, queue {QUEUE}",
        milliseconds(halp),
        milliseconds(step),
        halp / step,
        0.03,
        True,
    )


def term_step(model: MocoMethod, name: str) -> Callable[[], None]:
    """Loss of one term for a whole batch of unit vectors, and its gradient to the queries."""
    names, generator = ("query", "extreme", "extreme-dropped"), torch.Generator().manual_seed(0)
    vectors = {view: unit(torch.randn(BATCH, DIMENSION)) for view in (*names, "key")}
    term = model.terms[name]

    def action() -> None:
        given = {view: vectors[view].detach().requires_grad_() for view in names}
        batch = StreamBatch(given["query"], vectors["key"], {view: given[view] for view in names[1:]})
        loss, _ = term({"joint": batch}, model.queue, StepContext(0, generator, log_metrics=False))
        loss.backward()

    return action


def encoder_step(model: MocoMethod) -> Callable[[], None]:
    """Forward passes of normal, extreme and key view of a part of a batch, the backward pass, and the
    optimiser's step.
    """
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    views = {view: torch.randn(PART, FRAMES, PERSONS, JOINTS, 3) for view in model.views}
    modules = list(dropouts(model))

    def action() -> None:
        begin_step(modules, 0, 0, 0, slice(0, PART), PART)
        batch = model._encode(views, StepContext(0, torch.Generator()))["joint"]
        optimiser.zero_grad(set_to_none=True)
        torch.stack([batch.query, *batch.extra.values()]).mul(batch.key).sum().backward()
        optimiser.step()

    return action


def stgcn() -> tuple[STGCNEncoder, Tensor]:
    """The quarter-width encoder and a part of a batch."""
    encoder = build_encoder(EncoderSettings("stgcn"), get_topology("kinect-v2"), PERSONS)
    return encoder, torch.randn(PART, FRAMES, PERSONS, JOINTS, 3)


def forward_flops(encoder: STGCNEncoder, clips: Tensor) -> int:
    """Multiplications and additions of the products of a forward pass; the graph counts as the dense matrix
    it is.
    """
    batch, frames, persons, joints, _ = clips.shape
    total = 0
    for block in (cast(Block, entry) for entry in encoder.blocks):
        inputs, outputs = block.mix.in_features, block.time.out_channels
        after = -(-frames // block.stride)
        skip = 0 if block.skip is None else inputs * outputs
        total += frames * (inputs * 3 * outputs + 3 * joints * outputs) + after * (TAPS * outputs**2 + skip)
        frames = after
    return 2 * batch * persons * joints * total


def peak_row(repeats: int = 5) -> Row:
    """Products per second of a forward and backward pass over those of one large product of matrices."""
    encoder, clips = stgcn()
    a, b, out = torch.randn(PEAK, PEAK), torch.randn(PEAK, PEAK), torch.empty(PEAK, PEAK)
    step, product = interleaved(
        training_step(encoder, clips), lambda: torch.mm(a, b, out=out), repeats=repeats, warm_up=1
    )
    ours, peak = 3 * forward_flops(encoder, clips) / step / 1e9, 2 * PEAK**3 / product / 1e9
    return Row(
        "ST-GCN forward and backward, share of the matrix-multiply peak",
        f"{ours:.0f} GFLOP/s",
        f"{peak:.0f} GFLOP/s",
        ours / peak,
        0.6,
    )


def operator_rows() -> list[Row]:
    """What a forward and backward pass spends its time on, by kind of operator."""
    step = training_step(*stgcn())
    step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    spent = {event.key: event.self_cpu_time_total / 1e6 for event in seen.key_averages()}
    total = sum(spent.values())
    found = {
        kind: sum(seconds for key, seconds in spent.items() if any(word in key for word in words))
        for kind, words in KINDS.items()
    }
    found["all else"] = total - sum(found.values())
    return [
        Row(f"ST-GCN step: {kind}", milliseconds(seconds), milliseconds(total), seconds / total)
        for kind, seconds in found.items()
    ]
