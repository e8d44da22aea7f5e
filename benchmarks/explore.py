"""`python -m benchmarks.explore [--rows N …] [--clips N …]`: the explorer over many movements.

`--clips`: `halp explore` on a store of clips that has been opened before, from the command until Chromium has
drawn the map: the median of five starts, with the processor time of server and browser.

`--rows`: first picture, memory and time per refit for many windows.

Vectors are made up (in 20 clouds) and kept on disk, as those of an encoder are; frames are real enough to be
played. "First picture" is
from opening the address to the first drawn map in Chromium with software rendering, by the wall clock; the
rest is processor time of the server, which other work on the machine disturbs less.

`load` is that of the machine. Seeds are 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.explore_pictures import FLAGS, start
from halp._version import revision
from halp.data.clip import Clip
from halp.data.store_writer import StoreWriter
from halp.data.synthetic import synthetic_clips
from halp.encoders.pretrained import compacted
from halp.features.embed import Embedding, _find_vectors
from halp.features.source import Source
from halp.skeleton import get_topology

RESULT = Path(__file__).parent / "results" / "explore.json"
RECORDINGS, WIDTH, CLOUDS, LABELLED = 200, 128, 20, 60


def make_store(path: Path, rows: int) -> None:
    """Recordings at two frames per second, so that windows of two seconds every half second are one per
    frame.
    """
    rng = np.random.default_rng(0)
    pose = rng.normal(size=(1, 1, 25, 3)).astype(np.float32)
    with StoreWriter(path, get_topology("kinect-v2"), persons=1) as writer:
        for number in range(RECORDINGS):
            drift = rng.normal(scale=0.05, size=(rows // RECORDINGS + 3, 1, 25, 3)).astype(np.float32)
            writer.add(Clip(pose + drift, f"recording_{number:03}", subject=number % 10, extra={"fps": 2.0}))


def make_clips(path: Path, count: int) -> None:
    """Synthetic people, each clip with bones of its own."""
    base = [clip.frames[:40, :1] for clip in synthetic_clips(240, subjects=10, seed=0)]
    rng = np.random.default_rng(0)
    with StoreWriter(path, get_topology("kinect-v2"), persons=1) as writer:
        for number in range(count):
            own = rng.normal(scale=0.01, size=(1, 1, 25, 3)).astype(np.float32)
            frames = base[number % len(base)] + own
            writer.add(Clip(frames, f"clip_{number:06}", subject=number % 10, extra={"fps": 30.0}))


class MadeUp(Embedding):
    """Vectors in clouds under the key of a real encoder: embedding 100,000 clips takes minutes."""

    alone = True

    def __call__(self, source: Source, progress: bool) -> Iterator[npt.NDArray[np.float32]]:
        rng, width = np.random.default_rng(0), self.encoder.output_size
        centres = rng.normal(size=(CLOUDS, width)).astype(np.float32)
        for first in range(0, len(source), 65_536):
            rows = np.arange(first, min(first + 65_536, len(source)))
            yield centres[rows % CLOUDS] + rng.normal(size=(len(rows), width)).astype(np.float32)


def make_vectors(store: Path) -> None:
    """Fill the cache with made-up vectors of a store and its first map."""
    from halp.explorer.collection import Collection
    from halp.features.loading import open_for

    encoder, source = open_for("halp-base", store)
    compact = compacted(encoder)
    _find_vectors(source, MadeUp(compact), True, False)
    collection = Collection(compact, source)
    for method in ("pca", "tsne"):
        collection.lay_out(method)
    collection.group()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    spent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def browser_cpu_seconds() -> float:
    """Processor time of this process's Chromium so far."""
    found, parents = 0.0, [os.getpid()]
    for parent in parents:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            parents += map(int, children.read_text().split())
        with suppress(OSError):
            found += cpu_seconds(parent) if b"chromium" in Path(f"/proc/{parent}/cmdline").read_bytes() else 0
    return found


