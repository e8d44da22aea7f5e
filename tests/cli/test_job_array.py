"""Job arrays and clusters: `--shard i/n` by processes of their own and `halp join`; `--engine` with Dask
workers over TCP.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_engine import cluster  # noqa: F401  a fixture

from halp.data.store import Store, open_store

pytestmark = pytest.mark.slow
LAYOUT = ("--option", "topology=kinect-v2")


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    for number in range(70):
        np.save(tmp_path / "files" / f"{number:02}.npy", store.clip(number))
    return tmp_path


def start(folder: Path, *words: object, cache: str = "cache") -> subprocess.Popen[str]:
    environment = {**os.environ, "HALP_CACHE": str(folder / cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "halp", *map(str, words)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder: Path, *words: object, code: int = 0, cache: str = "cache") -> str:
    process = start(folder, *words, cache=cache)
    _, told = process.communicate()
    assert process.returncode == code, told
    return told


def test_three_processes_prepare_a_store_that_join_completes(folder: Path) -> None:
    prepare = ["prepare", "arrays", "files", "store", *LAYOUT]
    assert "no part of" in run(folder, "join", "store", code=2)
    run(folder, *prepare, "--shard", "3/3")
    assert "run the command again with --shard 1/3, --shard 2/3" in run(folder, "join", "store", code=2)
    others = [start(folder, *prepare, "--shard", f"{number}/3") for number in (1, 2)]
    assert [process.wait() for process in others] == [0, 0]
    assert not (folder / "store").exists()
    run(folder, "join", "store")
    run(folder, "prepare", "arrays", "files", "whole", *LAYOUT)
    assert open_store(folder / "store").hash == open_store(folder / "whole").hash
    assert not [path.name for path in folder.glob(".*") if path.suffix != ".lock"]


def test_three_processes_embed_what_join_writes_to_the_bit(folder: Path, tmp_path: Path) -> None:
    for number in range(70, 600):  # three shards
        os.link(folder / "files" / f"{number % 70:02}.npy", folder / "files" / f"{number:03}.npy")
    embed = ["embed", "halp-base", "files", "vectors.npz", "--compact", *LAYOUT]
    parts = [start(folder, *embed, "--shard", f"{number}/3") for number in (1, 2, 3)]
    for process in parts:
        assert "shards complete" in process.communicate()[1]
        assert process.returncode == 0
    assert not (folder / "vectors.npz").exists()
    run(folder, "join", "vectors.npz")
    run(
        folder,
        "embed",
        "halp-base",
        "files",
        "alone.npz",
        "--compact",
        "--workers",
        "1",
        *LAYOUT,
        cache="other",
    )
    assert (folder / "vectors.npz").read_bytes() == (folder / "alone.npz").read_bytes()


def test_dask_workers_embed_to_the_bit_what_one_process_does(
    folder: Path,
    cluster: tuple[str, list[subprocess.Popen[str]]],  # noqa: F811
) -> None:
    address, _ = cluster
    embed = ["embed", "halp-base", "files"]
    run(folder, *embed, "dask.npz", "--compact", "--engine", address, *LAYOUT)
    run(folder, *embed, "alone.npz", "--compact", "--workers", "1", *LAYOUT, cache="other")
    assert (folder / "dask.npz").read_bytes() == (folder / "alone.npz").read_bytes()
    run(folder, "prepare", "arrays", "files", "dask", "--engine", address, *LAYOUT)
    run(folder, "prepare", "arrays", "files", "alone", "--workers", "1", *LAYOUT)
    assert open_store(folder / "dask").hash == open_store(folder / "alone").hash
