"""Several stores to one: joints mapped by name, classes by name, every source still told apart."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from halp.core.errors import InputError
from halp.core.progress import Bar
from halp.data.clip import Clip
from halp.data.splits import Split, SplitRule, Within
from halp.data.store import Store, StoreWriter, open_store
from halp.data.topology_file import find_topology
from halp.skeleton import Topology, map_joints

_OWN = ("name", "length", "label", "subject", "camera")


def merge(
    stores: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    topology: str | Topology | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Store:
    """Pool stores into a new one and open it.

    Clips are called `STORE/NAME`, the column `source` holds the store's number from 0, classes of one name become one class. A
    store's split `xsub` lives on as `STORE/xsub`, and `source-STORE` tests on one store after training on the others.

    Parameters
    ----------
    stores : sequence of path
        At least two, normalised by the same steps.
    path : path
        The store to make.
    topology : str or Topology, optional
        Map the joints by name onto this layout (default: the first store's).
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
    writer = StoreWriter(
        path,
        target,
        persons=max(pooled.persons for pooled in opened),
        class_names=list(dict.fromkeys(name for table in labels for name in table.values())),
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
                        extra={**{key: values[index].item() for key, values in extra.items()}, "source": source},
                        absent=store.absent.get(index, ()),
                    )
                )
                bar.advance()
        manifests = {name: store.manifest() for name, store in zip(names, opened)}
        writer.manifest = {"format": "merge", "stores": manifests}
    return open_store(path)


def _check_alike(stores: Sequence[Store]) -> None:
    """Raise where two stores were normalised in different ways or hold the same clips, which could be trained and tested on."""
    for first, other in itertools.combinations(stores, 2):
        if other.hash == first.hash:
            raise InputError(
                f"stores '{first.path}' and '{other.path}' hold the same clips; merged, copies of a clip could be trained "
                "and tested on: leave one of the two out"
            )
        if other.normalisation != first.normalisation:
            raise InputError(
                f"store '{other.path}' was normalised by {other.normalisation}, '{first.path}' by {first.normalisation}; "
                "prepare them with the same steps"
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
    """The names, numbered where one occurs twice."""
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
