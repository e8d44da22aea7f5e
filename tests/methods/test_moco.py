"""The contrastive model: streams as a dictionary, terms as a sum, HaLP only when it may start."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.compose import compose_moco
from halp.core.errors import InputError
from halp.encoders import EncoderSettings
from halp.hallucinate import halp_loss
from halp.losses.infonce import info_nce, info_nce_in_batch
from halp.methods import ContrastSettings, HalpSettings, MocoMethod, StepContext, StreamBatch
from halp.skeleton import KINECT_V1
from halp.skeleton.streams import derive


def model(**changes: object) -> MocoMethod:
    torch.manual_seed(0)
    settings: dict[str, object] = {
        "encoder": EncoderSettings(hidden=4, layers=1),
        "contrast": ContrastSettings(dimension=8, queue=16, momentum=0.9),
        "halp": HalpSettings(start_epoch=2, prototypes=3, count=5, recent=16),
        **changes,
    }
    return compose_moco(KINECT_V1, 1, **settings)  # type: ignore[arg-type]


def views(seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {view: torch.randn(8, 6, 1, 20, 3, generator=g) for view in ("query", "key")}


def moment(epoch: int, seed: int = 0) -> StepContext:
    return StepContext(epoch, torch.Generator().manual_seed(seed))


def test_halp_waits_for_its_epoch_and_for_real_keys_only() -> None:
    made = model()
    seen = []
    for step, epoch in enumerate([0, 2, 2, 2]):  # the queue of 16 is full after two batches of 8
        _, metrics, _ = made(views(step), moment(epoch))
        seen.append("joint/loss_halp" in metrics)
    assert seen == [False, False, True, True]
    early = model()
    for step in range(4):
        _, metrics, _ = early(views(step), moment(1))
    assert "joint/loss_halp" not in metrics


def test_total_is_info_nce_plus_weighted_halp() -> None:
    made = model(halp=HalpSettings(weight=0.3, start_epoch=0, prototypes=3, count=5, recent=16))
    for step in range(2):
        made(views(step), moment(0))
    batch = {
        "joint": StreamBatch(
            *(torch.nn.functional.normalize(v.flatten(1)[:, :8], dim=1) for v in views(9).values())
        )
    }
    queue = made.queue.keys("joint").clone()
    total, metrics = made.loss(batch, moment(0, seed=5))
    g = torch.Generator().manual_seed(5)
    term = made.terms["halp"].streams["joint"]  # type: ignore[index, union-attr]
    from halp.sphere import kmeans

    prototypes = kmeans(made.queue.recent("joint", 16), 3, generator=g)
    expected_halp = halp_loss(batch["joint"].query, batch["joint"].key, prototypes, count=5, generator=g)
    expected = info_nce(batch["joint"].query, batch["joint"].key, queue) + 0.3 * expected_halp
    assert torch.equal(term.centres, prototypes)
    assert torch.allclose(total, expected, atol=1e-6)
    assert float(metrics["loss"]) == pytest.approx(float(expected), abs=1e-5)


def test_keys_join_the_queue_after_the_loss() -> None:
    made = model()
    before = made.queue.keys("joint").clone()
    first, second = views().values()
    loss, *_ = made(views(), moment(0))
    pair = made.pairs["joint"]
    assert int(made.queue.filled) == 8
    with torch.no_grad():
        query = made.pairs["joint"].query(first)  # type: ignore[union-attr]
        key = made.queue.recent("joint", 8)
        assert float(info_nce(query, key, before)) == pytest.approx(float(loss.detach()), abs=1e-5)
        assert torch.allclose(pair.key(derive(second, "joint", KINECT_V1)), key, atol=1e-6)  # type: ignore[operator]


def test_gradient_reaches_query_branches_only() -> None:
    made = model(
        streams=("joint", "motion", "bone"),
        halp=HalpSettings(start_epoch=0, prototypes=3, count=5, recent=16),
    )
    for step in range(3):
        loss, metrics, _ = made(views(step), moment(0))
    loss.backward()
    for name, parameter in made.named_parameters():
        assert (parameter.grad is not None) == (".query." in name), name
    for stream in ("joint", "motion", "bone"):
        assert f"{stream}/loss_halp" in metrics
        assert f"{stream}/kept" in metrics


def test_a_single_stream_is_the_same_code_with_one_entry() -> None:
    alone = model(streams=("joint",), terms=("infonce",))
    with_bone = model(streams=("joint", "bone"), terms=("infonce",))
    with_bone.pairs["joint"].load_state_dict(alone.pairs["joint"].state_dict())
    with_bone.queue.keys("joint").copy_(alone.queue.keys("joint"))
    one = alone(views(), moment(0))[1]["joint/loss_contrast"]
    two = with_bone(views(), moment(0))[1]["joint/loss_contrast"]
    assert torch.equal(one, two)


@pytest.mark.parametrize("source", ["batch", "keys"])
def test_without_a_queue_halp_takes_prototypes_from_the_batch(source: str) -> None:
    made = model(
        contrast=ContrastSettings(dimension=8, queue=0, momentum=0.0),
        halp=HalpSettings(start_epoch=0, prototypes=3, count=5, source=source),
    )
    loss, metrics, _ = made(views(), moment(0))
    assert torch.isfinite(loss)
    assert "joint/loss_halp" in metrics
    loss.backward()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_queue_and_momentum_both_views_pass_one_encoder_and_keys_carry_no_gradient(
    momentum: float,
) -> None:
    made = model(terms=("infonce",), contrast=ContrastSettings(dimension=8, queue=0, momentum=momentum))
    with torch.no_grad():  # as after an optimiser step
        for name, parameter in made.named_parameters():
            if ".query." in name:
                parameter.mul_(1.1)
    alone: torch.nn.Module = made.pairs["joint"].query  # type: ignore[assignment, union-attr]
    first, second = (alone(view) for view in views().values())
    expected = info_nce_in_batch(first, second.detach())
    gradients = torch.autograd.grad(expected, list(alone.parameters()))
    loss, *_ = made(views(), moment(0))
    loss.backward()
    same = [
        torch.allclose(p.grad, g, atol=1e-6)
        for p, g in zip(alone.parameters(), gradients)
        if p.grad is not None
    ]
    assert len(same) == len(gradients)
    assert all(same) == (momentum == 0), "with the momentum twin keys come from older weights"
    assert torch.allclose(loss, expected) == (momentum == 0)


def test_unwatched_steps_report_nothing_and_lose_nothing() -> None:
    one, two = model(), model()
    watched = one(views(), moment(0))
    silent = two(views(), StepContext(0, torch.Generator().manual_seed(0), log_metrics=False))
    assert silent[1] == {}
    assert torch.equal(watched[0], silent[0])


def test_unknown_stream_or_term_is_refused() -> None:
    with pytest.raises(InputError, match="unknown stream 'joints'"):
        model(streams=("joints",))
    with pytest.raises(InputError, match="unknown term 'halb'"):
        model(terms=("halb",))
    with pytest.raises(InputError, match="momentum"):
        ContrastSettings(momentum=1.0)
