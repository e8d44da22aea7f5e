"""1-NN on the code of an autoencoder: what is fitted, that it learns, and that the seed alone decides."""

from __future__ import annotations

import pytest
import torch

from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import evaluate
from halp.evaluation.protocols.knn import Autoencoder, AutoencoderKnnSettings, fit_autoencoder


def test_layers_are_linear_and_tanh_down_to_the_code_and_back() -> None:
    model = Autoencoder((7, 5, 3), torch.Generator())
    x = torch.randn(4, 7)
    code = torch.tanh(model.encode[2](torch.tanh(model.encode[0](x))))
    expected = model.decode[2](torch.tanh(model.decode[0](code)))  # nothing bends the output
    torch.testing.assert_close(model(x), expected)
    assert [tuple(parameter.shape) for parameter in model.parameters() if parameter.ndim == 2] == [
        *((5, 7), (3, 5)),
        *((5, 3), (7, 5)),
    ]


@pytest.mark.heavy
def test_autoencoder_finds_the_plane_that_the_rows_lie_in() -> None:
    draws = torch.Generator().manual_seed(0)
    rows = 0.3 * torch.randn(64, 2, generator=draws) @ torch.randn(2, 8, generator=draws)
    settings = AutoencoderKnnSettings(widths=(16, 2), epochs=300, batch_size=16, learning_rate=1e-2)
    _, error = fit_autoencoder(rows, settings, torch.Generator().manual_seed(1))
    assert error < 0.05 * rows.var().item()


def test_protocol_is_a_function_of_its_seed(store: Store) -> None:
    torch.manual_seed(0)
    backbone = build_encoder(EncoderSettings("gru", hidden=4, layers=1), store.topology, store.persons)
    encoder = PretrainedEncoder(backbone, store.topology, persons=store.persons, frames=8).eval()
    small = {"widths": (8, 4), "epochs": 2}
    first, again, other = (
        evaluate(encoder, store, "autoencoder-knn", "xsub", progress=False, seed=seed, **small)
        for seed in (0, 0, 1)
    )
    assert (first.metrics, first.accuracy) == (again.metrics, again.accuracy)
    assert first.metrics["autoencoder_error"] != other.metrics["autoencoder_error"]
    assert 0 <= first.accuracy <= 100


def test_wrong_settings_get_one_sentence() -> None:
    for settings in ({"widths": ()}, {"epochs": 0}, {"learning_rate": 0.0}):
        with pytest.raises(InputError, match=r"widths|must be"):
            AutoencoderKnnSettings(**settings)  # type: ignore[arg-type]