def measure_start(count: int) -> dict[str, Any]:
    """Seconds from the command to the drawn map, of warm starts over a store of clips.

    All of it runs with real-time priority where that is allowed, so that other work does not count.
    """
    from playwright.sync_api import sync_playwright

    folder = Path(tempfile.mkdtemp())
    os.environ["HALP_CACHE"] = str(folder / "cache")
    make_clips(folder / "clips", count)
    make_vectors(folder / "clips")
    alone = True
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        alone = False
    found: list[dict[str, float]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(300_000)
        for _ in range(6):
            began, before = time.monotonic(), browser_cpu_seconds()
            process, address = start(folder / "clips")
            listening = time.monotonic() - began
            page.goto(address, wait_until="commit")
            while not page.evaluate("window.halpMap && halpMap.first"):
                time.sleep(0.02)
            seconds = {"address": listening, "drawn": time.monotonic() - began}
            spent = {"server_cpu": cpu_seconds(process.pid), "browser_cpu": browser_cpu_seconds() - before}
            found.append({name: round(value, 2) for name, value in (seconds | spent).items()})
            page.wait_for_selector("html[data-ready=true]")
            page.goto("about:blank")
            process.terminate()
            process.wait()
        browser.close()
    shutil.rmtree(folder)
    starts = sorted(found[1:], key=lambda one: one["drawn"])  # the first is cold in the browser
    return {
        "clips": count,
        "drawn_seconds": starts[2]["drawn"],
        "real_time_priority": alone,
        "first": found[0],
        "starts": starts,
        "load": round(os.getloadavg()[0], 1),
    }


def measure(rows: int) -> dict[str, Any]:
    """One size, in this process."""
    from playwright.sync_api import sync_playwright

    from halp.encoders.pretrained import RawCoordinates
    from halp.explorer.collection import Collection
    from halp.explorer.fewlabel import assess_labels, fit_labels
    from halp.explorer.server import make_app, make_server
    from halp.explorer.session import Session, Settings
    from halp.features.opening import open_source
    from halp.features.table import FeatureTable

    folder = Path(tempfile.mkdtemp())
    make_store(folder / "store", rows)
    source = open_source(folder / "store", window=2.0, stride=0.5)
    count = len(source)
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLOUDS, WIDTH)).astype(np.float32)
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (count, WIDTH))
    for first in range(0, count, 65_536):
        block = vectors[first : first + 65_536]
        block[:] = centres[np.arange(first, first + len(block)) % CLOUDS] + rng.normal(
            size=block.shape
        ).astype(np.float32)
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    table = FeatureTable(vectors, source.rows, source.recordings)
    session = Session(Settings(folder / "store", labels=folder / "labels.csv"))
    with socket.socket() as listener, session.labels:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        encoder = RawCoordinates(source.topology, persons=1)
        began = time.process_time()
        collection = Collection(encoder, source, table)
        collection.lay_out("pca")
        laid_out = time.process_time() - began
        session._collection = collection
        session.progress.ready.append("pca")
        server = make_server(make_app(session, "token", port), port)
        threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(300_000)
            page.goto(f"http://127.0.0.1:{port}/?token=token")
            page.wait_for_selector("html[data-ready=true]")
            while not page.evaluate("window.halpMap && halpMap.first"):
                page.wait_for_timeout(20)
            shown = page.evaluate("halpMap.first") / 1000
            browser.close()
        labels = [
            rng.choice(np.arange(cloud, count, CLOUDS), LABELLED // 3, replace=False) for cloud in range(3)
        ]
        for cloud, chosen in enumerate(labels):
            session.labels.label(session.row_spans(chosen.tolist()), f"class {cloud}")
        column = session.label_column()
        values, names = column.values, column.names
        began = time.process_time()
        model = fit_labels(collection, values, names, 0)
        fitted = time.process_time() - began
        assert model is not None
        assess_labels(collection, values, names, model)
        judged = time.process_time() - began
        server.should_exit = True
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    memory = {
        line[0].rstrip(":"): int(line[1]) // 1024 for line in lines if line[0] in ("VmHWM:", "RssAnon:")
    }
    shutil.rmtree(folder)
    return {
        "windows": count,
        "map_cpu_seconds": round(laid_out, 2),
        "first_picture_seconds": round(shown, 2),
        "refit_cpu_seconds": round(fitted, 2),
        "refit_and_cross_validation_cpu_seconds": round(judged, 2),
        "labelled": LABELLED,
        "memory_mb": memory,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--clips", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--one", choices=("rows", "clips"))
    given = parser.parse_args()
    work = {"rows": measure, "clips": measure_start}
    if given.one:
        print(json.dumps(work[given.one](getattr(given, given.one)[0])))
        return
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in work:
        found = []
        for count in getattr(given, name):  # a process each, so that memory is that of one size
            command = [sys.executable, "-m", "benchmarks.explore", "--one", name, f"--{name}", str(count)]
            ended = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append({**json.loads(ended.stdout.splitlines()[-1]), "commit": revision()})
            print(found[-1])
        if found:
            known[name] = found
    known |= {"cores": len(os.sched_getaffinity(0)), "vector_width": WIDTH}
    RESULT.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
