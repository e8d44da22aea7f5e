"""Work on several threads: order, settings of the caller, errors, forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import torch

from halp.encoders.threads import side_by_side


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_calls_run_at_once_in_order_and_share_the_cores() -> None:
    meeting = threading.Barrier(2, timeout=20)  # nobody passes it alone

    def call(name: str) -> tuple[str, int, bool]:
        meeting.wait()
        return name, torch.get_num_threads(), torch.is_grad_enabled()

    assert side_by_side([lambda: call("a"), lambda: call("b")]) == [("a", 2, False), ("b", 2, False)]
    assert torch.get_num_threads() == 4
    assert torch.is_grad_enabled()


def test_one_core_takes_turns() -> None:
    torch.set_num_threads(1)
    here = threading.get_ident()
    assert side_by_side([threading.get_ident] * 3) == [here] * 3


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_reaches_the_caller_whose_threads_are_given_back(failing: int) -> None:
    def call(number: int) -> int:
        if number == failing:
            raise ValueError(f"call {number}")
        return number

    with pytest.raises(ValueError, match=f"call {failing}"):
        side_by_side([lambda: call(0), lambda: call(1)])
    assert torch.get_num_threads() == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_gets_threads_of_its_own() -> None:
    side_by_side([lambda: 1, lambda: 2])
    child = os.fork()
    if child == 0:
        os._exit(0 if side_by_side([lambda: 1, lambda: 2]) == [1, 2] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
