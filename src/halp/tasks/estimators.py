"""Encoders and classifiers as scikit-learn estimators, for pipelines, grid searches and cross-validation.

    make_pipeline(SkeletonEncoder("runs/small-seed0"), FewLabelClassifier()).fit(clips,
    labels).predict(others)

`clips` is a list of arrays `(T, V, C)` or `(T, P, V, C)` of unequal length.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from halp.core.errors import InputError
from halp.data.arrays import store_from_arrays
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.embed import embed
from halp.features.loading import as_encoder
from halp.skeleton import Topology
from halp.tasks.calibration import REJECTION_RATE
from halp.tasks.classifier import Prediction, fit_classifier
from halp.training import load_recipe, pretrain

Clips = Sequence[npt.NDArray[Any]]


class SkeletonEncoder(TransformerMixin, BaseEstimator):
    """Clips → vectors `(N, F)` by an encoder, as a scikit-learn transformer.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str, optional
        A run, a package, a shipped name, or an encoder itself; None trains one on the clips that `fit` gets.
    topology : str or Topology, optional
        Joint layout of the clips (default: the encoder's); training needs it.
    normalisation : sequence of str
        Steps before training.
    recipe, settings : str, sequence of str
        By which an encoder is trained, and what overrides it, as `halp pretrain --set` takes it.
    batch_size : int
        Clips encoded together.
    random_state : int
        Of the training.

    Examples
    --------
    >>> clips = [np.random.default_rng(seed).normal(size=(40, 25, 3)) for seed in range(2)]
    >>> SkeletonEncoder("halp-base", topology="kinect-v2").fit_transform(clips).shape
    (2, 4176)
    """

    def __init__(
        self,
        encoder: PretrainedEncoder | str | os.PathLike[str] | None = None,
        *,
        topology: str | Topology | None = None,
        normalisation: Sequence[str] = ("centre",),
        recipe: str = "small",
        settings: Sequence[str] = (),
        batch_size: int = 256,
        random_state: int = 0,
    ) -> None:
        self.encoder = encoder
        self.topology = topology
        self.normalisation = normalisation
        self.recipe = recipe
        self.settings = settings
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Clips, y: Any = None) -> SkeletonEncoder:
        """Load the encoder, or train one on the clips without labels."""
        self.encoder_ = self._train(X) if self.encoder is None else as_encoder(self.encoder)
        self.n_features_out_ = self.encoder_.output_size
        return self

    def _train(self, clips: Clips) -> PretrainedEncoder:
        if self.topology is None:
            raise InputError(
                "SkeletonEncoder without an encoder trains one, and needs to know the topology of the clips"
            )
        recipe = load_recipe(self.recipe, ("split=all", f"seed={self.random_state}", *self.settings))
        with tempfile.TemporaryDirectory() as folder:
            store = store_from_arrays(
                Path(folder) / "store", list(clips), topology=self.topology, normalisation=self.normalisation
            )
            return pretrain(recipe, store, Path(folder) / "run", progress=False).encoder()

    def transform(self, X: Clips) -> npt.NDArray[np.float32]:
        """Vectors `(N, F)`."""
        check_is_fitted(self)
        return embed(
            self.encoder_, list(X), topology=self.topology, batch_size=self.batch_size, progress=False
        )

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Names of the columns: v0, v1, …"""
        check_is_fitted(self)
        return np.array([f"v{number}" for number in range(self.n_features_out_)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.target_tags.required = False
        return tags


class FewLabelClassifier(ClassifierMixin, BaseEstimator):
    """Vectors → classes from few labels, as a scikit-learn classifier.

    Parameters
    ----------
    kind : str
        `linear`, `knn`, `prototypes`, or `auto` for what cross-validation prefers.
    rejection_rate : float
        Share of vectors like the labelled ones that `is_novel` may call unlike all of them.
    random_state : int
        Of the folds.

    Examples
    --------
    >>> vectors = np.array([[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.1]])
    >>> FewLabelClassifier("prototypes").fit(vectors, ["up", "up", "right", "right"]).predict([[0.0, 2.0]]).tolist()
    ['up']
    """

    def __init__(
        self, kind: str = "auto", *, rejection_rate: float = REJECTION_RATE, random_state: int = 0
    ) -> None:
        self.kind = kind
        self.rejection_rate = rejection_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> FewLabelClassifier:
        """Fit on labelled vectors; vectors of a group (person or recording) stay together in selection."""
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        groups = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        names = [str(name) for name in self.classes_]
        self.classifier_ = fit_classifier(
            X,
            labels,
            names,
            units=groups,
            kind=self.kind,
            rejection_rate=self.rejection_rate,
            seed=self.random_state,
        )
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The likeliest class of every vector."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Calibrated probabilities `(N, C)`."""
        return self._predict(X).probabilities

    def is_novel(self, X: Any) -> npt.NDArray[np.bool_]:
        """True for vectors unlike all labelled ones, and for at most `rejection_rate` of those like them."""
        return self._predict(X).rejected

    def _predict(self, X: Any) -> Prediction:
        check_is_fitted(self)
        return self.classifier_.predict(validate_data(self, X, reset=False))
