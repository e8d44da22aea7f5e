"""The preparation of `halp.features.ready` as torch operations, for exported files.

Everything is computed for a whole batch, with shapes that are known only when the graph runs: frames and
persons are counted, never unrolled, and frames are dropped by moving them to the end. Each step has the name
and the meaning of the step in
`halp.data.normalise`; tests compare the two on random recordings.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.data.text_files import LARGEST_COORDINATE
from halp.features.graph_steps import GRAPH_STEPS, motion_energy, pick, present, seen_joints
from halp.skeleton import Topology, joint_recipes

SHARE = 0.95  # central part of a clip that is read


class PrepareGraph(nn.Module):
    """Key points `(B, T, P, V, C)`, NaN, beyond ±10⁷ or zeros if missing → clips `(B, frames, persons, W, C)`.

    Parameters
    ----------
    source, target : Topology
        Layout of the points and of the encoder.
    persons, frames : int
        What the encoder reads.
    steps : sequence of str
        Its normalisation; a step that is not in `GRAPH_STEPS` is refused by name.
    """

    weights: Tensor
    parts: Tensor

    def __init__(
        self, source: Topology, target: Topology, persons: int, frames: int, steps: Sequence[str]
    ) -> None:
        super().__init__()
        self.source, self.target, self.persons, self.frames, self.steps = (
            source,
            target,
            persons,
            frames,
            tuple(steps),
        )
        unknown = [step for step in steps if step not in GRAPH_STEPS]
        if unknown:
            raise InputError(
                f"the step '{unknown[0]}' of the encoder's normalisation cannot be put into an ONNX file,"
                f" only {', '.join(sorted(GRAPH_STEPS))}; leave out --onnx"
            )
        recipes = joint_recipes(source, target)
        rows = [[recipes[joint].get(part, 0.0) for part in source.joints] for joint in target.joints]
        self.register_buffer("weights", torch.tensor(rows).T.contiguous(), persistent=False)
        self.register_buffer("parts", (self.weights > 0).float(), persistent=False)

    def forward(self, points: Tensor) -> Tensor:
        known = (points.abs() <= LARGEST_COORDINATE).all(-1, keepdim=True)  # not so for NaN
        raw = torch.where(known, points, torch.zeros_like(points))
        x = self._ordered(self._mapped(raw), raw)
        # frames of each clip that are left
        count = torch.ones_like(x[:, :, 0, 0, 0], dtype=torch.int64).sum(1)
        for step in self.steps:
            x, count = GRAPH_STEPS[step](x, count, self.target)
        return resized(x, count, self.frames)

    def _mapped(self, x: Tensor) -> Tensor:
        """Joints by name; a joint made of several is missing if any of them is."""
        missing = (~seen_joints(x)).to(x.dtype)
        whole = (missing @ self.parts) == 0
        return (x.transpose(-1, -2) @ self.weights).transpose(-1, -2) * whole[..., None]

    def _ordered(self, x: Tensor, raw: Tensor) -> Tensor:
        """The first persons seen, up to the number the encoder reads; of more, those who move most."""
        blank = torch.zeros_like(x[:, :, :1]).expand(-1, -1, self.persons, -1, -1)
        there = present(torch.cat([x, blank], dim=2)).any(1)  # (B, P)
        place = torch.ones_like(there, dtype=torch.float32).cumsum(1)
        energy = torch.cat([motion_energy(raw), torch.zeros_like(blank[:, 0, :, 0, 0])], dim=1)
        crowded = torch.ones_like(raw[0, 0, :, 0, 0]).sum() > self.persons
        rank = torch.where(crowded, -energy / (1 + energy.amax(1, keepdim=True)), place / 1e4)
        order = (rank + 2 * (~there).to(rank.dtype)).topk(self.persons, dim=1, largest=False).indices
        return pick(torch.cat([x, blank], dim=2), order, 2)


def resized(x: Tensor, count: Tensor, frames: int) -> Tensor:
    """The central 95 % of the first `count` frames, linearly resized."""
    start = (count.double() * ((1 - SHARE) / 2)).long()
    left = (count - 2 * start).clamp(min=1)[:, None]
    position = (torch.arange(frames, dtype=torch.float64) + 0.5) * (left.double() / frames) - 0.5
    position = torch.minimum(position.clamp(min=0), (left - 1).double())
    below = position.long()
    above = torch.minimum(below + 1, left - 1)
    share = (position - below).to(x.dtype)[:, :, None, None, None]
    return (1 - share) * pick(x, below + start[:, None], 1) + share * pick(x, above + start[:, None], 1)
