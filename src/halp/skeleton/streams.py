"""Streams: modalities derived from joint coordinates, and how a representation is named."""

from __future__ import annotations

import torch
from torch import Tensor

from halp.core.errors import InputError, check_choice
from halp.skeleton import Topology

STREAMS = ("joint", "motion", "bone")


def split_stream(name: str) -> tuple[str, str]:
    """Stream and encoder label of a representation; a plain stream has no label.

    >>> split_stream("joint@stgcn"), split_stream("bone")
    (('joint', 'stgcn'), ('bone', ''))
    """
    stream, at, label = name.partition("@")
    check_choice("stream", stream, STREAMS)
    if at and not label.isidentifier():
        raise InputError(f"stream '{name}' must be written stream@encoder, for example joint@stgcn")
    return stream, label


def derive(clips: Tensor, stream: str, topology: Topology) -> Tensor:
    """A stream of joint clips: `joint`, `motion` x(t+1) − x(t) (0 at the end), `bone` x − x(parent)."""
    stream, _ = split_stream(stream)
    if stream == "joint":
        return clips
    if stream == "motion":
        motion = torch.zeros_like(clips)
        torch.sub(clips[:, 1:], clips[:, :-1], out=motion[:, :-1])
        return motion
    return clips - clips[:, :, :, list(topology.parents)]
