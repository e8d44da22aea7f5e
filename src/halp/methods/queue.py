"""The queue: past keys of all streams, written in the same order under one pointer; saved as state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from halp.sphere import unit


class KeyQueue(nn.Module):
    """The newest `size` keys of each stream; row i is the same clip in all of them.

    It starts with random directions; `filled` counts the real keys in it. Writes wrap around, for any batch
    size. Size 0 means no queue.
    """

    pointer: Tensor

    def __init__(
        self, streams: Sequence[str], size: int, dimension: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.size = size
        for stream in streams:
            self.register_buffer(f"keys_{stream}", unit(torch.randn(size, dimension, generator=generator)))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self.filled = 0  # saved with the state; a plain number, so that no device is asked for it

    def keys(self, stream: str) -> Tensor:
        """All keys of a stream, `(size, D)`, in the order of the ring."""
        return self.get_buffer(f"keys_{stream}")

    def recent(self, stream: str, count: int) -> Tensor:
        """The newest `count` keys of a stream, oldest first, without unwritten rows."""
        count = min(count, self.filled)
        rows = (self.pointer - count + torch.arange(count, device=self.pointer.device)) % max(self.size, 1)
        return self.keys(stream)[rows]

    @property
    def full(self) -> bool:
        """Whether all rows hold real keys."""
        return self.filled >= self.size

    def pretend_full(self) -> None:
        """Count the random initial directions as keys, to measure a step with a full queue."""
        self.filled = self.size

    def next_rows(self, batch: int) -> Tensor:
        """Where a batch of this size is written; of one larger than the queue only the end remains."""
        kept = min(batch, self.size)
        return (self.pointer + torch.arange(batch - kept, batch, device=self.pointer.device)) % self.size

    @torch.no_grad()
    def push(self, keys: Mapping[str, Tensor]) -> None:
        """Append a batch `{stream: (B, D)}`; the oldest keys make room."""
        if self.size == 0:
            return
        batch = len(next(iter(keys.values())))
        rows = self.next_rows(batch)
        for stream, new in keys.items():
            self.keys(stream).index_copy_(0, rows, new[batch - len(rows) :].to(self.keys(stream).dtype))
        self.pointer.copy_((self.pointer + batch) % self.size)
        self.filled = min(self.filled + batch, self.size)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "filled"] = torch.tensor(self.filled)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        metadata: Any,
        strict: bool,
        missing: list[str],
        *rest: Any,
    ) -> None:
        filled = state_dict.pop(prefix + "filled", None)
        if filled is None:
            missing.append(prefix + "filled")
        else:
            self.filled = int(filled)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)
