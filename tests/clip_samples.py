"""Small files of the large data sets, written to the formats' specifications, and small stores; several tests
share them.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from halp.data.clip import Clip
from halp.data.splits import Split, SplitRule
from halp.data.store import JSON_FORMAT, Store, open_store
from halp.data.store_check import content_hash, header_hash
from halp.data.store_index import INDEX, JSON_INDEX
from halp.data.store_writer import StoreWriter
from halp.skeleton import KINECT_V1, Topology

NAME = "S001C002P003R002A013"


def bodies(frames: int = 3, persons: int = 1, seed: int = 0) -> np.ndarray:
    """Joints `(T, P, 25, 3)` with few decimals, none of them zero."""
    return (np.random.default_rng(seed).integers(10, 999, (frames, persons, 25, 3)) / 100).astype(np.float32)


def skeleton_text(joints: np.ndarray, end: str = "\n", there: np.ndarray | None = None) -> str:
    """A `.skeleton` file of joints `(T, P, 25, 3)`; `there` (T, P) leaves bodies out."""
    lines = [str(len(joints))]
    for time, frame in enumerate(joints):
        present = [body for person, body in enumerate(frame) if there is None or there[time, person]]
        lines.append(str(len(present)))
        for body in present:
            lines += ["72057594037931101 0 1 1 1 1 0 0.02 0.05 2", "25"]
            lines += [
                " ".join(
                    f"{number:g}"
                    for number in (*joint, 277.4, 191.8, 1036.2, 519.1, -0.2, 0.05, 0.9, -0.1, 2)
                )
                for joint in body
            ]
    return end.join(lines) + end


def write_skeleton(folder: Path, name: str = NAME, joints: np.ndarray | None = None, **options) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.skeleton"
    path.write_bytes(skeleton_text(bodies() if joints is None else joints, **options).encode())
    return path


def write_pku(
    folder: Path, name: str = "A01N02-L", frames: int = 12, labels: str | None = "3,2,5,2\n51,6,12,1\n"
) -> np.ndarray:
    """A recording and its labels; returns the joints `(T, 2, 25, 3)`."""
    joints = bodies(frames, 2)
    (folder / "skeleton").mkdir(parents=True, exist_ok=True)
    (folder / "label").mkdir(exist_ok=True)
    rows = joints.reshape(frames, 150)
    text = "\n".join(" ".join(f"{number:.6f}" for number in row) for row in rows) + "\n"
    (folder / "skeleton" / f"{name}.txt").write_text(text)
    if labels is not None:
        (folder / "label" / f"{name}.txt").write_text(labels)
    return joints


def write_trio(
    folder: Path, part: str, names: Sequence[str], lengths: Sequence[int], seed: int = 0
) -> np.ndarray:
    """The authors' three files with 20 padded frames; returns (N, C, T, V, M)."""
    folder.mkdir(parents=True, exist_ok=True)
    joints = np.random.default_rng(seed).normal(size=(len(names), 3, 20, 25, 2)).astype(np.float32)
    np.save(folder / f"{part}_data_joint.npy", joints)
    np.save(folder / f"{part}_num_frame.npy", np.array(lengths))
    labels = [int(name[17:20]) - 1 for name in names]
    (folder / f"{part}_label.pkl").write_bytes(pickle.dumps(([f"{name}.skeleton" for name in names], labels)))
    return joints


def annotation(
    name: str = NAME, label: int = 12, joints: int = 25, dimensions: int = 3, frames: int = 4, **more
) -> dict:
    """One entry of a PYSKL file."""
    keypoint = np.random.default_rng(1).uniform(1, 2, (2, frames, joints, dimensions)).astype(np.float16)
    return {"frame_dir": name, "label": label, "keypoint": keypoint, "total_frames": frames, **more}


