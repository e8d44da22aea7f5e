"""A protocol of one's own: registered in a few lines, evaluated, saved and tabulated like the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import halp
from halp.core.errors import InputError
from halp.data.store import Store
from halp.evaluation import Predictions, ProtocolContext, RawCoordinates, protocol, register_protocol
from halp.evaluation.evaluate_run import evaluate_run, settings_for
from halp.reports.tables import accuracy_table, result_title
from halp.training import load_recipe, pretrain


@dataclass(frozen=True)
class CentroidSettings:
    """Classes by their mean feature."""

    centre: bool = True


@pytest.fixture
def centroid() -> Iterator[str]:
    @register_protocol(
        "centroid",
        CentroidSettings,
        title=lambda settings: "centroid" + (", centred" if settings.centre else ""),
    )
    def nearest_mean(context: ProtocolContext, settings: CentroidSettings) -> np.ndarray:
        features = context.features - (context.features.mean(0) if settings.centre else 0)
        train, labels = features[context.train], context.train_labels
        means = np.stack([train[labels == label].mean(0) for label in np.unique(labels)])
        distance = ((features[context.test][:, None] - means) ** 2).sum(-1)
        return np.unique(labels)[distance.argmin(1)]

    yield "centroid"
    protocol.PROTOCOLS.remove("centroid")


def test_a_plain_array_of_classes_is_enough(store: Store, centroid: str) -> None:
    raw = RawCoordinates(store.topology, persons=store.persons)
    result = halp.evaluate(raw, store, centroid, progress=False)
    assert result.accuracy > 100 / len(store.class_names)
    assert result_title(result) == "centroid, centred xsub"
    with pytest.raises(InputError, match=r"did you mean 'centroid\.centre'"):
        halp.evaluate(raw, store, centroid, progress=False, center=True)


def test_it_stands_in_the_table_of_a_run_with_its_title(
    store: Store, tmp_path: Path, tiny: tuple[str, ...], centroid: str
) -> None:
    run = pretrain(load_recipe("small", (*tiny, "epochs=1")), store, tmp_path / "run", progress=False)
    rows = evaluate_run(run, store, protocols=("knn", centroid), settings={"centroid": {"centre": False}})
    columns, cells = accuracy_table(rows)
    assert columns == ["encoder", "knn xsub", "centroid xsub"]
    assert len(cells) == 4
    assert all(isinstance(cell, float) for row in cells for cell in row[1:])
    assert len(list(run.results.glob("centroid-*.json"))) == 4


def test_results_of_a_protocol_that_is_not_loaded_keep_its_name(store: Store, centroid: str) -> None:
    result = halp.evaluate(
        RawCoordinates(store.topology, persons=store.persons), store, centroid, progress=False
    )
    known = protocol.PROTOCOLS["centroid"]
    protocol.PROTOCOLS.remove("centroid")
    assert result_title(result) == "centroid xsub"
    protocol.PROTOCOLS._entries["centroid"] = known


def test_what_trains_the_backbone_or_fuses_encoders_has_no_raw_baseline(store: Store) -> None:
    raw = RawCoordinates(store.topology, persons=store.persons)
    assert settings_for(raw, "finetune", {}) is None
    assert settings_for(raw, "ensemble", {}) is None
    assert settings_for(raw, "semi", {"semi": {"variant": "network"}}) is None
    assert settings_for(raw, "semi", {"semi": {"share": 0.5}}) == {
        "share": 0.5,
        "solver": "exact",
        "scale": "one",
        "head": "linear",
        "crops": 0,
        "penalty": 0.0,
    }
    assert settings_for(raw, "knn", {"knn": {"k": 3}}) == {"k": 3}


def test_an_mlp_head_is_offered_for_linear_evaluation_and_transfer_beside_the_baselines(
    store: Store, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    run = pretrain(load_recipe("small", (*tiny, "epochs=1")), store, tmp_path / "run", progress=False)
    mlp = {"head": "mlp", "hidden": 8, "epochs": 1}
    settings = {"linear": {**mlp, "crops": 1}, "finetune": mlp, "ensemble": {**mlp, "crops": 1}}
    rows = {
        row.name: row.results
        for row in evaluate_run(run, store, protocols=tuple(settings), settings=settings)
    }
    assert [result.settings["head"] for result in rows["run"]] == ["mlp", "mlp"]
    assert [result.settings["head"] for result in rows["ensemble joint"]] == ["mlp"]
    assert [(result.protocol, result.settings["head"]) for result in rows["raw coordinates"]] == [
        ("linear", "linear")
    ]


def test_metrics_beside_the_accuracy_are_averaged_over_the_seeds(store: Store) -> None:
    @register_protocol("counting", CentroidSettings)
    def counting(context: ProtocolContext, _: CentroidSettings) -> Predictions:
        return Predictions(context.labels[context.test], {"seed": float(context.seed)})

    try:
        raw = RawCoordinates(store.topology, persons=store.persons)
        result = halp.evaluate(raw, store, "counting", seeds=(1, 2), progress=False)
    finally:
        protocol.PROTOCOLS.remove("counting")
    assert (result.accuracy, result.metrics) == (100.0, {"seed": 1.5})
