"""What using an encoder costs: embedding against the encoder alone, and a live stride."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Row, interleaved
from halp.data.store import Store
from halp.data.synthetic import make_synthetic_store
from halp.encoders import EncoderSettings
from halp.encoders.pretrained import PretrainedEncoder, build_architecture
from halp.features.encode import embed_blocks
from halp.features.opening import open_source
from halp.tasks.classify import fit
from halp.tasks.live import LiveRecognition

CLIPS = 512


def rows() -> list[Row]:
    """Embedding and live recognition."""
    with tempfile.TemporaryDirectory() as folder:
        store = make_synthetic_store(Path(folder) / "store", count=CLIPS)
        return [_embedding(store), _live(store)]


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


def _live(store: Store) -> Row:
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
