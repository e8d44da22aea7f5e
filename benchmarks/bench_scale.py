"""Scale: what a file more, a dead worker, a long recording and a million vectors cost; ratios within one run.

Times are CPU seconds. `HALP_BENCH_FILES` (1,000), `HALP_BENCH_VECTORS` (1,000,000) and `HALP_BENCH_HOURS`
(10) say how large.
"""

from __future__ import annotations

import contextlib
import glob
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Row
from halp.data.ingest.shards import FileHashes
from halp.data.inspect import inspect
from halp.data.merge import merge
from halp.data.store import open_store
from halp.data.synthetic import make_synthetic_store, synthetic_clips
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.embed import embed_table
from halp.features.loading import load_encoder
from halp.tasks.cluster import group_vectors
from halp.tasks.find_motifs import sequences
from halp.tasks.index import recall_of, search_exactly
from halp.tasks.index_update import update_index
from halp.tasks.search import search
from halp.tasks.segment import segment

FILES = int(os.environ.get("HALP_BENCH_FILES", "1000"))
VECTORS = int(os.environ.get("HALP_BENCH_VECTORS", "1000000"))
HOURS = int(os.environ.get("HALP_BENCH_HOURS", "10"))
LAYOUT: dict[str, Any] = {"options": {"topology": "kinect-v2"}, "progress": False}


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["HALP_CACHE"] = str(home / "cache")
        files = _files(home / "files", FILES)
        encoder = load_encoder("halp-base")
        embed_table(encoder, _files(home / "few", 4), compact=True, cache=False, **LAYOUT)  # imports, warm-up
        steps: list[Callable[[], list[Row]]] = [
            lambda: _adding(encoder, files),
            lambda: [_killed(home, files)],
            lambda: _workers(home, encoder, files),
            lambda: [_memory(home)],
            lambda: _index(home),
            lambda: _growth(home, encoder),
        ]
        found = []
        for step in steps:
            found += step()
            print(*found[-3:], sep="\n", file=sys.stderr)
    return found


def _files(folder: Path, count: int) -> Path:
    """Short recordings, each of its own content, in folders of 1,000."""
    clips = [clip.frames for clip in synthetic_clips(120, seed=0)]
    draw = np.random.default_rng(0)
    for number in range(count):
        place = folder / f"{number // 1000:04}"
        place.mkdir(parents=True, exist_ok=True)
        clip = clips[number % 120][:30]
        np.save(
            place / f"{number:07}.npy",
            clip * (1 + 0.05 * draw.normal(size=(1, 1, clip.shape[2], 1)).astype(np.float32)),
        )
    time.sleep(2.5)  # files that are younger than a look are read again
    return folder


