"""Features, kNN, linear evaluation and results against scikit-learn and slow formulas."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

import halp
from halp.core.errors import InputError
from halp.core.sampling import generator
from halp.data.clip import Clip
from halp.data.normalise import normalise
from halp.data.store import Store
from halp.data.store_writer import StoreWriter
from halp.data.synthetic import synthetic_clips
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import RawCoordinates, Result
from halp.evaluation.evaluate_run import EncoderResults, evaluate_run, fitting_shipped, verdict
from halp.evaluation.protocols.knn import knn_predict, neighbours
from halp.evaluation.protocols.linear import LinearSettings, fit_linear, linear_scores
from halp.evaluation.results import score
from halp.features.cache import module_fingerprint
from halp.features.embed import embed
from halp.skeleton import Topology
from halp.training import load_recipe, pretrain


def blobs(seed: int = 0, classes: int = 4, each: int = 40, width: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    labels = np.repeat(np.arange(classes), each)
    return (centres[labels] + 0.8 * rng.normal(size=(len(labels), width))).astype(np.float32), labels


def untrained(store: Store, stream: str = "joint") -> PretrainedEncoder:
    torch.manual_seed(0)
    encoder = build_encoder(EncoderSettings(hidden=8, layers=1), store.topology, store.persons)
    return PretrainedEncoder(
        encoder, store.topology, stream=stream, persons=2, frames=16, normalisation=store.normalisation
    ).eval()


@pytest.mark.parametrize("k", [1, 5])
def test_knn_equals_scikit_learn(k: int) -> None:
    (train, labels), (test, _) = blobs(0), blobs(1)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test)]
    reference = KNeighborsClassifier(k, metric="cosine", algorithm="brute").fit(unit[0], labels)
    votes = np.sort(reference.predict_proba(unit[1]), axis=1)
    clear = votes[:, -1] > votes[:, -2]  # ties are broken differently
    assert clear.mean() > 0.9
    predicted = knn_predict(train, labels, test, k)
    assert (predicted == reference.predict(unit[1]))[clear].all()


def test_neighbours_are_exact_for_every_chunk_size() -> None:
    (train, _), (test, _) = blobs(0), blobs(1)
    cosine = (test / np.linalg.norm(test, axis=1, keepdims=True)) @ (
        train / np.linalg.norm(train, axis=1, keepdims=True)
    ).T
    for chunk in (7, 1000):
        found, similarity = neighbours(train, test, 3, chunk=chunk)
        np.testing.assert_allclose(similarity, -np.sort(-cosine, axis=1)[:, :3], atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(cosine, found, 1), similarity, atol=1e-5)
    with pytest.raises(InputError, match="k = 0"):
        neighbours(train, test, 0)


def test_weighted_votes_prefer_the_nearer() -> None:
    train = np.array([[1, 0], [0.6, 0.8], [0.6, 0.81]], dtype=np.float32)
    test = np.array([[1, 0.05]], dtype=np.float32)
    labels = np.array([0, 1, 1])
    assert knn_predict(train, labels, test, 3).tolist() == [1]
    assert knn_predict(train, labels, test, 3, temperature=0.05).tolist() == [0]


def test_exact_linear_solver_equals_scikit_learn() -> None:
    (train, labels), (test, truth) = blobs(0), blobs(1)
    ours = fit_linear(
        [train], labels, LinearSettings(solver="exact", penalty=1e-2), generator(0, "t"), progress=False
    )
    mean, scale = train.mean(0), train.std(0, ddof=1)
    reference = LogisticRegression(C=1 / (1e-2 * len(train)), max_iter=2000, tol=1e-8).fit(
        (train - mean) / scale, labels
    )
    with torch.no_grad():
        logits = ours(torch.from_numpy(test)).numpy()
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities, reference.predict_proba((test - mean) / scale), atol=5e-3)
    assert (linear_scores(ours, test).argmax(1) == truth).mean() > 0.8


def test_exact_solver_with_more_columns_than_clips_equals_scikit_learn() -> None:
    (train, labels), (test, _) = blobs(0, each=6, width=60), blobs(1, width=60)
    ours = fit_linear(
        [train], labels, LinearSettings(solver="exact", penalty=0.1), generator(0, "t"), progress=False
    )
    mean, scale = train.mean(0), train.std(0, ddof=1)
    reference = LogisticRegression(C=1 / (0.1 * len(train)), max_iter=5000, tol=1e-8).fit(
        (train - mean) / scale, labels
    )
    with torch.no_grad():
        probabilities = ours(torch.from_numpy(test)).softmax(1).numpy()
    np.testing.assert_allclose(probabilities, reference.predict_proba((test - mean) / scale), atol=5e-3)


@pytest.mark.parametrize("penalty", [1.0, 0.01])
def test_exact_solver_ends_where_the_gradient_vanishes(penalty: float) -> None:
    train, labels = blobs(0, each=20, width=3000)
    train = np.cumsum(train, axis=1)  # neighbouring columns are alike, as those of raw coordinates are
    settings = LinearSettings(solver="exact", penalty=penalty)
    layer = fit_linear([train], labels, settings, generator(0, "t"), progress=False).layer
    rows = torch.from_numpy((train - train.mean(0)) / train.std(0, ddof=1)).double()
    weight, bias = (value.detach().double().requires_grad_() for value in (layer.weight, layer.bias))
    loss = torch.nn.functional.cross_entropy(rows @ weight.T + bias, torch.from_numpy(labels))
    (loss + penalty / 2 * weight.square().sum()).backward()
    assert weight.grad.norm() < 1e-4


def test_sgd_agrees_with_the_exact_solver_within_noise() -> None:
    (train, labels), (test, truth) = blobs(0), blobs(1)
    accuracy = {}
    for solver in ("sgd", "exact"):
        classifier = fit_linear(
            [train, train + 0.01], labels, LinearSettings(solver=solver), generator(0, "t"), progress=False
        )
        accuracy[solver] = (linear_scores(classifier, test).argmax(1) == truth).mean()
    assert abs(accuracy["sgd"] - accuracy["exact"]) < 0.05


@pytest.mark.parametrize("protocol", ["knn", "linear"])
def test_evaluation_leaves_the_backbone_bit_equal(store: Store, protocol: str) -> None:
    encoder = untrained(store).train()
    before = module_fingerprint(encoder)
    result = halp.evaluate(
        encoder, store, protocol, progress=False, **({"epochs": 2} if protocol == "linear" else {})
    )
    assert result.backbone == {"before": before, "after": before}
    assert module_fingerprint(encoder) == before
    assert encoder.training


def test_an_evaluation_that_changes_the_backbone_is_an_error(store: Store) -> None:
    class Drifting(PretrainedEncoder):
        def forward(self, clips: torch.Tensor) -> torch.Tensor:
            self.drift += 1
            return super().forward(clips)

    encoder = Drifting(untrained(store).encoder, store.topology, persons=2, frames=8)
    encoder.register_buffer("drift", torch.zeros(1))
    with pytest.raises(RuntimeError, match="changed the backbone"):
        halp.evaluate(encoder, store, progress=False)


def test_fingerprint_sees_a_change_of_one_bit() -> None:
    module = nn.Linear(3, 3)
    before = module_fingerprint(module)
    with torch.no_grad():
        module.weight.view(-1)[0].mul_(1 + 1e-6)
    assert module_fingerprint(module) != before


@pytest.mark.heavy
def test_embedding_of_raw_arrays_equals_that_of_their_store(store: Store) -> None:
    encoder = untrained(store)
    raw = {clip.name: clip.frames for clip in synthetic_clips(192, subjects=6)}
    arrays = [raw[name] for name in store.names[:10]]
    np.testing.assert_allclose(halp.embed(encoder, arrays), embed(encoder, store)[:10], atol=1e-4)
    by_hand = normalise(arrays[0], store.topology, store.normalisation)
    np.testing.assert_allclose(by_hand, store.clip(0)[:, : by_hand.shape[1]], atol=1e-6)


def test_embedding_does_not_depend_on_the_batch_size(store: Store) -> None:
    encoder = untrained(store)
    np.testing.assert_allclose(embed(encoder, store, batch_size=7), embed(encoder, store), atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 1, 20, 3), (0, 1, 25, 3), (5, 25, 2), (25, 3)])
def test_arrays_of_the_wrong_shape_are_refused(store: Store, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"array 0.* has shape"):
        halp.embed(untrained(store), [np.zeros(shape, dtype=np.float32)])


def test_what_is_not_a_number_is_nobody_and_infinite_or_empty_input_is_refused(store: Store) -> None:
    assert not halp.embed(untrained(store), [np.full((4, 1, 25, 3), np.nan)]).any()
    with pytest.raises(InputError, match="not finite"):
        halp.embed(untrained(store), [np.full((4, 1, 25, 3), np.inf)])
    with pytest.raises(InputError, match="beyond ±10,000,000"):
        halp.embed(untrained(store), [np.full((4, 1, 25, 3), 1.1e7)])
    with pytest.raises(InputError, match="no recording"):
        halp.embed(untrained(store), [])


def test_one_frame_and_absent_people_embed_to_finite_features(store: Store) -> None:
    clips = [np.zeros((1, 1, 25, 3), dtype=np.float32), np.ones((1, 2, 25, 3), dtype=np.float32)]
    assert np.isfinite(halp.embed(untrained(store), clips)).all()


def test_results_carry_their_provenance_and_survive_saving(store: Store, tmp_path: Path) -> None:
    result = halp.evaluate(untrained(store), store, "knn", "xview", seed=4, progress=False)
    assert (result.protocol, result.split, result.seed) == ("knn", "xview", 4)
    assert result.data["hash"] == store.hash
    assert result.split_hash == store.splits["xview"].hash
    train, test = store.split("xview")
    assert result.clips == {"train": len(train), "test": len(test)}
    confusion = np.array(result.confusion)
    assert confusion.sum() == len(test)
    assert result.accuracy == pytest.approx(100 * np.trace(confusion) / len(test), abs=1e-3)
    path = result.save(tmp_path / "result.json")
    assert Result.load(path) == result
    data = json.loads(path.read_text())
    del data["seed"]
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="not a result of this version"):
        Result.load(path)


def test_score_counts_by_class() -> None:
    accuracy, per_class, confusion = score(
        np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), ["a", "b", "c", "d"]
    )
    assert accuracy == 50
    assert per_class == {"a": 50.0, "b": 100.0, "c": 0.0}
    assert confusion[0][:2] == [1, 1]


def test_unknown_protocol_setting_or_split_is_refused(store: Store) -> None:
    encoder = untrained(store)
    with pytest.raises(InputError, match="did you mean 'knn'"):
        halp.evaluate(encoder, store, "kn", progress=False)
    with pytest.raises(InputError, match=r"unknown setting 'knn\.neighbours'"):
        halp.evaluate(encoder, store, "knn", progress=False, neighbours=3)
    with pytest.raises(InputError, match="unknown split"):
        halp.evaluate(encoder, store, split="xset", progress=False)


def rows_of(clips: int = 400, **accuracies: tuple[float, float]) -> list[EncoderResults]:
    """Rows of a table with these accuracies by kNN and linear."""
    shared = {"split": "xsub", "clips": {"test": clips}}
    return [
        EncoderResults(
            name,
            [
                SimpleNamespace(protocol=protocol, accuracy=value, **shared)
                for protocol, value in zip("kl", values)
            ],  # type: ignore[misc]
        )
        for name, values in accuracies.items()
    ]


def test_the_closing_sentence_decides_which_encoder_to_keep() -> None:
    others = {"raw": (53.1, 57.1), "shipped": (87.5, 91.9)}
    assert verdict(rows_of(**others, run=(65.7, 76.9))) == "keep shipped: 18.4 points above run"
    assert (
        verdict(rows_of(**others, run=(97.0, 96.0)))
        == "keep run: 6.8 points above shipped, the best of the others"
    )
    uncertain = "keep shipped: {} test clips show no certain gain of run over it ({} against {})"
    assert verdict(rows_of(**others, run=(87, 91))) == uncertain.format(400, 89.0, 89.7)
    few = verdict(rows_of(clips=9, shipped=(77.8, 88.9), run=(100, 100)))
    assert few == uncertain.format(9, 100.0, 83.3), "nine clips decide nothing"
    assert verdict(rows_of(run=(1, 2))) == ""


def test_a_store_that_no_shipped_encoder_reads_has_no_such_row(tmp_path: Path) -> None:
    topology = Topology("chain", ("a", "b", "c"), (0, 0, 1), centre="a")
    with StoreWriter(tmp_path / "store", topology, persons=1) as writer:
        writer.add(Clip(np.ones((8, 1, 3, 3), dtype=np.float32), "one"))
    assert fitting_shipped(halp.open_store(tmp_path / "store")) is None


SHORT = {"finetune": {"epochs": 1}}


def test_a_run_is_evaluated_beside_its_baselines(store: Store, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    run = pretrain(load_recipe("small", (*tiny, "epochs=1")), store, tmp_path / "run", progress=False)
    rows = evaluate_run(run, store, protocols=("knn",), splits=("xsub", "xview"), allow_overlap=True)
    assert [row.name for row in rows] == ["raw coordinates", "untrained", "halp-base", "run"]
    assert len(list(run.results.glob("*.json"))) == 8
    alone = halp.evaluate("halp-base", store, "knn", progress=False)
    assert rows[2].results[0].accuracy == alone.accuracy
    trained = evaluate_run(run, store, protocols=("finetune",), settings=SHORT)
    assert [row.name for row in trained if row.results] == ["untrained", "run"]
    raw = RawCoordinates(store.topology, persons=store.persons)
    assert rows[0].results[0].accuracy == halp.evaluate(raw, store, "knn", progress=False).accuracy


def test_encoder_refuses_clips_of_another_topology(store: Store) -> None:
    with pytest.raises(InputError, match="kinect-v2"):
        untrained(store)(torch.zeros(1, 4, 1, 20, 3))


def test_streams_are_derived_by_the_encoder_itself(store: Store) -> None:
    joint, bone = untrained(store), untrained(store, "bone")
    clips = torch.from_numpy(np.array(store.clip(0)))[None]
    derived = clips - clips[:, :, :, list(store.topology.parents)]
    assert torch.allclose(bone(clips), joint(derived), atol=1e-6)


@pytest.mark.slow
def test_penalty_of_the_raw_baseline_is_chosen_on_held_out_people(store: Store) -> None:
    from itertools import product

    from halp.evaluation.protocols.linear import FOLDS, PENALTIES, choose_penalty
    from halp.evaluation.protocols.ridge import group_folds

    raw = RawCoordinates(store.topology, persons=store.persons)
    features, train = embed(raw, store, progress=False), store.split("xsub")[0]
    people = store.subjects[train]
    folds = group_folds(people, FOLDS)
    chosen = choose_penalty(features[train], store.labels[train], folds, len(store.class_names))
    right = dict.fromkeys(PENALTIES, 0)
    for (kept, held_out), penalty in product(folds, PENALTIES):
        settings = LinearSettings(solver="exact", penalty=penalty)
        rows, other = train[kept], train[held_out]
        fitted = fit_linear([features[rows]], store.labels[rows], settings, generator(0, "t"), progress=False)
        right[penalty] += int((linear_scores(fitted, features[other]).argmax(1) == store.labels[other]).sum())
    assert right[chosen] >= max(right.values()) - 2  # each fit ends within a tolerance, wherever it started
    exact = {"solver": "exact", "crops": 0, "features": features, "progress": False}
    automatic = halp.evaluate(raw, store, "linear", penalty=0.0, **exact)
    by_hand = halp.evaluate(raw, store, "linear", penalty=chosen, **exact)
    assert automatic.accuracy == by_hand.accuracy


def test_several_protocols_give_the_results_that_each_gives_alone(store: Store) -> None:
    both = halp.evaluate("halp-base", store, ["knn", "ridge"], progress=False)
    assert list(both) == ["knn", "ridge"]
    for name, result in both.items():
        assert result == halp.evaluate("halp-base", store, name, progress=False)
    with pytest.raises(InputError, match="settings belong to one protocol"):
        halp.evaluate("halp-base", store, ["knn", "ridge"], k=5)
    with pytest.raises(InputError, match="unknown protocol 'knm'"):
        halp.evaluate("halp-base", store, ["knn", "knm"])


def test_raw_coordinates_share_one_scale_so_a_still_joint_does_not_count_as_much_as_a_hand() -> None:
    from halp.evaluation.protocols.ridge import fit_ridge

    draw = np.random.default_rng(0)
    labels = np.arange(60) % 2
    moving = labels[:, None] * 2.0 + draw.normal(size=(60, 2))
    still = 1e-3 * draw.normal(size=(60, 200))
    features = np.concatenate([moving, still], axis=1).astype(np.float32)
    settings = [LinearSettings(solver="exact", penalty=0.01, scale=scale) for scale in ("one", "each")]
    one, each = (
        fit_linear([features[:20]], labels[:20], own, generator(0, "t"), progress=False) for own in settings
    )
    right = [(linear_scores(model, features[20:]).argmax(1) == labels[20:]).mean() for model in (one, each)]
    assert right[0] > right[1] + 0.1
    ridge = [
        (fit_ridge(features[:20], labels[:20], 0.1, 2, s).predict(features[20:]) == labels[20:]).mean()
        for s in ("one", "each")
    ]
    assert ridge[0] > ridge[1] + 0.1
