"""Clips without labels: a metric of mutual neighbours, labels spread over a graph, and what cross-validation
takes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import halp
from halp.core.errors import InputError
from halp.data.arrays import store_from_arrays
from halp.data.synthetic import make_synthetic_store
from halp.encoders.sides import with_sides
from halp.tasks.adapt import (
    REACH,
    STEPS,
    Neighbourhood,
    allowed_methods,
    better_by_more_than_noise,
    fit_metric,
    graph,
    mutual_neighbours,
    spread_labels,
)
from halp.tasks.classifier import choose, fit_classifier


def clouds(
    per_class: int = 40, classes: int = 4, width: int = 60, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Classes around centres of their own, with a nuisance in five directions that all of them share."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    nuisance = 2 * draw.normal(size=(len(labels), 5)) @ draw.normal(size=(5, width))
    centres = 0.7 * draw.normal(size=(classes, width))
    return (centres[labels] + nuisance + 0.5 * draw.normal(size=(len(labels), width))).astype(
        np.float32
    ), labels


def test_mutual_neighbours_are_those_of_a_loop_and_never_of_one_group() -> None:
    draw = np.random.default_rng(0)
    points, groups = draw.normal(size=(20, 4)), np.arange(20) // 2
    similarity = (points @ points.T).astype(np.float32)
    nearest = []
    for row in range(20):
        others = [other for other in range(20) if groups[other] != groups[row]]
        nearest.append(sorted(others, key=lambda other: -similarity[row, other])[:3])
    slow = {(i, j) for i in range(20) for j in range(i + 1, 20) if j in nearest[i] and i in nearest[j]}
    assert set(zip(*(side.tolist() for side in mutual_neighbours(similarity, groups)))) == slow
    assert slow


def test_metric_shrinks_what_neighbours_differ_in_and_nothing_else() -> None:
    vectors, _ = clouds()
    metric = fit_metric(vectors)
    np.testing.assert_allclose(metric.axes.T @ metric.axes, np.eye(len(metric.left)), atol=1e-4)
    assert 0 < metric.left.min() < 1
    assert metric.left.max() <= 1
    rows = (vectors - metric.mean) / metric.scale
    slow = rows - rows @ metric.axes @ np.diag(1 - metric.left) @ metric.axes.T
    np.testing.assert_allclose(metric(vectors), slow / np.linalg.norm(slow, axis=1, keepdims=True), atol=1e-4)


def test_spread_labels_are_the_closed_form_with_classes_evened() -> None:
    vectors, labels = clouds(per_class=10)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    links = graph(unit @ unit.T)
    rows = np.array([0, 10, 20, 30, 31])
    given = np.zeros((40, 4))
    given[rows, labels[rows]] = 1
    slow = (1 - REACH) * np.linalg.solve(np.eye(40) - REACH * links.toarray(), given)  # type: ignore[attr-defined]
    slow /= slow.sum(0)
    slow /= slow.sum(1, keepdims=True)
    slow[rows] = given[rows]
    assert REACH**STEPS < 2e-4
    np.testing.assert_allclose(spread_labels(links, rows, labels[rows], 4), slow, atol=2e-3)


def test_head_gives_the_scores_of_the_neighbourhood() -> None:
    vectors, labels = clouds()
    near = Neighbourhood.of(vectors[:8], vectors[8:])
    rows = np.arange(8)
    for method in ("both", "spread", "metric"):
        scores = near.scores(method, rows, labels[:8] % 2, 2, np.arange(len(vectors)))
        np.testing.assert_allclose(
            near.head(method, rows, labels[:8] % 2, 2).logits(vectors), scores, atol=1e-3
        )


def test_one_label_per_class_goes_further_with_clips_without_labels() -> None:
    gains = []
    for seed in range(5):
        vectors, labels = clouds(seed=seed)
        few = np.array([40 * label for label in range(4)])
        rest = np.setdiff1d(np.arange(160), few)
        near = Neighbourhood.of(vectors[few], vectors[rest])
        accuracy = []
        for given in (None, near):
            fitted = fit_classifier(vectors[few], labels[few], list("abcd"), neighbourhood=given)
            accuracy.append((fitted.predict(vectors[rest]).best == labels[rest]).mean())
        gains.append(accuracy[1] - accuracy[0])
    assert np.mean(gains) > 0.05


class Misleading(Neighbourhood):
    """Its methods answer the opposite of what they found."""

    def scores(self, *asked: Any) -> Any:
        return -super().scores(*asked)


@pytest.mark.parametrize("kind", [Neighbourhood, Misleading])
def test_plain_is_taken_where_clips_without_labels_mislead(kind: type[Neighbourhood]) -> None:
    vectors, labels = clouds()
    near = kind.of(vectors[::4], np.delete(vectors, np.s_[::4], axis=0))
    part = vectors[::4], labels[::4], 4, np.arange(40), "auto"
    choice = choose(*part, neighbourhood=near, rows=np.arange(40))
    assert (choice == choose(*part)) == (kind is Misleading)


@pytest.mark.parametrize("others", [0, 1])
def test_clips_of_other_movements_are_not_used(others: int) -> None:
    vectors, labels = clouds()
    few = np.array([40 * label for label in range(4)])
    further = [np.delete(vectors, few, axis=0), clouds(seed=1)[0] + 3.0][others]
    near = Neighbourhood.of(vectors[few], further)
    part = vectors[few], labels[few], 4, np.arange(4)
    assert near.resembles(np.arange(4)) == (not others)
    choice = choose(*part, "auto", neighbourhood=near, rows=np.arange(4))
    assert (choice.method == "plain") == bool(others)
    assert choose(*part, "adapted", neighbourhood=near, rows=np.arange(4)).method != "plain"


def test_few_clips_per_class_have_no_metric() -> None:
    assert allowed_methods(39, 4) == ("spread",)
    assert allowed_methods(40, 4) == ("both", "spread", "metric")


def test_a_difference_within_a_standard_error_is_noise() -> None:
    right, other = np.ones(20, bool), np.ones(20, bool)
    other[0] = False
    assert not better_by_more_than_noise(right, other, np.arange(20))
    other[:10] = False
    assert better_by_more_than_noise(right, other, np.arange(20))


def test_classify_fit_uses_unlabelled_clips_and_saves_what_it_needs(tmp_path: Path) -> None:
    whole = make_synthetic_store(tmp_path / "whole", count=120, seed=0)
    few = [
        row for label in range(len(whole.class_names)) for row in np.flatnonzero(whole.labels == label)[:2]
    ]
    store = store_from_arrays(
        tmp_path / "store",
        [whole.clip(row) for row in range(120)],
        topology=whole.topology,
        labels=[int(label) if row in few else -1 for row, label in enumerate(whole.labels)],
        class_names=whole.class_names,
        normalisation=whole.normalisation,
    )
    model = halp.classify_fit("halp-base", store, kind="adapted", progress=False)
    assert model.classifier.head.candidate.kind == "adapted"
    assert model.assessment["unlabelled"] == 120 - len(few)
    loaded = halp.load_model(halp.save_model(model, tmp_path / "model"))
    one, two = (halp.classify_predict(each, store, cache=False, progress=False) for each in (model, loaded))
    assert [(a.more["best"], a.score) for a in one] == [(a.more["best"], a.score) for a in two]
    labelled = halp.open_source(store).select(np.array(few))
    named = halp.classify_fit("halp-base", labelled, unlabelled=whole, kind="adapted", progress=False)
    assert named.assessment["unlabelled"] == 120


def test_kind_adapted_without_unlabelled_clips_is_refused(tmp_path: Path) -> None:
    store = make_synthetic_store(tmp_path / "store", count=24, seed=0)
    with pytest.raises(InputError, match="--unlabelled"):
        halp.classify_fit("halp-base", store, kind="adapted", progress=False)


def test_search_and_groups_run_in_the_adapted_metric(tmp_path: Path) -> None:
    store = make_synthetic_store(tmp_path / "store", count=120, seed=0)
    labels = dict(zip(store.names, store.labels))
    right = {False: 0, True: 0}
    for adapt in right:
        for name in store.names[:3]:
            hits = halp.search("halp-base", name, store, k=5, adapt=adapt, cache=False, progress=False)
            assert len(hits) == 5
            assert name not in [hit.recording for hit in hits]
            right[adapt] += sum(labels[hit.recording] == labels[name] for hit in hits)
    assert right[True] >= right[False] - 3
    clusters = halp.cluster("halp-base", store, groups=6, adapt=True, cache=False, progress=False).clusters
    assert clusters.sizes.sum() == 120


def test_too_few_clips_are_not_adapted_to(tmp_path: Path) -> None:
    store = make_synthetic_store(tmp_path / "store", count=24, seed=0)
    with pytest.raises(InputError, match="too few to adapt"):
        halp.cluster("halp-base", store, adapt=True, cache=False, progress=False)


def test_where_sides_are_the_same_a_mirrored_clip_has_the_same_vector(tmp_path: Path) -> None:
    encoder = halp.load_encoder("halp-base")
    clips = torch.rand(2, 64, 1, 16, 3, generator=torch.Generator().manual_seed(0))
    image = clips[:, :, :, encoder.topology.mirror] * torch.tensor([-1.0, 1, 1])
    same, soft = with_sides(encoder, "same"), with_sides(encoder, "soft")
    with torch.inference_mode():
        torch.testing.assert_close(same(clips), same(image))
        torch.testing.assert_close(soft(clips)[:, :4176], same(clips))
        torch.testing.assert_close(soft(clips)[:, 4176:], -soft(image)[:, 4176:], atol=1e-4, rtol=1e-4)
    store = make_synthetic_store(tmp_path / "store", count=24, seed=0)
    model = halp.classify_fit("halp-base", store, kind="prototypes", sides="soft", progress=False)
    loaded = halp.load_model(halp.save_model(model, tmp_path / "model"))
    one, two = (halp.classify_predict(each, store, cache=False, progress=False) for each in (model, loaded))
    assert [(a.more["best"], a.score) for a in one] == [(a.more["best"], a.score) for a in two]
