"""From labelled recordings to a model folder that needs nothing else, by function and by command."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import forked as subprocess
import numpy as np
import pytest
import torch

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.data.arrays import store_from_arrays
from halp.data.store import Store
from halp.data.windows import WindowSettings
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation.protocols.finetune import FinetuneSettings
from halp.tasks import finetune as tuning
from halp.tasks.classify import fit, notes, predict
from halp.tasks.finetune import finetune
from halp.tasks.model_folder import load_model, model_fingerprint, save_model

FEW = ("wave", "kick", "sit down", "walk")


@pytest.fixture(scope="session")
def labelled(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Clips of four classes by six people, the second half without labels."""
    rows = [i for i in range(len(store)) if store.class_names[store.labels[i]] in FEW]
    names = [store.class_names[store.labels[i]] for i in rows]
    return store_from_arrays(
        tmp_path_factory.mktemp("labelled") / "few",
        [store.clip(i) for i in rows],
        topology=store.topology,
        labels=[FEW.index(name) if store.subjects[i] % 5 else -1 for i, name in zip(rows, names)],
        subjects=[int(store.subjects[i]) for i in rows],
        names=[str(store.names[i]) for i in rows],
        class_names=FEW,
        normalisation=store.normalisation,
    )


@pytest.fixture(scope="session")
def model(package: Path, labelled: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = fit(package, labelled, kind="prototypes", progress=False)
    return save_model(made, tmp_path_factory.mktemp("models") / "few")


def test_model_folder_gives_the_same_answers(package: Path, labelled: Store, model: Path) -> None:
    made = fit(package, labelled, kind="prototypes", progress=False)
    assert predict(made, labelled, progress=False) == predict(model, labelled, progress=False)
    again = load_model(model)
    assert again.classifier.classes == FEW
    assert sum(again.labelled.values()) == int((labelled.labels >= 0).sum())
    assert again.assessment["grouped_by"] == "person"
    assert 0 <= again.assessment["encoder"]["low"] <= again.assessment["encoder"]["high"] <= 1
    assert again.assessment["raw"]["recordings"] == again.assessment["encoder"]["recordings"]


@pytest.mark.slow
def test_prediction_needs_the_model_folder_alone(model: Path, labelled: Store, tmp_path: Path) -> None:
    moved = shutil.copytree(model, tmp_path / "moved")
    code = "from halp.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "classify", "predict", str(moved), str(labelled.path), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "HALP_CACHE": str(tmp_path / "cache")},
        check=True,
    )
    answers = json.loads(done.stdout)
    assert [answer["name"] for answer in answers] == list(labelled.names)
    keys = ["name", "start", "end", "label", "probability", "best", "rejected"]
    assert all(list(answer)[:7] == keys for answer in answers)
    assert {answer["best"] for answer in answers} <= set(FEW)
    assert all(answer["label"] == (None if answer["rejected"] else answer["best"]) for answer in answers)
    assert all(0 <= answer["probability"] <= 1 for answer in answers)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "x"}, "not a model"),
        ({"version": 9}, "version 9"),
        ({"classes": ["a"]}, "damaged"),
        ({"temperature": 0}, "damaged"),
        ({"kind": "forest"}, "unknown classifier"),
        ({"weights": {"sha256": "1"}}, "hash"),
        ({"windows": {"window": -1}}, "damaged"),
        ({"windows": {"window": 1e300, "fps": 1e300}}, "damaged"),
        ({"rejection_rate": 7}, "damaged"),
    ],
)
def test_damaged_models_are_refused(
    model: Path, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config = {name: value for name, value in config.items() if name != "sha256"} | changes
    (copy / "config.json").write_text(json.dumps(config | {"sha256": model_fingerprint(config)}))
    with pytest.raises(InputError, match=words):
        load_model(copy)
    with pytest.raises(InputError, match="not a model folder"):
        load_model(tmp_path)


def test_classes_in_another_order_are_noticed(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "classes": config["classes"][::-1]}))
    with pytest.raises(InputError, match=r"config.json does not have the hash"):
        load_model(copy)
    (copy / "config.json").write_text(json.dumps(config))  # laid out again, the same content
    assert load_model(copy).classifier.classes == FEW


