"""A counter of operations that make the host wait for a value of a tensor: what would stall an
accelerator.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

# shapes that depend on values must be waited for, too
WAITING = (
    "_local_scalar_dense",
    "nonzero",
    "is_nonzero",
    "equal",
    "bincount",
    "_unique2",
    "unique_dim",
    "masked_select",
)


class ReadBacks(TorchDispatchMode):
    """Inside, `seen` collects the names of such operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.name().removeprefix("aten::").partition(".")[0]
        if name in WAITING:
            self.seen.append(name)
        return function(*args, **(kwargs or {}))
