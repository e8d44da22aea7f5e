"""Evaluation: exact kNN of NTU-60's size in time and memory, and linear evaluation from cached features."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.harness import Row
from halp.data.synthetic import make_synthetic_store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import evaluate
from halp.features.cache import FeatureCache

TRAIN, TEST, WIDTH = 40_000, 16_000, 2048
CLIPS, HIDDEN, REPEATS = 120, 128, 3
_KNN = """
import json, sys, time
import numpy as np
from benchmarks.harness import memory_peak
from halp.evaluation.protocols.knn import knn_predict
train, test, width = map(int, sys.argv[1:])
draw = np.random.default_rng(0)
bank = draw.standard_normal((train, width), dtype=np.float32)
rows = draw.standard_normal((test, width), dtype=np.float32)
labels = np.arange(train) % 60
began, used = time.monotonic(), time.process_time()
knn_predict(bank, labels, rows)
taken, used = time.monotonic() - began, time.process_time() - used
print(json.dumps({"seconds": taken, "processor": used, "gib": memory_peak() / 2**30}))
"""


def rows() -> list[Row]:
    """One row for each claim about evaluation."""
    return [*nearest_neighbours(), *linear_from_cache()]


def nearest_neighbours() -> list[Row]:
    """A process of its own, so that its peak memory is that of the features and the search alone."""
    command = [sys.executable, "-c", _KNN, *map(str, (TRAIN, TEST, WIDTH))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    name = f"1-NN, {TRAIN:,} × {TEST:,} features of {WIDTH}"
    seconds = f"{found['seconds']:.1f} s (processor time {found['processor']:.1f} s)"
    return [
        Row(f"{name}: seconds", seconds, "a minute", found["seconds"], 60, at_most=True),
        Row(f"{name}: peak memory, GiB", f"{found['gib']:.2f} GiB", "2 GiB", found["gib"], 2, at_most=True),
    ]


def linear_from_cache() -> list[Row]:
    """The paper's 80 epochs on cached crops against encoding new crops in every epoch, same encoder and
    clips.

    Processor time of one thread, in turns: other work on the machine would otherwise hit one of the three
    alone.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    taken: dict[str, list[float]] = {"cold": [], "warm": [], "fresh": []}
    with tempfile.TemporaryDirectory() as folder:
        store = make_synthetic_store(Path(folder) / "store", count=CLIPS, subjects=6)
        inner = build_encoder(EncoderSettings(hidden=HIDDEN, layers=3), store.topology, store.persons)
        encoder = PretrainedEncoder(
            inner, store.topology, frames=64, normalisation=store.normalisation
        ).eval()
        for turn in range(REPEATS):
            cache = FeatureCache(Path(folder) / f"features-{turn}")
            for kind, seconds in taken.items():
                began = time.process_time()
                evaluate(encoder, store, "linear", cache=cache, progress=False, fresh=kind == "fresh")
                seconds.append(time.process_time() - began)
        train = len(store.split("xsub")[0])
    torch.set_num_threads(threads)
    cold, warm, fresh = (statistics.median(seconds) for seconds in taken.values())
    # encodings alone: 80 sets of training crops against 4 sets and the central crops of all clips
    most = 80 * train / (4 * train + CLIPS)
    if fresh / cold > 1.25 * most:
        raise RuntimeError(
            f"{fresh / cold:.1f}× is more than the {most:.1f}× that the encodings allow; measure again"
        )
    name = f"linear evaluation, {HIDDEN} units, 80 epochs"
    return [
        Row(
            f"{name}: features cached vs encoding every epoch",
            f"{warm:.2f} s",
            f"{fresh:.1f} s",
            fresh / warm,
            20,
        ),
        Row(
            f"{name}: features computed once vs every epoch (encodings allow {most:.1f})",
            f"{cold:.2f} s",
            f"{fresh:.1f} s",
            fresh / cold,
        ),
    ]
