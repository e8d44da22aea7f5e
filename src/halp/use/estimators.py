"""Encoders and classifiers as scikit-learn estimators, for pipelines, grid searches and cross-validation.

    make_pipeline(SkeletonEncoder("runs/small-seed0"), FewLabelClassifier()).fit(clips, labels).predict(others)

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

from halp.clips.arrays import store_from_arrays
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.skeleton import Topology
from halp.training import load_encoder, load_recipe, pretrain
from halp.use.classifier import fit_classifier
from halp.use.embed import embed_clips
from halp.use.sources import in_blocks, read_source

Clips = Sequence[npt.NDArray[Any]]


class SkeletonEncoder(TransformerMixin, BaseEstimator):
    """Clips → vectors `(N, F)` by an encoder.

    `encoder` is a run, a package, the name of a shipped encoder, or an encoder itself; with None one is trained on the clips
    that `fit` gets (they need a `topology`), by a recipe and `settings` that override it as `halp pretrain --set` does.
    """

    def __init__(
        self,
        encoder: PackagedEncoder | str | os.PathLike[str] | None = None,
        *,
        topology: str | Topology | None = None,
        normalisation: Sequence[str] = ("centre",),
        recipe: str = "small",
        settings: Sequence[str] = (),
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.topology = topology
        self.normalisation = normalisation
        self.recipe = recipe
        self.settings = settings
        self.batch_size = batch_size
        self.seed = seed

    def fit(self, X: Clips, y: Any = None) -> SkeletonEncoder:
        """Load the encoder, or train one on the clips without labels."""
        if isinstance(self.encoder, PackagedEncoder):
            self.encoder_ = self.encoder
        elif self.encoder is not None:
            self.encoder_ = load_encoder(self.encoder)
        else:
            self.encoder_ = self._train(X)
        self.n_features_out_ = self.encoder_.output_size
        return self

    def _train(self, clips: Clips) -> PackagedEncoder:
        if self.topology is None:
            raise InputError(
                "SkeletonEncoder without an encoder trains one, and needs to know the topology of the clips"
            )
        recipe = load_recipe(self.recipe, ("split=all", f"seed={self.seed}", *self.settings))
        with tempfile.TemporaryDirectory() as folder:
            store = store_from_arrays(
                Path(folder) / "store", list(clips), topology=self.topology, normalisation=self.normalisation
            )
            return pretrain(recipe, store, Path(folder) / "run", progress=False).encoder()

    def transform(self, X: Clips) -> npt.NDArray[np.float32]:
        """Vectors `(N, F)`."""
        check_is_fitted(self)
        clips = read_source(self.encoder_, list(X))
        return np.concatenate(
            [embed_clips(self.encoder_, block) for block in in_blocks(clips, self.batch_size, 65_536)]
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
    """Vectors → classes from few labels: linear, knn, prototypes, or what cross-validation prefers (auto)."""

    def __init__(self, kind: str = "auto", *, unsure: float = 0.05, random_state: int = 0) -> None:
        self.kind = kind
        self.unsure = unsure
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> FewLabelClassifier:
        """Fit on labelled vectors; vectors of one group (person or recording) stay together while settings are chosen."""
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        groups = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        names = [str(name) for name in self.classes_]
        self.classifier_ = fit_classifier(
            X, labels, names, groups=groups, kind=self.kind, unsure=self.unsure, seed=self.random_state
        )
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The likeliest class of every vector."""
        found = self.predict_proba(X).argmax(1)
        return self.classes_[found]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Calibrated probabilities `(N, C)`."""
        return self._predict(X, reject=False).probabilities

    def is_novel(self, X: Any) -> npt.NDArray[np.bool_]:
        """Which vectors are unlike everything that was labelled."""
        return self._predict(X, reject=True).label < 0

    def _predict(self, X: Any, *, reject: bool) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return self.classifier_.predict(X, reject=reject)
