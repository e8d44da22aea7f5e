"""The query encoder with its projection head, and the key encoder that follows it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from halp.core.cores import run_in_threads
from halp.core.distributed import world_size
from halp.core.errors import InputError, check_choice
from halp.core.initialisation import initialise

HEADS = ("mlp", "none")


class ProjectedEncoder(nn.Module):
    """Encoder and projection head: clips `(B, T, P, V, C)` → unit vectors `(B, dimension)`.

    They are float32, whatever precision the encoder runs in. Without a head the features themselves are
    contrasted.
    """

    def __init__(self, encoder: Any, dimension: int = 128, head: str = "mlp") -> None:
        super().__init__()
        self.encoder = encoder
        width = encoder.output_size
        if check_choice("projection head", head, HEADS) == "none":
            if width != dimension:
                raise InputError(
                    f"contrast.dimension = {dimension}, but without a projection head the encoder's {width}"
                    f" features are contrasted; set contrast.dimension to {width}, or contrast.head to 'mlp'"
                )
            self.projector: nn.Module = nn.Identity()
        else:
            self.projector = initialise(
                nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, dimension))
            )

    def forward(self, clips: Tensor, changes: Sequence[Callable[[Tensor], Tensor]] = ()) -> Tensor:
        """Unit vectors; with `changes` of the feature map, also those of each changed map."""
        if not changes:
            return self._project(self.encoder(clips))
        whole = self.encoder.sequence(clips)
        maps = [whole, *(change(whole) for change in changes)]
        return torch.cat([self._project(self.encoder.pool(map)) for map in maps], dim=1)

    def _project(self, features: Tensor) -> Tensor:
        return F.normalize(self.projector(features).float(), dim=1)


class EncodeJob(NamedTuple):
    """A branch, its clips, and the changes of the feature map to embed as well."""

    branch: nn.Module
    clips: Tensor
    changes: tuple[Callable[[Tensor], Tensor], ...] = ()


def encode_all(jobs: Sequence[EncodeJob], chunks: int = 1) -> list[Tensor]:
    """Unit vectors of several branches, each of its own clips; batched if that gives the same result.

    A branch that encodes several views does so in their order, since BatchNorm and dropout count its forward
    passes.
    """
    groups: dict[int, list[int]] = {}
    for number, job in enumerate(jobs):
        groups.setdefault(id(job.branch), []).append(number)
    tasks = [
        partial(_encode_in_turn, [jobs[number] for number in group], chunks) for group in groups.values()
    ]
    if jobs[0].clips.device.type == "cpu" and world_size() == 1:
        if torch.is_autocast_enabled("cpu"):  # a thread does not know it of another
            tasks = [partial(_in_autocast, torch.get_autocast_dtype("cpu"), task) for task in tasks]
        encoded = run_in_threads(tasks)
    else:
        encoded = [task() for task in tasks]
    vectors = dict(zip(itertools.chain(*groups.values()), itertools.chain(*encoded)))
    return [vectors[number] for number in range(len(jobs))]


def _in_autocast(dtype: torch.dtype, task: Callable[[], list[Tensor]]) -> list[Tensor]:
    with torch.autocast("cpu", dtype):
        return task()


def _encode_in_turn(jobs: Sequence[EncodeJob], chunks: int) -> list[Tensor]:
    return [
        encode_in_chunks(job.branch, job.clips, chunks, *([job.changes] if job.changes else []))
        for job in jobs
    ]


def encode_in_chunks(branch: nn.Module, clips: Tensor, chunks: int, *more: Any) -> Tensor:
    """Encode a batch in `chunks`, keeping the activations of none; BatchNorm sees one at a time."""
    if chunks == 1:
        return branch(clips, *more)
    if not torch.is_grad_enabled() or not any(parameter.requires_grad for parameter in branch.parameters()):
        return torch.cat([branch(chunk, *more) for chunk in clips.chunk(chunks)])
    return torch.cat(
        [
            checkpoint(
                branch,
                chunk,
                *more,
                use_reentrant=False,
                context_fn=lambda: (nullcontext(), _keeping_buffers(branch)),
            )
            for chunk in clips.chunk(chunks)
        ]
    )


@contextmanager
def _keeping_buffers(module: nn.Module) -> Iterator[None]:
    """Keep running statistics in the second pass; the first one updated them."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        yield
    finally:  # torch leaves the second pass by an exception as soon as it has what it needs
        for name, buffer in module.named_buffers():
            buffer.copy_(before[name])


class MomentumPair(nn.Module):
    """Two equal encoders with projection heads; a moving average makes the key encoder follow (momentum).

    BatchNorm statistics are not parameters: each branch keeps those of its own forward passes.
    """

    def __init__(self, query: ProjectedEncoder, momentum: float = 0.999) -> None:
        super().__init__()
        self.query = query
        self.key = copy.deepcopy(query).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def update_key_encoder(self) -> None:
        """Move the key parameters towards the query's: k ← m·k + (1 − m)·q, all tensors in one call."""
        keys = [parameter.data for parameter in self.key.parameters()]
        queries = [parameter.data for parameter in self.query.parameters()]
        torch._foreach_lerp_(keys, queries, 1 - self.momentum)
