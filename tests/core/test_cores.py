"""Work side by side: the same results in the same order, and everybody's own share of the cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from halp.core.cores import run_in_threads
from halp.encoders.gru import GRUEncoder, GRUSettings
from halp.methods.momentum import EncodeJob, ProjectedEncoder, encode_all


@pytest.fixture(params=[1, 2, 8])
def cores(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_and_every_task_has_its_share(cores: int) -> None:
    found = run_in_threads(
        [lambda i=i: (i, torch.get_num_threads(), threading.get_ident()) for i in range(3)]
    )
    assert [i for i, *_ in found] == [0, 1, 2]
    expected = cores if cores == 1 else max(1, cores // 3)
    assert {share for _, share, _ in found} == {expected}
    assert (found[0][2] == threading.get_ident()) == (cores == 1)
    assert torch.get_num_threads() == cores
    assert run_in_threads([]) == []


def test_threads_that_others_start_later_have_all_cores(cores: int) -> None:
    run_in_threads([torch.get_num_threads] * 2)
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert seen == [cores]


def test_tasks_may_divide_their_work_again(cores: int) -> None:
    inner = [partial(run_in_threads, [lambda i=i, j=j: 10 * i + j for j in range(2)]) for i in range(3)]
    assert run_in_threads(inner) == [[0, 1], [10, 11], [20, 21]]


@pytest.mark.parametrize("wanted", [True, False])
def test_gradients_are_wanted_there_as_they_are_here(cores: int, wanted: bool) -> None:
    with torch.set_grad_enabled(wanted):
        assert run_in_threads([torch.is_grad_enabled] * 2) == [wanted] * 2


def test_what_goes_wrong_there_is_raised_here(cores: int) -> None:
    with pytest.raises(ZeroDivisionError):
        run_in_threads([lambda: 1 / 1, lambda: 1 / 0])
    assert run_in_threads([lambda: 1, lambda: 2]) == [1, 2]
    assert torch.get_num_threads() == cores


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_workers_of_its_own(cores: int) -> None:
    run_in_threads([lambda: 1, lambda: 2])
    child = os.fork()
    if child == 0:
        os._exit(0 if run_in_threads([lambda: 1, lambda: 2]) == [1, 2] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_branches_give_the_same_side_by_side_as_one_after_the_other() -> None:
    torch.manual_seed(0)
    branches = [
        ProjectedEncoder(GRUEncoder(12, GRUSettings(5, 2, direction=way)), 8)
        for way in ("causal", "bidirectional", "causal")
    ]
    branches[2].requires_grad_(False)
    clips = [torch.randn(6, 7, 1, 4, 3) for _ in branches]
    wanted = [parameter for branch in branches[:2] for parameter in branch.parameters()]
    before, found = torch.get_num_threads(), []
    for cores in (1, 2):
        torch.set_num_threads(cores)
        vectors = encode_all([EncodeJob(branch, x) for branch, x in zip(branches, clips)])
        assert [vector.requires_grad for vector in vectors] == [True, True, False]
        loss = sum((vector[:, 0].sum() for vector in vectors), torch.tensor(0.0))
        found.append([*vectors, *torch.autograd.grad(loss, wanted)])
    torch.set_num_threads(before)
    for number, (one, other) in enumerate(
        zip(*found)
    ):  # vectors to the bit; what follows adds up in another order
        torch.testing.assert_close(one, other, rtol=0, atol=0 if number < len(branches) else 1e-6)
