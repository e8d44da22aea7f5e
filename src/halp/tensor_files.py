"""Tensors in safetensors files, readable by whom other new files are readable by, and on the disk when the call returns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors by name, from any device and of any stride."""
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)
    with open(path, "rb") as file:
        # safetensors makes files for their owner alone; a colleague of the same group is to read a run as well
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(file.fileno(), 0o666 & ~mask)
        os.fsync(file.fileno())
