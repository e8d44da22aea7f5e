"""Groups that people name, merge and split: what was done is kept in a file beside the labels and done again at every start."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halp.core.errors import InputError
from halp.core.files import read_json, write_json
from halp.explorer.labels import check_label

if TYPE_CHECKING:
    from halp.explorer.collection import Collection
    from halp.tasks.cluster import Clusters

GROUPS = 10  # to begin with: more than needed are soon merged
Act = dict[str, Any]  # action, groups, name, count


class GroupBook:
    """Names of the groups of a collection and the acts that made them."""

    def __init__(self, path: Path) -> None:
        self.path, self.revision = path, 0
        self.names: list[str] = []
        self._acts: list[Act] = []
        self._lock = threading.Lock()

    @property
    def undoable(self) -> bool:
        """Whether there is an act to undo."""
        return len(self._acts) > 1

    def open(self, collection: Collection) -> None:
        """Group a collection as it was left, or anew where it is another one."""
        self.collection = collection
        fresh: list[Act] = [{"action": "count", "count": min(GROUPS, len(collection))}]
        with self._lock:
            try:
                kept = read_json(self.path)
                self._replay(kept["acts"] if kept["of"] == self._of else fresh)
            except (InputError, LookupError, TypeError, ValueError):  # none, or not one of ours
                self._replay(fresh)

    @property
    def _of(self) -> str:
        """What the groups are of: vectors of an encoder, which the name of their folder in the cache tells."""
        folder = self.collection.table.folder
        return self.collection.source.hash if folder is None else folder.name

    def act(self, action: str, groups: Sequence[int] = (), *, name: str = "", count: int | None = None) -> None:
        """Group anew (`count`; None: the number whose groups are furthest apart), `name`, `split`, `merge`, or `undo`."""
        with self._lock:
            if not self.names:
                raise InputError("groups are still being found; wait a moment")
            if action == "undo":
                if self.undoable:
                    self._replay(self._acts[:-1])
            else:
                one = {"action": action, "groups": list(groups), "name": name, "count": count}
                self._apply(one)
                self._acts = [*self._acts, one]
            self.revision += 1
            try:
                write_json(self.path, {"of": self._of, "acts": self._acts})
            except OSError as error:
                raise InputError(f"groups cannot be written to '{self.path}' ({error}); make room") from error

    def _replay(self, acts: Sequence[Act]) -> None:
        last = max(place for place, one in enumerate(acts) if one["action"] == "count")
        for one in acts[last:]:
            self._apply(one)
        self._acts = list(acts)

    def _apply(self, act: Act) -> None:
        action, groups, collection = act["action"], act.get("groups", ()), self.collection
        clusters = collection.groups
        if action == "count":
            self.names = [f"group {number + 1}" for number in range(len(collection.group(act["count"]).typical))]
            return
        if clusters is None or not groups or not all(0 <= number < len(self.names) for number in groups):
            raise InputError("there is no such group; choose one from the list")
        if action == "name":
            self.names[groups[0]] = check_label(act["name"])
        elif action == "split":
            self._split(clusters, groups[0])
        elif action == "merge" and len(set(groups)) > 1:
            self._merge(clusters, sorted(set(groups)))
        else:
            raise InputError("groups can be named, split, or merged with another one")

    def _split(self, clusters: Clusters, number: int) -> None:
        from halp.tasks.cluster import group_vectors

        collection = self.collection
        rows = np.flatnonzero(clusters.group == number)
        if len(rows) < 2:
            raise InputError("a group of one clip cannot be split")
        vectors = collection.table.vectors if len(rows) <= 1_000 else collection.reduced
        halves = group_vectors(np.asarray(vectors[rows]), 2)
        group = clusters.group.copy()
        group[rows[halves.group == 1]] = len(self.names)
        typical = np.append(clusters.typical, rows[halves.typical[1]])
        typical[number] = rows[halves.typical[0]]
        collection.groups = replace(clusters, group=group, typical=typical)
        self.names = [*self.names, f"{self.names[number]} b"]

    def _merge(self, clusters: Clusters, groups: Sequence[int]) -> None:
        first, *rest = groups
        keep = [number for number in range(len(self.names)) if number not in rest]
        places = {old: new for new, old in enumerate(keep)} | dict.fromkeys(rest, keep.index(first))
        group = np.array([places[number] for number in range(len(self.names))])[clusters.group]
        self.collection.groups = replace(clusters, group=group, typical=clusters.typical[keep])
        self.names = [self.names[number] for number in keep]
