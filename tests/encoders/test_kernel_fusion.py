"""The encoder of halp-base: kernel shares against plain loops, fitted biases, missing joints, absent persons,
packages.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from encoders import test_fusion as fusion
from encoders.test_fusion import BODY, clips
from torch import Tensor

import halp
from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.store_writer import StoreWriter
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.kernel_fusion import DILATIONS, PLACES, Invariance, KernelFusionEncoder, KernelShares
from halp.encoders.pretrained import PretrainedEncoder, load_package
from halp.encoders.recurrence import run_grus
from halp.tasks.export import export


def made() -> KernelFusionEncoder:
    encoder = fusion.made("kernel-fusion")
    assert isinstance(encoder, KernelFusionEncoder)
    encoder.fit(clips(32, frames=12))
    return encoder


def slowly(shares: KernelShares, series: Tensor) -> Tensor:
    """Shares and mean excesses of one series `(T, channels)`, number by number; near the bias a frame counts
    in part.
    """
    parts, excesses = [], []
    for number in range(len(DILATIONS) * len(PLACES)):
        dilation, places = DILATIONS[number // len(PLACES)], PLACES[number % len(PLACES)]
        line = sum(series[:, channel] for channel in range(series.shape[1]) if shares.mix[channel, number])
        frames, excess = 0.0, 0.0
        for frame in range(len(series)):
            total = 0.0
            for place in range(9):
                at = frame + (place - 4) * dilation
                if 0 <= at < len(series):
                    total += (2.0 if place in places else -1.0) * float(line[at])
            above = total - float(shares.bias[number])
            frames += min(max(above / float(shares.blur[number]) + 0.5, 0.0), 1.0)
            excess += max(above, 0.0)
        parts.append(frames / len(series))
        excesses.append(excess / max(frames, 1.0))
    return torch.tensor(parts + excesses)


@torch.no_grad()
@pytest.mark.parametrize("frames", [1, 5, 16])
def test_shares_and_excesses_are_those_of_plain_loops(frames: int) -> None:
    torch.manual_seed(1)
    shares = KernelShares(7)
    shares.bias.normal_()
    series = torch.randn(2, frames, 7)
    expected = torch.stack([slowly(shares, one) for one in series])
    assert torch.allclose(shares(series), expected, atol=1e-4)
    assert shares.mix.sum(0).min() >= 1
    assert shares.mix.sum(0).max() <= 7


@torch.no_grad()
def test_fitted_biases_are_quantiles_that_differ_between_kernels() -> None:
    torch.manual_seed(2)
    shares, series = KernelShares(6), torch.randn(50, 40, 6)
    shares.fit(series)
    found = shares(series)[:, : len(shares.bias)].mean(0)
    wanted = 1 - (torch.arange(1, len(shares.bias) + 1) * (5**0.5 - 1) / 2) % 1
    assert torch.allclose(found, wanted.float(), atol=1e-2)


@torch.no_grad()
def test_the_gru_reads_every_second_frame_and_features_are_standardised() -> None:
    encoder, batch = made(), clips(6, frames=12, seed=4)
    fusion = super(KernelFusionEncoder, encoder).describe(batch[:, ::2, 0])
    maxima = torch.cat([fusion[:, 30:60], fusion[:, 90:120]], 1)
    plain = torch.cat([maxima, encoder.kernels(encoder.centred(batch[:, :, 0])[0])], 1)
    assert torch.allclose(encoder(batch), (plain - encoder.shift) / encoder.spread, atol=1e-4)
    fitted = encoder(clips(32, frames=12))
    assert fitted.shape == (32, encoder.output_size)
    assert torch.allclose(fitted.mean(0), torch.zeros(encoder.output_size), atol=1e-4)


@torch.no_grad()
def test_missing_joints_and_absent_persons_are_defined() -> None:
    encoder, batch = made(), clips(3, frames=12, seed=3)
    elbow = BODY.index("elbow_left")
    batch[:, :, :, elbow] = 0
    centred = encoder.centred(batch[:, :, 0])[0].view(3, 12, 3, 16, 3)
    assert not centred[:, :, :, elbow].any()  # the mean, not a joint that lies in the hips
    assert not centred[:, :, 1, BODY.index("wrist_left")].any()  # its bone would start there
    assert centred[:, :, 0, BODY.index("wrist_left")].any()
    alone = encoder(batch)
    assert torch.allclose(encoder(torch.cat([batch, torch.zeros_like(batch)], 2)), alone, atol=1e-3)
    assert torch.isfinite(encoder(torch.zeros_like(batch))).all()


@torch.no_grad()
def test_a_package_gives_the_same_features(tmp_path: Path) -> None:
    encoder = made()
    architecture = EncoderSettings("kernel-fusion", hidden=5).to_plain()
    packaged = PretrainedEncoder(encoder, BODY, persons=2, frames=12, architecture=architecture).eval()
    loaded = load_package(export(packaged, tmp_path / "package"))
    batch = clips(4, frames=12, persons=2, seed=5)
    assert np.array_equal(loaded(batch).numpy(), packaged(batch).numpy())


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="step = 0"):
        EncoderSettings("kernel-fusion", step=0)
    with pytest.raises(InputError, match="invariant = -1"):
        EncoderSettings("kernel-fusion", invariant=-1)
    with pytest.raises(InputError, match="gains"):
        EncoderSettings("kernel-fusion", gains=[1.0])
    with pytest.raises(InputError, match="hidden"):
        EncoderSettings("kernel-fusion", hidden=0)


@torch.no_grad()
def test_with_five_gains_two_more_banks_read_distances_and_angles() -> None:
    encoder = fusion.made("kernel-fusion", gains=(0.3, 0.3, 1.5, 0.0, 0.0))
    assert isinstance(encoder, KernelFusionEncoder)
    encoder.fit(clips(32, frames=12))
    batch = clips(3, frames=12, seed=4)
    series = encoder.centred(batch[:, :, 0])
    assert [one.shape[2] for one in series] == [144, 105, 105]
    banks = [encoder.kernels, *encoder.geometry_kernels]
    plain = torch.cat([bank(one) for bank, one in zip(banks, series)], 1)
    size = plain.shape[1]
    expected = (plain - encoder.shift[-size:]) / encoder.spread[-size:]
    assert torch.allclose(encoder(batch)[:, -size:], expected, atol=1e-4)


@torch.no_grad()
def test_a_feature_that_hardly_varies_in_training_data_cannot_drown_the_others() -> None:
    encoder = fusion.made("kernel-fusion", gains=(0.3, 0.3, 1.5, 0.0, 0.0))
    assert isinstance(encoder, KernelFusionEncoder)
    stiff = clips(32, frames=12)
    stiff[:, :, :, 5] = stiff[:, :, :, 4] + 1.0  # joints 4 and 5 move as one
    encoder.fit(stiff)
    assert float(encoder.spread.min()) >= 0.99 * 0.2 * float(encoder.spread.median()) / 2


@torch.no_grad()
def test_streams_of_gain_zero_are_left_out_of_the_gru_without_changing_it() -> None:
    encoder = fusion.made("kernel-fusion", gains=(0.3, 0.3, 1.5, 0.0, 0.0))
    assert isinstance(encoder, KernelFusionEncoder)
    bodies = clips(3, frames=12)[:, :, 0]
    short = encoder.sequences(bodies)
    x = encoder.inputs(bodies).transpose(0, 1)
    assert x.shape[2] > 144
    assert not x[..., 144:].any()
    first, second = run_grus(list(encoder.layers[0]), [x, x.flip(0)])
    torch.testing.assert_close(short[0], torch.cat([first, second.flip(0)], dim=2).transpose(0, 1))


@torch.no_grad()
def test_geometry_is_the_same_with_and_without_gradients_in_mind() -> None:
    encoder = fusion.made("kernel-fusion", gains=(0.3, 0.3, 1.5, 0.0, 0.0))
    assert isinstance(encoder, KernelFusionEncoder)
    assert encoder.geometry is not None
    bodies = clips(3, frames=12)[:, :, 0]
    bones = bodies - bodies[:, :, encoder.parents]
    fast = encoder.geometry.eval()(bodies, bones)
    torch.testing.assert_close(fast, encoder.geometry.train()(bodies, bones))


def test_what_views_move_is_shrunk_as_by_the_whole_power_of_its_covariance() -> None:
    draw = torch.Generator().manual_seed(0)
    clips_, features, moved = 4000, 12, 3
    axes = torch.linalg.qr(torch.randn(features, features, generator=draw)).Q
    scales = torch.tensor([5.0, 3.0, 2.0] + [0.5] * (features - moved))
    views = (
        torch.randn(clips_, features, generator=draw)
        + (torch.randn(4, clips_, features, generator=draw) * scales) @ axes.T
    )
    invariance = Invariance(features, moved)
    some = torch.randn(7, features, generator=draw)
    assert torch.equal(invariance(some), some)  # before it is fitted
    invariance.fit(views, floor=0.2)
    covariance = (views - views.mean(0)).flatten(0, 1)
    covariance = covariance.T @ covariance / (clips_ * 3)
    values, turned = torch.linalg.eigh(covariance + 0.2 * covariance.trace() / features * torch.eye(features))
    expected = some @ (turned * values**-0.5) @ turned.T
    found = invariance(some) / (0.5**2 + 0.2 * covariance.trace() / features) ** 0.5
    assert float((found - expected).norm() / expected.norm()) < 0.02
    after = invariance(views.flatten(0, 1)).view_as(views)
    assert float((after - after.mean(0)).var() / (views - views.mean(0)).var()) < 0.25


@torch.no_grad()
def test_an_encoder_with_invariance_is_that_without_it_shrunk(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inner = build_encoder(EncoderSettings("kernel-fusion", layers=0, invariant=4), BODY, 1).eval()
    assert isinstance(inner, KernelFusionEncoder)
    inner.fit(clips(20))
    batch = clips(4, seed=2)
    plain = inner(batch)
    inner.invariance.fit(torch.stack([inner(clips(20, seed=seed)) for seed in range(3)]))
    torch.testing.assert_close(inner(batch), inner.invariance(plain))
    assert float((inner(batch) - plain).norm()) > 0.1
    architecture = {"name": "kernel-fusion", "layers": 0, "invariant": 4}
    packaged = PretrainedEncoder(inner, BODY, persons=1, frames=12, architecture=architecture)
    export(packaged, tmp_path / "package")
    loaded = load_package(tmp_path / "package")
    assert torch.equal(loaded(batch), packaged(batch))


@pytest.mark.slow
def test_the_shipped_encoder_is_trained_further_and_only_its_gru_moves(tmp_path: Path) -> None:
    base = halp.load_encoder("halp-base")
    draw = np.random.default_rng(0)
    with StoreWriter(
        tmp_path / "store", base.topology, persons=1, normalisation=base.normalisation
    ) as writer:
        for number in range(8):
            frames = draw.normal(size=(70, 1, len(base.topology), 3)).astype(np.float32)
            writer.add(Clip(frames, f"clip{number}", label=number % 2))
    settings = [
        "epochs=2",
        "batch_size=4",
        "halp.start_epoch=1",
        "halp.prototypes=2",
        "halp.recent=4",
        "contrast.queue=4",
    ]
    recipe = halp.load_recipe("own", [*settings, "split=all"])
    run = halp.pretrain(recipe, tmp_path / "store", tmp_path / "run", init="halp-base", progress=False)
    before, after = base.encoder.state_dict(), run.encoder().encoder.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all(name.startswith("layers.") for name in moved)
    assert run.info["initialised"]["from"] == "halp-base"
