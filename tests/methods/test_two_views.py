"""SkeletonBT and VICReg: the loss of a step of two views, HaLP on top of it without a queue, and what is
refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders import EncoderSettings
from halp.evaluation.evaluate_run import evaluate_run
from halp.hallucinate import halp_loss
from halp.methods import METHODS, BuildContext, HalpSettings, StepContext, TwoViewMethod
from halp.methods.two_views import projection_head
from halp.skeleton import KINECT_V1
from halp.skeleton.streams import derive
from halp.sphere import kmeans, unit
from halp.training import load_recipe, pretrain
from halp.zoo.barlow import BarlowSettings, barlow_twins
from halp.zoo.vicreg import VicregSettings, vicreg

HEAD = {"width": 6, "layers": 2, "temperature": 0.2}
SETTINGS = {
    "barlow": BarlowSettings(**HEAD, off_diagonal=0.05),  # type: ignore[arg-type]
    "vicreg": VicregSettings(**HEAD, invariance=2.0, variance=3.0, covariance=0.5),  # type: ignore[arg-type]
}
LOSSES = {
    "barlow": lambda first, second: barlow_twins(first, second, 0.05),
    "vicreg": lambda first, second: vicreg(first, second, 2.0, 3.0, 0.5),
}


def method(loss: str, streams: tuple[str, ...] = ("joint",), **terms: object) -> TwoViewMethod:
    torch.manual_seed(0)
    encoders = dict.fromkeys(streams, EncoderSettings(hidden=4, layers=1))
    made: TwoViewMethod = METHODS[loss].build(SETTINGS[loss], BuildContext(KINECT_V1, 1, 6, encoders, terms))  # type: ignore[assignment]
    return made


def views() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1)
    return {view: torch.randn(8, 6, 1, 20, 3, generator=g) for view in ("query", "key")}


def context(epoch: int = 0) -> StepContext:
    return StepContext(epoch, torch.Generator().manual_seed(5))


def embeddings(made: TwoViewMethod, stream: str) -> list[Tensor]:
    return [
        made.heads[stream](made.backbones[stream](derive(x, stream, KINECT_V1))) for x in views().values()
    ]


@pytest.mark.parametrize("name", LOSSES)
def test_step_is_the_sum_of_the_losses_of_the_streams_and_trains_everything(name: str) -> None:
    made = method(name, ("joint", "motion"))
    loss, metrics, found = made(views(), context())
    expected = sum(LOSSES[name](*embeddings(made, stream)) for stream in ("joint", "motion"))
    torch.testing.assert_close(loss, expected)
    parts = [metrics[f"{stream}/loss_{name}"] for stream in ("joint", "motion")]
    assert float(metrics["loss"]) == pytest.approx(float(sum(parts)))
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in made.parameters())
    assert found["motion"].shape == (8, 6)
    assert not found["motion"].requires_grad


@pytest.mark.parametrize("name", LOSSES)
def test_halp_takes_prototypes_from_the_second_view_and_pulls_the_first_alone(name: str) -> None:
    made = method(name, halp=HalpSettings(weight=0.3, start_epoch=2, prototypes=3, count=5, source="batch"))
    plain = method(name)
    assert torch.equal(made(views(), context(1)).loss, plain(views(), context(1)).loss), "before its epoch"
    loss, metrics, _ = made(views(), context(2))
    loss.backward()
    reference, draws = method(name), torch.Generator().manual_seed(5)
    first, second = embeddings(reference, "joint")
    key = unit(second.detach())
    prototypes = kmeans(key, 3, generator=draws)
    pull = halp_loss(unit(first), key, prototypes, count=5, temperature=0.2, generator=draws)
    expected = LOSSES[name](first, second) + 0.3 * pull
    expected.backward()
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    assert "joint/kept" in metrics
    for ours, theirs in zip(made.heads.parameters(), reference.heads.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)


def test_head_has_no_biases_and_normalises_between_its_layers() -> None:
    head = projection_head(5, 7, 3)
    kinds = [type(module) for module in head]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2 + [nn.Linear]
    assert all(module.bias is None for module in head if isinstance(module, nn.Linear))
    assert head(torch.randn(4, 5)).shape == (4, 7)


@pytest.mark.parametrize(
    ("name", "override", "words"),
    [
        ("small-skeletonbt", "barlow.width=1", "width = 1 must be at least 2"),
        ("small-skeletonbt", "barlow.off_diagonal=-1", "off_diagonal = -1.0 cannot be negative"),
        ("small-skeletonbt", "barlow.temperature=0", "barlow.temperature = 0.0 must be above 0"),
        ("small-vicreg", "vicreg.layers=0", "vicreg.layers = 0 must be at least 1"),
        ("small-vicreg", "vicreg.covariance=-1", "covariance = -1.0 cannot be negative"),
        ("small-vicreg", "barlow.width=8", "section [barlow] would be ignored by method 'vicreg'"),
        ("small-vicreg", "vicreg.off_diagonal=1", "unknown setting 'vicreg.off_diagonal'"),
        ("small-vicreg-halp", "batch_size=8", "halp.prototypes = 10 is more than batch_size = 8"),
        ("small-skeletonbt", "optimiser.encode_chunks=2", "method 'barlow' encodes a batch at once"),
        ("small-skeletonbt", "contrast.queue=8", "section [contrast] would be ignored by method 'barlow'"),
        ("small-skeletonbt", 'terms=["cmd"]', "'cmd' distils between streams"),
        ("small-skeletonbt-halp", "halp.source=queue", "set halp.source to 'batch' or 'keys'"),
        ("small-skeletonbt-halp", "batch_size=8", "halp.prototypes = 10 is more than batch_size = 8"),
        ("small-queue-free-halp", "batch_size=16", "halp.prototypes = 20 is more than batch_size = 16"),
    ],
)
def test_wrong_settings_get_one_sentence(name: str, override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(name, [override])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "section"), [("small-skeletonbt", "barlow"), ("small-vicreg", "vicreg")])
def test_halp_forks_from_a_warm_up_without_it_and_the_run_is_evaluated(
    name: str, section: str, tmp_path: Path, store: Store
) -> None:
    tiny = (
        "epochs=2",
        "batch_size=16",
        "views.frames=8",
        "encoder.hidden=4",
        "encoder.layers=1",
        f"{section}.width=8",
    )
    warm = pretrain(load_recipe(name, tiny), store, tmp_path / "warm", until=1, progress=False)
    halp = load_recipe(f"{name}-halp", (*tiny, "halp.start_epoch=1", "halp.prototypes=4"))
    forked = pretrain(halp, store, tmp_path / "forked", fork=warm.path, progress=False)
    straight = pretrain(halp, store, tmp_path / "straight", progress=False)
    for ours, theirs in zip(
        forked.encoder().state_dict().values(), straight.encoder().state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs)
    rows = evaluate_run(forked, store, protocols=("knn",), splits=("xsub",), baselines=False)
    assert 0 <= rows[-1].results[0].accuracy <= 100
