"""Every protocol against scikit-learn or a slow formula on the same features; copies are trained, joins go by
name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.neighbors import KNeighborsClassifier

import halp
from halp.core.errors import InputError
from halp.core.sampling import generator
from halp.data.clip import Clip
from halp.data.splits import FewLabels
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import Result
from halp.evaluation.evaluate_run import evaluate_cached, result_path
from halp.evaluation.protocol import ProtocolContext, list_protocols, protocol_settings, register_protocol
from halp.evaluation.protocols.ensemble import EnsembleSettings, MeanOfStreams, fuse
from halp.evaluation.protocols.finetune import FinetuneSettings, finetune
from halp.evaluation.protocols.knn import class_similarities, neighbours, retrieve
from halp.evaluation.protocols.linear import LinearSettings, fit_linear, linear_scores
from halp.evaluation.results import schema_violation
from halp.features.cache import FeatureCache, feature_key, module_fingerprint
from halp.features.embed import embed
from halp.skeleton import Topology, get_topology
from halp.training import load_recipe, open_run, pretrain
from halp.training.run_folder import RunFolder

QUICK: dict[str, dict] = {
    "linear": {"epochs": 3, "crops": 1},
    "semi": {"epochs": 3, "crops": 1, "share": 0.2},
    "finetune": {"epochs": 1},
    "ensemble": {"epochs": 3, "crops": 1},
}


def untrained(store: Store, stream: str = "joint", seed: int = 0) -> PretrainedEncoder:
    torch.manual_seed(seed)
    encoder = build_encoder(EncoderSettings(hidden=8, layers=1), store.topology, store.persons)
    return PretrainedEncoder(
        encoder, store.topology, stream=stream, persons=2, frames=12, normalisation=store.normalisation
    ).eval()


def shuffled(store: Store, path: Path, seed: int = 1) -> Store:
    """The same clips in another order."""
    order = np.random.default_rng(seed).permutation(len(store))
    writer = StoreWriter(
        path,
        store.topology,
        persons=store.persons,
        class_names=store.class_names,
        splits=store.splits.values(),
        normalisation=store.normalisation,
    )
    with writer:
        for i in order.tolist():
            columns = (int(column[i]) for column in (store.labels, store.subjects, store.cameras))
            writer.add(Clip(np.array(store.clip(i)), str(store.names[i]), *columns))
    return open_store(path)


def rows(seed: int, count: int = 60, width: int = 6, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % classes
    centres = np.random.default_rng(9).normal(size=(classes, width))
    noise = np.random.default_rng(seed).normal(size=(count, width))
    return (centres[labels] + noise).astype(np.float32), labels


def test_every_protocol_of_the_paper_is_registered() -> None:
    assert set(list_protocols()) >= {"knn", "linear", "semi", "finetune", "ensemble", "retrieval"}


@pytest.mark.parametrize("protocol", ["knn", "linear", "semi", "finetune", "ensemble", "retrieval"])
def test_every_protocol_leaves_the_encoder_bit_equal_and_fits_the_schema(
    store: Store, tmp_path: Path, protocol: str
) -> None:
    encoder = untrained(store)
    before = module_fingerprint(encoder)
    result = halp.evaluate(encoder, store, protocol, seeds=(3, 4), progress=False, **QUICK.get(protocol, {}))
    assert module_fingerprint(encoder) == before
    assert result.seeds == [3, 4]
    assert len(result.accuracies) == 2
    assert result.accuracy == pytest.approx(np.mean(result.accuracies), abs=1e-3)
    assert result.std == pytest.approx(np.std(result.accuracies, ddof=1), abs=1e-3)
    assert np.sum(result.confusion) == 2 * result.clips["test"]
    path = result.save(tmp_path / "result.json")
    assert schema_violation(json.loads(path.read_text())) is None
    assert Result.load(path) == Result(**json.loads(path.read_text()))


def test_semi_with_the_whole_network_leaves_the_encoder_bit_equal(store: Store) -> None:
    encoder = untrained(store)
    before = module_fingerprint(encoder)
    result = halp.evaluate(encoder, store, "semi", share=0.2, variant="network", epochs=1, progress=False)
    assert module_fingerprint(encoder) == before == result.backbone["after"]


@pytest.mark.parametrize("chunk", [7, 1024])
def test_neighbours_across_blocks_equal_scikit_learn(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("halp.evaluation.protocols.knn._TRAIN_BLOCK", 11)
    (train, _), (test, _) = rows(0), rows(1)
    reference = KNeighborsClassifier(5, metric="cosine", algorithm="brute").fit(train, np.zeros(len(train)))
    distance, expected = reference.kneighbors(test)
    found, similarity = neighbours(train, test, 5, chunk=chunk)
    assert (found == expected).all()
    np.testing.assert_allclose(1 - similarity, distance, atol=1e-5)
    assert (neighbours(train, test, 1, chunk=chunk)[0][:, 0] == expected[:, 0]).all()


def test_retrieval_equals_scikit_learn_and_the_slow_formula() -> None:
    (gallery, known), (queries, wanted) = rows(0), rows(1)
    figures, nearest = retrieve(gallery, known, queries, wanted, at=(1, 5), chunk=17)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (gallery, queries)]
    cosine = unit[1] @ unit[0].T
    average = np.mean([average_precision_score(known == label, row) for label, row in zip(wanted, cosine)])
    assert figures["map"] == pytest.approx(100 * average, abs=1e-2)
    first = [np.mean(known[np.argsort(-row)[:5]] == label) for label, row in zip(wanted, cosine)]
    assert figures["precision@5"] == pytest.approx(100 * np.mean(first), abs=1e-3)
    assert (nearest == cosine.argmax(1)).all()


def test_retrieval_finds_at_rank_one_what_knn_finds(store: Store) -> None:
    encoder = untrained(store)
    knn = halp.evaluate(encoder, store, "knn", progress=False)
    retrieval = halp.evaluate(encoder, store, "retrieval", progress=False)
    assert retrieval.accuracy == knn.accuracy == pytest.approx(retrieval.metrics["precision@1"], abs=1e-3)


def test_queries_of_a_class_the_gallery_lacks_do_not_break_the_mean() -> None:
    gallery, known = rows(0)
    figures, _ = retrieve(gallery, known, gallery[:2], np.array([0, 77]))
    assert 0 < figures["map"] <= 100


def test_semi_equals_scikit_learn_on_the_same_few_clips(store: Store) -> None:
    encoder, share, penalty = untrained(store), 0.4, 1e-2
    result = halp.evaluate(
        encoder, store, "semi", seed=2, share=share, solver="exact", crops=0, penalty=penalty, progress=False
    )
    few, test = FewLabels("few", store.splits["xsub"], share, seed=2).indices(store.columns)
    assert result.clips == {"train": len(few), "test": len(test)}
    features = embed(encoder, store)
    mean, scale = features[few].mean(0), features[few].std(0, ddof=1)
    reference = LogisticRegression(C=1 / (penalty * len(few)), max_iter=5000, tol=1e-8)
    reference.fit((features[few] - mean) / scale, store.labels[few])
    accuracy = 100 * (reference.predict((features[test] - mean) / scale) == store.labels[test]).mean()
    assert result.accuracy == pytest.approx(accuracy, abs=2.5)


def test_five_draws_of_few_labels_differ(store: Store) -> None:
    draws = [
        FewLabels("f", store.splits["xsub"], 0.1, seed=seed).indices(store.columns)[0] for seed in range(5)
    ]
    assert len({tuple(draw.tolist()) for draw in draws}) == 5
    result = halp.evaluate(
        untrained(store), store, "semi", seeds=range(5), share=0.2, epochs=2, crops=1, progress=False
    )
    assert len(result.accuracies) == 5


def test_an_mlp_head_separates_what_a_linear_one_cannot() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(400, 2)).astype(np.float32)
    labels = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    accuracy = {}
    for head in ("linear", "mlp"):
        settings = LinearSettings(head=head, hidden=32, epochs=60, milestones=(40,))
        fitted = fit_linear([x], labels, settings, generator(0, "t"), progress=False)
        accuracy[head] = (linear_scores(fitted, x).argmax(1) == labels).mean()
    assert accuracy["mlp"] > 0.9 > 0.7 > accuracy["linear"]


def test_fresh_crops_agree_with_cached_ones_within_noise(store: Store) -> None:
    encoder = untrained(store)
    found = {
        fresh: (
            halp.evaluate(
                encoder, store, "linear", fresh=fresh, epochs=25, milestones=(20,), progress=False
            ).accuracy
        )
        for fresh in (False, True)
    }
    assert abs(found[False] - found[True]) < 12


@pytest.mark.heavy
def test_fine_tuning_starts_from_the_given_weights_and_learns(store: Store) -> None:
    encoder = untrained(store)
    train, _ = store.split("xsub")
    task = ProtocolContext(encoder, store, "xsub", train, train, progress=False)
    settings = FinetuneSettings(epochs=12, learning_rate=0.1, milestones=(), batch_size=16)
    model = finetune(
        encoder, task.pool, train, store.labels[train], settings, classes=task.classes, progress=False
    )
    assert module_fingerprint(model.encoder) != module_fingerprint(encoder)
    learned = (model.scores(task.pool, train, progress=False).argmax(1) == store.labels[train]).mean()
    start = finetune(
        encoder,
        task.pool,
        train,
        store.labels[train],
        FinetuneSettings(epochs=1, learning_rate=1e-9),
        classes=task.classes,
        progress=False,
    )
    chance = (start.scores(task.pool, train, progress=False).argmax(1) == store.labels[train]).mean()
    assert learned > chance + 0.1


def test_one_step_of_fine_tuning_equals_a_step_by_hand(store: Store) -> None:
    encoder = untrained(store)
    clips = store.split("xsub")[0][:8]
    task = ProtocolContext(encoder, store, "xsub", clips, clips, progress=False)
    settings = FinetuneSettings(epochs=1, batch_size=8, learning_rate=0.05)
    model = finetune(
        encoder, task.pool, clips, store.labels[clips], settings, classes=task.classes, progress=False
    )

    from halp.evaluation.protocol import training_crops
    from halp.evaluation.protocols.linear import build_head

    hand = untrained(store).train()
    head = build_head("linear", hand.output_size, task.classes, generator(0, "finetune head"))
    order = torch.randperm(8, generator=generator(0, "finetune order", 0))
    batch = torch.from_numpy(clips)[order]
    cut = task.pool.cut(batch, *training_crops(task.pool, batch, generator(0, "finetune crops", 0, 0)), 12)
    loss = torch.nn.functional.cross_entropy(head(hand(cut)), torch.from_numpy(store.labels[batch.numpy()]))
    parameters = [*hand.parameters(), *head.parameters()]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
        parameter.data -= 0.05 * gradient
    for ours, theirs in zip([*model.encoder.parameters(), *model.head.parameters()], parameters, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_transfer_maps_another_layout_by_joint_name(store: Store, tmp_path: Path) -> None:
    # the joints of another layout, turned and centred by the same ones
    small = replace(get_topology("kinect-v1"), name="part", centre="spine", up=("hip_center", "spine"))
    keep = [store.topology.index(joint) for joint in small.joints if joint in store.topology.joints]
    assert len(keep) == len(small)
    encoder = PretrainedEncoder(
        build_encoder(EncoderSettings(hidden=8, layers=1), small, 2),
        small,
        persons=2,
        frames=12,
        normalisation=store.normalisation,
    )
    result = halp.evaluate(encoder, store, "finetune", epochs=1, progress=False)
    mapped = halp.evaluate(
        encoder, _layout(store, tmp_path / "mapped", keep, small), "finetune", epochs=1, progress=False
    )
    assert result.accuracy == mapped.accuracy


def _layout(store: Store, path: Path, keep: list[int], layout: Topology) -> Store:
    splits = store.splits.values()
    options = {
        "persons": store.persons,
        "class_names": store.class_names,
        "normalisation": store.normalisation,
    }
    with StoreWriter(path, layout, splits=splits, **options) as writer:
        for i, name in enumerate(store.names.tolist()):
            columns = (int(column[i]) for column in (store.labels, store.subjects, store.cameras))
            writer.add(Clip(np.array(store.clip(i)[:, :, keep]), name, *columns))
    return open_store(path)


@pytest.mark.parametrize("protocol", ["knn", "retrieval", "ensemble", "semi"])
def test_results_do_not_depend_on_the_order_of_the_store(store: Store, tmp_path: Path, protocol: str) -> None:
    other = shuffled(store, tmp_path / "shuffled")
    options = {
        "semi": {"solver": "exact", "crops": 0, "share": 0.3},
        "ensemble": {"solver": "exact", "crops": 0},
    }.get(protocol, {})
    encoders = {"joint": untrained(store), "bone": untrained(store, "bone", seed=1)}
    encoder = encoders if protocol == "ensemble" else encoders["joint"]
    here, there = (halp.evaluate(encoder, s, protocol, progress=False, **options) for s in (store, other))
    assert here.accuracy == pytest.approx(there.accuracy, abs=1.1)  # a tie may fall the other way
    assert bool(here.metrics) is (protocol in ("retrieval", "ensemble"))
    for name, figure in here.metrics.items():
        assert figure == pytest.approx(there.metrics[name], abs=1.1)


def test_an_ensemble_is_the_weighted_sum_of_its_members_logits(store: Store) -> None:
    encoders = {"joint": untrained(store), "motion": untrained(store, "motion", seed=1)}
    result = halp.evaluate(
        encoders, store, "ensemble", solver="exact", crops=0, weights=(1.0, 0.5), progress=False
    )
    train, test = store.split("xsub")
    total = 0
    for weight, encoder in zip((1.0, 0.5), encoders.values()):
        features = embed(encoder, store)
        settings = LinearSettings(solver="exact", crops=0)
        fitted = fit_linear(
            [features[train]], store.labels[train], settings, generator(0, "linear"), progress=False
        )
        total = total + weight * fitted(torch.from_numpy(features[test])).numpy()
    predicted = np.asarray(total).argmax(1)
    assert result.accuracy == pytest.approx(100 * (predicted == store.labels[test]).mean(), abs=1e-3)
    assert set(result.metrics) == {"joint", "motion"}
    assert result.stream == "joint+motion"


def test_nearest_of_every_class_gives_the_nearest_neighbours_class() -> None:
    (train, labels), (test, _) = rows(0), rows(1)
    similar = class_similarities(train, labels, test, classes=6)
    assert (similar.argmax(1) == labels[neighbours(train, test)[0][:, 0]]).all()
    assert (similar[:, 4:] == -1).all()


def test_an_ensemble_with_too_few_weights_is_refused() -> None:
    with pytest.raises(InputError, match="1 weights do not fit"):
        fuse([np.zeros((2, 2)), np.zeros((2, 2))], [1.0])


def test_groups_go_to_the_ensemble_only(store: Store) -> None:
    with pytest.raises(InputError, match="protocol 'ensemble'"):
        halp.evaluate({"joint": untrained(store)}, store, "knn", progress=False)


def test_features_are_computed_once_and_found_by_content(store: Store, tmp_path: Path) -> None:
    encoder, cache = untrained(store), FeatureCache(tmp_path)
    first = halp.evaluate(encoder, store, "linear", cache=cache, epochs=2, crops=2, progress=False)
    assert (cache.hits, len(list(tmp_path.glob("*/vectors.npy")))) == (0, 3)
    again = halp.evaluate(encoder, store, "linear", cache=cache, epochs=2, crops=2, progress=False)
    assert cache.hits == 3
    assert first == again
    assert not list(tmp_path.glob("*.partial*"))
    for path in tmp_path.glob("*/vectors.npy"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="damaged"):
        damaged = halp.evaluate(encoder, store, "linear", cache=cache, epochs=2, crops=2, progress=False)
    assert damaged == first


def test_the_key_of_features_sees_weights_architecture_stream_and_data(store: Store, tmp_path: Path) -> None:
    encoder = untrained(store)
    keys = {feature_key(encoder, store.hash, "centre"), feature_key(encoder, store.hash, "random")}
    keys |= {
        feature_key(untrained(store, seed=5), store.hash, "centre"),
        feature_key(untrained(store, "bone"), store.hash, "centre"),
    }
    keys.add(feature_key(encoder, shuffled(store, tmp_path / "s").hash, "centre"))
    causal = untrained(store)
    causal.encoder.direction = "causal"
    keys.add(feature_key(causal, store.hash, "centre"))
    assert len(keys) == 6
    assert feature_key(encoder.train(), store.hash, "centre") in keys


def test_settings_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(InputError, match=r"knn\.k = 'three' must be a whole number"):
        protocol_settings("knn", {"k": "three"})
    with pytest.raises(InputError, match="exact solver is for a linear head"):
        protocol_settings("linear", {"solver": "exact", "head": "mlp"})
    with pytest.raises(InputError, match=r"unknown semi\.variant"):
        protocol_settings("semi", {"variant": "body"})
    assert protocol_settings("linear", {"milestones": [1, 2], "learning_rate": 1}).milestones == (1, 2)


def test_a_protocol_of_ones_own_is_known_by_its_settings() -> None:
    with pytest.raises(TypeError, match="dataclass"):
        register_protocol("mine", dict)


def test_results_with_wrong_or_missing_fields_are_refused(store: Store, tmp_path: Path) -> None:
    result = halp.evaluate(untrained(store), store, "knn", progress=False)
    path = result.save(tmp_path / "r.json")
    good = json.loads(path.read_text())
    for change, words in (
        ({"accuracy": "high"}, "accuracy: 'high' is not of type 'number'"),
        ({"accuracy": 101}, "greater than the maximum of 100"),
        ({"seeds": []}, "seeds: .. should be non-empty"),
        ({"surprise": 1}, "'surprise' was unexpected"),
        ({"clips": {"train": 3}}, "clips: 'test' is a required property"),
    ):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(InputError, match=words):
            Result.load(path)


def test_file_names_of_results_tell_protocols_seeds_and_data_apart(
    store: Store, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    run = pretrain(load_recipe("small", (*tiny, "epochs=1")), store, tmp_path / "run", progress=False)
    other = shuffled(store, tmp_path / "other")
    encoder = open_run(run.path).encoder()

    def name(data: Store, protocol: str = "knn", seeds: tuple[int, ...] = (0,), **settings: object) -> str:
        home = run.info["data"]["hash"]
        return result_path(
            run, encoder, data, protocol, "xsub", seeds=seeds, settings=settings, home_hash=home
        ).name

    names = {name(store), name(store, k=3), name(store, seeds=(0, 1)), name(store, "retrieval"), name(other)}
    assert len(names) == 5
    assert "knn-xsub-joint-seed0.json" in names
    assert name(store, k=1) == name(store), "settings that are the protocol's own are not in the name"


def test_a_saved_result_is_used_for_the_same_encoder_and_recomputed_for_another(
    store: Store, tmp_path: Path
) -> None:
    options = {"seeds": (0,), "settings": {"k": 3}, "progress": False}
    first = evaluate_cached(RunFolder(tmp_path), untrained(store), store, "knn", "xsub", **options)
    path = next((tmp_path / "results").glob("*.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "accuracy": 77.0}))
    assert (
        evaluate_cached(RunFolder(tmp_path), untrained(store), store, "knn", "xsub", **options).accuracy
        == 77.0
    )
    other = evaluate_cached(RunFolder(tmp_path), untrained(store, seed=3), store, "knn", "xsub", **options)
    assert other.backbone != first.backbone
    assert len(list((tmp_path / "results").glob("*.json"))) == 1


def test_a_joint_classifier_of_streams_is_trained_on_the_mean_of_their_logits(store: Store) -> None:
    draws = torch.Generator().manual_seed(0)
    head = MeanOfStreams([3, 2], 4, draws)
    features = torch.randn(5, 5)
    one, two = head.heads
    expected = (one(features[:, :3]) + two(features[:, 3:])) / 2
    torch.testing.assert_close(head(features), expected)
    encoders = {stream: untrained(store, stream) for stream in ("joint", "motion")}
    asked: dict[str, Any] = {"base": "joint", "epochs": 5, "crops": 0, "progress": False}
    result = halp.evaluate(encoders, store, "ensemble", **asked)
    assert result == halp.evaluate(encoders, store, "ensemble", **asked)
    assert result.accuracy > 100 / len(store.class_names)
    with pytest.raises(InputError, match="trains linear layers by SGD"):
        halp.evaluate(encoders, store, "ensemble", base="joint", solver="exact", crops=0, progress=False)


def test_ensembles_and_linear_evaluation_share_one_schedule() -> None:
    linear, ensemble = LinearSettings(), EnsembleSettings()
    for name in ("batch_size", "epochs", "learning_rate", "milestones", "crops"):
        assert getattr(linear, name) == getattr(ensemble, name)
