"""A package holds everything an encoder is, refuses what was changed, and its ONNX file computes the same."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from clip_samples import moving_clips
from safetensors.torch import load_file, save_file
from use_samples import fresh_encoder

import halp
from halp.core.errors import InputError
from halp.core.files import sha256
from halp.core.packages import find_package, list_shipped
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.encoders.sides import with_sides
from halp.skeleton import get_topology
from halp.tasks.export import export
from halp.tasks.heads import Candidate
from halp.tasks.onnx_file import check_onnx, write_onnx


def copied(package: Path, target: Path, **changes: object) -> Path:
    """A copy of a package with some fields of `config.json` changed."""
    shutil.copytree(package, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **changes}))
    return target


def test_package_gives_the_same_features_and_facts(
    encoder: PretrainedEncoder, package: Path, store: Store
) -> None:
    loaded = halp.load_encoder(package)
    clips = torch.randn(3, 16, 2, 25, 3)
    assert torch.equal(loaded(clips), encoder(clips))
    assert not loaded.training
    for fact in ("topology", "stream", "persons", "frames", "normalisation", "architecture"):
        assert getattr(loaded, fact) == getattr(encoder, fact), fact
    assert np.array_equal(
        halp.embed(loaded, store, progress=False), halp.embed(encoder, store, progress=False)
    )


def test_package_holds_no_twin_queue_optimiser_or_path(package: Path) -> None:
    assert {path.name for path in package.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    names = set(load_file(package / "model.safetensors"))
    assert names
    assert all(name.startswith(("layers.", "input_norm.")) for name in names)
    assert "/somewhere" not in (package / "config.json").read_text() + (package / "README.md").read_text()


def test_export_of_a_package_equals_it(package: Path, tmp_path: Path) -> None:
    again = export(package, tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (package / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="exists already"):
        export(package, tmp_path / "again")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "other"}, "not an encoder package"),
        ({"version": 2}, "version 2"),
        ({"persons": 0}, "persons = 0"),
        ({"persons": 3}, "shape"),
        ({"frames": "many"}, "frames = 'many'"),
        ({"stream": "smell"}, "unknown stream"),
        ({"normalisation": ["wobble"]}, "unknown normalisation step"),
        ({"topology": {"name": "x"}}, "'joints'"),
        ({"encoder": {"name": "os.system"}}, "unknown encoder"),
        ({"encoder": {"name": "gru", "hidden": 10**6, "layers": 1}}, "shape"),
        ({"encoder": {"name": "gru", "hidden": 10**9, "layers": 1}}, "does not fit"),
        ({"encoder": {"name": "gru", "colour": 3}}, "colour"),
        ({"encoder": []}, "must be objects"),
        ({"weights": {"sha256": "0"}}, "hash"),
        ({"weights": None}, "hash"),
    ],
)
def test_changed_config_is_refused(
    package: Path, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        halp.load_encoder(copied(package, tmp_path / "changed", **changes))


def test_changed_weights_are_refused(package: Path, tmp_path: Path) -> None:
    changed = copied(package, tmp_path / "changed")
    data = bytearray((changed / "model.safetensors").read_bytes())
    data[-3] ^= 1
    (changed / "model.safetensors").write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        halp.load_encoder(changed)
    weights = load_file(package / "model.safetensors")
    weights["layers.0.0.bias_ih_l0"][0] = float("nan")
    save_file(weights, changed / "model.safetensors")
    config = json.loads((changed / "config.json").read_text())
    config["weights"]["sha256"] = sha256(changed / "model.safetensors")
    (changed / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="not finite"):
        halp.load_encoder(changed)


def test_other_stream_than_the_package_reads_is_refused(package: Path) -> None:
    assert halp.load_encoder(package, "joint").stream == "joint"
    with pytest.raises(InputError, match="reads stream 'joint'"):
        halp.load_encoder(package, "bone")


def test_unknown_encoder_is_refused_with_the_names_of_shipped_ones(tmp_path: Path) -> None:
    assert find_package("no-such-encoder") is None
    with pytest.raises(InputError, match="give a run folder, a package"):
        halp.load_encoder("no-such-encoder")
    with pytest.raises(InputError, match="run"):
        halp.load_encoder(tmp_path)


@pytest.mark.parametrize("name", list_shipped())
def test_shipped_encoders_load_by_name(name: str) -> None:
    assert halp.load_encoder(name).output_size > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"stream": "bone", "direction": "bidirectional", "pooling": "last", "layers": 2},
        {"stream": "motion", "direction": "causal", "pooling": "thirds-max"},
        {"stream": "joint", "name": "stgcn", "output": 32, "stages": 2},
        {"stream": "joint", "name": "branches", "width": 16, "frames": 32},
    ],
    ids=["bidirectional", "causal", "stgcn", "branches"],
)
def test_onnx_equals_the_library_for_several_encoders(
    store: Store, tmp_path: Path, settings: dict[str, object]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    encoder = fresh_encoder(store, **settings)
    made = export(encoder, tmp_path / "package", onnx=True)
    session = onnxruntime.InferenceSession(str(made / "model.onnx"), providers=["CPUExecutionProvider"])
    assert check_onnx(encoder, session, store.topology) < 1e-5
    # the check can fail: other weights are found out
    with torch.no_grad():
        next(encoder.parameters()).add_(1.0)
    with pytest.raises(InputError, match="differs from the library"):
        check_onnx(encoder, session, store.topology)


# every layout, and every classifier with both encoders: a classifier sees vectors and no layout
LAYOUTS = [
    ("halp-base", "body-16", "knn"),
    ("halp-base", "kinect-v2", "prototypes"),
    ("halp-base", "mediapipe-33", "linear"),
    ("halp-view", "coco-17", "prototypes"),
    ("halp-view", "mediapipe-33-2d", "knn"),
    ("halp-view", "openpose-25", "linear"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layout", "kind"), LAYOUTS)
def test_one_file_prepares_encodes_and_classifies_as_the_library(
    name: str, layout: str, kind: str, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    topology = get_topology(layout)
    clips, labels = moving_clips(topology, 24), np.arange(24) % 3
    source = halp.open_source(clips, topology=layout).with_labels(labels, ["a", "b", "c"], np.arange(24) // 3)
    model = halp.classify_fit(name, source, kind=kind, rejection_rate=0.2, progress=False)
    assert model.can_reject
    made = export(model, tmp_path / kind, onnx=True, topology=layout)
    assert (made / "model.onnx").stat().st_size < 15e6
    session = onnxruntime.InferenceSession(str(made / "model.onnx"), providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == ["a", "b", "c"]
    assert (facts["topology"], json.loads(facts["joints"])) == (layout, list(topology.joints))
    tried = [*clips[:6], *moving_clips(topology, 12, seed=1, damaged=True), np.ones_like(clips[0])]
    answers = halp.classify_predict(model, tried, topology=layout, cache=False, progress=False)
    wanted = model.classifier.predict(halp.embed(model.encoder, tried, topology=layout, progress=False))
    answered = 0
    for clip, answer, expected in zip(tried, answers, wanted.probabilities, strict=True):
        probabilities, rejected = session.run(None, {"points": clip[None]})
        np.testing.assert_allclose(probabilities[0], expected, atol=1e-4)
        assert bool(rejected[0]) is (answer.more["best"] is None or answer.more["rejected"])
        if answer.more["best"] is not None:
            answered += 1
            assert answer.more["best"] == ["a", "b", "c"][int(probabilities[0].argmax())]
    assert 10 < answered < 18  # some clips have nobody in them


def test_a_step_that_no_file_can_hold_is_refused_by_name(store: Store, tmp_path: Path) -> None:
    encoder = fresh_encoder(store)
    encoder.normalisation = ["smooth=9", "centre"]
    with pytest.raises(InputError, match=r"the step 'smooth=9' .* cannot be put into an ONNX file"):
        export(encoder, tmp_path / "package", onnx=True)
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize("sides", ["matter", "soft", "same"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_file_holds_an_adapted_classifier_and_mirror_images(sides: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    encoder = with_sides(halp.load_encoder("halp-base"), sides)
    source = halp.open_source(moving_clips(get_topology("body-16"), 12), topology="body-16")
    source = source.with_labels(np.arange(12) % 2, ["a", "b"], np.arange(12) // 2)
    model = halp.classify_fit(encoder, source, kind="prototypes", rejection_rate=0.2, progress=False)
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(encoder.output_size, 3)))[0].astype(np.float32)
    head = replace(
        model.classifier.head,
        candidate=Candidate("adapted"),
        axes=axes,
        left=np.array([0.1, 0.2, 0.3], np.float32),
    )
    model = replace(model, classifier=replace(model.classifier, head=head))
    assert write_onnx(model, tmp_path / "model.onnx")["largest_difference"] < 1e-5


def test_export_of_a_model_keeps_its_classifier(tmp_path: Path) -> None:
    clips = moving_clips(get_topology("body-16"), 6)
    source = halp.open_source(clips, topology="body-16").with_labels(np.arange(6) % 2, ["a", "b"])
    model = halp.classify_fit("halp-base", source, kind="prototypes", progress=False)
    made = export(halp.save_model(model, tmp_path / "model"), tmp_path / "out")
    assert halp.load_model(made).classifier.classes == ("a", "b")
    card = (made / "README.md").read_text()
    for words in (
        "Intended use and limits",
        "apache-2.0",
        "CMU motion capture",
        "halp-base release",
        "| a | 3 |",
    ):
        assert words in card


def test_export_to_onnx_says_nothing(
    package: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    made = export(package, tmp_path / "package", onnx=True)
    assert json.loads((made / "config.json").read_text())["onnx"]["largest_difference"] < 1e-4
    assert capfd.readouterr() == ("", "")
