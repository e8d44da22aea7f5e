"""Scale: what a file more, a dead worker, a long recording and a million vectors cost; ratios within one run.

Times are CPU seconds. How large: `HALP_BENCH_FILES` (1,000), `HALP_BENCH_MORE` (4,096 files for two workers),
`HALP_BENCH_HOURS` (10), `HALP_BENCH_VECTORS` (1,000,000 and 10,000,000), `HALP_BENCH_CLIPS` (1,000,000 of a store);
`HALP_BENCH_GIB` (8) bounds the memory of the index. `HALP_BENCH_ONLY` names the groups of rows that are measured
(adding, killed, workers, memory, index, growth). What is measured stays in the folder `HALP_BENCH_STORES`, where the
same command resumes.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import scale_commands
from benchmarks.harness import Row
from halp.data.ingest.shards import FileHashes
from halp.data.store import open_store
from halp.data.synthetic import synthetic_clips
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.embed import embed_table
from halp.features.loading import load_encoder
from halp.tasks.search import search

FILES = int(os.environ.get("HALP_BENCH_FILES", "1000"))
VECTORS = os.environ.get("HALP_BENCH_VECTORS", "1000000,10000000").split(",")
MEMORY = float(os.environ.get("HALP_BENCH_GIB", "8"))
CLIPS = int(os.environ.get("HALP_BENCH_CLIPS", "1000000"))
STORES = Path(os.environ["HALP_BENCH_STORES"]) if "HALP_BENCH_STORES" in os.environ else None
MORE = int(os.environ.get("HALP_BENCH_MORE", "4096"))
HOURS = int(os.environ.get("HALP_BENCH_HOURS", "10"))
LAYOUT: dict[str, Any] = {"options": {"topology": "kinect-v2"}, "progress": False}


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["HALP_CACHE"] = str(home / "cache")
        files = _files(home / "files", FILES)
        encoder = load_encoder("halp-base")
        embed_table(encoder, _files(home / "few", 4), compact=True, cache=False, **LAYOUT)  # imports, warm-up
        steps: dict[str, Callable[[], list[Row]]] = {
            "adding": lambda: _adding(encoder, home, files),
            "killed": lambda: [_killed(home, files)],
            "workers": lambda: _workers(home, encoder, files),
            "memory": lambda: [_memory(home)],
            "index": lambda: _index(home),
            "growth": lambda: _growth(home),
        }
        found = []
        for name in os.environ.get("HALP_BENCH_ONLY", ",".join(steps)).split(","):
            kept = (STORES or home) / f"{name}.json"
            if not kept.exists():
                kept.write_text(json.dumps([asdict(row) for row in steps[name]()]))
            found += [Row(**row) for row in json.loads(kept.read_text())]
            print(kept.read_text(), file=sys.stderr, flush=True)
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


def _adding(encoder: PretrainedEncoder, home: Path, files: Path) -> list[Row]:
    """A second look at all files, and one file more; what a file costs is the slope from a tenth of them to all."""
    tenth = _files(home / "tenth", max(1, FILES // 10))
    taken = {}
    for folder in (tenth, files):
        embed = partial(embed_table, encoder, folder, compact=True, workers=1, **LAYOUT)
        cold = _seconds(embed)
        embed()
        name = sorted(embed().recordings)[0]
        ask = partial(search, encoder, name, folder, workers=1, **LAYOUT)
        taken[folder] = [min(_seconds(action) for _ in range(5)) for action in (embed, ask)]
    hashes = FileHashes(files)
    hashes.of(sorted(files.rglob("*.npy")))
    gc.collect()
    gc.freeze()  # going through the objects of imports once takes as long as a file
    one, times = next(files.rglob("*.npy")), []
    for number in range(5):
        shutil.copy(one, files / "0000" / f"one-more-{number}.npy")
        times.append(_seconds(embed))
    added = float(np.median(times))
    more = FILES - max(1, FILES // 10)
    table, asked = (1e6 * (taken[files][which] - taken[tenth][which]) / more for which in (0, 1))
    whole = f"{taken[files][1]:.3f} s for {FILES:,}"
    title = f"one file added to {FILES:,}, median of five, ÷ cold"
    return [
        Row(title, f"{added:.3f} s", f"{cold:.2f} s", added / cold, 0.05, at_most=True),
        Row("warm search over files, µs a file", whole, "", asked, 10, at_most=True),
        Row("warm table of files, µs a file", f"{taken[files][0]:.3f} s", "", table, 10, at_most=True),
        Row("… content read again, files", f"{hashes.read}", "", float(hashes.read), 0, at_most=True),
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
    """Equal to the bit for any number of workers; the speed-up beyond the start, on the clock and in CPU seconds."""
    found = []
    for workers in (1, 2, 8):
        os.environ["HALP_CACHE"] = str(home / f"cache-{workers}")
        found.append(np.asarray(embed_table(encoder, files, workers=workers, **LAYOUT).vectors))
    os.environ["HALP_CACHE"] = str(home / "cache")
    differing = sum(other.tobytes() != found[0].tobytes() for other in found[1:])
    few, many = (
        _files(home / "start", 1024),
        _files(home / "many", 1024 + MORE),
    )  # fewer are read by one process
    alone, _, one = _used(home, many, 1) - _used(home, few, 1)
    driver, busiest, two = _used(home, many, 2) - _used(home, few, 2)
    what, embed = "1, 2, 8 workers: tables that differ in a bit", f"embed {MORE:,} files more, 2 workers"
    told = f"{driver:.1f} + {busiest:.1f} s: driver + busier worker"
    return [
        Row(what, f"{differing}", "", float(differing), 0, at_most=True),
        Row(f"{embed}, by the clock", f"{two:.1f} s", f"{one:.1f} s", one / two, 1.8),
        Row(f"{embed}, CPU seconds", told, f"{alone:.1f} s", alone / max(driver + busiest, 1e-9), 1.8),
    ]


def _used(home: Path, files: Path, workers: int) -> Any:
    """CPU seconds of `halp embed` itself and of the busiest of its workers, and seconds by the clock."""
    cache, out = home / "cache-used", home / "used.npz"
    shutil.rmtree(cache, ignore_errors=True)
    command = ["embed", "halp-base", str(files), str(out), "--workers", str(workers)]
    process = subprocess.Popen(
        [sys.executable, "-m", "halp", *command, "--option", "topology=kinect-v2"],
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "HALP_CACHE": str(cache)},
    )  # fmt: skip
    own, of_workers, began = 0.0, {}, time.perf_counter()
    while process.poll() is None:
        own = max(own, _processor_time(str(process.pid)))
        for child in _children(process.pid):
            if b"spawn_main" in _command_line(child):
                of_workers[child] = _processor_time(child)
        time.sleep(0.02)
    if process.returncode:
        raise RuntimeError(f"halp {' '.join(command)} failed")
    return np.array([own, max(of_workers.values(), default=0.0), time.perf_counter() - began])


def _processor_time(process: str) -> float:
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


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


def _index(home: Path) -> list[Row]:
    """Build, search and filter compact vectors in a process that may hold a bounded memory."""
    found = []
    for count in VECTORS:
        kept, folder = (STORES or home) / f"vectors-{count}.json", home / f"vectors-{count}"
        if not kept.exists():
            command = [sys.executable, "-m", "benchmarks.scale_vectors", str(folder), count, str(MEMORY)]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            shutil.rmtree(folder)
            kept.write_text(ran.stdout)
        found += index_rows(json.loads(kept.read_text()))
    return found


def index_rows(found: dict[str, Any]) -> list[Row]:
    """Rows of what `benchmarks.scale_vectors` printed."""
    millions = found["vectors"] / 1e6
    title = f"index of {found['vectors']:,} vectors"
    lists = f"{found['probes']} of {found['lists']} lists"
    once, again = (found[f"filter_half_{which}_s"] / found["queries"] for which in ("first", "again"))
    held = f"peak {found['peak_rss_mb']:.0f} MB with mapped pages, {found['limit_gib']:g} GiB allowed"
    built, disk = found["build_s"] / millions, found["disk_mb"] / millions
    each, one = 1000 / found["queries"], 1000 * found["filter_1_percent_s"]
    half = "… a filter that half of them pass, recall@10"
    added = f"{found['add_a_shard_s']:.2f} s for 100,000 more"
    return [
        Row(f"{title}: CPU s a million", f"{found['build_s']:.1f} s; {held}", "147 s", built, 15, True),
        Row(f"{title}: recall@10", lists, f"{found['recall_queries']:.3f} on others", found["recall"], 0.99),
        Row(f"{title}: MB on disk a million", f"{found['disk_mb']:.0f} MB", "629 MB", disk, 260, True),
        Row(f"{title}: a shard added ÷ built", added, "", found["add_a_shard_s"] / found["build_s"]),
        Row("… CPU ms a query", "", f"{each * found['exact_s']:.1f} exactly", each * found["search_s"]),
        Row("… exact among 1 %, CPU ms", "", f"{1000 * found['filter_0.1_percent_s']:.0f} among 0.1 %", one),
        Row(half, f"{1000 * again:.1f} ms", f"{1000 * once:.0f} ms at first", found["filter_recall"], 0.95),
    ]


def _growth(home: Path) -> list[Row]:
    """Exponents and memory of commands over stores, each ten times the one before."""
    stores = STORES or home / "stores"
    subprocess.run([sys.executable, "-m", "benchmarks.scale_commands", str(stores), str(CLIPS)], check=True)
    return scale_commands.rows(json.loads((stores / "commands.json").read_text()))
