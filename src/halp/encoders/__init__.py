"""Encoders: joint clips `(B, T, P, V, C)` → features `(B, F)`, each registered by name with its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halp.core.config import build_settings, field_types, plain
from halp.core.errors import InputError
from halp.core.registry import Component, Registry
from halp.skeleton import Topology
from halp.skeleton.streams import split_stream

ENCODERS: Registry[Component] = Registry("encoder", Component)
#: `@register_encoder("name", Settings)` over `build(settings, topology, persons) → nn.Module` with
#: `output_size`
register_encoder = ENCODERS.register


def check_joints(clips: Tensor, joints: int, coordinates: int) -> torch.Size:
    """The shape `(B, T, P, V, C)` of clips; their joints and coordinates must be those the encoder reads."""
    if clips.shape[3:] != (joints, coordinates):
        raise InputError(
            f"the encoder reads {joints} joints with {coordinates} coordinates; clips of shape"
            f" {tuple(clips.shape)} have {clips.shape[3]} with {clips.shape[4]}; was it trained on another"
            " topology?"
        )
    return clips.shape


@dataclass(frozen=True, init=False)
class EncoderSettings:
    """The encoder of a recipe: its registered name and its settings; anything else is refused.

    >>> import halp.encoders
    >>> EncoderSettings("gru", hidden=8).hidden
    8
    >>> EncoderSettings("stgcn", direction="causal")
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: unknown setting 'encoder.direction': ...Known here: encoder.output, ...
    """

    name: str
    settings: Any

    def __init__(self, name: str = "gru", prefix: str = "encoder.", **settings: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "settings", build_settings(ENCODERS[name].settings, settings, prefix))

    def __getattr__(self, name: str) -> Any:
        if name in ("settings", "name") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.settings, name)

    def to_plain(self) -> dict[str, Any]:
        return {"name": self.name, **plain(self.settings)}


def list_architectures() -> list[str]:
    """Names of all encoder architectures, those of plugins included.

    Returns
    -------
    list of str
        What `encoder.name` of a recipe may be.

    Examples
    --------
    >>> "gru" in list_architectures()
    True
    """
    return list(ENCODERS)


def build_encoder(settings: EncoderSettings, topology: Topology, persons: int) -> Any:
    """Build a fresh encoder.

    Parameters
    ----------
    settings : EncoderSettings
        Its registered name and its settings.
    topology : Topology
        Joint layout of the clips.
    persons : int
        How many of them a clip has.

    Returns
    -------
    nn.Module
        `(B, T, P, V, C)` → `(B, output_size)`.

    Examples
    --------
    >>> from halp.skeleton import get_topology
    >>> build_encoder(EncoderSettings("gru", hidden=8), get_topology("kinect-v1"), 1).output_size
    16
    """
    return ENCODERS[settings.name].build(settings.settings, topology, persons)


def encoder_of(
    stream: str, default: EncoderSettings, labelled: Mapping[str, EncoderSettings]
) -> EncoderSettings:
    """Settings of a representation's encoder: `joint` has the default, `joint@stgcn` those named `stgcn`."""
    _, label = split_stream(stream)
    if label and label not in labelled:
        raise InputError(
            f"stream '{stream}' needs encoder '{label}', which has no settings; add a section"
            f" [encoders.{label}] (there are: {', '.join(labelled) or 'none'})"
        )
    return labelled[label] if label else default


def require_abilities(encoder: Any, name: str, needed: Sequence[str], why: str) -> None:
    """Refuse an encoder that lacks an ability that a method needs.

    Encoders with a feature map before pooling have `sequence(clips)` and `pool(map)`; if it is a sequence of
    frames
    `(B, T, frame_size)`, also `frame_size`.
    """
    lacking = [ability for ability in needed if not hasattr(encoder, ability)]
    if lacking:
        raise InputError(
            f"{why}, and encoder '{name}' has no {' and no '.join(map(repr, lacking))}; choose an encoder"
            " that does"
        )


def centre_joint(topology: Topology) -> int:
    """Index of the joint that locates the body: the topology's centre, else its first root."""
    if topology.centre:
        return topology.index(topology.centre)
    return next(joint for joint, parent in enumerate(topology.parents) if joint == parent)


def has_setting(encoder: str, name: str) -> bool:
    """Whether an encoder has a setting of that name."""
    return name in field_types(ENCODERS[encoder].settings)


from halp.encoders import branches, fusion, gru, kernel_fusion, lifted, stgcn, transformer  # noqa: E402, F401  (they register)
