"""Make a store of NumPy arrays in memory, for data that no reader knows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.clip import Clip, Frames
from halp.data.normalise import check_steps, normalise_clip
from halp.data.splits import SplitRule
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.skeleton import Topology, get_topology


def store_from_arrays(
    path: str | os.PathLike[str],
    arrays: Sequence[npt.ArrayLike],
    *,
    topology: str | Topology,
    labels: Sequence[int] | None = None,
    subjects: Sequence[int] | None = None,
    cameras: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    class_names: Sequence[str] = (),
    splits: Sequence[SplitRule] = (),
    normalisation: Sequence[str] = (),
    overwrite: bool = False,
) -> Store:
    """Make a store of arrays `(T, V, C)` or `(T, P, V, C)` and open it; zeros mark missing joints.

    `topology` is a name or a `Topology` of your own; labels count from 0, -1 is "not known".
    """
    known = get_topology(topology) if isinstance(topology, str) else topology
    steps = check_steps(normalisation)
    columns = {"labels": labels, "subjects": subjects, "cameras": cameras, "names": names}
    for column, values in columns.items():
        if values is not None and len(values) != len(arrays):
            raise InputError(f"there are {len(arrays)} arrays but {len(values)} {column}; give one per array")
    if not len(arrays):
        raise InputError("no arrays were given; give at least one")
    names = [f"clip-{number:06}" for number in range(len(arrays))] if names is None else list(names)
    persons = max(checked_array(array, known, name).shape[1] for array, name in zip(arrays, names))
    writer = StoreWriter(
        path,
        known,
        persons=persons,
        class_names=class_names,
        splits=splits,
        normalisation=steps,
        origin={"format": "arrays"},
        overwrite=overwrite,
    )
    with writer:
        for number, (array, name) in enumerate(zip(arrays, names)):
            label, subject, camera = (
                -1 if values is None else int(values[number]) for values in (labels, subjects, cameras)
            )
            if class_names and not -1 <= label < len(class_names):
                raise InputError(
                    f"array '{name}' has class {label}; there are {len(class_names)} class names,"
                    " counted from 0"
                )
            clip = Clip(checked_array(array, known, name), name, label, subject, camera)
            writer.add(normalise_clip(clip, known, steps))
    return open_store(path)


def checked_array(array: npt.ArrayLike, topology: Topology, name: str = "array") -> Frames:
    """One array as frames `(T, P, V, C)`; an error says which shape was found and which joints are wanted."""
    try:
        frames: npt.NDArray[Any] = np.asarray(array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"'{name}' is not an array of numbers ({error}); give (frames, joints, coordinates)"
        ) from None
    if frames.ndim == 3:
        frames = frames[:, None]
    if frames.ndim != 4 or frames.shape[2:] != (len(topology), topology.dimensions) or 0 in frames.shape:
        raise InputError(
            f"'{name}' has shape {np.shape(array)}; topology '{topology.name}' needs (frames,"
            f" {len(topology)}, {topology.dimensions}) or (frames, persons, {len(topology)},"
            f" {topology.dimensions})"
        )
    return frames
