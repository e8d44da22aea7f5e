"""True positives of the yardstick are the newest keys of what belongs together, never the clip itself."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from benchmarks.ntu10 import TruePositives, TruthSettings
from halp.extend import StepContext, StreamBatch
from halp.methods.queue import KeyQueue


def test_the_pull_is_towards_the_newest_keys_of_the_other_cameras() -> None:
    groups = torch.tensor([0, 1, 0, 0, 1, 2])
    TruePositives.groups = {"views": groups}
    term = TruePositives(TruthSettings(start_epoch=0), ["joint"], 0.07)
    draws = torch.Generator().manual_seed(0)
    newest: dict[int, torch.Tensor] = {}
    queue = KeyQueue(["joint"], 0, 128)
    for clips in ([0, 1, 5], [2, 4, 0], [3, 1, 5]):
        query, key = (F.normalize(torch.randn(3, 128, generator=draws), dim=1) for _ in range(2))
        loss, _ = term({"joint": StreamBatch(query, key)}, queue, StepContext(0, draws, clips=torch.tensor(clips)))
        pulls = []
        for row, clip in enumerate(clips):
            others = [known for other, known in newest.items() if groups[other] == groups[clip] and other != clip]
            if others:
                pulls.append(-(query[row] @ torch.stack(others).mean(0)) / 0.07)
        expected = torch.stack(pulls).mean() if pulls else torch.zeros(())
        torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
        newest |= dict(zip(clips, key))
