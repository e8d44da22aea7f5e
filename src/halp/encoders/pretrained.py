"""A pretrained encoder with its provenance, and the package: an encoder as a folder of two files.

`config.json` says what the encoder is (architecture, topology, stream, persons, frames, normalisation,
provenance, hash of the weights), `model.safetensors` holds the weights; `compact.safetensors`, if it is
there, a projection to fewer numbers, which `compacted` puts behind the encoder. Nothing is pickled, and
nothing is imported because a file names it: the architecture is looked up among the encoders that are
registered already.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import read_json, save_tensors, sha256, write_json, write_text
from halp.core.packages import CARD, COMPACT, CONFIG, WEIGHTS
from halp.data.normalise import check_steps
from halp.data.store import topology_from_json
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.fusion import Projection
from halp.skeleton import Topology
from halp.skeleton.streams import derive, split_stream

FORMAT = "halp-encoder"
#: Frames and persons that a package may read: memory grows with both before a weight is looked at.
LARGEST_INPUT = {"persons": 20, "frames": 2048}
#: Settings of encoders that count modules, of which each has weights.
REPEATED = ("layers", "depth", "blocks", "stages")
VERSION = 1


class PretrainedEncoder(nn.Module):
    """Joint clips `(B, T, P, V, C)` → features `(B, F)`; it derives its own stream.

    Parameters
    ----------
    encoder : nn.Module
        The network itself, with `output_size`.
    topology : Topology
        Joint layout of the clips.
    stream : str
        What it sees of them: joint, motion or bone.
    persons, frames : int
        How many of each it reads; fewer persons are filled up with zeros.
    normalisation : sequence of str
        Steps that clips must be through.
    origin : mapping
        If it comes from, for results.
    architecture : mapping
        The encoder's registered name and its settings; without it an encoder works, but cannot be exported.
    projection : mapping of tensors
        Those of a `Projection` of its features, for `compacted`; the encoder itself does not use it.
    """

    def __init__(
        self,
        encoder: Any,
        topology: Topology,
        *,
        stream: str = "joint",
        persons: int = 2,
        frames: int = 64,
        normalisation: Sequence[str] = (),
        origin: Mapping[str, Any] | None = None,
        architecture: Mapping[str, Any] | None = None,
        projection: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.topology, self.stream, self.persons, self.frames = topology, stream, persons, frames
        self.normalisation = list(normalisation)
        self.origin = dict(origin or {})
        self.architecture = dict(architecture or {})
        self.projection = dict(projection or {})

    @property
    def output_size(self) -> int:
        return int(self.encoder.output_size)

    def forward(self, clips: Tensor) -> Tensor:
        expected = (len(self.topology), self.topology.dimensions)
        if clips.ndim != 5 or tuple(clips.shape[3:]) != expected or clips.shape[2] > self.persons:
            raise InputError(
                f"this encoder takes clips (batch, frames, persons ≤ {self.persons}, joints = {expected[0]},"
                f" coordinates = {expected[1]}) of topology '{self.topology.name}', not a tensor of shape"
                f" {tuple(clips.shape)}; map the clips onto that topology by joint name first"
            )
        if clips.shape[2] < self.persons:
            clips = nn.functional.pad(clips, (0, 0, 0, 0, 0, self.persons - clips.shape[2]))
        return self.encoder(self._derived(clips))

    def around(self, network: Any, origin: Mapping[str, Any]) -> PretrainedEncoder:
        """Another network that reads the same clips, in evaluation mode; it cannot be exported."""
        facts: dict[str, Any] = {"stream": self.stream, "persons": self.persons, "frames": self.frames}
        return PretrainedEncoder(
            network, self.topology, normalisation=self.normalisation, origin=origin, **facts
        ).eval()

    def _derived(self, clips: Tensor) -> Tensor:
        if torch.jit.is_tracing() and split_stream(self.stream)[0] == "motion":
            # a trace does not see what is written into a part of a tensor, which is how `derive` saves a copy
            return nn.functional.pad(clips[:, 1:] - clips[:, :-1], (0, 0, 0, 0, 0, 0, 0, 1))
        return derive(clips, self.stream, self.topology)


class RawCoordinates(PretrainedEncoder):
    """No encoder: the resized coordinates of a stream, flattened. A baseline for learned features."""

    def __init__(
        self,
        topology: Topology,
        *,
        stream: str = "joint",
        persons: int = 2,
        frames: int = 32,
        normalisation: Sequence[str] = (),
    ) -> None:
        shape = {"stream": stream, "persons": persons, "frames": frames}
        super().__init__(nn.Identity(), topology, **shape, normalisation=normalisation)  # type: ignore[arg-type]
        self.origin = {"raw": True}

    @property
    def output_size(self) -> int:
        return self.frames * self.persons * len(self.topology) * self.topology.dimensions

    def forward(self, clips: Tensor) -> Tensor:
        return derive(clips, self.stream, self.topology).flatten(1)


class Compacted(nn.Module):
    """An encoder and the projection of its features."""

    def __init__(self, encoder: Any, projection: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.encoder = encoder
        self.projection = Projection(*projection["matrix"].shape)
        self.projection.load_state_dict(dict(projection))
        self.output_size = projection["matrix"].shape[1]

    def forward(self, clips: Tensor) -> Tensor:
        return self.projection(self.encoder(clips))


def compacted(encoder: PretrainedEncoder) -> PretrainedEncoder:
    """The encoder for search and groups: with the projection of its package, if it has one."""
    if not encoder.projection:
        return encoder
    network = Compacted(encoder.encoder, encoder.projection).to(next(encoder.parameters()).device)
    return encoder.around(network, encoder.origin)


def write_package(encoder: PretrainedEncoder, folder: Path, *, card: str = "") -> None:
    """Write the files of a package into a folder that exists."""
    save_tensors(encoder.encoder.state_dict(), folder / WEIGHTS)
    files = {"weights": WEIGHTS}
    if encoder.projection:
        save_tensors(encoder.projection, folder / COMPACT)
        files["compact"] = COMPACT
    hashes = {part: {"file": name, "sha256": sha256(folder / name)} for part, name in files.items()}
    write_json(folder / CONFIG, {**describe(encoder), **hashes})
    if card:
        write_text(folder / CARD, card)


def describe(encoder: PretrainedEncoder) -> dict[str, Any]:
    """The content of `config.json` about an encoder, without the hash of the weights."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "encoder": encoder.architecture,
        "topology": dataclasses.asdict(encoder.topology),
        "stream": encoder.stream,
        "persons": encoder.persons,
        "frames": encoder.frames,
        "normalisation": encoder.normalisation,
        "features": encoder.output_size,
        "provenance": {"halp": __version__, "torch": torch.__version__, **_public(encoder.origin)},
    }


