"""Tensor files: content, mode and refusal."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from halp.core.files import save_arrays, save_tensors


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_tensor_files_are_readable_as_the_umask_says(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        save_tensors({"a": torch.arange(6.0).view(2, 3).T}, tmp_path / "a.safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == mode
    assert torch.equal(load_file(tmp_path / "a.safetensors")["a"], torch.arange(6.0).view(2, 3).T)


def test_arrays_may_share_memory_and_be_empty(tmp_path: Path) -> None:
    one = np.arange(6, dtype=np.float32).reshape(2, 3)
    save_arrays({"one": one, "same": one, "none": one[:0], "turned": one.T}, tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    assert torch.equal(found["same"], found["one"])
    assert found["none"].shape == (0, 3)
    assert torch.equal(found["turned"], found["one"].T)
    assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