def _seconds(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def _adding(encoder: PretrainedEncoder, files: Path) -> list[Row]:
    def look() -> None:
        embed_table(encoder, files, compact=True, workers=1, **LAYOUT)

    cold = _seconds(look)
    look()
    warm = min(_seconds(look) for _ in range(3))
    hashes = FileHashes(files)
    hashes.of(sorted(files.rglob("*.npy")))
    shutil.copy(next(files.rglob("*.npy")), files / "0000" / "one-more.npy")
    added = _seconds(look)
    each = 1e6 * warm / FILES
    return [
        Row(
            f"one file added to {FILES}, ÷ cold",
            f"{added:.2f} s",
            f"{cold:.2f} s",
            added / cold,
            0.05,
            at_most=True,
        ),
        Row(f"warm table of {FILES} files, µs a file", f"{warm:.3f} s", "", each, 10, at_most=True),
        Row(
            "… files whose content was read again", f"{hashes.read}", "", float(hashes.read), 0, at_most=True
        ),
    ]


def _killed(home: Path, files: Path) -> Row:
    """Kill a worker of `halp prepare` once some parts are done."""
    command = [
        sys.executable,
        "-m",
        "halp",
        "prepare",
        "arrays",
        str(files),
        str(home / "killed"),
        "--workers",
        "2",
    ]
    process = subprocess.Popen([*command, "--option", "topology=kinect-v2"], stderr=subprocess.DEVNULL)
    kills = 0
    while process.poll() is None:
        parts = len(glob.glob(str(home / ".killed.read-*" / "*.safetensors")))
        workers = [int(child) for child in _children(process.pid) if b"spawn_main" in _command_line(child)]
        if not kills and parts >= 3 and workers:
            os.kill(workers[-1], 9)
            kills = 1
        time.sleep(0.005)
    clips = len(open_store(home / "killed")) if process.returncode == 0 else 0
    lost = len(list(files.rglob("*.npy"))) - clips
    told = f"{lost} clips lost, exit {process.returncode}, {kills} killed"
    return Row("worker killed −9: clips lost", told, "all", float(lost), 0, at_most=True)


def _children(process: int) -> list[str]:
    found = []
    for file in glob.glob(f"/proc/{process}/task/*/children"):  # a pool starts processes from several threads
        with contextlib.suppress(OSError):
            found += Path(file).read_text().split()
    return found


def _command_line(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _workers(home: Path, encoder: PretrainedEncoder, files: Path) -> list[Row]:
    found, walls = [], []
    for workers in (1, 2, 8):
        os.environ["HALP_CACHE"] = str(home / f"cache-{workers}")
        began = time.perf_counter()
        found.append(np.asarray(embed_table(encoder, files, workers=workers, **LAYOUT).vectors))
        walls.append(time.perf_counter() - began)
    os.environ["HALP_CACHE"] = str(home / "cache")
    differing = sum(other.tobytes() != found[0].tobytes() for other in found[1:])
    told = f"{walls[1]:.1f} s by the wall, workers' imports included"
    return [
        Row(
            "1, 2, 8 workers: tables that differ in a bit",
            f"{differing}",
            "",
            float(differing),
            0,
            at_most=True,
        ),
        Row(f"embed {FILES} files, 2 workers ÷ 1", told, f"{walls[0]:.1f} s", walls[0] / walls[1], 1.8),
    ]


SEGMENT = """
import resource, sys
import halp
halp.segment("halp-base", sys.argv[1], groups=6, fps=30.0, workers=1, options={"topology": "kinect-v2"}, progress=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _memory(home: Path) -> Row:
    """Peak memory of `segment` over recordings of an hour each."""
    clips = [clip.frames[:, :1] for clip in synthetic_clips(60, seed=1)]
    hour = np.concatenate([clips[number % 60] for number in range(108_000 // 50)])[:108_000]
    peaks = []
    for hours in (1, HOURS):
        folder = home / f"hours-{hours}"
        folder.mkdir()
        for number in range(hours):
            np.save(folder / f"{number}.npy", np.roll(hour, 977 * number, axis=0))
        ran = subprocess.run(
            [sys.executable, "-c", SEGMENT, str(folder)], capture_output=True, text=True, check=True
        )
        peaks.append(float(ran.stdout))
        shutil.rmtree(folder)
    told = f"{peaks[1]:.0f} MiB"
    return Row(
        f"segment: memory of {HOURS} h ÷ 1 h",
        told,
        f"{peaks[0]:.0f} MiB",
        peaks[1] / peaks[0],
        1.3,
        at_most=True,
    )


def _vectors(path: Path, count: int) -> npt.NDArray[np.float32]:
    """Windows of many recordings: neighbouring windows are alike, recordings of one movement too; on disk."""
    draw = np.random.default_rng(0)
    movements, spread = draw.normal(size=(500, 24)), draw.normal(size=(24, 256)).astype(np.float32)
    found = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(count, 256))
    for first in range(0, count, 50_000):
        size = min(50_000, count - first)
        inner = movements[draw.integers(0, 500, size)] + 0.5 * draw.normal(size=(size, 24))
        found[first : first + size] = inner.astype(np.float32) @ spread + 0.3 * draw.normal(size=(size, 256))
    found.flush()
    return np.load(path, mmap_mode="r")


def _index(home: Path) -> list[Row]:
    vectors = _vectors(home / "vectors.npy", VECTORS)
    queries = np.array(vectors[:: VECTORS // 100][:100]) + np.float32(0.05)
    began = time.process_time()
    index = update_index(home, vectors, progress=False)
    built = time.process_time() - began
    exact, _ = search_exactly(vectors, queries, 10)
    began = time.process_time()
    recall = recall_of(index.search(queries, 10)[0], exact)
    each = 10 * (time.process_time() - began)
    disk = sum(file.stat().st_size for file in home.glob("*.faiss")) / 1e6
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    share = VECTORS / 1e6
    title = f"index of {VECTORS:,} vectors"
    return [
        Row(
            f"{title}: CPU s a million, recall measured too",
            f"{built:.1f} s",
            "147 s",
            built / share,
            15,
            at_most=True,
        ),
        Row(
            f"{title}: recall@10",
            f"{recall:.3f}, {index.facts.probes} of {index.facts.lists} lists",
            "",
            recall,
            0.99,
        ),
        Row(f"{title}: MB on disk a million", f"{disk:.0f} MB", "629 MB", disk / share, 260, at_most=True),
        Row(f"{title}: CPU ms a query", f"peak {memory:.0f} MiB", "", each),
    ]


def _growth(home: Path, encoder: PretrainedEncoder) -> list[Row]:
    """Exponents of commands over a store, from a few clips to eight times as many."""
    taken: dict[str, list[float]] = {}
    sizes = (1_000, 8_000)
    make_synthetic_store(home / "part", count=1_000, subjects=20, seed=3)
    for seed in range(4, 11):
        make_synthetic_store(home / f"part-{seed}", count=1_000, subjects=20, seed=seed)
    pooled = merge([home / "part", *sorted(home.glob("part-*"))], home / "many", progress=False)
    for store in (open_store(home / "part"), pooled):
        table = embed_table(encoder, store, compact=True, workers=1, progress=False)
        name = str(store.names[0])
        actions: dict[str, Any] = {
            "open": lambda store=store: open_store(store.path),
            "inspect": lambda store=store: inspect(store),
            "embed": lambda store=store: embed_table(
                encoder, store, compact=True, workers=1, cache=False, progress=False
            ),
            "search, warm": lambda store=store, name=name: search(encoder, name, store, progress=False),
            "cluster": lambda table=table: group_vectors(table.vectors, 6),
            "segment, warm": lambda store=store: segment(
                encoder, store, groups=6, fps=30.0, workers=1, progress=False
            ),
            "motifs: sequences": lambda table=table: sequences(table),
        }
        for what, action in actions.items():
            if "warm" in what:
                action()
            taken.setdefault(what, []).append(
                min(_seconds(action) for _ in range(1 if what == "embed" else 2))
            )
    found = []
    for what, (few, many) in taken.items():
        exponent = float(np.log(many / few) / np.log(sizes[1] / sizes[0]))
        found.append(
            Row(
                f"{what}: exponent, 1,000 → 8,000 clips", f"{many:.3f} s", f"{few:.3f} s", exponent, 1.1, True
            )
        )
    return found
