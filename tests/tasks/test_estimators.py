"""The estimators keep scikit-learn's contract and work in its pipelines on lists of arrays of unequal
length.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils import estimator_checks

import halp
from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.tasks.estimators import FewLabelClassifier, SkeletonEncoder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["prototypes", "knn", "auto"])
def test_few_label_classifier_passes_the_checks_of_scikit_learn(kind: str) -> None:
    estimator_checks.check_estimator(FewLabelClassifier(kind))


def test_skeleton_encoder_passes_the_checks_that_need_no_table() -> None:
    name, estimator = "SkeletonEncoder", SkeletonEncoder("somewhere")
    for check in (
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_valid_tag_types,
    ):
        check(name, clone(estimator))


@pytest.fixture(scope="module")
def clips(store: Store) -> tuple[list[np.ndarray], np.ndarray]:
    """Clips of two classes of very different length."""
    names = [store.class_names[label] for label in store.labels]
    rows = [i for i, name in enumerate(names) if name in ("kick", "hug")]
    assert len({len(store.clip(i)) for i in rows}) > 3
    return [np.array(store.clip(i)) for i in rows], np.array([names[i] for i in rows])


def test_pipeline_grid_search_and_cross_validation_take_clips_of_unequal_length(
    encoder: PretrainedEncoder, clips: tuple[list[np.ndarray], np.ndarray]
) -> None:
    arrays, labels = clips
    chain = Pipeline([("encode", SkeletonEncoder(encoder)), ("classify", FewLabelClassifier("prototypes"))])
    assert set(chain.fit(arrays, labels).predict(arrays)) <= {"kick", "hug"}
    assert chain.predict_proba(arrays).sum(1) == pytest.approx(np.ones(len(arrays)))
    scores = cross_val_score(chain, arrays, labels, cv=4)
    assert scores.shape == (4,)
    assert scores.mean() > 0.6
    search = GridSearchCV(chain, {"classify__kind": ["prototypes", "knn"]}, cv=3).fit(arrays, labels)
    assert search.best_params_["classify__kind"] in ("prototypes", "knn")
    other = make_pipeline(SkeletonEncoder(encoder), LinearSVC()).fit(arrays, labels)
    assert other.score(arrays, labels) > 0.8


def test_vectors_are_those_of_embed(encoder: PretrainedEncoder, package: object, clips: tuple) -> None:
    arrays, _ = clips
    fitted = SkeletonEncoder(str(package)).fit(arrays)
    vectors = fitted.transform(arrays)
    assert np.allclose(vectors, halp.embed(encoder, arrays, progress=False), atol=1e-6)
    assert list(fitted.get_feature_names_out())[:2] == ["v0", "v1"]
    one_person = [array[:, 0] for array in arrays[:3]]
    assert SkeletonEncoder(encoder).fit_transform(one_person).shape == (3, encoder.output_size)
    with pytest.raises(NotFittedError):
        SkeletonEncoder(encoder).transform(arrays)


@pytest.mark.heavy
def test_encoder_is_trained_where_none_is_given(store: Store, tiny: tuple[str, ...]) -> None:
    arrays = [np.array(store.clip(i)) for i in range(40)]
    learner = SkeletonEncoder(topology="kinect-v2", settings=tiny)
    vectors = learner.fit_transform(arrays)
    assert vectors.shape == (40, learner.n_features_out_)
    assert np.array_equal(clone(learner).fit_transform(arrays), vectors), (
        "the same clips and seed give the same encoder"
    )
    with pytest.raises(InputError, match="topology"):
        SkeletonEncoder().fit(arrays)


def test_strange_vectors_are_novel() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(2, 16))[np.arange(40) % 2] + 0.1 * draw.normal(size=(40, 16))
    fitted = FewLabelClassifier().fit(vectors, np.arange(40) % 2, groups=np.arange(40) // 2)
    assert fitted.is_novel(vectors).mean() < 0.1
    assert fitted.is_novel(draw.normal(size=(40, 16)) * 3).mean() > 0.5
