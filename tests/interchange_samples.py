"""Interchange `.npz` files with everything that they may hold, for the tests of those who read them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from halp.data.clip import Clip
from halp.data.splits import SplitRule
from halp.data.store import Store
from halp.skeleton import Topology


def write_interchange(
    source: Store | Iterable[Clip],
    path: str | os.PathLike[str],
    *,
    topology: Topology | None = None,
    class_names: Sequence[str] = (),
    splits: Sequence[SplitRule] = (),
    normalisation: Sequence[str] = (),
) -> None:
    """Write a store, or clips of one topology, as one interchange file."""
    if isinstance(source, Store):
        topology, class_names, normalisation = source.topology, source.class_names, source.normalisation
        splits = tuple(source.splits.values())
        lengths, joints, absent = source.lengths, source.frames, source.absent
        columns: dict[str, Any] = {key: values for key, values in source.columns.items() if key != "length"}
    else:
        clips = list(source)
        persons = max(clip.shape[1] for clip in clips)
        absent = {number: clip.absent for number, clip in enumerate(clips) if clip.absent}
        lengths = np.array([clip.shape[0] for clip in clips])
        joints = np.concatenate(
            [np.pad(clip.frames, ((0, 0), (0, persons - clip.shape[1]), (0, 0), (0, 0))) for clip in clips]
        )
        columns = {
            key: [getattr(clip, key) for clip in clips] for key in ("name", "label", "subject", "camera")
        }
        for key in sorted({key for clip in clips for key in clip.extra}):
            columns[key] = [clip.extra.get(key, -1) for clip in clips]
    plural = {"name": "names", "label": "labels", "subject": "subjects", "camera": "views"}
    note = {
        "topology": asdict(topology),
        "splits": {split.name: split.to_json() for split in splits},
        "normalisation": list(normalisation),
        "absent": {str(clip): left_out for clip, left_out in absent.items()},
    }
    arrays = {plural.get(key, key): np.asarray(values) for key, values in columns.items()}
    arrays |= {
        "joints": joints,
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        "class_names": np.array(class_names, dtype=np.str_),
        "joint_names": np.array(topology.joints),
        "bones": np.array(topology.bones, dtype=np.int64).reshape(-1, 2),
        "halp": np.array(json.dumps(note)),
    }
    np.savez_compressed(path, **arrays)
