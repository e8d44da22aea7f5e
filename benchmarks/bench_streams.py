"""Time and memory of a training step: baseline, HaLP, CMD and HaLP + CMD side by side, as in the paper's
table.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

import torch

from benchmarks.compose import compose_moco
from benchmarks.harness import Row, memory_peak, milliseconds, taking_turns
from halp.encoders import EncoderSettings
from halp.methods import ContrastSettings, HalpSettings, StepContext
from halp.skeleton import get_topology
from halp.sphere import unit
from halp.training.devices import reuse_memory

BATCH, FRAMES, PERSONS, JOINTS, HIDDEN = 64, 64, 2, 25, 1024  # as in the paper
THREE = ("joint", "motion", "bone")
REFRESH = 5
Step = Callable[[], None]


def rows() -> list[Row]:
    """The table at the paper's size."""
    return [*time_rows(HIDDEN, cycles=1), *memory_rows(HIDDEN)]


def time_rows(hidden: int, cycles: int) -> list[Row]:
    """All four kinds of step take turns, whole refresh cycles; the paper's ratios stand in the names."""
    single, three = steps(("joint",), hidden), steps(THREE, hidden)
    baseline, halp, cmd, both = taking_turns(*single, *three, stretch=REFRESH, repeats=cycles)
    base = milliseconds(baseline)
    return [
        Row(
            f"HaLP step ÷ baseline, {hidden} units (paper 1.13)",
            milliseconds(halp),
            base,
            halp / baseline,
            1.13,
            True,
        ),
        Row(f"CMD step ÷ baseline, {hidden} units (paper 3)", milliseconds(cmd), base, cmd / baseline),
        Row(
            f"HaLP + CMD step ÷ baseline, {hidden} units (paper 3.32)",
            milliseconds(both),
            base,
            both / baseline,
        ),
        Row(
            f"HaLP + CMD step ÷ CMD step, {hidden} units",
            milliseconds(both),
            milliseconds(cmd),
            both / cmd,
            1.05,
            True,
        ),
    ]


def steps(streams: tuple[str, ...], hidden: int) -> tuple[Step, Step]:
    """A training step without and with hallucinated positives on one model: before their start epoch they do
    not count.
    """
    terms = ("infonce", "halp") if len(streams) == 1 else ("infonce", "cmd", "halp")
    model = compose_moco(
        get_topology("kinect-v2"),
        PERSONS,
        streams=streams,
        terms=terms,
        encoder=EncoderSettings(hidden=hidden),
        contrast=ContrastSettings(),
        halp=HalpSettings(start_epoch=1, refresh=REFRESH),
    )
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)
    model.queue.push({stream: unit(torch.randn(model.queue.size, 128)) for stream in streams})
    first, second = torch.randn(2, BATCH, FRAMES, PERSONS, JOINTS, 3)
    generator = torch.Generator().manual_seed(0)

    def step(epoch: int) -> Step:
        def action() -> None:
            loss, *_ = model(
                {"query": first, "key": second}, StepContext(epoch, generator, log_metrics=False)
            )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

        return action

    return step(0), step(1)


def memory_rows(hidden: int) -> list[Row]:
    """Peak memory of a few steps beyond what the process held before, each method in a process of its own."""
    taken = {
        (streams, halp): measured(streams, hidden, halp)
        for streams in (("joint",), THREE)
        for halp in (False, True)
    }
    baseline, cmd = taken[("joint",), False], taken[THREE, False]
    both = taken[THREE, True]
    return [
        memory_row(
            f"memory of HaLP ÷ baseline, {hidden} units (paper 1)", taken[("joint",), True], baseline, 1.05
        ),
        memory_row(f"memory of CMD ÷ baseline, {hidden} units (paper 1.94)", cmd, baseline),
        memory_row(f"memory of HaLP + CMD ÷ baseline, {hidden} units (paper 1.94)", both, baseline),
        memory_row(f"memory of HaLP + CMD ÷ CMD, {hidden} units (paper 1)", both, cmd, 1.05),
    ]


def memory_row(name: str, ours: int, reference: int, target: float | None = None) -> Row:
    """A row of megabytes."""
    return Row(
        name, f"{ours / 1e6:.0f} MB", f"{reference / 1e6:.0f} MB", ours / reference, target, at_most=True
    )


def measured(streams: tuple[str, ...], hidden: int, halp: bool) -> int:
    """Bytes that a method needs, found in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (streams, hidden, halp, torch.get_num_threads()))


def _peak(streams: tuple[str, ...], hidden: int, halp: bool, threads: int) -> int:
    torch.set_num_threads(threads)
    reuse_memory()  # as training does
    torch.randn(64, 64) @ torch.randn(64, 64)  # what the libraries take once is no method's fault
    before = memory_peak()
    step = steps(streams, hidden)[halp]
    for _ in range(2):
        step()
    return memory_peak() - before
