"""Two and three gloo processes against one, a killed rank, signals to a job: real processes throughout."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import forked as subprocess
import pytest
import torch
from jobs import TRAIN, final_files, launched, start, wait_for_steps
from torch import nn

from halp.core.distributed import GlobalBatchNorm, any_rank, gather, rank_rows, world_size
from halp.core.errors import InputError
from halp.data.store import Store
from halp.training import load_recipe, open_run, pretrain
from halp.training.checkpoint import newest_checkpoint
from halp.training.devices import launch

pytestmark = pytest.mark.slow  # real processes


def test_shares_cover_a_batch_in_order() -> None:
    for total in range(1, 20):
        for ranks in range(1, 6):
            rows = [i for number in range(ranks) for i in range(total)[rank_rows(total, number, ranks)]]
            assert rows == list(range(total))


def test_one_process_needs_no_communication() -> None:
    x = torch.randn(3, 2)
    assert world_size() == 1
    assert gather(x, 3) is x
    assert any_rank(True)
    assert not any_rank(False)
    norm, rows = nn.BatchNorm1d(4), torch.randn(10, 4)
    assert torch.equal(GlobalBatchNorm.of(norm)(rows), norm(rows))


PROBE = """
import atexit
import torch, sys
from torch import nn
from halp.core.distributed import GlobalBatchNorm, gather, rank_rows, world_size
torch.distributed.init_process_group("gloo")
atexit.register(torch.distributed.destroy_process_group)
g = torch.Generator().manual_seed(0)
x, weight = torch.randn(7, 4, generator=g, dtype=torch.double).float(), torch.randn(7, 4, generator=g)
def run(norm, rows, total):
    rows = rows.clone().requires_grad_()
    out = gather(norm(rows * 1.5), total)
    loss = (out * weight).sum() + out.square().prod(1).sum()
    loss.backward()
    return loss, rows.grad
norm = GlobalBatchNorm.of(nn.BatchNorm1d(4))
loss, grad = run(norm, x[rank_rows(7)], 7)
for p in norm.parameters():
    torch.distributed.all_reduce(p.grad)
plain = nn.BatchNorm1d(4)
rows = x.clone().requires_grad_()
out = plain(rows * 1.5)
want = (out * weight).sum() + out.square().prod(1).sum()
want.backward()
close = lambda a, b: torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)
close(loss, want)
close(grad / world_size(), rows.grad[rank_rows(7)])
for a, b in zip(norm.parameters(), plain.parameters()):
    close(a.grad / world_size(), b.grad)
close(norm.running_mean, plain.running_mean)
close(norm.running_var, plain.running_var)
assert int(norm.num_batches_tracked) == 1
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_normalisation_and_gathering_give_the_gradients_of_one_process(tmp_path: Path, ranks: int) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    done = subprocess.run(
        [*launched(ranks), str(tmp_path / "probe.py")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        (2, ()),
        (3, ('streams=["joint", "bone"]',)),  # 16 clips do not divide by 3
        (2, ("contrast.queue=0", "halp.source=batch")),
    ],
)
def test_processes_together_equal_one(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], ranks: int, more: tuple[str, ...]
) -> None:
    settings = (*tiny, "epochs=4", *more)
    one = pretrain(load_recipe("small", settings), store, tmp_path / "one", accelerator="cpu", progress=False)
    (tmp_path / "train.py").write_text(TRAIN)
    given = [str(store.path), str(tmp_path / "many"), *settings]
    done = subprocess.run(
        [*launched(ranks), str(tmp_path / "train.py"), *given], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    many = open_run(tmp_path / "many")
    assert many.info["finished"]["processes"] == ranks
    first, second = one.metrics(), many.metrics()
    assert len(first) == len(second) >= 16
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-3, abs=2e-3), a["step"]
    ours, theirs = (newest_checkpoint(run.checkpoints).model for run in (one, many))
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], atol=5e-3, rtol=5e-3, msg=name)


def test_fabric_starts_the_processes_itself(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    command = [
        sys.executable,
        "-m",
        "halp",
        "pretrain",
        "small",
        "--data",
        str(store.path),
        "--run",
        str(tmp_path / "run"),
    ]
    command += ["--devices", "2", "--accelerator", "cpu", "--json", "--set", *tiny]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["processes"] == 2


def test_killed_rank_ends_the_job_and_the_run_can_go_on(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    settings = (*tiny, "epochs=6")
    whole = start(tmp_path, store, "whole", settings, ranks=2)
    assert whole.wait(timeout=300) == 0
    for victim, steps in ((1, 8), (0, 16)):
        job = start(
            tmp_path, store, "killed", settings, ranks=2, pause=0.05, resume=victim == 0, keep_pids=True
        )
        wait_for_steps(tmp_path / "killed", job, steps)
        os.kill(int((tmp_path / f"pid-killed-{victim}").read_text()), signal.SIGKILL)
        assert job.wait(timeout=300) != 0
        survivor = int((tmp_path / f"pid-killed-{1 - victim}").read_text())
        deadline = time.monotonic() + 300
        while Path(f"/proc/{survivor}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not Path(f"/proc/{survivor}").exists(), "the other rank hangs"
    again = start(tmp_path, store, "killed", settings, ranks=2, resume=True)
    assert again.wait(timeout=300) == 0
    assert final_files(tmp_path / "whole") == final_files(tmp_path / "killed")


def test_signal_to_one_rank_stops_all_of_them_with_everything_saved(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    job = start(tmp_path, store, "run", (*tiny, "epochs=50"), ranks=2, pause=0.05, keep_pids=True)
    wait_for_steps(tmp_path / "run", job, 6)
    os.kill(int((tmp_path / "pid-run-1").read_text()), signal.SIGTERM)
    job.wait(timeout=300)
    stopped = newest_checkpoint(tmp_path / "run" / "checkpoints").state["step"]
    assert stopped >= 6
    assert open_run(tmp_path / "run").metrics()[-1]["step"] == stopped


def test_impossible_numbers_of_devices_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        launch("cpu", devices=0)
    with pytest.raises(InputError, match="did you mean 'ddp'"):
        launch("cpu", strategy="dpp")
    with pytest.raises(InputError, match="unknown precision"):
        launch("cpu", precision="8-true")
