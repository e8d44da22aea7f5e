"""The whole training step against the authors' way of doing it; share of the peak, memory, and growth with
every size.

`python -m benchmarks engine`.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.bench_encoder import FrameByFrame
from benchmarks.compose import compose_moco
from benchmarks.harness import Row, interleaved, memory_peak, milliseconds, taking_turns
from benchmarks.references import contrast_with_queue, repeated_loss, textbook_kmeans
from halp.augment import ClipPool, ViewSettings, random_views
from halp.cli import WAITING
from halp.core.sampling import generator
from halp.encoders import EncoderSettings
from halp.encoders.gru import GRUEncoder, GRUSettings
from halp.methods import ContrastSettings, HalpSettings, StepContext
from halp.skeleton import get_topology
from halp.sphere import unit
from halp.training.devices import reuse_memory

BATCH, FRAMES, PERSONS, JOINTS, QUEUE, WIDTH, REFRESH = 64, 64, 2, 25, 16384, 128, 5
INPUTS = PERSONS * JOINTS * 3
Action = Callable[[], None]


def rows() -> list[Row]:
    """Steps at 128, 256 and 1024 units, the share of the peak, memory, growth."""
    found = [step_row(128, 2.5, repeats=9), step_row(256, 2.0, repeats=7), step_row(1024, None, repeats=1)]
    if torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        found += [
            step_row(hidden, 3.0, repeats, kind="half") for hidden, repeats in ((128, 9), (256, 7), (1024, 1))
        ]
    return [*found, peak_row(1024), memory_row(256), *growth_rows()]


def step_row(hidden: int, target: float | None, repeats: int, kind: str = "ours") -> Row:
    """One whole refresh cycle of steps each, taking turns; `half` is ours with `--precision bf16-mixed`."""
    with Apart(kind, hidden) as mine, Apart("authors", hidden) as reference:
        ours, theirs = taking_turns(mine, reference, stretch=REFRESH, repeats=repeats)
    name = (
        f"whole training step{' in bfloat16' if kind == 'half' else ''} vs the authors' way, {hidden} units"
    )
    return Row(name, milliseconds(ours), milliseconds(theirs), theirs / ours, target)


def peak_row(hidden: int) -> Row:
    """Products of a step over its time, as a share of what one large product reaches."""
    with Apart("ours", hidden) as ours, Apart("product", 2048) as large:
        step, product = interleaved(ours, large, repeats=5, inner=(1, 10), warm_up=2)
    reached, peak = flops(hidden) / step / 1e9, 2 * 2048**3 / product / 1e9
    name = f"share of the matrix-multiply peak, whole step, {hidden} units"
    return Row(name, f"{reached:.0f} GFLOP/s", f"{peak:.0f} GFLOP/s", reached / peak, 0.75)


def flops(hidden: int, layers: int = 3) -> float:
    """Floating-point operations of the matrix products of a step: query forth and back, key forth, head,
    logits.
    """
    rows_, gates = BATCH * FRAMES, 3 * hidden
    total = 0.0
    for layer in range(layers):
        width = 2 * hidden if layer else INPUTS
        for inner, uses in (
            (hidden, 4),
            (width, 4 if layer else 3),
        ):  # forth twice, back to weights and to inputs
            total += 2 * uses * 2 * rows_ * inner * gates
    head = 2 * BATCH * (2 * hidden * 2 * hidden + 2 * hidden * WIDTH)
    return total + 4 * head + 2 * 2 * BATCH * WIDTH * QUEUE


def memory_row(hidden: int) -> Row:
    """Most memory that a process taking a few steps holds beyond what it held before the first."""
    ours, theirs = (_memory(kind, hidden) for kind in ("ours", "authors"))
    name = f"memory of the training step ÷ the authors' way, {hidden} units"
    return Row(
        name,
        f"{ours / 2**20:.0f} MiB",
        f"{theirs / 2**20:.0f} MiB",
        ours / max(theirs, 1.0),
        1.0,
        at_most=True,
    )


def _memory(kind: str, hidden: int) -> float:
    with Apart(kind, hidden) as step:
        return max(step() for _ in range(REFRESH + 1))


def growth_rows() -> list[Row]:
    """Milliseconds of a step as one size grows; the row holds the exponent of the growth at the large end."""
    sizes: dict[str, tuple[str, list[int]]] = {
        "store": ("clips", [500, 2000, 8000, 32000]),
        "queue": ("queue", [4096, 16384, 65536, 262144]),
        "positives": ("count", [100, 400, 1600, 6400]),
        "batch": ("batch", [16, 64, 256]),
    }
    found = []
    for title, (setting, values) in sizes.items():
        chosen: list[dict[str, Any]] = [{setting: value} for value in values]
        steps = [our_step(64, **one) for one in chosen]
        seconds = interleaved(*steps, repeats=7, warm_up=2)
        exponent = math.log(seconds[-1] / seconds[-2]) / math.log(values[-1] / values[-2])
        name = f"exponent of a step's growth with the {title}, {values[-2]} → {values[-1]}"
        found.append(
            Row(name, milliseconds(seconds[-1]), milliseconds(seconds[-2]), exponent, 1.05, at_most=True)
        )
    return found


def our_step(
    hidden: int,
    *,
    clips: int = 200,
    queue: int = QUEUE,
    count: int = 100,
    batch: int = BATCH,
    half: bool = False,
) -> Action:
    """A step as the training loop takes it: views, model, backward, optimiser."""
    model = compose_moco(
        get_topology("kinect-v2"),
        PERSONS,
        encoder=EncoderSettings(hidden=hidden, direction="causal"),
        contrast=ContrastSettings(queue=queue),
        halp=HalpSettings(start_epoch=0, count=count, refresh=REFRESH),
    )
    model.queue.push({"joint": unit(torch.randn(queue, WIDTH))})
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    pool, step = _pool(clips), [0]

    def action() -> None:
        step[0] += 1
        chosen = torch.randint(clips, (batch,), generator=generator(0, "order", step[0]))
        views = random_views(pool, chosen.repeat(2), ViewSettings(), generator(0, "views", step[0]))
        first, second = views.chunk(2)
        context = StepContext(0, generator(0, "terms", step[0]), log_metrics=False, check_loss=False)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss, *_ = model({"query": first, "key": second}, context)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return action


def authors_step(hidden: int) -> Action:
    """The same step as the authors' code goes about it.

    Each clip is cut and changed on its own in NumPy, the GRU is called frame by frame, logits are
    concatenated, positives are made one anchor at a time, prototypes are fitted cluster by cluster, the
    momentum update loops over parameters.
    """
    query, key = _AuthorsBranch(hidden), _AuthorsBranch(hidden).requires_grad_(False)
    key.load_state_dict(query.state_dict())
    queue = F.normalize(torch.randn(WIDTH, QUEUE), dim=0)
    optimiser = torch.optim.SGD(query.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    pool, random, settings = _pool(200), np.random.default_rng(0), ViewSettings()
    stored = [pool.frames[o : o + n].numpy() for o, n in zip(pool.offsets.tolist(), pool.lengths.tolist())]
    step, pointer, centres = [0], [0], [torch.empty(0)]

    def action() -> None:
        step[0] += 1
        chosen = random.integers(200, size=BATCH)
        first, second = (
            torch.from_numpy(np.stack([authors_view(stored[i], settings, random) for i in chosen]))
            for _ in range(2)
        )
        q = F.normalize(query(first), dim=1)
        with torch.no_grad():
            for mine, theirs in zip(key.parameters(), query.parameters()):
                mine.data = mine.data * 0.999 + theirs.data * (1 - 0.999)
            k = F.normalize(key(second), dim=1)
            if step[0] % REFRESH == 1:
                recent = (pointer[0] - 256 + torch.arange(256)) % QUEUE
                centres[0] = textbook_kmeans(queue.T[recent], 20)
        loss = contrast_with_queue(q, k, queue.clone().T) + repeated_loss(q, k, centres[0])
        queue[:, pointer[0] : pointer[0] + BATCH] = k.T
        pointer[0] = (pointer[0] + BATCH) % QUEUE
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return action


def least_step(hidden: int, layers: int = 3) -> Action:
    """What no order of work avoids: the products of a step in their own shapes, frame by frame where one waits for
    the one before, and σ of every gate; nothing is drawn, kept, added to weights or compared.
    """
    gates, state = torch.zeros(FRAMES, BATCH, 3 * hidden), torch.zeros(BATCH, hidden)
    forth, states = torch.randn(hidden, 3 * hidden) / hidden, torch.zeros(FRAMES * BATCH, hidden)
    back, rows_ = forth.t().contiguous(), gates.view(-1, 3 * hidden)
    sequences = [torch.randn(FRAMES * BATCH, 2 * hidden if layer else INPUTS) for layer in range(layers)]

    def through_time(product: Callable[[Tensor], object]) -> None:
        for frame in gates.unbind():
            product(frame)

    def action() -> None:
        for layer, x in enumerate(sequences):
            given = torch.randn(x.shape[1], 3 * hidden) / hidden
            for _ in range(4):  # two GRUs of two encoders
                torch.mm(x, given, out=rows_)
                through_time(lambda frame: frame.addmm_(state, forth).sigmoid_())
            for _ in range(2):
                through_time(lambda frame: torch.mm(frame, back, out=state))
                rows_.t() @ states, rows_.t() @ x
                if layer:
                    rows_ @ given.t()

    return action


def large_product(size: int, kind: torch.dtype = torch.float32) -> Action:
    """One product of square matrices, into memory that is there."""
    x, y = torch.randn(2, size, size).to(kind)
    out = torch.empty(size, size, dtype=kind)
    return lambda: torch.mm(x, y, out=out)  # type: ignore[return-value]


class _AuthorsBranch(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.encoder = FrameByFrame(GRUEncoder(INPUTS, GRUSettings(hidden, direction="causal")))
        width = 2 * hidden
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, WIDTH))

    def forward(self, clips: Tensor) -> Tensor:
        return self.head(self.encoder(clips))


def authors_view(clip: Any, settings: ViewSettings, random: np.random.Generator) -> Any:
    """A random crop of one clip, resized by torch, with joints corrupted or the whole sheared by NumPy."""
    ratio = random.uniform(settings.crop_min, settings.crop_max)
    length = max(int(len(clip) * ratio), min(settings.crop_frames, len(clip)))
    start = random.integers(len(clip) - length + 1)
    series = torch.from_numpy(clip[start : start + length].reshape(length, -1).T.copy())[None]
    resized = F.interpolate(series, size=settings.frames, mode="linear", align_corners=False)[0]
    view = resized.numpy().T.reshape(settings.frames, *clip.shape[1:]).copy()
    if random.random() < settings.corrupt_probability:
        joints = random.choice(JOINTS, round(settings.corrupt_joints * JOINTS), replace=False)
        zero = random.random() < settings.corrupt_zero
        matrix = np.zeros((3, 3)) if zero else random.uniform(-1, 1, (3, 3))
        view[:, :, joints] = view[:, :, joints] @ matrix.astype(np.float32)
        return view
    shear = np.eye(3) + settings.shear * random.uniform(-1, 1, (3, 3)) * (1 - np.eye(3))
    return view @ shear.astype(np.float32)


def _pool(clips: int) -> ClipPool:
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(40, 121, (clips,), generator=draws)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    frames = torch.randn(int(lengths.sum()), PERSONS, JOINTS, 3, generator=draws)
    return ClipPool(frames, offsets, lengths, torch.device("cpu"))


class Apart:
    """An action in a process of its own: ours with the settings that the `halp` command makes, others with
    torch's.
    """

    def __init__(self, kind: str, hidden: int) -> None:
        command = [sys.executable, "-m", "benchmarks.bench_engine", kind, str(hidden)]
        settings = WAITING if kind in ("ours", "half") else {}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process: Any = subprocess.Popen(command, env={**os.environ, **settings}, **pipes)

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("")

    def __call__(self) -> int:
        """Take a step; most memory held so far beyond what was there before the first, in bytes.

        `seconds` is the processor time that the step took.
        """
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        memory, seconds = self.process.stdout.readline().split()
        self.seconds = float(seconds)
        return int(memory)


def _take_steps(kind: str, size: int) -> None:
    if kind in ("ours", "half"):
        reuse_memory()  # as training does
    kinds: dict[str, Callable[[int], Action]] = {
        "ours": our_step,
        "half": partial(our_step, half=True),
        "authors": authors_step,
        "least": least_step,
        "product": large_product,
        "half product": partial(large_product, kind=torch.bfloat16),
    }
    step = kinds[kind](size)
    before = memory_peak()
    for _ in sys.stdin:
        began = time.process_time()
        step()
        sys.stdout.write(f"{memory_peak() - before} {time.process_time() - began}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _take_steps(sys.argv[1], int(sys.argv[2]))
