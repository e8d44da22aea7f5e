"""Where halp ends: data that changed under a run, disks that cannot be written, the network, the
environment.
"""

from __future__ import annotations

import ast
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from halp.cli import main
from halp.data.store import Store
from halp.training import load_recipe, pretrain
from halp.training.checkpoint import newest_checkpoint

ROOT = Path(__file__).parents[2]
# every variable of the environment that halp reads, and no other: places, processes of a job, and how threads
# wait
VARIABLES = {
    "HALP_CACHE", "HALP_POSE_MODEL", "RANK", "LOCAL_RANK", "SLURM_PROCID", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE",
    "WANDB_PROJECT", "HF_ENDPOINT", "KINETO_LOG_LEVEL",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, store: Store, tiny: tuple[str, ...]) -> Path:
    """A store of its own and a run of one epoch on it."""
    folder = tmp_path_factory.mktemp("boundaries")
    shutil.copytree(store.path, folder / "store")
    halp("pretrain", "small", "--data", folder / "store", "--run", folder / "run", "--set", *tiny, "epochs=1")
    return folder


def halp(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the command says when it ends with code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        halp(*arguments)
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2, said
    assert "Traceback" not in said
    return said


def test_a_run_is_not_evaluated_on_frames_that_changed(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "copy")
    run, store = tmp_path / "copy" / "run", tmp_path / "copy" / "store"
    halp("evaluate", run, "--data", store, "--protocol", "knn", "--no-baselines")
    assert list((run / "features").iterdir()), "features of the store as it was are kept"
    frames = np.lib.format.open_memmap(store / "frames.npy", mode="r+")
    frames[5] += 1
    frames.flush()
    del frames
    before = [path.read_bytes() for path in sorted((run / "results").glob("*.json"))]
    said = refused(capsys, "evaluate", run, "--data", store, "--protocol", "knn", "--no-baselines")
    assert "fingerprint differs" in said
    assert [path.read_bytes() for path in sorted((run / "results").glob("*.json"))] == before


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder on a file system that cannot be written, or a skip where nobody lets us mount one."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a read-only file system takes Linux, root and mount")
    bound = subprocess.run(
        ["mount", "--bind", str(folder), str(folder)], capture_output=True, text=True, check=False
    )
    if bound.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {bound.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def test_resuming_on_a_read_only_file_system_is_refused_in_one_sentence(
    trained: Path, tmp_path: Path, store: Store, tiny: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "disk").mkdir()
    run = tmp_path / "disk" / "run"
    pretrain(load_recipe("small", tiny), store, run, until=1, accelerator="cpu", progress=False)
    before = newest_checkpoint(run / "checkpoints").state
    resume = (
        "pretrain",
        "small",
        "--data",
        store.path,
        "--run",
        run,
        "--resume",
        "--accelerator",
        "cpu",
        "--set",
        *tiny,
    )
    with read_only(tmp_path / "disk"):
        assert "Read-only file system" in refused(capsys, *resume)
        assert "Read-only file system" in refused(
            capsys, *[str(one).replace("/run", "/new") for one in resume if one != "--resume"]
        )
    assert newest_checkpoint(run / "checkpoints").state == before
    halp(*resume)
    assert newest_checkpoint(run / "checkpoints").state["step"] > before["step"]


def test_training_evaluation_and_export_reach_for_no_network(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store, tiny: tuple[str, ...]
) -> None:
    def refuse(*given: object, **more: object) -> None:
        raise AssertionError(f"something reached for the network: {given}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    halp(
        "pretrain",
        "small",
        "--data",
        trained / "store",
        "--run",
        tmp_path / "run",
        "--set",
        *tiny,
        "epochs=1",
    )
    halp("evaluate", tmp_path / "run", "--protocol", "knn")
    halp("report", tmp_path / "run", "--out", tmp_path / "report.html")
    halp("export", tmp_path / "run", tmp_path / "package")
    assert (tmp_path / "package" / "config.json").exists()


def environment_names(path: Path) -> set[str]:
    """Names that a source file asks the environment for."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        keys: list[ast.expr] = []
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            keys = [node.slice]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop",
        ):  # fmt: skip
            keys = node.args[:1]
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
            keys = [node.left]
        found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


@pytest.mark.heavy
def test_the_environment_is_asked_for_these_variables_and_no_others() -> None:
    found = set().union(*(environment_names(path) for path in sorted((ROOT / "src").rglob("*.py"))))
    assert found == VARIABLES
