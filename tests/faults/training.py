"""Writers of the training under faults: checkpoints, the run folder, its records and cached features."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from faults.scenarios import ABSENT, Scenario, nothing

from halp.features.cache import FeatureCache, open_entry
from halp.skeleton import KINECT_V1
from halp.training.checkpoint import Checkpoint, list_checkpoints, newest_checkpoint, save_checkpoint
from halp.training.recipe import load_recipe
from halp.training.records import truncate_records, writing
from halp.training.run import open_run, start_folder

TOPOLOGY = {
    "name": KINECT_V1.name,
    "joints": list(KINECT_V1.joints),
    "parents": list(KINECT_V1.parents),
    "centre": KINECT_V1.centre,
    "up": KINECT_V1.up,
    "across": KINECT_V1.across,
    "dimensions": 3,
}
INFO = {"id": "0123", "data": {"hash": "a" * 64, "persons": 1, "normalisation": [], "topology": TOPOLOGY}}


def start_run(folder: Path) -> None:
    start_folder(folder / "run", load_recipe("small"), INFO)


def save(folder: Path, step: int, value: float, keep: int) -> None:
    tensors = {"weight": torch.full((64,), value)}
    state = {"step": step, "epoch": 0, "data": "a" * 64}
    save_checkpoint(folder / "run" / "checkpoints", Checkpoint(tensors, tensors, state), keep)


def checkpoint_state(folder: Path) -> str:
    if not list_checkpoints(folder / "run" / "checkpoints"):
        return ABSENT
    found = newest_checkpoint(folder / "run" / "checkpoints")
    assert torch.equal(found.model["weight"], found.optimiser["weight"])
    return f"{found.state} {found.model['weight'].unique().tolist()}"


def with_checkpoints(folder: Path, *steps: int) -> None:
    start_run(folder)
    for step in steps:
        save(folder, step, float(step), keep=2)


def run_state(folder: Path) -> str:
    path = folder / "run"
    return json.dumps(open_run(path).info, sort_keys=True) if (path / "run.json").exists() else ABSENT


def with_records(folder: Path) -> None:
    start_run(folder)
    lines = "".join(json.dumps({"step": step}) + "\n" for step in range(1, 9))
    (folder / "run" / "metrics.jsonl").write_text(lines)


def cut_records(folder: Path) -> None:
    run = open_run(folder / "run")
    with writing(run):
        truncate_records(run.path, 5)


def records_state(folder: Path) -> str:
    return str(open_run(folder / "run").metrics())


def keep_features(folder: Path) -> None:
    FeatureCache(folder / "features").get("a", 8, lambda: [np.ones((50, 8), np.float32)])


def features_state(folder: Path) -> str:
    entry = open_entry(folder / "features" / "a", 8)
    return ABSENT if entry is None else hashlib.sha256(entry.vectors.tobytes()).hexdigest()


def scenarios() -> dict[str, Scenario]:
    """The writers by name."""
    return {
        "a checkpoint": Scenario(
            lambda folder: with_checkpoints(folder, 1, 2),
            lambda folder: save(folder, 3, 3.0, keep=2),
            checkpoint_state,
        ),
        "the only checkpoint written again": Scenario(
            lambda folder: with_checkpoints(folder, 1),
            lambda folder: save(folder, 1, 9.0, keep=1),
            checkpoint_state,
        ),
        "a run folder": Scenario(nothing, start_run, run_state),
        "records of a resumed run": Scenario(with_records, cut_records, records_state),
        "cached features": Scenario(nothing, keep_features, features_state, best_effort=True),
    }
