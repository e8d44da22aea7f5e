"""Data in: parsing and normalising an NTU clip against loops, memory and speed of `prepare`, opening and
reading a store.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

from benchmarks.data_references import coordinates, normalise_by_loops, read_by_lines
from benchmarks.harness import Row, interleaved, milliseconds
from halp.data.ingest.prepare import keep_memory
from halp.data.normalise import AUTHORS, normalise
from halp.data.persons import keep_most_moving
from halp.data.readers.ntu import parse_skeleton
from halp.data.store import Store, open_store
from halp.data.store_check import content_hash
from halp.data.store_index import INDEX
from halp.skeleton import KINECT_V2

FRAMES, CLIPS = 90, 20_000
_PREPARE = """
import json, resource, sys, time
from halp.data.ingest.prepare import prepare
if __name__ == "__main__":
    began = time.monotonic()
    prepare("ntu", sys.argv[1], sys.argv[2], progress=False)
    used = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"seconds": time.monotonic() - began, "writer": used[0], "reader": used[1]}))
"""


def rows() -> list[Row]:
    """One row for each claim about data coming in."""
    text = invented_clip(FRAMES)
    found = one_clip(text)
    with tempfile.TemporaryDirectory() as folder:
        found += prepare_many(Path(folder), invented_clip(30))
        found.append(large_store(Path(folder)))
    return found


def invented_clip(frames: int) -> str:
    """The text of a `.skeleton` file with two moving bodies and numbers as long as the real ones."""
    draw = np.random.default_rng(0)
    lines = [str(frames)]
    pose = draw.normal((0, 0, 3), 0.5, (2, 25, 3))
    for _ in range(frames):
        pose += draw.normal(0, 0.02, pose.shape)
        lines.append("2")
        for body in pose:
            lines += ["72057594037931101 0 1 1 1 1 0 0.02764709 0.05745083 2", "25"]
            for joint in body:
                rest = (*draw.uniform(100, 999, 4), *draw.uniform(-1, 1, 4))
                lines.append(" ".join(f"{number:.7g}" for number in (*joint, *rest)) + " 2")
    return "\n".join(lines) + "\n"


def one_clip(text: str) -> list[Row]:
    """Parse and normalise, one core, both ways; the results have to agree."""
    data, path = text.encode(), Path("clip.skeleton")

    def ours() -> np.ndarray:
        return normalise(keep_most_moving(parse_skeleton(data, path), 2)[0], KINECT_V2, AUTHORS)

    def loops(frames: int = 0) -> np.ndarray:
        bodies = coordinates(read_by_lines(data.decode()))
        return normalise_by_loops(np.pad(bodies, ((0, 0), (0, max(0, frames - FRAMES)), (0, 0), (0, 0))))

    assert np.abs(ours() - loops().transpose(1, 0, 2, 3)).max() < 1e-4
    keep_memory()
    fast, slow, padded = interleaved(ours, loops, lambda: loops(300), repeats=9, inner=(10, 1, 1), warm_up=1)
    name = f"parse + normalise one NTU clip ({FRAMES} frames, 2 bodies) vs"
    return [
        Row(
            f"{name} the authors' way (300 padded frames)",
            milliseconds(fast),
            milliseconds(padded),
            padded / fast,
            20,
        ),
        Row(f"{name} loops over its own frames", milliseconds(fast), milliseconds(slow), slow / fast),
    ]


def prepare_many(folder: Path, text: str) -> list[Row]:
    """Peak memory of `prepare` for many clips, and what its speed means for NTU-60 (56,880 files of about 84
    frames).
    """
    tree = folder / "tree"
    tree.mkdir()
    original = folder / "clip.skeleton"
    original.write_text(text)
    for number in range(CLIPS):
        setup, performer, action = number // 2400 + 1, number // 60 % 40 + 1, number % 60 + 1
        os.link(original, tree / f"S{setup:03}C001P{performer:03}R001A{action:03}.skeleton")
    script = folder / "prepare_all.py"
    script.write_text(_PREPARE)
    command = [sys.executable, str(script), str(tree), str(folder / "store")]
    used = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gigabytes = (used["writer"] + cores * used["reader"]) / 2**20
    touched, wanted = batch_of_views(open_store(folder / "store"))
    whole = used["seconds"] / (CLIPS * 30) * 56_880 * 84
    name = f"peak memory of prepare, {CLIPS} clips, {cores} reading processes (GiB)"
    return [
        Row(name, f"{gigabytes:.2f} GiB", "1.5 GiB", gigabytes, 1.5, at_most=True),
        Row(
            "NTU-60 whole, from that run's speed (minutes)",
            f"{whole:.0f} s",
            "10 min",
            whole / 60,
            10,
            at_most=True,
        ),
        Row(
            "memory a batch of 64 clips maps ÷ what it needs",
            f"{touched / 2**20:.1f} MiB",
            f"{wanted / 2**20:.1f} MiB",
            touched / wanted,
            8,
            at_most=True,
        ),
    ]


def batch_of_views(store: Store) -> tuple[int, int]:
    """Bytes of the memory map that became resident for 64 clips, and the bytes of those clips."""
    chosen = np.random.default_rng(0).integers(len(store), size=64)
    wanted = sum(np.array(store.clip(int(index))).nbytes for index in chosen)
    smaps = Path("/proc/self/smaps")
    if not smaps.exists():
        return wanted, wanted
    block = smaps.read_text().split(str(store.path / "frames.npy"), 1)[1]
    resident = re.search(r"Rss:\s+(\d+) kB", block)
    return (int(resident[1]) * 1024 if resident else wanted), wanted


def large_store(folder: Path) -> Row:
    """Open a store of 100,000 clips."""
    count = 100_000
    path = folder / "store"
    index = {
        "name": [f"S001C001P001R001A{number:06}" for number in range(count)],
        "length": [1] * count,
        **{
            column: [number % 60 for number in range(count)]
            for column in ("label", "subject", "camera", "setup")
        },
    }
    parquet.write_table(pyarrow.table(index), path / INDEX)
    np.save(path / "frames.npy", np.zeros((count, 2, 25, 3), dtype=np.float32))
    header = json.loads((path / "store.json").read_text())
    header["hash"] = content_hash(path, np.load(path / "frames.npy", mmap_mode="r").offset)[0]
    del header["header_hash"]
    (path / "store.json").write_text(json.dumps(header))
    time.sleep(2.5)  # a store that was just written is read whole each time it is opened
    times = []
    for _ in range(5):
        began = time.perf_counter()
        open_store(path)
        times.append(time.perf_counter() - began)
    return Row(
        "open a store of 100,000 clips (seconds)", milliseconds(min(times)), "1 s", min(times), 1, True
    )
