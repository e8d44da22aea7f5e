"""An encoder that was never trained is enough to test what is done with encoders."""

from __future__ import annotations

from typing import Any

import torch

from halp.data.store import Store
from halp.encoders import EncoderSettings
from halp.encoders.pretrained import PretrainedEncoder, build_architecture


def fresh_encoder(
    store: Store, *, stream: str = "joint", frames: int = 16, **settings: Any
) -> PretrainedEncoder:
    """A small encoder with random weights for the clips of a store."""
    small = {"hidden": 16, "layers": 1, "pooling": "mean"} if settings.get("name", "gru") == "gru" else {}
    architecture = EncoderSettings(**{**small, **settings}).to_plain()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inner = build_architecture(architecture, store.topology, store.persons)
    return PretrainedEncoder(
        inner,
        store.topology,
        stream=stream,
        persons=store.persons,
        frames=frames,
        normalisation=store.normalisation,
        architecture=architecture,
        origin={"run": "/somewhere/else/run", "recipe": "none"},
    ).eval()
