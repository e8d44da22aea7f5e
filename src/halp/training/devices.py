"""Devices, precision and processes through Lightning Fabric: `--devices N`, torchrun, SLURM, nodes."""

from __future__ import annotations

import ctypes
import inspect
import os
import secrets
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.strategies import DDPStrategy
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from halp.augment import ClipPool
from halp.core.distributed import any_rank
from halp.core.errors import InputError, LostProcess, check_choice
from halp.core.progress import log
from halp.data.store import Store
from halp.training.run_folder import RunFolder

_RENDEZVOUS = "halp/rendezvous"
_PAUSE = 0.02


def restarted(run: Path, fabric: Fabric) -> bool:
    """Whether a launcher restarted this job after losing a process, and there is a run to resume.

    Every process gets the same answer. A launcher of several machines counts restarts on each for itself, and
    a process that looks later may find the run that the first one has just begun: so one count is enough, and
    the first process alone looks.
    """
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")
    there = fabric.is_global_zero and RunFolder(run).holds_run()
    return any_rank(again, fabric.device) and any_rank(there, fabric.device)


def join_group(fabric: Fabric, patience: float) -> None:
    """Create a process group for this start if restarts share torchrun's store; otherwise Fabric creates it."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or world == 1 or distributed.is_initialized():
        return
    rank, timeout = int(os.environ["RANK"]), timedelta(seconds=patience)
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = rendezvous(distributed.TCPStore(*address, world, False, timeout), rank, world, patience)
    except RuntimeError as error:
        raise LostProcess(
            f"process {rank} of {world} did not find the others within {patience:.0f} s"
            f" ({str(error).splitlines()[0]}); start the job again with --resume"
        ) from error
    backend = "nccl" if fabric.device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)


def rendezvous(store: distributed.Store, rank: int, world: int, patience: float) -> distributed.Store:
    """A part of the store that only the processes of this start use.

    Rank 0 publishes a fresh name and echoes each rank's token there. The other ranks send their token under
    the name they read, which may be stale, until it is echoed.
    """
    token = secrets.token_hex(8)
    if rank == 0:
        store.set(_RENDEZVOUS, token)
        for other in range(1, world):
            greeting = f"halp/{token}/{other}"
            store.set(f"{greeting}/answer", store.get(greeting).decode())
        return distributed.PrefixStore(f"halp/{token}", store)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        name = store.get(_RENDEZVOUS).decode()
        greeting = f"halp/{name}/{rank}"
        store.set(greeting, token)
        while name == store.get(_RENDEZVOUS).decode() and time.monotonic() < deadline:
            if store.check([f"{greeting}/answer"]) and store.get(f"{greeting}/answer").decode() == token:
                return distributed.PrefixStore(f"halp/{name}", store)
            time.sleep(_PAUSE)
    raise RuntimeError("nobody answered")


STRATEGIES = ("auto", "ddp")
_BUFFERS = next(  # newer versions of torch have another name for it
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel.__init__).parameters
)
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


class MixedPrecisionKeepInputs(MixedPrecision):
    """Autocast that keeps the input in full precision: rounded coordinates would look like motion."""

    def convert_input(self, data: Any) -> Any:
        return data


class DeviceKeywords(TypedDict, total=False):
    """What `launch` takes, for signatures: `**devices: Unpack[DeviceKeywords]`."""

    accelerator: str
    devices: int
    nodes: int
    strategy: str
    precision: str
    patience: float


def launch(
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    strategy: str = "auto",
    precision: str = "32-true",
    patience: float = 600,
) -> Fabric:
    """A Fabric whose processes are running; under torchrun their number is taken from its environment.

    `patience` is how many seconds a process waits for the others before it gives up.
    """
    check_choice("strategy", strategy, STRATEGIES)
    if devices < 1 or nodes < 1:
        raise InputError(f"devices = {devices} and nodes = {nodes} must be at least 1")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices, nodes = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ.get("GROUP_WORLD_SIZE", 1))
    options: dict[str, Any] = {"strategy": strategy}
    if devices * nodes > 1 or strategy == "ddp":
        # buffers are equal on all ranks by construction, and the queue is too large to send around every step
        quiet: dict[str, Any] = {_BUFFERS: False, "gradient_as_bucket_view": True}
        options["strategy"] = DDPStrategy(timeout=timedelta(seconds=patience), **quiet)
    if check_choice("precision", precision, PRECISIONS) == "32-true":
        options["precision"] = precision
    else:
        on_gpu = accelerator in ("cuda", "gpu") or (accelerator == "auto" and torch.cuda.is_available())
        half: Any = precision
        options["plugins"] = [MixedPrecisionKeepInputs(half, "cuda" if on_gpu else "cpu")]
    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, **options)
    except (ValueError, RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"accelerator '{accelerator}' with {devices} devices and precision '{precision}': {reason}"
        ) from error
    join_group(fabric, patience)
    fabric.launch()
    return fabric


def make_pool(store: Store, fabric: Fabric) -> ClipPool:
    """The store on the training device if it fits; otherwise memory-mapped, shared by processes."""
    size, device = store.frames.nbytes, fabric.device
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    elif fabric.world_size == 1:
        free = _free_memory()
    else:
        free = 0
    keep = size < free / 2
    if not keep and fabric.is_global_zero and fabric.world_size == 1:
        log.info(f"the store ({size / 2**30:.1f} GiB) stays on disk, memory-mapped")
    return ClipPool.from_store(store, device, keep=keep)


def _free_memory() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 1 << 62  # the system does not say: let it try


def reuse_memory() -> None:
    """Let the C library reuse freed memory in the next step instead of returning it to the system.

    Otherwise every large tensor of every step comes in pages that the system has to clear first, which costs
    a tenth of a step. Linux only, for the whole process; elsewhere, and with an allocator that knows better,
    nothing happens.
    """
    if sys.platform != "linux":
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries than GNU's have none
    if set_option is not None:
        # map nothing, trim nothing, one arena: threads share what is freed
        for option in ((-4, 0), (-1, 2**31 - 1), (-8, 1)):
            set_option(*option)
