"""Intervals over seeds, label draws and people."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from experiments.hierarchical import hierarchical_interval, resampled_means
from halp.core.errors import InputError


def test_resampled_means_follow_the_distribution_of_all_possible_resamples() -> None:
    values = np.random.default_rng(0).normal(size=(2, 2, 5))
    people = np.array([0, 0, 0, 1, 1])
    every = []
    for persons in itertools.product(range(2), repeat=2):
        clips = np.concatenate([np.flatnonzero(people == person) for person in persons])
        for seeds in itertools.product(range(2), repeat=2):
            for draws in itertools.product(itertools.product(range(2), repeat=2), repeat=2):
                rows = [values[seed][draw][clips] for seed, own in zip(seeds, draws) for draw in own]
                every.append(np.mean(rows))
    found = resampled_means(values, people, resamples=40_000)
    assert {round(value, 9) for value in found} == {round(value, 9) for value in every}
    assert found.mean() == pytest.approx(np.mean(every), abs=0.01)
    assert found.std() == pytest.approx(np.std(every), rel=0.02)


def test_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    """Ten seeds, twenty draws, twenty people, each with an effect of its own."""
    chance, covered = np.random.default_rng(1), 0
    people = np.repeat(np.arange(20), 5)
    for _ in range(200):
        effects = (
            chance.normal(size=(10, 1, 1)) + chance.normal(size=(10, 20, 1)) + chance.normal(size=20)[people]
        )
        found = hierarchical_interval(2.0 + effects, people, resamples=400)
        covered += found.low <= 2.0 <= found.high
    assert 0.88 <= covered / 200 <= 0.99


def test_frozen_draws_and_people_make_the_interval_too_narrow() -> None:
    chance, people = np.random.default_rng(2), np.repeat(np.arange(8), 6)
    values = chance.normal(size=(1, 10, 1)) + chance.normal(size=8)[people] + chance.normal(size=(1, 10, 48))
    whole = hierarchical_interval(values, people)
    clips_only = hierarchical_interval(values.mean(1, keepdims=True))
    assert whole.high - whole.low > 2 * (clips_only.high - clips_only.low)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="seeds, draws, clips"):
        resampled_means(np.zeros((2, 3)))
    with pytest.raises(InputError, match="2 people"):
        resampled_means(np.zeros((1, 1, 3)), np.array([0, 1]))
