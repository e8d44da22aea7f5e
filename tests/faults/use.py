"""Writers of results, packages, classifiers, converted checkpoints, kept vectors and tables as scenarios."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults.scenarios import ABSENT, Scenario, file_state, nothing, write_store

from halp.core.errors import InputError
from halp.data.store import open_store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder, load_package
from halp.evaluation import RawCoordinates
from halp.evaluation.evaluate_run import evaluate_cached, evaluate_protocols, saved_results
from halp.features.cache import FeatureCache, module_fingerprint, open_entry
from halp.reproduce.summary import TableSummary
from halp.skeleton import KINECT_V1, KINECT_V2
from halp.tasks.classifier import Classifier
from halp.tasks.export import export
from halp.tasks.heads import Candidate, Head
from halp.tasks.model_folder import Model, load_model, save_model
from halp.training import convert, load_recipe
from halp.training.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint
from halp.training.run import Run, build_method, open_run, start_folder
from halp.training.run_folder import RunFolder

SETTINGS = (
    "encoder.hidden=4",
    "encoder.layers=1",
    "contrast.queue=8",
    "contrast.dimension=4",
    "views.frames=4",
)


@cache
def encoder(seed: int) -> PretrainedEncoder:
    settings = EncoderSettings(hidden=4, layers=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inner = build_encoder(settings, KINECT_V1, 1)
    return PretrainedEncoder(
        inner, KINECT_V1, persons=1, frames=4, architecture=settings.to_plain(), origin={"trained": True}
    ).eval()


def write_result(folder: Path, seed: int) -> None:
    """A sweep's way to a result: one that was made with another encoder is replaced."""
    store = open_store(folder / "store")
    options: dict[str, Any] = {"seeds": (0,), "settings": {}, "progress": False}
    evaluate_cached(RunFolder(folder / "run"), encoder(seed), store, "knn", "xsub", **options)


def with_result(folder: Path) -> None:
    write_store(folder / "store", 1)
    write_result(folder, 0)


def results_state(folder: Path) -> str:
    found = saved_results(RunFolder(folder / "run"))
    return str([(one.protocol, one.accuracies, one.backbone) for one in found]) if found else ABSENT


def with_run(folder: Path) -> None:
    write_store(folder / "store", 1)
    store = open_store(folder / "store")
    data = {"hash": store.hash, "persons": 1, "normalisation": [], "topology": dataclasses.asdict(KINECT_V1)}
    start_folder(folder / "run", load_recipe("small"), {"id": "0123", "data": data})


def evaluate_into_run(folder: Path) -> None:
    store = open_store(folder / "store")
    raw = RawCoordinates(KINECT_V1, persons=1, frames=4)
    evaluate_protocols("raw", raw, store, protocols=("knn",), run=open_run(folder / "run"), progress=False)


def package_state(folder: Path) -> str:
    return module_fingerprint(load_package(folder / "package")) if (folder / "package").exists() else ABSENT


def model() -> Model:
    width = encoder(0).output_size
    ones, rows = np.ones(width, np.float32), np.ones((2, width), np.float32)
    head = Head(Candidate("linear", 1.0), 2, labels=np.array([0, 1]), mean=ones, scale=ones, bank=rows, weight=rows,
                bias=np.zeros(2, np.float32))  # fmt: skip
    return Model(encoder(0), Classifier(head, ("a", "b"), 1.0, np.ones(3)))


def model_state(folder: Path) -> str:
    return str(load_model(folder / "model").classifier.classes) if (folder / "model").exists() else ABSENT


def small_run(folder: Path) -> Run:
    """A run of the authors' kind with one checkpoint."""
    recipe = load_recipe(
        "small", (*SETTINGS, "encoder.direction=causal", "encoder.pooling=last", 'terms=["infonce"]')
    )
    data = {"hash": "a" * 64, "persons": 2, "normalisation": [], "topology": dataclasses.asdict(KINECT_V2)}
    run = start_folder(folder / "run", recipe, {"id": "0123", "data": data})
    method = build_method(recipe, KINECT_V2, 2)
    state = {"step": 3, "epoch": 1, "data": "a" * 64}
    save_checkpoint(run.checkpoints, Checkpoint(method.state_dict(), {}, state), 1)
    return run


def with_authors_file(folder: Path) -> None:
    small_run(folder)
    convert(folder / "run", folder / "theirs.pth.tar")


def converted_state(folder: Path) -> str:
    if not (folder / "converted").exists():
        return ABSENT
    run = open_run(folder / "converted")
    found = newest_checkpoint(run.checkpoints)
    return f"{found.state} {tensors_hash(found.model)} {run.info['converted']}"


def authors_state(folder: Path) -> str:
    path = folder / "theirs.pth.tar"
    return tensors_hash(torch.load(path, weights_only=True)["state_dict"]) if path.exists() else ABSENT


def tensors_hash(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def write_vectors(folder: Path) -> None:
    width = encoder(0).output_size
    rest = {"rows": np.arange(2.0)}, {"recordings": ["a", "b"]}
    FeatureCache(folder / "vectors").get(
        "key", width, lambda: [np.ones((2, width), np.float32)], lambda: rest
    )


def vectors_state(folder: Path) -> str:
    entry = open_entry(folder / "vectors" / "key", encoder(0).output_size)
    return (
        ABSENT if entry is None else f"{entry.facts} {entry.vectors.tolist()} {entry.arrays['rows'].tolist()}"
    )


def write_tables(folder: Path, value: float) -> None:
    summary = TableSummary("knn", "a table", "", "", "tiny", [0], {}, "", columns=["x"], points=[[value]])
    try:
        summary.save(folder / "tables")
    except OSError as error:  # what the command makes of it
        raise InputError(str(error)) from error


def scenarios() -> dict[str, Scenario]:
    """The writers by name."""
    return {
        "a result of a sweep": Scenario(with_result, lambda folder: write_result(folder, 1), results_state),
        "a result of a run": Scenario(with_run, evaluate_into_run, results_state, best_effort=True),
        "an exported package": Scenario(
            nothing, lambda folder: export(encoder(0), folder / "package"), package_state, once=True
        ),
        "a classifier": Scenario(
            nothing, lambda folder: save_model(model(), folder / "model"), model_state, once=True
        ),
        "a run converted from the authors' file": Scenario(
            with_authors_file,
            lambda folder: convert(folder / "theirs.pth.tar", folder / "converted"),
            converted_state,
            once=True,
        ),
        "an authors' file converted from a run": Scenario(
            lambda folder: small_run(folder) and None,
            lambda folder: convert(folder / "run", folder / "theirs.pth.tar"),
            authors_state,
            once=True,
        ),
        "kept vectors": Scenario(nothing, write_vectors, vectors_state, best_effort=True),
        "tables of a sweep": Scenario(
            lambda folder: write_tables(folder, 1.0),
            lambda folder: write_tables(folder, 2.0),
            file_state("tables/knn.json"),
        ),
    }
