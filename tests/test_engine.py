"""The engine: shards in this process, in a pool, on a real Dask cluster over TCP; workers that die, shards
that fail.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine_shards import double, refuse_three, write_or_die, write_slowly

from halp.core.errors import InputError
from halp.core.job_parts import parse_part
from halp.engine import DIED, Engine, Failure, run_shards

TESTS = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]))


def test_results_are_the_same_in_this_process_in_a_pool_and_in_any_executor() -> None:
    with ThreadPoolExecutor(2) as threads:
        engines = [Engine(1), Engine(2), Engine(executor=threads), threads]
        answers = [dict(run_shards(double, range(9), engine)) for engine in engines]
    assert all(answer == {place: 2 * place for place in range(9)} for answer in answers)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_shard_raises_is_named_and_the_rest_continues(workers: int) -> None:
    answers = dict(run_shards(refuse_three, range(6), Engine(workers)))
    assert answers.pop(3) == Failure("ValueError: three is not possible")
    assert answers == {place: place for place in (0, 1, 2, 4, 5)}


def test_a_killed_worker_loses_nothing_and_a_deadly_shard_only_itself(tmp_path: Path) -> None:
    kinds = {4: "poison", 7: "once", 8: "once"}
    shards = [(str(tmp_path), number, kinds.get(number, "")) for number in range(12)]
    answers = dict(run_shards(write_or_die, shards, Engine(2)))
    assert sorted(answers) == list(range(12))
    assert {place: answer for place, answer in answers.items() if isinstance(answer, Failure)} == {
        4: Failure(DIED)
    }
    assert sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("shard-*")) == [
        *range(4),
        *range(5, 12),
    ]


def test_a_script_without_a_guard_may_use_a_pool(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from engine_shards import double\nfrom halp.engine import Engine, run_shards\n"
        "print(sorted(run_shards(double, range(4), Engine(2))))\n"
    )
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[(0, 0), (1, 2), (2, 4), (3, 6)]\n"
    assert ran.stderr == ""


def test_parts_of_an_array_job_hold_every_shard_once() -> None:
    parts = [Engine(part=parse_part(f"{number}/3")).mine(range(10)) for number in (1, 2, 3)]
    assert sorted(place for part in parts for place in part) == list(range(10))
    for wrong in ("0/3", "4/3", "1", "a/b", "1/0"):
        with pytest.raises(InputError, match="--shard takes i/n"):
            parse_part(wrong)


def test_wrong_engines_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halp.engine.PATIENCE", 1.0)
    with pytest.raises(InputError, match="at least 1"):
        Engine(0)
    with pytest.raises(InputError, match="tcp://HOST:PORT"):
        Engine(address="slurm")
    pytest.importorskip("distributed", reason="Dask is not installed")
    with pytest.raises(InputError, match="no scheduler answers"), Engine(address="tcp://127.0.0.1:9").pool():
        pass


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """A Dask scheduler and two workers over TCP, each a process of its own."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    started = [subprocess.Popen([*dask, "--no-dashboard"], stderr=subprocess.PIPE, text=True)]
    try:
        assert started[0].stderr is not None
        lines = iter(started[0].stderr.readline, "")
        address = next(match[0] for line in lines if (match := re.search(r"tcp://127\.0\.0\.1:\d+", line)))
        worker = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            address,
            "--nthreads",
            "1",
            "--no-nanny",
        ]
        for _ in range(2):
            started.append(
                subprocess.Popen([*worker, "--no-dashboard"], stderr=subprocess.DEVNULL, text=True)
            )
        from distributed import Client

        with Client(address) as client:  # one worker alone could finish all shards before the other comes
            client.wait_for_workers(2, timeout=300)
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_dask_workers_over_tcp_finish_every_shard_though_one_is_killed(
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[str]]]
) -> None:
    address, workers = cluster
    answers = {}
    shards = [(str(tmp_path), number) for number in range(16)]
    for place, answer in run_shards(write_slowly, shards, Engine(address=address)):
        answers[place] = answer
        started = {path.name.split("-")[2] for path in tmp_path.glob("started-*")}
        if len(started) == 2 and workers[0].poll() is None:  # both are at work: one goes
            workers[0].send_signal(signal.SIGKILL)
            workers[0].wait()
    assert workers[0].poll() is not None
    assert sorted(answers) == list(range(16))
    assert not [answer for answer in answers.values() if isinstance(answer, Failure)]
    assert len(list(tmp_path.glob("shard-*"))) == 16


def test_shards_are_submitted_a_few_at_a_time() -> None:
    """Memory of the driver does not grow with the number of shards."""
    with ThreadPoolExecutor(1) as threads:
        most = 0
        submit = threads.submit

        def counted(*arguments: object) -> object:
            nonlocal most
            most = max(most, threads._work_queue.qsize())
            return submit(*arguments)  # type: ignore[arg-type]

        threads.submit = counted  # type: ignore[method-assign,assignment]
        began = time.monotonic()
        assert len(list(run_shards(double, range(2000), threads))) == 2000
        assert most <= 4 * (os.cpu_count() or 1), time.monotonic() - began
