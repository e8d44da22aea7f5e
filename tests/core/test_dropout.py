"""Dropout that draws by step: the same mask again, rows of the whole batch, exact resume, and what is
refused.
"""

from __future__ import annotations

from pathlib import Path

import jobs
import pytest
import torch
from torch import Tensor, nn

from halp.core.dropout import DRAWS, StepDropout, begin_step, dropouts, kept_rows, replace_dropout
from halp.core.errors import InputError
from halp.core.registry import NoSettings
from halp.core.sampling import generator
from halp.data.store import Store
from halp.encoders import ENCODERS
from halp.training import load_recipe, pretrain


def network() -> nn.Module:
    made = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout2d(0.25), nn.Dropout(0.0))).train()
    replace_dropout(made)
    return made


def test_masks_are_a_function_of_module_step_and_call() -> None:
    made, x = network(), torch.ones(8, 4, 3, 5)
    modules = list(dropouts(made))
    assert [module.name for module in modules] == [".0", "1.0"]

    def masks(epoch: int, step: int, calls: int = 1) -> list[Tensor]:
        begin_step(modules, 0, epoch, step, slice(0, 8), 8)
        return [made(x) for _ in range(calls)]

    first, second = masks(1, 2, calls=2)
    assert torch.equal(first, masks(1, 2)[0])
    assert not torch.equal(first, second)
    assert not torch.equal(first, masks(1, 3)[0])
    assert torch.equal(made.eval()(x), x)


def test_kept_entries_are_scaled_and_whole_features_drop_together() -> None:
    entries, features = StepDropout(0.5, False, "a").train(), StepDropout(0.25, True, "b").train()
    x = torch.ones(64, 10, 6)
    begin_step([entries, features], 0, 0, 0, slice(0, 64), 64)
    y = entries(x)
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert 0.45 < float((y == 0).float().mean()) < 0.55
    z = features(x)
    assert torch.equal(z, z[:, :, :1].expand_as(z))
    assert float(z.max()) == pytest.approx(4 / 3)


def test_draws_for_the_whole_batch_are_those_of_earlier_versions() -> None:
    module, x = StepDropout(0.3, False, "encoder.a").train(), torch.randn(4, 5)
    begin_step([module], 3, 1, 4, slice(1, 3), 4, "batch")
    mask = torch.rand(8, 5, generator=generator(3, "dropout/encoder.a", 1, 4, 0))[2:6] >= 0.3
    assert torch.equal(module(x), x * mask / (1 - 0.3))


def test_hashed_masks_are_those_of_splitmix64_and_of_the_right_share() -> None:
    def entry(row: int, column: int, columns: int, key: int) -> int:
        """16 bits of SplitMix64, with Python's own whole numbers."""
        counter = row * -(-columns // 4) + column // 4
        z = (key + counter * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        bits = (z ^ z >> 31) >> 16 * (column % 4) & 0xFFFF
        return bits - 2**16 if bits >= 2**15 else bits

    kept = kept_rows(3, 9, [7], 0.3, 12345)
    threshold = round(0.3 * 65536) - 32768
    assert kept.tolist() == [
        [entry(row, column, 7, 12345) >= threshold for column in range(7)] for row in range(3, 9)
    ]
    for probability in (0.0, 0.1, 0.5, 0.9):
        many = kept_rows(0, 1000, [11, 10], probability, 7).float()
        assert float(many.mean()) == pytest.approx(1 - probability, abs=0.005)
        assert many.mean(0).std() < 0.03  # no column stands out
    pairs = torch.corrcoef(kept_rows(0, 20_000, [8], 0.5, 99).float().T)
    assert (pairs - torch.eye(8)).abs().max() < 0.03


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("factor", [1, 2])
def test_a_process_drops_its_rows_of_the_whole_batch(factor: int, draws: str) -> None:
    module, x = StepDropout(0.5, False, "a").train(), torch.ones(7 * factor, 9)
    begin_step([module], 3, 1, 4, slice(0, 7), 7, draws)
    whole = module(x)
    begin_step([module], 3, 1, 4, slice(2, 5), 7, draws)
    assert torch.equal(module(x[2 * factor : 5 * factor]), whole[2 * factor : 5 * factor])


def test_another_first_axis_and_other_kinds_are_refused() -> None:
    module = StepDropout(0.5, False, "a").train()
    begin_step([module], 0, 0, 0, slice(0, 4), 4)
    with pytest.raises(InputError, match="first axis must be the batch of 4"):
        module(torch.ones(6, 2))
    with pytest.raises(InputError, match="AlphaDropout"):
        replace_dropout(nn.Sequential(nn.AlphaDropout(0.1)))


STGCN = ("encoder.name=stgcn", "encoder.output=16", "encoder.stages=1", "encoder.dropout=0.3")


@pytest.mark.slow
def test_a_run_with_dropout_resumes_exactly(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    settings = [setting for setting in tiny if not setting.startswith("encoder.")]
    chosen = load_recipe("small", (*STGCN, *settings))
    whole = pretrain(chosen, store, tmp_path / "whole", progress=False)
    pretrain(chosen, store, tmp_path / "parts", until=1, progress=False)
    pretrain(chosen, store, tmp_path / "parts", resume=True, progress=False)
    assert jobs.final_files(whole.path) == jobs.final_files(tmp_path / "parts")
    with pytest.raises(InputError, match="dropout would make different"):
        pretrain(
            load_recipe("small", (*STGCN, *settings, "optimiser.encode_chunks=2")),
            store,
            tmp_path / "x",
            progress=False,
        )


@pytest.mark.parametrize("count", [1, 2])
def test_draws_from_the_global_generator_are_refused_with_any_number_of_threads(
    count: int, tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    class Noisy(nn.Module):
        output_size = 4

        def __init__(self, settings: NoSettings, topology: object, persons: int) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, clips: Tensor) -> Tensor:
            return nn.functional.dropout(self.linear(clips.mean((1, 2, 3))), 0.5, self.training)

    ENCODERS.register("noisy")(Noisy)
    threads = torch.get_num_threads()
    try:
        settings = [setting for setting in tiny if not setting.startswith("encoder.")]
        chosen = load_recipe("small", ("encoder.name=noisy", *settings))
        torch.set_num_threads(count)
        with pytest.raises(InputError, match="draws from torch's global random generator"):
            pretrain(chosen, store, tmp_path / "run", progress=False)
    finally:
        torch.set_num_threads(threads)
        ENCODERS.remove("noisy")
