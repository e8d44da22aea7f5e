"""Starts of one job over one store: each meets under a name of its own, whatever earlier ones left there."""

from __future__ import annotations

import os
import sys
import threading
from datetime import timedelta

import forked as subprocess
import pytest
from torch import distributed

from halp.core.errors import LostProcess
from halp.training import devices
from halp.training.devices import rendezvous

# joins the job that the environment describes, after a pause, and leaves it as one does that is killed
JOIN = """
import os, sys, time
from halp.training.devices import launch
from halp.core.distributed import any_rank, world_size
time.sleep(float(sys.argv[1]))
launch("cpu", patience=60)
assert any_rank(True)
print(world_size(), flush=True)
os._exit(0)
"""


def hosted() -> distributed.TCPStore:
    """The store of a launcher, which outlives the starts of its job."""
    return distributed.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60))


def connected(store: distributed.TCPStore) -> distributed.TCPStore:
    return distributed.TCPStore("127.0.0.1", store.port, None, False, timedelta(seconds=60))


def test_starts_meet_under_new_names_whoever_comes_first() -> None:
    host = hosted()
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        fresh: dict[int, bool] = {}

        def join(rank: int, fresh: dict[int, bool] = fresh) -> None:
            part = rendezvous(connected(host), rank, 3, 30)
            found = part.check([f"own-{rank}"])  # of an earlier start
            part.set(f"own-{rank}", "here")
            part.wait(
                [f"own-{other}" for other in range(3)], timedelta(seconds=30)
            )  # so all have the same part
            fresh[rank] = not found

        threads = [threading.Thread(target=join, args=(rank,)) for rank in order]
        for thread in threads:
            thread.start()
            thread.join(0.1)  # the next one is later
        for thread in threads:
            thread.join()
        assert fresh == {0: True, 1: True, 2: True}


def test_process_that_nobody_answers_gives_up_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosted()
    host.set("halp/rendezvous", "of a start that is over")
    host.set("halp/of a start that is over/1/answer", "to somebody else")
    with pytest.raises(RuntimeError, match="nobody answered"):
        rendezvous(connected(host), 1, 2, 0.3)
    given = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(host.port)}
    for name, value in {**given, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LostProcess, match="process 1 of 2 did not find the others") as caught:
        devices.join_group(None, 0.3)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_process_started_again_sooner_than_the_others_does_not_call_the_dead() -> None:
    host = hosted()
    for pauses in ((0, 0), (0, 1)):
        jobs = []
        for rank, pause in enumerate(pauses):
            given = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "127.0.0.1",
                "TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(host.port), "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            command = [sys.executable, "-c", JOIN, str(pause)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            jobs.append(subprocess.Popen(command, env={**os.environ, **given}, **pipes))
        answers = [job.communicate(timeout=300) for job in jobs]
        assert [job.returncode for job in jobs] == [0, 0], answers
        assert [said.strip() for said, _ in answers] == ["2", "2"]
