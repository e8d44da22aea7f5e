"""The GRU encoder against the authors' outputs, frame-by-frame calls and torch's own bidirectional GRU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from halp.core.errors import InputError
from halp.encoders import EncoderSettings, build_encoder, list_architectures
from halp.encoders.gru import GRUEncoder, GRUSettings
from halp.skeleton import KINECT_V1, KINECT_V2


def as_torch_gru(encoder: GRUEncoder) -> nn.GRU:
    """The same weights in one bidirectional `nn.GRU`, as the authors hold them."""
    hidden = encoder.output_size // 2
    gru = nn.GRU(encoder.inputs, hidden, len(encoder.layers), batch_first=True, bidirectional=True)
    state = {}
    for name, value in encoder.layers.state_dict().items():
        layer, half, weight = name.split(".")
        state[weight.replace("_l0", f"_l{layer}") + ("_reverse" if half == "1" else "")] = value
    gru.load_state_dict(state)
    return gru


def test_reset_and_update_gates_start_with_the_bias_of_the_recipe() -> None:
    encoder = build_encoder(EncoderSettings("gru", hidden=4, gate_bias=1.0), KINECT_V1, 1)
    biases = [value for name, value in encoder.named_parameters() if "bias_ih" in name]
    assert biases
    for bias in biases:
        assert bias[:8].tolist() == [1.0] * 8
        assert 1.0 not in bias[8:].tolist()


def test_encoder_of_one_person_does_not_look_at_the_others() -> None:
    encoder = build_encoder(EncoderSettings("gru", hidden=4, persons=1), KINECT_V1, 2).eval()
    clips = torch.randn(3, 6, 2, 20, 3)
    alone = build_encoder(EncoderSettings("gru", hidden=4), KINECT_V1, 1).eval()
    alone.load_state_dict(encoder.state_dict())
    assert torch.equal(encoder(clips), alone(clips[:, :, :1]))


def test_causal_encoder_reproduces_the_authors_features(shared: Path) -> None:
    saved = torch.load(shared / "fixtures" / "official_single.pth.tar", weights_only=True)["state_dict"]
    reference = np.load(shared / "fixtures" / "official_single.npz")
    encoder = GRUEncoder(150, GRUSettings(24, 3, direction="causal")).eval()
    gru = nn.GRU(150, 24, 3, batch_first=True, bidirectional=True)
    gru.load_state_dict(
        {name.split("gru.")[1]: value for name, value in saved.items() if "encoder_q.encoder.gru." in name}
    )
    state = {}
    for name, value in gru.state_dict().items():
        kind, _, place = name.rpartition("_l")
        layer, _, reverse = place.partition("_")
        state[f"layers.{layer}.{1 if reverse else 0}.{kind}_l0"] = value
    norm = {
        name.removeprefix("encoder_q."): value
        for name, value in saved.items()
        if "encoder_q.input_norm" in name
    }
    encoder.load_state_dict(state | norm)
    clips = torch.from_numpy(reference["x"]).permute(0, 2, 4, 3, 1)
    with torch.no_grad():
        np.testing.assert_allclose(encoder(clips), reference["feature"], atol=1e-5)


def test_causal_direction_equals_calling_a_bidirectional_gru_frame_by_frame() -> None:
    torch.manual_seed(0)
    encoder = GRUEncoder(12, GRUSettings(5, 3, direction="causal", input_norm=False))
    gru = as_torch_gru(encoder)
    clips = torch.randn(4, 9, 1, 4, 3)
    flat, state = clips.permute(0, 1, 3, 4, 2).flatten(2), None
    for frame in range(9):
        output, state = gru(flat[:, frame : frame + 1], state)
    assert torch.allclose(encoder(clips), output[:, 0], atol=1e-6)


def test_bidirectional_direction_equals_torchs_own() -> None:
    torch.manual_seed(0)
    encoder = GRUEncoder(12, GRUSettings(5, 2, direction="bidirectional", input_norm=False))
    clips = torch.randn(4, 9, 1, 4, 3)
    output, final = as_torch_gru(encoder)(clips.permute(0, 1, 3, 4, 2).flatten(2))
    assert torch.allclose(encoder.sequence(clips), output, atol=1e-6)
    assert torch.allclose(encoder(clips), torch.cat([final[-2], final[-1]], dim=1), atol=1e-6)


def test_mean_pooling_averages_over_time() -> None:
    encoder = GRUEncoder(12, GRUSettings(5, 1, pooling="mean"))
    clips = torch.randn(2, 7, 1, 4, 3)
    assert torch.allclose(encoder(clips), encoder.sequence(clips).mean(1))


def test_input_norm_uses_the_statistics_of_batch_and_time() -> None:
    encoder = GRUEncoder(12, GRUSettings(5, 1))
    clips = torch.randn(6, 7, 1, 4, 3) * 3 + 1
    encoder.train()(clips)
    assert encoder.input_norm is not None
    flat = clips.permute(0, 1, 3, 4, 2).flatten(2).reshape(-1, 12)
    assert torch.allclose(encoder.input_norm.running_mean, 0.1 * flat.mean(0), atol=1e-5)


def test_one_frame_and_absent_persons_give_finite_features() -> None:
    encoder = build_encoder(EncoderSettings(hidden=4, layers=2), KINECT_V2, 2).eval()
    clips = torch.zeros(3, 1, 2, 25, 3)
    assert torch.isfinite(encoder(clips)).all()
    assert encoder(clips).shape == (3, 8)


def test_matrices_start_xavier_uniform() -> None:
    encoder = build_encoder(EncoderSettings(hidden=64, layers=1), KINECT_V2, 2)
    weight = encoder.layers[0][0].weight_ih_l0.detach()
    bound = (6 / (weight.shape[0] + weight.shape[1])) ** 0.5
    assert weight.abs().max() <= bound
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.05)


def test_clips_of_another_topology_are_refused_in_one_sentence() -> None:
    encoder = build_encoder(EncoderSettings(hidden=4, layers=1), KINECT_V1, 1)
    with pytest.raises(InputError, match="another topology"):
        encoder(torch.zeros(1, 2, 1, 25, 3))


def test_unknown_names_and_sizes_are_refused() -> None:
    assert "gru" in list_architectures()
    with pytest.raises(InputError, match="did you mean 'gru'"):
        build_encoder(EncoderSettings(name="grue"), KINECT_V2, 1)
    with pytest.raises(InputError, match="direction"):
        GRUEncoder(3, GRUSettings(2, direction="forwards"))
    with pytest.raises(InputError, match="at least 1"):
        GRUEncoder(3, GRUSettings(0))


def test_pooling_over_thirds_keeps_beginning_middle_and_end_apart() -> None:
    torch.manual_seed(0)
    encoder = GRUEncoder(12, GRUSettings(5, 1, pooling="thirds")).eval()
    clips = torch.randn(2, 9, 1, 4, 3)
    states = encoder.sequence(clips)
    expected = torch.cat([states[:, :3].mean(1), states[:, 3:6].mean(1), states[:, 6:].mean(1)], dim=1)
    assert encoder.output_size == 30
    torch.testing.assert_close(encoder(clips), expected)
    assert encoder(clips[:, :1]).isfinite().all()


@pytest.mark.parametrize(
    ("pooling", "times"), [("max", 1), ("mean+max", 2), ("thirds", 3), ("thirds-max", 3)]
)
@pytest.mark.parametrize("frames", [3, 7, 32])
def test_poolings_reduce_the_feature_map_as_a_loop_over_frames_does(
    pooling: str, times: int, frames: int
) -> None:
    torch.manual_seed(0)
    encoder = GRUEncoder(12, GRUSettings(5, 2, pooling=pooling))
    x = torch.randn(4, frames, 10)
    # the thirds overlap by a frame where three does not divide their number
    thirds = [x[:, frames * i // 3 : -(-frames * (i + 1) // 3)] for i in range(3)]
    slow = {
        "max": [torch.stack([x[:, t] for t in range(frames)]).max(0).values],
        "mean+max": [sum(x[:, t] for t in range(frames)) / frames, x.max(1).values],
        "thirds": [part.mean(1) for part in thirds],
        "thirds-max": [part.max(1).values for part in thirds],
    }
    assert torch.allclose(encoder.pool(x), torch.cat(slow[pooling], 1), atol=1e-6)
    assert encoder.output_size == 10 * times
    assert encoder(torch.randn(2, frames, 1, 4, 3)).shape == (2, 10 * times)
