"""Components of one's own in one file: an encoder, a loss term, a method, an augmentation, a reader and a
protocol.

    halp prepare paces walks stores/walks --plugin examples/plugin.py
    halp pretrain examples/plugin.toml --plugin examples/plugin.py --data stores/walks
    halp evaluate runs/plugin-seed0 --plugin examples/plugin.py --protocol centroid

Nothing here is part of halp: recipes and commands find the components by the names under which they are
registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halp.extend import (
    BuildContext,
    Clip,
    Info,
    InputError,
    Item,
    Method,
    StepContext,
    StepOutput,
    Topology,
    ViewShape,
    gather,
    get_topology,
    register_augmentation,
    register_encoder,
    register_method,
    register_protocol,
    register_reader,
    register_term,
)


@dataclass(frozen=True)
class PlaneSettings:
    """Width and dropout of the convolutions."""

    width: int = 16
    dropout: float = 0.1


@register_encoder("plane", PlaneSettings)
class PlaneEncoder(nn.Module):
    """Reads a clip as a picture: joints and persons across, time down, coordinates as colours."""

    def __init__(self, settings: PlaneSettings, topology: Topology, persons: int) -> None:
        super().__init__()
        self.output_size = settings.width
        self.layers = nn.Sequential(
            nn.Conv2d(topology.dimensions, settings.width, 3, padding=1, bias=False),
            nn.BatchNorm2d(settings.width),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Conv2d(settings.width, settings.width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(settings.width),
            nn.ReLU(),
        )

    def forward(self, clips: Tensor) -> Tensor:
        return self.layers(clips.flatten(2, 3).permute(0, 3, 1, 2)).amax((2, 3))


@dataclass(frozen=True)
class SpreadSettings:
    """How much the term counts."""

    weight: float = 0.1


@register_term("spread", SpreadSettings)
class Spread(nn.Module):
    """Pushes the queries of a batch apart: log of the mean of exp(−2 · squared distance)."""

    def __init__(self, settings: SpreadSettings, streams: Sequence[str], temperature: float) -> None:
        super().__init__()
        self.weight = settings.weight

    def forward(
        self, streams: Mapping[str, Any], queue: Any, context: StepContext
    ) -> tuple[Tensor, dict[str, Tensor]]:
        losses = {
            name: torch.pdist(batch.query).square().mul(-2).exp().mean().log()
            for name, batch in streams.items()
        }
        metrics = {f"{name}/loss_spread": loss.detach() for name, loss in losses.items()}
        return self.weight * torch.stack(list(losses.values())).sum(), metrics


@dataclass(frozen=True)
class DenoiseSettings:
    """How strong the noise is."""

    noise: float = 0.3


@register_method("denoise", DenoiseSettings)
class Denoise(Method):
    """Tells the mean pose of a clip from a noisy copy of it; one view, no queue, a head of its own."""

    def __init__(self, settings: DenoiseSettings, context: BuildContext) -> None:
        super().__init__()
        self.settings = settings
        (self.stream,) = context.encoder_settings
        self.backbone = context.build_encoder(self.stream)
        size = context.persons * len(context.topology) * context.topology.dimensions
        self.head = nn.Linear(self.backbone.output_size, size)

    def encoders(self) -> dict[str, nn.Module]:
        return {self.stream: self.backbone}

    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        clips = views["clip"]
        shape = (context.batch_size(len(clips)), *clips.shape[1:])
        noise = torch.randn(shape, generator=context.generator)[
            context.rows(len(clips))
        ]  # drawn for the whole batch
        features = self.backbone(clips + self.settings.noise * noise.to(clips))
        error = (self.head(features) - clips.mean(1).flatten(1)).square().mean(1, keepdim=True)
        loss = gather(error, shape[0]).mean()  # over the clips of all processes
        return StepOutput(loss, {"loss": loss.detach()}, {self.stream: features.detach()})


@dataclass(frozen=True)
class LeanSettings:
    """The largest lean."""

    amplitude: float = 0.2


@register_augmentation("lean", LeanSettings)
class Lean:
    """Lets a person lean sideways: x grows with height."""

    def __init__(self, settings: LeanSettings, topology: Topology) -> None:
        self.amplitude = settings.amplitude

    def draw(self, shape: ViewShape, generator: torch.Generator) -> dict[str, Tensor]:
        return {"slope": self.amplitude * (2 * torch.rand(shape.batch, generator=generator) - 1)}

    def apply(self, clips: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        leaning = clips.clone()
        leaning[..., 0] += drawn["slope"].to(clips)[:, None, None, None] * clips[..., -1]
        return leaning


@dataclass(frozen=True)
class PacesSettings:
    """How many frames are invented per file, whether people bob upside down, and which classes are read
    (none: all).
    """

    frames: int = 24
    upside_down: bool = False
    classes: tuple[str, ...] = ()


@register_reader("paces", PacesSettings)
class PacesReader:
    """Text files with a pace in steps per frame become stick figures that bob up and down at it; folders are
    classes.
    """

    description = "one number per file (an example of a reader of one's own)"

    def __init__(self, settings: PacesSettings) -> None:
        self.settings = settings

    def sniff(self, path: Path) -> bool:
        return path.is_dir() and any(path.glob("*/*.pace"))

    def info(self, path: Path) -> Info:
        classes = tuple(sorted({file.parent.name for file in self._files(path)}))
        return Info(topology=get_topology("kinect-v1"), class_names=classes)

    def _files(self, path: Path) -> list[Path]:
        chosen = self.settings.classes
        return sorted(file for file in path.glob("*/*.pace") if not chosen or file.parent.name in chosen)

    def items(self, path: Path) -> Iterable[Item]:
        files = self._files(path)
        classes = sorted({file.parent.name for file in files})
        if not files:
            raise InputError(f"'{path}' holds no .pace files in folders; see examples/plugin.py")
        return [Item(file, (classes.index(file.parent.name), number)) for number, file in enumerate(files)]

    def read(self, item: Item) -> Sequence[Clip]:
        label, number = item.key
        try:
            pace = float(item.path.read_text())
        except ValueError:
            raise InputError(f"'{item.path}' holds no number; write one pace per file") from None
        time = np.arange(self.settings.frames)[:, None, None]
        rest = np.random.default_rng(number).normal(size=(1, 20, 3))
        sign = -1.0 if self.settings.upside_down else 1.0
        bob = sign * np.sin(2 * np.pi * pace * time) * np.linspace(0, 1, 20)[None, :, None]
        joints = (rest + bob * np.array([0.0, 0.0, 1.0])).astype(np.float32)
        name = f"{item.path.parent.name}-{item.path.stem}"
        return [Clip(joints[:, None], name, label=label, subject=number % 4)]


@dataclass(frozen=True)
class CentroidSettings:
    """Whether features are scaled to unit length first."""

    unit: bool = True


@register_protocol("centroid", CentroidSettings)
def centroid(context: Any, settings: CentroidSettings) -> np.ndarray:
    """The class whose mean feature is nearest."""
    lengths = np.linalg.norm(context.features, axis=1, keepdims=True) if settings.unit else 1.0
    features, labels = context.features / lengths, context.train_labels
    classes = np.unique(labels)
    means = np.stack([features[context.train][labels == label].mean(0) for label in classes])
    distance = ((features[context.test][:, None] - means) ** 2).sum(2)
    return classes[distance.argmin(1)]
