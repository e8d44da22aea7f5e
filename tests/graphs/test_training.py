"""Training: what GraphCL and HaLP share to the bit, every source of prototypes, and nothing that is not finite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from graph_samples import random_graphs

from halp.errors import Diverged, InputError
from halp.graphs import GraphSettings, GraphTraining
from halp.graphs.settings import override
from halp.hallucinate import HallucinatedPositives

SMALL = ("epochs=3", "batch_size=16", "width=4", "layers=2", "halp.start_epoch=1", "halp.prototypes=4", "halp.count=5")


def settings(*more: str) -> GraphSettings:
    return override(GraphSettings(), [*SMALL, *more])


def weights(training: GraphTraining) -> list[torch.Tensor]:
    return [value.clone() for value in training.model.state_dict().values()]


def equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_weight_zero_equals_graphcl_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = random_graphs(40)
    without = weights(GraphTraining(graphs, settings("halp.weight=0"), 3).run())
    never = weights(GraphTraining(graphs, settings("halp.start_epoch=3"), 3).run())
    assert equal(without, never)
    # computed after all, but counted with weight zero: the term changes neither draws nor statistics of GraphCL
    forced = GraphTraining(graphs, settings("halp.weight=1"), 3)
    original = HallucinatedPositives.forward
    monkeypatch.setattr(HallucinatedPositives, "forward", lambda self, *given: 0.0 * original(self, *given))
    assert equal(without, weights(forced.run()))


def test_halp_changes_the_weights_from_its_start_epoch_on() -> None:
    graphs = random_graphs(40)
    one, other = GraphTraining(graphs, settings(), 0), GraphTraining(graphs, settings("halp.weight=0"), 0)
    assert equal(weights(one.run(1)), weights(other.run(1)))
    assert not equal(weights(one.run(2)), weights(other.run(2)))


@pytest.mark.parametrize("source", ["batch", "keys", "queue"])
def test_a_fork_equals_a_training_from_scratch_to_the_bit(source: str) -> None:
    graphs, chosen = random_graphs(40), settings(f"halp.source={source}")
    trunk = GraphTraining(graphs, chosen, 1).run(1)
    graphcl = trunk.fork(weight=0.0)
    assert equal(weights(graphcl.run()), weights(GraphTraining(graphs, settings("halp.weight=0"), 1).run()))
    assert equal(weights(trunk.run()), weights(GraphTraining(graphs, chosen, 1).run()))


@pytest.mark.parametrize(
    "more", [(), ("halp.source=keys",), ("halp.source=queue", "halp.recent=20"), ("halp.query=both",)]
)
@pytest.mark.parametrize("which", ["random2", "random4"])
def test_graphs_that_nearly_vanish_give_finite_weights(more: tuple[str, ...], which: str) -> None:
    # single nodes, no edges at all in many graphs, and a last batch of three rows for four prototypes
    graphs = random_graphs(35, largest=3, density=0.2)
    training = GraphTraining(graphs, settings(f"augment.set={which}", *more), 0).run()
    assert all(bool(torch.isfinite(value).all()) for value in weights(training))
    assert np.isfinite(training.embed()).all()


def test_a_last_batch_of_one_graph_is_left_out() -> None:
    training = GraphTraining(random_graphs(33), settings(), 0).run()
    assert all(bool(torch.isfinite(value).all()) for value in weights(training))
    assert len(training.embed()) == 33
    with pytest.raises(InputError, match="at least two"):
        GraphTraining(random_graphs(1), settings(), 0)


def test_order_is_shuffled_once_or_in_every_epoch() -> None:
    graphs = random_graphs(40)
    for order, same in (("once", True), ("epoch", False)):
        training = GraphTraining(graphs, settings(f"order={order}"), 0)
        first = training._epoch_batches()[0]
        training.run(1)
        assert torch.equal(first.starts, training._epoch_batches()[0].starts) == same


def test_seeds_differ_and_the_same_seed_does_not() -> None:
    graphs = random_graphs(40)
    embeddings = [GraphTraining(graphs, settings(), seed).run().embed() for seed in (0, 0, 1)]
    assert np.array_equal(embeddings[0], embeddings[1])
    assert not np.array_equal(embeddings[0], embeddings[2])


def test_embedding_does_not_depend_on_chunks_and_leaves_the_training_as_it_was() -> None:
    graphs = random_graphs(40)
    one, other = GraphTraining(graphs, settings(), 0).run(1), GraphTraining(graphs, settings(), 0).run(1)
    np.testing.assert_allclose(one.embed(chunk=7), one.embed(), rtol=1e-5, atol=1e-5)
    assert equal(weights(one.run()), weights(other.run()))


@pytest.mark.parametrize(
    "text", ["first_view=augmented", "include_positive=true", "augment.reading=intended", "halp.query=augmented"]
)
def test_every_reading_changes_the_result(text: str) -> None:
    graphs = random_graphs(40)
    usual = weights(GraphTraining(graphs, settings(), 0).run())
    assert not equal(usual, weights(GraphTraining(graphs, settings(text), 0).run()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch=3", "did you mean 'epochs'"),
        ("epochs", "key=value"),
        ("epochs=3.5", "whole number"),
        ("epochs=many", "whole number"),
        ("epochs=0", "has to be positive"),
        ("batch_size=1", "at least 2"),
        ("include_positive=1", "true or false"),
        ("learning_rate=true", "a number"),
        ("halp=1", "is a section"),
        ("epochs.x=1", "is not a section"),
        ("halp.source=batches", "did you mean 'batch'"),
        ("halp.prototypes=1", "at least two"),
        ("augment.set=random5", "augmentation set"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        settings(text)


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(Diverged, match="lower learning_rate"):
        GraphTraining(random_graphs(40), settings("learning_rate=1e30"), 0).run()
