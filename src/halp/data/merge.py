"""Merge several stores: copied with joints mapped by name, or linked; a column keeps the original store."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from halp.core.errors import InputError
from halp.core.files import building
from halp.core.locks import locked_folder
from halp.core.progress import Bar
from halp.data.clip import Clip, Frames, unknown
from halp.data.splits import Split, SplitRule, Within
from halp.data.store import LISTING, Store, open_store
from halp.data.store_check import check_header, check_seal, header_hash
from halp.data.store_index import damaged
from halp.data.store_writer import StoreWriter, check_free
from halp.data.topology_file import find_topology
from halp.skeleton import Topology, map_joints

_OWN = ("name", "length", "label", "subject", "camera")


def merge(
    stores: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    topology: str | Topology | None = None,
    link: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Store:
    """Pool stores into a new one and open it.

    Clips are called `STORE/NAME`, the column `source` holds the store's number from 0, classes of one name
    become one class. A store's split `xsub` lives on as `STORE/xsub`, and `source-STORE` tests on one store
    after training on the others.

    Parameters
    ----------
    stores : sequence of path
        At least two, normalised by the same steps.
    path : path
        The store to make.
    topology : str or Topology, optional
        Map the joints by name onto this layout (default: the first store's).
    link : bool
        List the stores where they are instead of copying their clips; all have to have the same joints.
    overwrite, progress : bool
        Replace a store that is there already; show progress.

    Returns
    -------
    Store
        The new one.
    """
    if len(stores) < 2:
        raise InputError(f"merging takes at least two stores, not {len(stores)}")
    opened = [open_store(pooled) for pooled in stores]
    _check_alike(opened)
    target = find_topology(topology) if topology is not None else opened[0].topology
    labels = _labels(opened)
    names = _unique([pooled.path.resolve().name for pooled in opened])
    if link:
        return _list_stores(Path(path), opened, names, target, overwrite)
    writer = StoreWriter(
        path,
        target,
        persons=max(pooled.persons for pooled in opened),
        class_names=_class_names(opened),
        splits=_splits(opened, names),
        normalisation=opened[0].normalisation,
        origin={"format": "merge", "stores": {name: pooled.hash for name, pooled in zip(names, opened)}},
        overwrite=overwrite,
    )
    position = {name: number for number, name in enumerate(writer.class_names)}
    with writer, Bar("merge", sum(map(len, opened)), shown=progress) as bar:
        for source, (store, name, table) in enumerate(zip(opened, names, labels)):
            extra = {key: values for key, values in store.columns.items() if key not in _OWN}
            for index in range(len(store)):
                frames = store.clip(index)
                if target != store.topology:
                    frames = map_joints(frames, store.topology, target, origin=store.origin_joint)
                writer.add(
                    Clip(
                        frames,
                        f"{name}/{store.names[index]}",
                        label=position.get(table.get(int(store.labels[index]), ""), -1),
                        subject=int(store.subjects[index]),
                        camera=int(store.cameras[index]),
                        extra={
                            **{key: values[index].item() for key, values in extra.items()},
                            "source": source,
                        },
                        absent=store.absent.get(index, ()),
                    )
                )
                bar.advance()
        manifests = {name: store.manifest() for name, store in zip(names, opened)}
        writer.manifest = {"format": "merge", "stores": manifests}
    return open_store(path)


def _list_stores(
    path: Path, stores: Sequence[Store], names: Sequence[str], target: Topology, overwrite: bool
) -> Store:
    """Write a store that lists others by their paths and fingerprints."""
    if other := next((store for store in stores if store.topology != target), None):
        raise InputError(
            f"store '{other.path}' has other joints than '{target.name}', so that its clips must be copied; "
            "merge without --link"
        )
    check_free(path, overwrite)
    with locked_folder(path, f"store '{path}'"), building(path, replace=overwrite) as partial:
        splits = _splits(stores, names)
        header: dict[str, Any] = {
            "format": LISTING,
            "topology": asdict(target),
            "class_names": _class_names(stores),
            "splits": {split.name: {**split.to_json(), "hash": split.hash} for split in splits},
            "normalisation": stores[0].normalisation,
            "origin": {"format": "merge", "stores": {name: store.hash for name, store in zip(names, stores)}},
            "stores": [
                {
                    "name": name,
                    "path": os.path.relpath(store.path.resolve(), path.resolve()),
                    "hash": store.hash,
                }
                for name, store in zip(names, stores)
            ],
        }
        header["hash"] = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
        header["header_hash"] = header_hash(header)
        (partial / "store.json").write_text(json.dumps(header, indent=1), encoding="utf-8")
    return open_store(path)


def open_listing(path: Path, header: Mapping[str, Any]) -> Store:
    """Open a store that lists others; they must not have changed since."""
    check_header(path, header)
    check_seal(path, header)
    listed = header.get("stores")
    if not isinstance(listed, list) or not listed:
        raise damaged(path, "store.json", "'stores' is not a list of stores")
    stores = []
    for entry in listed:
        store = open_store(path / str(entry["path"]))
        if store.hash != entry["hash"]:
            raise InputError(
                f"store '{store.path}' changed after '{path}' listed it; list it again with `halp merge"
                " --link`"
            )
        stores.append(store)
    names = [str(entry["name"]) for entry in listed]
    position = {name: number for number, name in enumerate(header["class_names"])}
    columns = _listed_columns(stores, names, position)
    absent: dict[str, Any] = {}
    first = 0
    for store in stores:
        absent |= {str(first + clip): runs for clip, runs in store.absent.items()}
        first += len(store)
    frames = ListedFrames([store.frames for store in stores])
    whole = Store(path, {**header, "absent": absent}, columns, frames)  # type: ignore[arg-type]
    whole.listed = list(zip(names, stores))
    return whole


def _listed_columns(
    stores: Sequence[Store], names: Sequence[str], position: Mapping[str, int]
) -> dict[str, Any]:
    """Columns of all stores, concatenated; a value that a store lacks is unknown."""
    parts: list[dict[str, Any]] = []
    for number, (store, name, table) in enumerate(zip(stores, names, _labels(stores))):
        labels = [position.get(table.get(int(label), ""), -1) for label in store.labels]
        own = {**store.columns, "name": np.array([f"{name}/{clip}" for clip in store.names.tolist()])}
        parts.append(
            {**own, "label": np.array(labels, dtype=np.int64), "source": np.full(len(store), number)}
        )
    kinds = {
        column: next(part[column] for part in parts if column in part) for part in parts for column in part
    }
    return {
        column: np.concatenate(
            [
                part[column] if column in part else np.full(len(part["name"]), unknown(like[0].item()))
                for part in parts
            ]
        )
        for column, like in kinds.items()
    }


class ListedFrames:
    """Frames of several stores as one array `(sum T, P, V, C)`; only requested frames are read."""

    def __init__(self, maps: Sequence[Frames]) -> None:
        self._maps = list(maps)
        self._begins = np.concatenate([[0], np.cumsum([len(frames) for frames in maps])])
        persons = max(frames.shape[1] for frames in maps)
        self.shape = (int(self._begins[-1]), persons, *maps[0].shape[2:])
        self.dtype, self.ndim, self.nbytes = maps[0].dtype, 4, 4 * int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Frames:
        first, last, _ = rows.indices(len(self))
        parts = []
        for begin, frames in zip(self._begins.tolist(), self._maps):
            part = frames[max(0, first - begin) : max(0, last - begin)]
            if len(part):
                parts.append(part if part.shape[1] == self.shape[1] else self._filled(part))
        return (
            parts[0]
            if len(parts) == 1
            else np.concatenate([np.zeros((0, *self.shape[1:]), np.float32), *parts])
        )

    def _filled(self, frames: Frames) -> Frames:
        return np.pad(frames, [(0, 0), (0, self.shape[1] - frames.shape[1]), (0, 0), (0, 0)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Frames:
        return self[:].astype(dtype or np.float32, copy=False)


def _class_names(stores: Sequence[Store]) -> list[str]:
    return list(dict.fromkeys(name for table in _labels(stores) for name in table.values()))


def _check_alike(stores: Sequence[Store]) -> None:
    """Refuse stores that are normalised differently, or that share clips (training clips would be tested on)."""
    for first, other in itertools.combinations(stores, 2):
        if other.hash == first.hash:
            raise InputError(
                f"stores '{first.path}' and '{other.path}' hold the same clips; merged, copies of a clip"
                " could be trained and tested on: leave one of the two out"
            )
        if other.normalisation != first.normalisation:
            raise InputError(
                f"store '{other.path}' was normalised by {other.normalisation}, '{first.path}' by"
                f" {first.normalisation}; prepare them with the same steps"
            )


def _labels(stores: Sequence[Store]) -> list[dict[int, str]]:
    """For every store the class name of each label it has."""
    tables = []
    for store in stores:
        used = sorted({int(label) for label in store.labels if label >= 0})
        names = store.class_names
        tables.append({label: names[label] if label < len(names) else f"class {label}" for label in used})
    return tables


def _unique(names: Sequence[str]) -> list[str]:
    """The names, numbered if one occurs twice."""
    result: list[str] = []
    for name in names:
        candidates = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        result.append(next(candidate for candidate in candidates if candidate not in result))
    return result


def _splits(stores: Sequence[Store], names: Sequence[str]) -> list[SplitRule]:
    rules: list[SplitRule] = []
    for source, (store, name) in enumerate(zip(stores, names)):
        others = tuple(number for number in range(len(stores)) if number != source)
        rules.append(Split(f"source-{name}", "source", others, (source,)))
        for rule in store.splits.values():
            if isinstance(rule, Split) and rule.column == "name":
                train, test = (tuple(f"{name}/{clip}" for clip in part) for part in (rule.train, rule.test))
                rule = Split(rule.name, "name", train, test)
            rules.append(Within(f"{name}/{rule.name}", rule, "source", source))
    return rules
