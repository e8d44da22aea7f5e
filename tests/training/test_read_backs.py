"""Between logged steps a training step reads no value of a tensor back to Python; a loss that is not finite
is found anyway.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from read_backs import ReadBacks
from replay import replay_step

from halp.core.errors import Diverged
from halp.data.store import Store
from halp.methods import StepContext
from halp.methods.moco import MocoMethod
from halp.training import load_recipe, open_run, pretrain
from halp.training.checkpoint import list_checkpoints
from halp.training.trainer import Trainer

LATE = ("saving.log_every=4", "halp.start_epoch=0", "halp.refresh=2")


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("small", ()),
        ("small", ("halp.negatives=true", "halp.warm_start=true")),
        ("small", ("halp.source=keys", "contrast.queue=0")),
        ("small-cmd", ()),
        ("small-halp-cmd", ("halp.prototype_source=cross_stream",)),
        ("ntu60-halp", ()),
    ],
)
def test_no_value_is_read_back_between_logged_steps(
    tmp_path: Path,
    store: Store,
    tiny: tuple[str, ...],
    recipe: str,
    more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[bool, list[str]] = {True: [], False: []}
    step = Trainer._train_step

    def counted(self: Trainer, clips: Any, epoch: int, index: int, log_metrics: bool) -> Any:
        with ReadBacks() as found:
            output = step(self, clips, epoch, index, log_metrics)
        seen[log_metrics] += found.seen
        return output

    monkeypatch.setattr(Trainer, "_train_step", counted)
    late = [text for text in LATE if "halp" not in text or recipe != "small-cmd"]
    own = [text for text in tiny if "halp" not in text or recipe != "small-cmd"]
    run = pretrain(load_recipe(recipe, (*own, *late, *more)), store, tmp_path / "run", progress=False)
    assert seen[False] == []
    assert seen[True], "the counter sees what is read where metrics are logged"
    if recipe != "small-cmd":
        assert any("joint/kept" in line for line in run.metrics()), "positives were hallucinated"


@pytest.mark.parametrize("at", [1, 5, 6, 8])  # logged steps are 0, 4, 8, …; checkpoints at the ends of epochs
def test_a_loss_that_is_not_finite_is_found_later_and_its_own_clips_are_named(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    chosen = load_recipe("small", (*tiny, *LATE))
    steps = len(store.split("xsub")[0]) // chosen.batch_size
    loss = MocoMethod.loss

    def broken(self: MocoMethod, batches: Any, context: StepContext) -> Any:
        value, metrics = loss(self, batches, context)
        names = frozenset(int(clip) for clip in context.clips)  # type: ignore[union-attr]
        return (
            value * torch.where(torch.tensor(names == bad and context.epoch == at // steps), torch.nan, 1.0),
            metrics,
        )

    bad: frozenset[int] = frozenset()
    step = Trainer._train_step

    def spied(self: Trainer, clips: Any, epoch: int, index: int, log_metrics: bool) -> Any:
        nonlocal bad
        if epoch * steps + index == at:
            bad = frozenset(clips.tolist())
        return step(self, clips, epoch, index, log_metrics)

    monkeypatch.setattr(Trainer, "_train_step", spied)
    monkeypatch.setattr(MocoMethod, "loss", broken)
    with pytest.raises(Diverged, match=rf"is not finite at step {at} \(clips"):
        pretrain(chosen, store, tmp_path / "run", progress=False)
    facts = json.loads((tmp_path / "run" / "diverged" / "step.json").read_text())
    assert (facts["epoch"], facts["index"]) == divmod(at, steps)
    assert set(facts["rows"]) == bad
    saved = list_checkpoints(open_run(tmp_path / "run").checkpoints)
    assert bool(saved) == (at >= steps)
    for folder in saved:
        assert int(folder.name.removeprefix("step-")) <= at, "no checkpoint of a diverged state"
    monkeypatch.undo()
    healthy = pretrain(
        load_recipe("small", (*tiny, *LATE, "saving.log_every=1")), store, tmp_path / "ok", progress=False
    )
    assert float(replay_step(tmp_path / "run")) == pytest.approx(healthy.metrics()[at]["loss"], abs=2e-6)
