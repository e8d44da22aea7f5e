"""Purity of prototypes and share of false positives against loops over keys, and on spheres whose answer is known."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from benchmarks.prototype_quality import false_share, prototype_purity, prototype_quality
from halp.sphere import unit


def sphere(number: int, seed: int = 0) -> Tensor:
    return unit(torch.randn(number, 6, generator=torch.Generator().manual_seed(seed)))


def test_purity_counts_the_commonest_class_of_every_prototype() -> None:
    keys, prototypes = sphere(40), sphere(5, seed=1)
    labels = torch.randint(3, (40,), generator=torch.Generator().manual_seed(2))
    members: dict[int, Counter[int]] = {}
    for key, label in zip(keys, labels.tolist()):
        nearest = max(range(5), key=lambda one: float(key @ prototypes[one]))
        members.setdefault(nearest, Counter())[label] += 1
    expected = sum(max(counts.values()) for counts in members.values()) / 40
    assert prototype_purity(keys, labels, prototypes) == pytest.approx(expected)


def test_false_share_leaves_the_anchor_itself_out() -> None:
    keys, vectors = sphere(30), sphere(12, seed=3)
    labels = torch.randint(3, (30,), generator=torch.Generator().manual_seed(4))
    anchors = torch.arange(12)
    wrong = 0
    for vector, anchor in zip(vectors, anchors.tolist()):
        others = [one for one in range(30) if one != anchor]
        nearest = max(others, key=lambda one: float(vector @ keys[one]))
        wrong += int(labels[nearest] != labels[anchor])
    assert false_share(vectors, anchors, keys, labels) == pytest.approx(wrong / 12)


def test_well_separated_classes_give_pure_prototypes_and_no_false_positives() -> None:
    centres = torch.eye(4, 6)
    labels = torch.arange(4).repeat_interleave(16)
    keys = unit(centres[labels] + 0.02 * torch.randn(64, 6, generator=torch.Generator().manual_seed(5)))
    found = prototype_quality(
        keys, labels, prototypes=4, recent=64, count=30, hardness=0.5, generator=torch.Generator().manual_seed(6)
    )
    assert found.purity == 1.0
    assert found.false_keys == 0.0
    assert found.false_positives == 0.0
    assert 0 < found.kept <= 1


def test_labels_at_random_are_false_as_often_as_chance_says() -> None:
    keys, draw = sphere(512, seed=7), torch.Generator().manual_seed(8)
    labels = torch.randint(4, (512,), generator=draw)
    found = prototype_quality(keys, labels, prototypes=8, recent=256, count=5, generator=draw)
    assert found.false_keys == pytest.approx(0.75, abs=0.08)
    assert found.false_positives == pytest.approx(0.75, abs=0.08)
    assert 0.25 < found.purity < 0.5
