"""ST-GCN, the graph encoder of CrosSCLR and ISC: convolutions over skeleton and time, for any topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.core.config import CheckedSettings, limited
from halp.core.initialisation import initialise_normal
from halp.encoders import check_joints, register_encoder
from halp.skeleton import Topology

BLOCKS = (4, 3)  # blocks of the first stage, and of every later one
INITIALISATIONS = ("torch", "normal")
PARTITIONS = ("distance", "one-hop")
TAPS = 9  # frames that a temporal convolution sees


def spatial_graph(parents: Sequence[int], partition: str = "distance") -> Tensor:
    """The skeleton's graph `(3, V, V)` by direction: the joint itself, its parent, its children.

    Entry (k, v, w) is the weight of joint v in joint w; over k and v the weights of a joint w sum to one. A
    root is its own parent. `one-hop` is what the public code of CrosSCLR and AimCLR computes: it knows
    distances to the root up to one, so that edges between joints further out count as neighbours at the same
    distance, which share a part with children.

    >>> spatial_graph([0, 0, 0])[:, :, 0]
    tensor([[0.3333, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.0000],
            [0.0000, 0.3333, 0.3333]])
    """
    joints = len(parents)
    graph = torch.zeros(3, joints, joints)
    for joint, parent in enumerate(parents):
        graph[0, joint, joint] = 1
        if parent != joint:
            known = partition == "distance" or parents[parent] in (parent, parents[parents[parent]])
            graph[1 if known else 2, parent, joint] = 1
            graph[2, joint, parent] = 1
    return graph / graph.sum((0, 1))


@dataclass(frozen=True)
class STGCNSettings(CheckedSettings):
    """The quarter-width network of the literature by default."""

    output: int = limited(256, least=1)  # channels of the last block, the size of the features
    stages: int = limited(3, least=1)
    input_norm: bool = True
    # after the second normalisation of every block but the first
    dropout: float = limited(0.0, least=0, below=1)
    # neighbours inwards and outwards, by the paper; one-hop: as the public code tells them apart
    partition: str = limited("distance", among=PARTITIONS)
    # how weights begin; normal: as in the public code of CrosSCLR and AimCLR
    initialisation: str = limited("torch", among=INITIALISATIONS)


class Block(nn.Module):
    """A spatial and a temporal convolution with a residual: `(N, T, V, C)` → `(N, ⌈T / stride⌉, V, D)`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        graph: Tensor,
        stride: int = 1,
        residual: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.stride, self.residual = stride, residual
        # learned weights of the edges multiply the graph, as in the published network
        self.importance = nn.Parameter(torch.ones_like(graph))
        self.mix = nn.Linear(inputs, len(graph) * outputs)
        self.mix_norm = nn.BatchNorm1d(outputs)
        self.time = nn.Conv2d(outputs, outputs, (TAPS, 1), (stride, 1), (TAPS // 2, 0))
        self.time_norm = nn.BatchNorm1d(outputs)
        self.dropout = nn.Dropout(dropout)
        change = residual and (inputs != outputs or stride != 1)
        self.skip = nn.Linear(inputs, outputs) if change else None
        self.skip_norm = nn.BatchNorm1d(outputs) if change else None

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        batch, frames, joints, _ = x.shape
        # message passing: every joint sends one message per kind of edge; the adjacency sums what arrives at
        # each joint
        messages = self.mix(x).view(batch * frames, joints * len(graph), -1)
        adjacency = (graph * self.importance).permute(2, 1, 0).flatten(1)
        out = torch.bmm(adjacency.expand(messages.shape[0], -1, -1), messages).view(batch, frames, joints, -1)
        out = F.relu(_normalised(self.mix_norm, out))
        out = self.time(out.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        out = self.dropout(_normalised(self.time_norm, out))
        if self.skip is not None and self.skip_norm is not None:
            out = out + _normalised(self.skip_norm, self.skip(x[:, :: self.stride]))
        elif self.residual:
            out = out + x
        return F.relu(out)


class STGCNEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, output)`, the last map averaged over persons, time, joints.

    `output` 256 with 3 stages is the quarter-width network of the literature: 16, 32 and 64 channels, then
    256. Width is output / 16 and doubles with every stage, where time is halved.
    """

    def __init__(self, parents: Sequence[int], coordinates: int, settings: STGCNSettings) -> None:
        super().__init__()
        stages, output = settings.stages, settings.output
        self.joints, self.coordinates, self.output_size = len(parents), coordinates, output
        self.register_buffer("graph", spatial_graph(parents, settings.partition), persistent=False)
        self.input_norm = nn.BatchNorm1d(self.joints * coordinates) if settings.input_norm else None
        self.blocks = nn.ModuleList()
        width = coordinates
        for stage in range(stages):
            number = BLOCKS[min(stage, 1)]
            for block in range(number):
                last = stage == stages - 1 and block == number - 1
                outputs = output if last else max(1, output // 16) << stage
                stride = 2 if stage and block == 0 else 1
                first = not (stage or block)
                graph = self.get_buffer("graph")
                self.blocks.append(
                    Block(width, outputs, graph, stride, not first, 0.0 if first else settings.dropout)
                )
                width = outputs

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, P, T', V, output)`."""
        batch, frames, persons, joints, coordinates = check_joints(clips, self.joints, self.coordinates)
        x = clips.transpose(1, 2).reshape(batch * persons, frames, joints, coordinates)
        if self.input_norm is not None:
            x = self.input_norm(x.reshape(-1, joints * coordinates)).view_as(x)
        for block in self.blocks:
            x = cast(Block, block)(x, self.get_buffer("graph"))
        return x.unflatten(0, (batch, persons))

    def pool(self, x: Tensor) -> Tensor:
        """Reduce a feature map over persons, time and joints."""
        return x.mean((1, 2, 3))


def _normalised(norm: nn.Module, x: Tensor) -> Tensor:
    """BatchNorm over the last axis, as rows `(N, C)`, which the synchronised version takes as well."""
    return norm(x.reshape(-1, x.shape[-1])).view(x.shape)


@register_encoder("stgcn", STGCNSettings)
def build_stgcn(settings: STGCNSettings, topology: Topology, persons: int) -> nn.Module:
    """ST-GCN for a topology; persons share its weights."""
    encoder = STGCNEncoder(topology.parents, topology.dimensions, settings)
    return initialise_normal(encoder) if settings.initialisation == "normal" else encoder