def write_pyskl(path: Path, annotations: Sequence[object], split: dict | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = list(annotations) if split is None else {"split": split, "annotations": list(annotations)}
    path.write_bytes(pickle.dumps(content))
    return path


def make_store(
    path: Path,
    clips: int = 12,
    topology: Topology = KINECT_V1,
    persons: int = 1,
    splits: Sequence[SplitRule] = (Split("xsub", "subject", (1, 3)),),
    class_names: Sequence[str] = ("wave", "walk", "sit"),
    **settings,
) -> Store:
    """A store with three classes, four subjects and two cameras; clip i has 3 + i frames."""
    draw = np.random.default_rng(0)
    with StoreWriter(
        path, topology, persons=persons, class_names=class_names, splits=splits, **settings
    ) as writer:
        for number in range(clips):
            frames = draw.uniform(0.5, 1, (3 + number, persons, len(topology), topology.dimensions))
            extra = {"setup": number % 5}
            writer.add(Clip(frames, f"clip{number:02}", number % 3, number % 4 + 1, number % 2 + 1, extra))
    return open_store(path)


def reseal(path: Path) -> None:
    """Give a store whose files were changed by hand the fingerprints of what they hold now."""
    header = json.loads((path / "store.json").read_text())
    with open(path / "frames.npy", "rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        header["hash"] = content_hash(path, file.tell())[0]
    header["header_hash"] = header_hash(header)
    (path / "store.json").write_text(json.dumps(header))


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Give a store other columns, whatever they are."""
    parquet.write_table(pyarrow.table(dict(columns)), path / INDEX)


def columns_of(path: Path) -> dict[str, list[Any]]:
    return parquet.read_table(path / INDEX).to_pydict()


def as_json_store(path: Path) -> Path:
    """Turn a store into one of format 1, whose index is JSON."""
    (path / JSON_INDEX).write_text(json.dumps(columns_of(path)))
    (path / INDEX).unlink()
    header = {**json.loads((path / "store.json").read_text()), "format": JSON_FORMAT}
    (path / "store.json").write_text(json.dumps({**header, "header_hash": header_hash(header)}))
    return path


def walker(frames: int = 60, persons: int = 1, seed: int = 0) -> np.ndarray:
    """People who stand upright (y up, metres) while every joint swings slowly; nobody is at zero."""
    draw = np.random.default_rng(seed)
    rest = draw.uniform(0.2, 0.4, (1, persons, 20, 3))
    rest[..., KINECT_V1.index("hip_center"), :] = [0.3, 1.0, 0.3]
    rest[..., KINECT_V1.index("shoulder_center"), :] = [0.3, 1.5, 0.3]
    for side, x in (("left", 0.4), ("right", 0.2)):  # facing z, the left side has the larger x
        for joint, place in {"hip": [x, 0.9, 0.3], "ankle": [x, 0.1, 0.3], "foot": [x, 0.05, 0.55]}.items():
            rest[..., KINECT_V1.index(f"{joint}_{side}"), :] = place
    rest = rest + 3 * np.arange(persons)[None, :, None, None] * [1, 0, 0]
    time = np.arange(frames)[:, None, None, None]
    return (rest + 0.05 * np.sin(time / 6 + draw.uniform(0, 6, (1, persons, 20, 1)))).astype(np.float32)


def moving_clips(topology: Topology, count: int, *, seed: int = 0, damaged: bool = False) -> list[np.ndarray]:
    """Recordings `(T, P, V, C)` of three kinds of movements; damaged ones lack joints, frames and persons
    (NaN).
    """
    draw, clips = np.random.default_rng(seed), []
    body = np.random.default_rng(0).normal(size=(len(topology), topology.dimensions))
    for number in range(count):
        frames, persons = int(draw.integers(20, 120)), int(draw.integers(1, 4))
        time = np.linspace(0, 6, frames)[:, None, None, None]
        swing = np.sin((1 + number % 3) * time) * np.sin(np.arange(len(topology)))[:, None]
        clip = (
            body
            + 0.3 * swing
            + 0.05 * draw.normal(size=(frames, persons, len(topology), topology.dimensions))
        )
        clip = clip + draw.normal(size=(1, persons, 1, topology.dimensions))
        if damaged:
            clip[draw.random(clip.shape[:3]) < 0.2] = np.nan
            clip[draw.random(frames) < 0.1] = np.nan
            clip[:, : number % (persons + 1)] = np.nan
        clips.append(clip.astype(np.float32))
    return clips
