"""Jobs under torchrun that lose processes: every start of a job meets under a name of its own, and resumes its run.

torchrun keeps one key-value store for all starts of a job, in which its processes find each other's addresses. A process that
is started again sooner than the others finds the addresses of those that are gone, is refused there, and takes the new start
down with it. So the first process hands out a name that nobody has seen before, and everything else is looked up under it.
"""

from __future__ import annotations

import os
import secrets
import time
from datetime import timedelta
from pathlib import Path

from lightning_fabric import Fabric
from torch import distributed

from halp.distributed import any_rank
from halp.errors import LostProcess
from halp.training.run_folder import RunFolder

_MEETING = "halp/meeting"
_PAUSE = 0.02


def restarted(run: Path, fabric: Fabric) -> bool:
    """Whether a launcher started this job again after it had lost a process, and there is a run to resume.

    Every process gets the same answer. A launcher of several machines counts restarts on each for itself, and a process that
    looks later may find the run that the first one has just begun: so one count is enough, and the first process alone looks.
    """
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")
    there = fabric.is_global_zero and RunFolder(run).holds_run()
    return any_rank(again, fabric.device) and any_rank(there, fabric.device)


def join_group(fabric: Fabric, patience: float) -> None:
    """Make the process group of this start where torchrun's store is that of all starts; elsewhere Fabric makes it."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or world == 1 or distributed.is_initialized():
        return
    rank, timeout = int(os.environ["RANK"]), timedelta(seconds=patience)
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = meet(distributed.TCPStore(*address, world, False, timeout), rank, world, patience)
    except RuntimeError as error:
        raise LostProcess(
            f"process {rank} of {world} does not find the others within {patience:.0f} s ({str(error).splitlines()[0]}); "
            "start the job again with --resume"
        ) from error
    backend = "nccl" if fabric.device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)


def meet(store: distributed.Store, rank: int, world: int, patience: float) -> distributed.Store:
    """A part of the store that only the processes of this start look at.

    The first process announces a new name and answers whoever greets it there with its own greeting. The others greet under the
    name that they read, which may be an old one, where nobody answers, until they are answered.
    """
    own = secrets.token_hex(8)
    if rank == 0:
        store.set(_MEETING, own)
        for other in range(1, world):
            greeting = f"halp/{own}/{other}"
            store.set(f"{greeting}/answer", store.get(greeting).decode())
        return distributed.PrefixStore(f"halp/{own}", store)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        name = store.get(_MEETING).decode()
        greeting = f"halp/{name}/{rank}"
        store.set(greeting, own)
        while name == store.get(_MEETING).decode() and time.monotonic() < deadline:
            if store.check([f"{greeting}/answer"]) and store.get(f"{greeting}/answer").decode() == own:
                return distributed.PrefixStore(f"halp/{name}", store)
            time.sleep(_PAUSE)
    raise RuntimeError("nobody answered")