@pytest.mark.parametrize("subject", ["", ",1"])
def test_rejection_is_off_where_the_labels_are_of_one_person_or_of_unknown_ones(
    package: Path,
    store: Store,
    labelled: Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    subject: str,
) -> None:
    table = tmp_path / "labels.csv"
    few = [
        f"{name},{FEW[label]}{subject}" for name, label in zip(labelled.names, labelled.labels) if label >= 0
    ]
    table.write_text("\n".join([f"name,label{',subject' if subject else ''}", *few]) + "\n")
    anonymous = store_from_arrays(
        tmp_path / "anonymous",
        [store.clip(list(store.names).index(name)) for name in labelled.names],
        topology=store.topology,
        names=[str(name) for name in labelled.names],
        normalisation=store.normalisation,
    )
    made = fit(package, anonymous, labels=table, kind="prototypes", progress=False)
    assert made.classifier.rejection_rate is None
    assert {answer.more["rejected"] for answer in predict(made, store, progress=False)} == {
        None
    }  # not false: it cannot tell
    assert {answer.more["rejected"] for answer in predict(made, store, reject="none", progress=False)} == {
        None
    }
    assert any(answer.more["rejected"] for answer in predict(made, store, reject=0.5, progress=False))
    main(["classify", "predict", str(save_model(made, tmp_path / "model")), str(labelled.path), "--json"])
    captured = capsys.readouterr()
    assert "rejection is off" in captured.err
    assert all(answer["label"] == answer["best"] for answer in json.loads(captured.out))
    assert {answer["rejected"] for answer in json.loads(captured.out)} == {None}


def test_a_model_of_a_single_class_is_refused_before_anything_is_computed(
    package: Path, store: Store
) -> None:
    alone = halp.open_source(store.path).with_labels(np.zeros(len(store), dtype=np.int64), ["kick"])
    with pytest.raises(InputError, match="all labels are 'kick', and a classifier needs two classes; label"):
        fit(package, alone, progress=False)


def test_windows_unlike_those_of_the_fit_are_reported(model: Path) -> None:
    fitted = load_model(model)
    assert notes(fitted, fitted.cutting) == []
    assert (
        "fitted on whole clips and is used on windows of 2 s"
        in notes(fitted, WindowSettings(2.0, 0.5, 30.0))[0]
    )
    assert "--reject" in notes(fitted, fitted.cutting, 1e-6)[0]


def test_labels_come_from_a_table(package: Path, labelled: Store, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    with open(table, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "label"])
        for row in range(0, len(labelled), 2):
            writer.writerow([labelled.names[row], "even" if row % 4 else "other"])
    made = fit(package, labelled, labels=table, kind="knn", progress=False)
    assert made.labelled == {
        "even": len(labelled) // 4,
        "other": len(labelled) - len(labelled) // 2 - len(labelled) // 4,
    }
    bare = tmp_path / "bare.csv"
    bare.write_text("name,label\nnobody,x\n")
    with pytest.raises(InputError, match=r"no labelled recording|matches no clip"):
        fit(package, labelled, labels=bare, progress=False)


@pytest.mark.heavy
def test_commands_fit_predict_and_suggest(
    package: Path, labelled: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "model")
    main(["classify", "fit", str(package), str(labelled.path), path, "--kind", "prototypes", "--json"])
    assert json.loads(capsys.readouterr().out)["encoder"]["accuracy"] > 0
    out = tmp_path / "answers.csv"
    main(["classify", "predict", path, str(labelled.path), "--out", str(out)])
    assert "score" in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == len(labelled) + 1
    main(["classify", "predict", path, str(labelled.path), "--suggest", "3", "--json"])
    assert len({one["name"] for one in json.loads(capsys.readouterr().out)}) == 3
    other = str(tmp_path / "other")
    for bad, words in {
        ("fit", str(package), str(labelled.path), path): "exists already",
        ("fit", "nowhere", "nowhere", other, "--rejection-rate", "-1"): "rejection rate of -1",
        ("predict", path, str(labelled.path), "--reject", "2"): "rejection rate of 2",
        ("predict", path, str(labelled.path), "--window", "0"): "window = 0",
        ("predict", str(package), str(labelled.path)): "is an encoder",
    }.items():
        with pytest.raises(SystemExit) as stopped:
            main(["classify", *bad])
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err.replace("\n", " ")


def test_fine_tuned_model_is_the_network_with_its_head(
    encoder: PretrainedEncoder, labelled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = []
    train = tuning.train

    def noting(*given: Any, **how: Any) -> object:
        networks.append(train(*given, **how))
        return networks[-1]

    monkeypatch.setattr(tuning, "train", noting)
    before = [parameter.clone() for parameter in encoder.parameters()]
    made = finetune(
        encoder, labelled, settings=FinetuneSettings(epochs=6, learning_rate=0.05), progress=False
    )
    assert all(torch.equal(one, other) for one, other in zip(before, encoder.parameters(), strict=True))
    assert len(networks) == 2
    assert made.assessment["encoder"]["recordings"] < sum(made.labelled.values())
    vectors = halp.embed(made.encoder, labelled, progress=False)
    wanted = networks[1].head(torch.from_numpy(vectors)).detach().numpy()
    assert np.allclose(made.classifier.head.logits(vectors), wanted, atol=1e-3)
    save_model(made, tmp_path / "tuned")
    assert predict(tmp_path / "tuned", labelled, progress=False) == predict(made, labelled, progress=False)
    (tmp_path / "one.csv").write_text(f"name,label\n{labelled.names[0]},x\n")
    with pytest.raises(InputError, match="a classifier needs two classes"):
        finetune(encoder, labelled, labels=tmp_path / "one.csv", progress=False)
