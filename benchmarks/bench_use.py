"""What using an encoder costs: embedding against the encoder alone, search over many windows, a live stride.

`HALP_BENCH_VECTORS` sets the number of vectors that are searched (default: a million, which takes minutes to
index).
"""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness import Row, interleaved
from halp.data.store import Store
from halp.data.synthetic import make_synthetic_store
from halp.encoders import EncoderSettings
from halp.encoders.pretrained import PretrainedEncoder, build_architecture
from halp.features.encode import embed_blocks
from halp.features.opening import open_source
from halp.tasks.classify import fit
from halp.tasks.index import recall_of, search_exactly
from halp.tasks.index_update import update_index
from halp.tasks.live import LiveRecognition

CLIPS = 512
WIDTH = 192  # numbers per vector: as the recipe `small` gives
QUERIES = 200


def rows() -> list[Row]:
    """Embedding, search and streaming."""
    with tempfile.TemporaryDirectory() as folder:
        store = make_synthetic_store(Path(folder) / "store", count=CLIPS)
        return [_embedding(store), *_search(Path(folder)), _streaming(store)]


def _encoder(store: Store) -> PretrainedEncoder:
    architecture = EncoderSettings("gru", hidden=96, layers=2, pooling="mean").to_plain()
    inner = build_architecture(architecture, store.topology, store.persons)
    return PretrainedEncoder(
        inner,
        store.topology,
        persons=store.persons,
        frames=32,
        normalisation=store.normalisation,
        architecture=architecture,
    ).eval()


def _embedding(store: Store) -> Row:
    """Clips per second from a store on disk, as a share of the encoder on tensors in memory."""
    encoder = _encoder(store)
    shape = (256, encoder.frames, store.persons, len(store.topology), store.topology.dimensions)
    batch = torch.randn(shape)

    def alone() -> None:
        with torch.inference_mode():
            for _ in range(CLIPS // len(batch)):
                encoder(batch)

    def from_store() -> None:
        for _ in embed_blocks(encoder, open_source(store), progress=False):
            pass

    ours, reference = interleaved(from_store, alone, repeats=15, warm_up=2)
    return Row(
        "embedding, share of the encoder alone",
        f"{CLIPS / ours:.0f} clips/s from a store",
        f"{CLIPS / reference:.0f} clips/s in memory",
        reference / ours,
        0.9,
    )


def _vectors(count: int) -> npt.NDArray[np.float32]:
    """Windows of many recordings: neighbouring windows are alike, recordings of one movement too."""
    draw = np.random.default_rng(0)
    movements = draw.normal(size=(500, 24))
    spread = draw.normal(size=(24, WIDTH)).astype(np.float32)
    found = np.empty((count, WIDTH), dtype=np.float32)
    for first in range(0, count, 50_000):
        size = min(50_000, count - first)
        inner = movements[draw.integers(0, 500, size)] + 0.5 * draw.normal(size=(size, 24))
        found[first : first + size] = inner.astype(np.float32) @ spread + 0.3 * draw.normal(
            size=(size, WIDTH)
        )
    return found


def _search(folder: Path) -> list[Row]:
    count = int(os.environ.get("HALP_BENCH_VECTORS", "1000000"))
    vectors = _vectors(count)
    queries = vectors[:: max(1, count // QUERIES)][:QUERIES] + 0.05
    index = update_index(folder, vectors)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    exact, _ = search_exactly(vectors, queries, 10)
    recall = recall_of(index.search(queries, 10)[0], exact)
    one = queries[:1]
    ours, reference = interleaved(
        lambda: index.search(one, 10), lambda: search_exactly(vectors, one, 10), repeats=20, warm_up=2
    )
    size = sum(file.stat().st_size for file in folder.glob("*.faiss")) / 1e6
    return [
        Row(
            f"search over {count} windows, ms per query",
            f"{1000 * ours:.2f} ms, index {size:.0f} MB, built in {index.facts.build_seconds:.0f} s with"
            f" {memory:.0f} MB",
            f"{1000 * reference:.1f} ms exactly",
            1000 * ours,
            50.0,
            at_most=True,
        ),
        Row(f"search over {count} windows, recall@10", f"{recall:.3f}", "1 exactly", recall, 0.95),
    ]


def _streaming(store: Store) -> Row:
    """Milliseconds from the last frame of a stride to its answer, as a share of a stride of a quarter
    second.
    """
    model = fit(_encoder(store), store, kind="prototypes", progress=False)
    live = LiveRecognition(model, fps=30.0, window=2.0, stride=0.25)
    answers = [live.push(frame) for clip in range(20) for frame in store.clip(clip)]
    spent, high = np.quantile(
        [answer.more["milliseconds"] for answer in answers if answer is not None], [0.5, 0.95]
    )
    return Row(
        "live, time per stride as a share of it",
        f"{spent:.1f} ms (95 %: {high:.1f} ms)",
        "250 ms",
        float(spent) / 250,
        1.0,
        at_most=True,
    )
