"""The parts of the few-label classifier against slow formulas, and what they promise."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from halp.core.errors import InputError
from halp.tasks.assessment import MOST, assess, few_per_class, learning_curve
from halp.tasks.calibration import (
    accuracy_interval,
    fit_temperature,
    nearest_similarities,
    rejection_threshold,
    wilson,
)
from halp.tasks.classifier import BANK, PLAIN, Choice, fit_classifier, folds, sample_rows, suggest
from halp.tasks.heads import KINDS, Candidate, candidates, fit_head, fit_heads, project_to_row_span, unit


def blobs(count: int = 60, classes: int = 3, width: int = 8, noise: float = 0.5, seed: int = 0):
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centres = draw.normal(size=(classes, width))
    return (centres[labels] + noise * draw.normal(size=(count, width))).astype(np.float32), labels


def test_knn_votes_equal_a_loop() -> None:
    vectors, labels = blobs()
    new = blobs(seed=1)[0][:9]
    head = fit_head(Candidate("knn", 5), vectors, labels, 3)
    found = head.logits(new)
    bank, asked = head.directions(vectors), head.directions(new)
    assert len(asked) == 9
    for row, one in enumerate(asked):
        products = sorted(((float(one @ other), label) for other, label in zip(bank, labels)), reverse=True)[
            :5
        ]
        votes = [
            sum(math.exp(10 * value) for value, label in products if label == number) for number in range(3)
        ]
        assert np.allclose(found[row], np.log(np.array(votes) / sum(votes) + 1e-3), atol=1e-4)


def test_prototypes_are_the_mean_directions() -> None:
    vectors, labels = blobs()
    head = fit_head(Candidate("prototypes"), vectors, labels, 3)
    standard = (vectors - vectors.mean(0)) / vectors.std(0)
    directions = standard / np.linalg.norm(standard, axis=1, keepdims=True)
    for label in range(3):
        mean = directions[labels == label].mean(0)
        assert np.allclose(head.weight[label], mean / np.linalg.norm(mean), atol=1e-5)
    assert np.allclose(head.logits(vectors), 10 * directions @ head.weight.T, atol=1e-4)


@pytest.mark.parametrize(("classes", "width", "kept"), [(2, 8, 48), (3, 8, 48), (3, 200, 48), (3, 8, 21)])
def test_linear_head_is_at_the_minimum_of_its_loss(classes: int, width: int, kept: int) -> None:
    vectors, labels = blobs(48, classes, width, noise=2.0)
    rare = np.flatnonzero(labels == 0)[kept // 3 :]
    vectors, labels = np.delete(vectors, rare, 0), np.delete(labels, rare)
    share = (len(labels) / classes / np.bincount(labels))[labels]  # classes weigh alike
    head = fit_head(Candidate("linear", 10.0), vectors, labels, classes)
    rows = head.standardise(vectors).astype(np.float64) / math.sqrt(width)

    def loss(weight: np.ndarray, bias: np.ndarray) -> float:
        scores = rows @ weight.T + bias
        scores = scores - scores.max(1, keepdims=True)
        right = scores[np.arange(len(rows)), labels] - np.log(np.exp(scores).sum(1))
        # two classes are one weight vector: half of it on either side
        penalty = 0.5 * (weight**2).sum() * (2 if classes == 2 else 1) / 10.0
        return float(-(share * right).sum() + penalty)

    weight, bias = head.weight.astype(np.float64) * math.sqrt(width), head.bias.astype(np.float64)
    best = loss(weight, bias)
    draw = np.random.default_rng(0)
    for _ in range(20):
        step = 0.02 * draw.normal(size=weight.shape)
        step = step - step.mean(0) if classes == 2 else step
        assert loss(weight + step, bias) > best - 1e-3
        assert loss(weight, bias + 0.02 * draw.normal(size=classes)) > best - 1e-3


def test_many_labels_of_one_class_do_not_make_everything_that_class() -> None:
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(5, 32))
    truth, labels = np.arange(200) % 5, np.repeat(np.arange(5), [20, 5, 5, 5, 5])
    new, vectors = (
        (centres[rows] + 4 * draw.normal(size=(len(rows), 32))).astype(np.float32) for rows in (truth, labels)
    )
    best = fit_classifier(vectors, labels, "abcde").predict(new).best
    assert (best == 0).mean() < 0.6
    assert np.mean([(best[truth == label] == label).mean() for label in range(5)]) > 0.28  # by chance 0.2


def test_one_class_and_one_vector_are_possible() -> None:
    vectors, _ = blobs(5)
    for kind in KINDS:
        one = fit_classifier(vectors, np.zeros(5, np.int64), ["walk"], kind=kind)
        assert one.predict(vectors).best.tolist() == [0] * 5
        alone = fit_classifier(vectors[:1], np.zeros(1, np.int64), ["walk"], kind=kind)
        assert alone.predict(vectors[:1]).best.tolist() == [0]
    pair = fit_classifier(vectors[:2], np.array([0, 1]), ["walk", "run"])
    assert pair.predict(vectors[:2]).best.tolist() == [0, 1]


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
def test_temperature_is_recovered_from_labels_drawn_with_it(true: float) -> None:
    draw = np.random.default_rng(0)
    logits = 2 * draw.normal(size=(4000, 4))
    chances = softmax(logits / true, axis=1)
    labels = np.array([draw.choice(4, p=row) for row in chances])
    assert fit_temperature(logits, labels) == pytest.approx(true, rel=0.1)


def test_few_right_answers_do_not_make_certainty() -> None:
    logits = np.array([[9.0, -9.0], [-9.0, 9.0]])
    certain = softmax(logits / fit_temperature(logits, np.array([0, 1])), axis=1).max()
    assert certain == pytest.approx(0.75, abs=0.01)  # (n + 1) / (n + 2) with n = 2


def test_probabilities_mean_what_they_say() -> None:
    vectors, labels = blobs(600, 4, 6, noise=1.2)
    for kind in KINDS:
        fitted = fit_classifier(vectors[:200], labels[:200], list("abcd"), kind=kind)
        found = fitted.predict(vectors[200:])
        right = (found.best == labels[200:]).mean()
        assert found.probability.mean() == pytest.approx(right, abs=0.08), kind


def test_similarities_to_the_nearest_of_other_groups_equal_a_loop() -> None:
    vectors, _ = blobs(20)
    directions, groups = unit(vectors), np.arange(20) // 2
    slow = [
        max(float(directions[i] @ directions[j]) for j in range(20) if groups[j] != groups[i])
        for i in range(20)
    ]
    assert nearest_similarities(directions, groups) == pytest.approx(sorted(slow), abs=1e-6)
    alone = nearest_similarities(directions[:2], np.array([3, 3]))
    assert len(alone) == 0
    assert rejection_threshold(alone, 0.05) == -np.inf


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_so_many_of_the_familiar_are_called_unlike_everything_as_was_allowed(share: float) -> None:
    vectors, labels = blobs(1200, 3, 16, noise=0.4)
    fitted = fit_classifier(vectors[:600], labels[:600], list("abc"), rejection_rate=share)
    assert fitted.predict(vectors[600:]).rejected.mean() == pytest.approx(share, abs=0.04)
    at_use = fit_classifier(vectors[:600], labels[:600], list("abc")).predict(vectors[600:], reject=share)
    assert np.array_equal(at_use.rejected, fitted.predict(vectors[600:]).rejected)


def test_what_is_unlike_everything_is_rejected_and_keeps_its_best_class() -> None:
    vectors, labels = blobs(90, 3, 32, noise=0.2)
    fitted = fit_classifier(vectors, labels, list("abc"))
    familiar, _ = blobs(90, 3, 32, noise=0.2)
    strange = np.random.default_rng(9).normal(size=(50, 32)).astype(np.float32) * 3
    assert fitted.predict(familiar).rejected.mean() < 0.1
    found = fitted.predict(strange)
    assert found.rejected.mean() > 0.9
    assert np.array_equal(found.probabilities, fitted.predict(strange, reject="none").probabilities)
    assert not fitted.predict(strange, reject="none").rejected.any()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.floats(0, 0.99))
def test_rejection_of_exchangeable_similarities_never_exceeds_its_rate(count: int, rate: float) -> None:
    ranks = np.arange(count + 1.0)
    rejected = [rank < rejection_threshold(np.delete(ranks, place), rate) for place, rank in enumerate(ranks)]
    assert np.mean(rejected) <= rate + 1e-6


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), min_size=4, max_size=40), st.integers(0, 3))
def test_folds_keep_groups_together_and_cover_everything(rows: list[tuple[int, int]], seed: int) -> None:
    labels = np.array([label for label, _ in rows])
    groups = np.array([10 * label + group for label, group in rows])
    found = folds(labels, groups, seed)
    for train, test in found:
        assert not set(groups[train]) & set(groups[test])
    if found:
        assert sorted(itertools.chain.from_iterable(test.tolist() for _, test in found)) == list(
            range(len(rows))
        )
    else:
        assert min(len(set(groups[labels == label])) for label in set(labels.tolist())) < 2


def test_intervals_hold_what_they_should() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(50, 100)
    assert (round(low, 4), round(high, 4)) == (0.4038, 0.5962)
    right = np.tile([True, False], 50)
    alone = accuracy_interval(right, np.arange(100), np.arange(100))
    # answers of a person that go together say less than the same number of independent ones
    together = accuracy_interval(np.repeat([True, False], 50), np.arange(100), np.arange(100) // 25)
    assert together[0] < alone[0] < 0.5 < alone[1] < together[1]
    windows = accuracy_interval(right, np.arange(100) // 10, np.arange(100) // 10)
    assert windows[0] < alone[0]


@pytest.mark.heavy
def test_assessment_tells_good_vectors_from_poor_ones() -> None:
    vectors, labels = blobs(60, 3, 16, noise=1.6)
    noise = np.random.default_rng(5).normal(size=(60, 16)).astype(np.float32)
    groups = np.arange(60)
    judged = assess(vectors, noise, labels, groups, groups, progress=False)
    encoder, curve = judged["encoder"], judged["curve"]
    assert encoder["accuracy"] > 0.7
    assert judged["raw"]["accuracy"] < 0.6
    assert encoder["low"] < encoder["accuracy"] < encoder["high"]
    assert list(curve) == [1, 2, 4, 8, 16]
    assert curve[16][0] > curve[1][0]
    nothing = assess(vectors[:3], noise[:3], labels[:3], groups[:3], groups[:3], progress=False)
    assert nothing == {"encoder": None, "raw": None, "curve": {}}


def test_learning_curve_takes_whole_groups() -> None:
    labels, groups = np.arange(40) % 2, np.arange(40) // 4 * 2 + np.arange(40) % 2
    rows = few_per_class(np.arange(40), labels, groups, 3, np.random.default_rng(0))
    for label in (0, 1):
        assert len(set(groups[rows][labels[rows] == label])) == 3
    splits = folds(labels, groups)
    assert list(learning_curve(Choice(PLAIN, Candidate("knn")), blobs(40, 2)[0], labels, groups, splits)) == [
        1,
        2,
        4,
        8,
    ]


def test_held_out_clips_shape_nothing_in_the_learning_curve() -> None:
    vectors, labels = blobs(40, 2, noise=0.1)
    splits = [(np.arange(30), np.arange(30, 40))]
    how = (labels, np.arange(40), splits)
    assert set(learning_curve(Choice(PLAIN, Candidate("knn")), vectors, *how).values()) == {1.0}
    vectors[-1] = 1e6 * np.arange(1, vectors.shape[1] + 1)  # would move every mean and scale
    assert min(learning_curve(Choice(PLAIN, Candidate("knn")), vectors, *how).values()) >= 0.9


def test_samples_of_many_labels_keep_two_groups_of_every_class() -> None:
    labels, groups = np.repeat([0, 1], [990, 10]), np.arange(1000) // 5
    rows = sample_rows(labels, groups, 50, 0)
    assert len(rows) == len(set(rows.tolist())) == 50
    assert all(len(set(groups[rows][labels[rows] == label])) >= 2 for label in (0, 1))
    people = np.arange(1000) % 40
    assert len(set(people[sample_rows(np.zeros(1000, np.int64), people, 400, 0)])) == 40
    assert np.array_equal(sample_rows(labels, groups, 2000, 0), np.arange(1000))


def test_products_are_kept_in_the_span_of_few_vectors() -> None:
    vectors, _ = blobs(12, width=300)
    standard = (vectors - vectors.mean(0)) / vectors.std(0)
    coordinates = project_to_row_span(vectors)
    assert coordinates.shape == (12, 12)
    assert np.allclose(coordinates @ coordinates.T, standard @ standard.T, atol=1e-2)


def test_very_many_labels_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halp.tasks.classifier._MOST_NUMBERS", 8 * 4000)
    vectors, labels = blobs(20_000, 4)
    fitted = fit_classifier(vectors, labels, list("abcd"), kind="linear")
    assert len(fitted.head.bank) <= BANK
    assert (fitted.predict(vectors[:500]).best == labels[:500]).mean() > 0.8


def test_suggestions_equal_a_greedy_loop() -> None:
    vectors, labels = blobs(12, noise=1.0)
    fitted = fit_classifier(vectors, labels, list("abc"))
    pool = blobs(25, noise=1.5, seed=3)[0]
    found = suggest(fitted, pool, 4)
    predicted = fitted.predict(pool)
    unsure = (entropy(predicted.probabilities, axis=1) / np.log(predicted.probabilities.shape[1])).tolist()
    known = list(fitted.head.bank)
    directions = fitted.head.directions(pool)
    chosen: list[int] = []
    for _ in range(4):
        worth = {
            row: (unsure[row] + 1e-6) * (1 + 1e-6 - max(float(directions[row] @ other) for other in known))
            for row in range(25)
            if row not in chosen
        }
        chosen.append(max(worth, key=lambda row: worth[row]))
        known.append(directions[chosen[-1]])
    assert [one.row for one in found] == chosen
    assert len(suggest(fitted, pool[:2], 9)) == 2
    with pytest.raises(InputError, match="at least 1"):
        suggest(fitted, pool, 0)


def test_wrong_settings_are_refused() -> None:
    vectors, labels = blobs(6)
    with pytest.raises(InputError, match="unknown classifier"):
        candidates("forest")
    with pytest.raises(InputError, match="whole for knn"):
        Candidate("knn", 1.5)
    with pytest.raises(InputError, match="0 or more, below 1"):
        fit_classifier(vectors, labels, list("abc"), rejection_rate=1.0)
    with pytest.raises(InputError, match="do not make a classifier"):
        fit_classifier(vectors, labels[:3], list("abc"))


@pytest.mark.parametrize("rows", [40, 200])
def test_strengths_fitted_one_after_the_other_are_those_fitted_alone(rows: int) -> None:
    """With fewer rows than features too, where the path is found in the span of the rows."""
    rng = np.random.default_rng(rows)
    labels = rng.integers(0, 4, rows)
    vectors = (rng.normal(size=(4, 90))[labels] + 2 * rng.normal(size=(rows, 90))).astype(np.float32)
    tried = candidates("linear")
    assert len(tried) == 4
    together = fit_heads(tried, vectors, labels, 4)
    for candidate, head in zip(tried, together, strict=True):
        alone = fit_head(candidate, vectors, labels, 4, standard=True)
        reference = LogisticRegression(C=candidate.setting, max_iter=5000, tol=1e-8, class_weight="balanced")
        reference.fit(vectors.astype(np.float64) / np.sqrt(90), labels)
        expected = reference.predict_proba(vectors / np.sqrt(90))
        for fitted in (head, alone):
            assert np.abs(softmax(fitted.logits(vectors), axis=1) - expected).max() < 0.02


@pytest.mark.slow
def test_a_thousand_labels_are_fitted_and_assessed_in_seconds() -> None:
    rng = np.random.default_rng(0)
    labels, people = np.arange(1000) % 24, rng.integers(0, 20, 1000)
    vectors = (rng.normal(size=(24, 4176))[labels] + 4 * rng.normal(size=(1000, 4176))).astype(np.float32)
    rows = sample_rows(labels, people, MOST, 0)
    began = time.process_time()
    with threadpool_limits(1):
        fit_classifier(vectors, labels, [str(label) for label in range(24)], units=people)
        part = vectors[rows], vectors[rows][:, ::2], labels[rows], people[rows], rows
        assessed = assess(*part, progress=False)
    assert time.process_time() - began < 10
    assert assessed["encoder"]["accuracy"] > 0.5
