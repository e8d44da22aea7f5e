"""Tensor files: content, mode and refusal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from halp.tensor_files import save_tensors


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_tensor_files_are_readable_as_the_umask_says(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        save_tensors({"a": torch.arange(6.0).view(2, 3).T}, tmp_path / "a.safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == mode
    assert torch.equal(load_file(tmp_path / "a.safetensors")["a"], torch.arange(6.0).view(2, 3).T)
