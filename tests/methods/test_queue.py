"""The queue against a plain list of everything that was ever pushed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from halp.methods.queue import KeyQueue


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 12), batches=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_queue_holds_the_newest_keys_for_any_batch_and_queue_size(size: int, batches: list[int]) -> None:
    queue = KeyQueue(["joint", "bone"], size, 2)
    pushed: list[float] = []
    for batch in batches:
        new = torch.arange(len(pushed), len(pushed) + batch, dtype=torch.float32)
        queue.push({"joint": new[:, None].repeat(1, 2), "bone": -new[:, None].repeat(1, 2)})
        pushed += new.tolist()
        newest = pushed[-size:]
        assert queue.recent("joint", size)[:, 0].tolist() == newest
        assert queue.recent("joint", 3)[:, 0].tolist() == newest[-3:]
        assert queue.full == (len(pushed) >= size)
        # one pointer: the same row is the same clip in every stream
        filled = queue.keys("joint")[:, 0].sort().values[-len(newest) :] if queue.full else None
        if filled is not None:
            assert filled.tolist() == sorted(newest)
            assert torch.equal(queue.keys("joint"), -queue.keys("bone"))


def test_queue_starts_with_unit_directions_and_no_recent_keys() -> None:
    queue = KeyQueue(["joint"], 64, 8, torch.Generator().manual_seed(0))
    assert torch.allclose(queue.keys("joint").norm(dim=1), torch.ones(64), atol=1e-6)
    assert len(queue.recent("joint", 10)) == 0
    assert not queue.full


def test_queue_state_survives_saving_and_loading() -> None:
    queue = KeyQueue(["joint"], 10, 4)
    queue.push({"joint": torch.randn(13, 4)})
    fresh = KeyQueue(["joint"], 10, 4)
    fresh.load_state_dict(queue.state_dict())
    assert torch.equal(fresh.recent("joint", 10), queue.recent("joint", 10))
    assert int(fresh.pointer) == 3


def test_no_queue_takes_pushes_and_holds_nothing() -> None:
    queue = KeyQueue(["joint"], 0, 4)
    queue.push({"joint": torch.randn(3, 4)})
    assert queue.keys("joint").shape == (0, 4)
    assert queue.recent("joint", 5).shape == (0, 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_keys_of_other_precision_are_stored_as_float32(dtype: torch.dtype) -> None:
    queue = KeyQueue(["joint"], 4, 2)
    queue.push({"joint": torch.ones(2, 2, dtype=dtype)})
    assert queue.recent("joint", 2).dtype == torch.float32