def _public(origin: Mapping[str, Any]) -> dict[str, Any]:
    """The origin of an encoder without folders of the machine it was trained on."""
    shown = {key: Path(value).name if key == "run" else value for key, value in origin.items()}
    return shown | ({"initialised": _public(origin["initialised"])} if "initialised" in origin else {})


def load_package(path: str | os.PathLike[str], stream: str | None = None) -> PretrainedEncoder:
    """Read a package, in evaluation mode; it is refused if a field, the hash or a shape does not match."""
    path = Path(path)
    config = read_json(path / CONFIG)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(
            f"'{path}' is not an encoder package (format {FORMAT}); make one with `halp export RUN {path}`"
        )
    if config.get("version") != VERSION:
        raise InputError(
            f"package '{path}' has version {config.get('version')!r}, this version of halp reads {VERSION};"
            " export it again"
        )
    weights = _read_tensors(path, config, "weights", WEIGHTS)
    projection = _read_tensors(path, config, "compact", COMPACT) if "compact" in config else {}
    try:
        encoder = _build(config, weights)
        if projection:
            with torch.device("meta"):
                _refuse_misfit(Projection(encoder.output_size, projection["matrix"].shape[1]), projection)
            encoder.projection = projection
    except (
        InputError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RuntimeError,
        OverflowError,
    ) as error:
        what = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"package '{path}': config.json does not fit ({what}); export it again") from error
    if stream is not None and stream != encoder.stream:
        raise InputError(f"package '{path}' reads stream '{encoder.stream}', not '{stream}'; omit the stream")
    return encoder.eval()


def _read_tensors(path: Path, config: Mapping[str, Any], part: str, file: str) -> dict[str, Tensor]:
    """Tensors of a file whose hash is the one that `config.json` states for a part."""
    stated = config.get(part)
    try:
        if not isinstance(stated, dict) or sha256(path / file) != stated.get("sha256"):
            raise InputError(
                f"package '{path}' is damaged: {file} does not have the hash that {CONFIG} states; fetch or"
                " export it again"
            )
        weights = load_file(path / file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"'{path / file}' cannot be read ({error}); fetch or export it again") from error
    for name, value in weights.items():
        if not bool(torch.isfinite(value).all()):
            raise InputError(f"package '{path}': '{name}' holds a number that is not finite; export it again")
    return weights


def _build(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> PretrainedEncoder:
    """The encoder that `config.json` describes with these weights."""
    for name, largest in LARGEST_INPUT.items():
        if type(config[name]) is not int or not 1 <= config[name] <= largest:
            raise InputError(f"{name} = {config[name]!r} must be a whole number from 1 to {largest:,}")
    topology = topology_from_json(config["topology"])
    if topology.dimensions not in (2, 3) or not len(topology):
        raise InputError(f"{len(topology)} joints with {topology.dimensions} coordinates are not possible")
    split_stream(str(config["stream"]))
    architecture, provenance = config["encoder"], config["provenance"]
    if not isinstance(architecture, dict) or not isinstance(provenance, dict):
        raise InputError("the fields 'encoder' and 'provenance' must be objects")
    _refuse_deep(architecture, weights)
    # without memory first: sizes that the weights do not have are found before anything is allocated
    with torch.device("meta"):
        _refuse_misfit(build_architecture(architecture, topology, config["persons"]), weights)
    inner = build_architecture(architecture, topology, config["persons"])
    inner.load_state_dict(dict(weights))
    return PretrainedEncoder(
        inner,
        topology,
        stream=str(config["stream"]),
        persons=config["persons"],
        frames=config["frames"],
        normalisation=check_steps([str(step) for step in config["normalisation"]]),
        origin=provenance,
        architecture=architecture,
    )


def _refuse_deep(architecture: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Refuse repetitions that the weights cannot fill: building thousands of layers takes minutes."""
    for name, value in architecture.items():
        if isinstance(value, dict):
            _refuse_deep(value, weights)
        elif name in REPEATED and type(value) is int and value > len(weights):
            raise InputError(f"encoder.{name} = {value} is impossible with {len(weights)} weights")


def build_architecture(architecture: Mapping[str, Any], topology: Topology, persons: int) -> Any:
    """A fresh encoder by its registered name and settings."""
    settings = {str(key): value for key, value in architecture.items() if key != "name"}
    return build_encoder(EncoderSettings(str(architecture.get("name", "gru")), **settings), topology, persons)


def _refuse_misfit(inner: nn.Module, weights: Mapping[str, Tensor]) -> None:
    expected = {name: tuple(value.shape) for name, value in inner.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    wrong = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    if wrong:
        name = wrong[0]
        raise InputError(f"weights '{name}' have shape {found.get(name)}, the encoder {expected.get(name)}")
