"""Tensors in safetensors files, readable by whom other new files are readable by, and on the disk when the call returns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import numpy as numpy_files
from safetensors import torch as torch_files
from torch import Tensor


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors by name, from any device and of any stride."""
    torch_files.save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)
    _finish(path)


def save_arrays(arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Write arrays by name; they may share memory or be empty."""
    numpy_files.save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, path)
    _finish(path)


def _finish(path: Path) -> None:
    # safetensors makes files for their owner alone; a colleague of the same group is to read a run as well
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
