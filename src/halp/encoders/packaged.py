"""An encoder that knows what it was trained on, and the package: an encoder to hand on, as a folder of two files.

`config.json` says what the encoder is (architecture, topology, stream, persons, frames, normalisation, provenance, hash of
the weights), `model.safetensors` holds the weights. Nothing is pickled, and nothing is imported because a file names it:
the architecture is looked up among the encoders that are registered already.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from halp._version import __version__
from halp.clips.normalise import check_steps
from halp.clips.store import topology_from_json
from halp.encoders import EncoderSettings, build_encoder
from halp.errors import InputError
from halp.files import read_json, sha256, write_json, write_text
from halp.skeleton import Topology
from halp.streams import derive, split_stream
from halp.tensor_files import save_tensors

FORMAT = "halp-encoder"
VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


class PackagedEncoder(nn.Module):
    """Joint clips `(B, T, P, V, C)` → features `(B, F)`; it derives its own stream. Fewer persons are filled with zeros.

    `architecture` is the encoder's registered name and its settings; an encoder without it works, but cannot be exported.
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
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.topology, self.stream, self.persons, self.frames = topology, stream, persons, frames
        self.normalisation = list(normalisation)
        self.origin = dict(origin or {})
        self.architecture = dict(architecture or {})

    @property
    def output_size(self) -> int:
        return int(self.encoder.output_size)

    def forward(self, clips: Tensor) -> Tensor:
        expected = (len(self.topology), self.topology.dimensions)
        if clips.ndim != 5 or tuple(clips.shape[3:]) != expected or clips.shape[2] > self.persons:
            raise InputError(
                f"this encoder takes clips (batch, frames, persons ≤ {self.persons}, joints = {expected[0]}, coordinates = "
                f"{expected[1]}) of topology '{self.topology.name}', not a tensor of shape {tuple(clips.shape)}; "
                "map the clips onto that topology by joint name first"
            )
        if clips.shape[2] < self.persons:
            clips = nn.functional.pad(clips, (0, 0, 0, 0, 0, self.persons - clips.shape[2]))
        return self.encoder(self._derived(clips))

    def _derived(self, clips: Tensor) -> Tensor:
        if torch.jit.is_tracing() and split_stream(self.stream)[0] == "motion":
            # a trace does not see what is written into a part of a tensor, which is how `derive` saves a copy
            return nn.functional.pad(clips[:, 1:] - clips[:, :-1], (0, 0, 0, 0, 0, 0, 0, 1))
        return derive(clips, self.stream, self.topology)


def find_package(source: str | os.PathLike[str]) -> Path | None:
    """The package folder that a path or the name of a shipped encoder means; None where it is something else."""
    path = Path(source)
    if path.exists():
        # a classifier carries the package of its encoder
        path = path / "encoder" if (path / "encoder" / CONFIG).is_file() else path
        return path if (path / CONFIG).is_file() and (path / WEIGHTS).is_file() else None
    return list_shipped().get(str(source))


def list_shipped() -> dict[str, Path]:
    """Encoders that come with halp, by name; they are read from disk, never from a network."""
    home = Path(str(files("halp.encoders"))) / "shipped"
    return {path.name: path for path in sorted(home.glob("*")) if (path / CONFIG).is_file()}


def write_package(encoder: PackagedEncoder, folder: Path, *, card: str = "") -> None:
    """Write the files of a package into a folder that exists."""
    save_tensors(encoder.encoder.state_dict(), folder / WEIGHTS)
    write_json(folder / CONFIG, {**describe(encoder), "weights": {"file": WEIGHTS, "sha256": sha256(folder / WEIGHTS)}})
    if card:
        write_text(folder / CARD, card)


def describe(encoder: PackagedEncoder) -> dict[str, Any]:
    """What `config.json` says of an encoder, without the hash of the weights."""
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
    """Where an encoder comes from, without the folders of the machine it was trained on."""
    shown = {key: Path(value).name if key == "run" else value for key, value in origin.items()}
    return shown | ({"initialised": _public(origin["initialised"])} if "initialised" in origin else {})


def load_package(path: str | os.PathLike[str], stream: str | None = None) -> PackagedEncoder:
    """Read a package, in evaluation mode; it is refused where a field, the hash or a shape is not what it says."""
    path = Path(path)
    config = read_json(path / CONFIG)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(
            f"'{path}' is not an encoder package (format {FORMAT}); make one with `halp export RUN {path}`"
        )
    if config.get("version") != VERSION:
        raise InputError(
            f"package '{path}' has version {config.get('version')!r}, this version of halp reads {VERSION}; export it again"
        )
    weights = _read_weights(path, config)
    try:
        encoder = _build(config, weights)
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
        raise InputError(f"package '{path}' reads stream '{encoder.stream}', not '{stream}'; leave the stream out")
    return encoder.eval()


def _read_weights(path: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Weights whose hash is the one of `config.json`."""
    stated = config.get("weights")
    try:
        if not isinstance(stated, dict) or sha256(path / WEIGHTS) != stated.get("sha256"):
            raise InputError(
                f"package '{path}' is damaged: {WEIGHTS} does not have the hash that {CONFIG} states; fetch or export it again"
            )
        weights = load_file(path / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"'{path / WEIGHTS}' cannot be read ({error}); fetch or export the package again") from error
    for name, value in weights.items():
        if not bool(torch.isfinite(value).all()):
            raise InputError(f"package '{path}': '{name}' holds a number that is not finite; export it again")
    return weights


def _build(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> PackagedEncoder:
    """The encoder that `config.json` describes with these weights."""
    for name in ("persons", "frames"):
        if type(config[name]) is not int or not 1 <= config[name] <= 10_000:
            raise InputError(f"{name} = {config[name]!r} has to be a whole number above 0")
    topology = topology_from_json(config["topology"])
    if topology.dimensions not in (2, 3) or not len(topology):
        raise InputError(f"a topology of {len(topology)} joints with {topology.dimensions} coordinates is not possible")
    split_stream(str(config["stream"]))
    architecture, provenance = config["encoder"], config["provenance"]
    if not isinstance(architecture, dict) or not isinstance(provenance, dict):
        raise InputError("the fields 'encoder' and 'provenance' have to be objects")
    # without memory first: sizes that the weights do not have are found before anything is allocated
    with torch.device("meta"):
        _refuse_misfit(build_architecture(architecture, topology, config["persons"]), weights)
    inner = build_architecture(architecture, topology, config["persons"])
    inner.load_state_dict(dict(weights))
    return PackagedEncoder(
        inner,
        topology,
        stream=str(config["stream"]),
        persons=config["persons"],
        frames=config["frames"],
        normalisation=check_steps([str(step) for step in config["normalisation"]]),
        origin=provenance,
        architecture=architecture,
    )


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
        raise InputError(f"the weights '{name}' have shape {found.get(name)}, the architecture {expected.get(name)}")
