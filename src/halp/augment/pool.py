"""Clips on the device: the frames of many clips in one tensor, cut and resized for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.data.store import Store


@dataclass(frozen=True)
class ClipPool:
    """The frames of many clips in one tensor `(sum T, P, V, C)`, cut by index arithmetic for a batch."""

    frames: Tensor
    offsets: Tensor
    lengths: Tensor
    device: torch.device

    @classmethod
    def from_store(cls, store: Store, device: torch.device | str = "cpu", *, keep: bool = True) -> ClipPool:
        """All clips of a store on the device; with `keep=False` they stay memory-mapped."""
        device = torch.device(device)
        if store.listed and not keep:
            raise InputError(
                f"store '{store.path}' lists others and does not fit into memory; merge them without --link"
            )
        # copy-on-write satisfies torch, which has no read-only tensors; nothing ever writes. Frames that go
        # to another device are sent straight from the map: no process holds a second copy
        copied = store.listed or (keep and device.type == "cpu")
        mapped = None if copied else np.load(store.path / "frames.npy", mmap_mode="c", allow_pickle=False)
        frames = torch.from_numpy(np.array(store.frames) if mapped is None else mapped)
        home = device if keep else torch.device("cpu")
        offsets, lengths = torch.from_numpy(store.offsets[:-1]), torch.from_numpy(store.lengths)
        return cls(frames.to(home), offsets.to(home), lengths.to(home), device)

    def cut(self, clips: Tensor, start: Tensor, length: Tensor, frames: int) -> Tensor:
        """`length` frames from `start` of each clip `(B,)`, resized linearly: `(B, frames, P, V, C)`."""
        home = self.frames.device
        clips, start, length = clips.to(home), start.to(home), length.to(home)
        scale = (length.double() / frames)[:, None]
        position = (torch.arange(frames, device=home, dtype=torch.double) + 0.5) * scale - 0.5
        last = (length - 1)[:, None]
        position = torch.minimum(position.clamp_min_(0), last.double())
        below = position.long()
        above = torch.minimum(below + 1, last)
        weight = (position - below).to(self.frames.dtype)
        first = (self.offsets[clips] + start)[:, None]
        pair = torch.stack([first + below, first + above], dim=-1).view(-1, 2)
        share = torch.stack([1 - weight, weight], dim=-1).view(-1, 2)
        # a weighted bag of two rows is linear interpolation: gathered and mixed in one pass over memory
        flat = self.frames.view(len(self.frames), -1)
        cut = nn.functional.embedding_bag(pair, flat, per_sample_weights=share, mode="sum")
        return cut.view(len(clips), frames, *self.frames.shape[1:]).to(self.device)


def centre_crops(lengths: Tensor, share: float = 0.95) -> tuple[Tensor, Tensor]:
    """Start and length of the central `share` of each clip, as the authors evaluate."""
    start = (lengths.double() * (1 - share) / 2).long()
    return start, lengths - 2 * start


def centre_views(pool: ClipPool, clips: Tensor, frames: int, share: float = 0.95) -> Tensor:
    """The evaluation view of each clip: its central 95 %, resized, not augmented."""
    start, length = centre_crops(pool.lengths[clips.to(pool.lengths.device)], share)
    return pool.cut(clips, start, length, frames)
