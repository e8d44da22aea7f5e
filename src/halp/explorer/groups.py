"""Groups that users name, merge and split; acts are stored in the database and replayed at the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from halp.core.errors import InputError
from halp.explorer.imports import import_sklearn
from halp.explorer.label_facts import check_label
from halp.explorer.labels import LabelBook
from halp.explorer.ledger import NO_GROUND, Ground, Stacks

if TYPE_CHECKING:
    from halp.explorer.collection import Collection
    from halp.tasks.cluster import Clusters

GROUPS = 10  # to begin with, at most: more than needed are soon merged
Step = dict[str, Any]  # action, groups, name, count


@dataclass(frozen=True)
class Grouping:
    """Groups of all rows, immutable; an id means the same members as long as it exists."""

    clusters: Clusters
    ids: tuple[int, ...]
    names: tuple[str, ...]
    revision: int = 0
    undo: int | None = None  # the act that can be undone

    def place(self, number: int) -> int:
        """The index of a group in the list."""
        if number not in self.ids:
            raise InputError("this group was changed in another tab; check the groups and try again")
        return self.ids.index(number)


def suggest_count(silhouettes: Mapping[int, float]) -> int:
    """The largest number of groups that is almost as distinct as the best.

    Two, such as locomotion and everything else, are nearly always the clearest and say little: they are
    suggested only where no other number is half as clear.

    >>> suggest_count({2: 0.35, 3: 0.29, 4: 0.26, 5: 0.27, 6: 0.2})
    5
    >>> suggest_count({2: 0.8, 3: 0.3, 4: 0.25})
    2
    """
    if not silhouettes:
        return 1
    finer = {count: value for count, value in silhouettes.items() if count > 2}
    best = max(finer.values(), default=-1.0)
    if best <= 0.5 * silhouettes.get(2, -1.0):
        return 2
    return max(count for count, value in finer.items() if value >= best - 0.1 * abs(best))


class GroupBook:
    """The present groups of a collection (`now`, None until they are found), and acts on them."""

    def __init__(self, book: LabelBook) -> None:
        self.book = book
        self.now: Grouping | None = None

    def open(self, collection: Collection) -> None:
        """Restore the groups of a collection, or regroup it if it has changed."""
        self.collection = collection
        folder = collection.table.folder
        self.topic = f"groups of {collection.source.hash if folder is None else folder.name}"
        with self.book.lock:
            self.now = self._replayed()

    def act(
        self,
        action: str,
        groups: Sequence[int] = (),
        *,
        name: str = "",
        count: int | None = None,
        ground: Ground = NO_GROUND,
    ) -> None:
        """Regroup (`count`; None: the clearest number), `name`, `split`, `merge` or `undo`.

        `groups` are ids; for `undo` the act that is meant.
        """
        with self.book.lock:
            ledger = self.book.ledger
            if self.now is None:
                raise InputError("groups are still being found; wait a moment")
            if ledger.repeated(ground):
                return
            if action == "undo":
                if ledger.turn(self.topic, "undo", groups[0] if groups else None, ground):
                    self.now = self._replayed()
                return
            first = 1000 * (ledger.revision + 1)  # ids that no group has had
            step = {"action": action, "groups": list(groups), "name": name, "count": count, "first": first}
            made = self._done(self.now, step)
            act = ledger.write(self.topic, action, ground=ground, step=step)
            self.now = replace(made, revision=act.revision, undo=act.revision)

    @property
    def _count(self) -> int:
        """The initial number of groups, which grows with the number of movements."""
        return min(GROUPS, max(1, round(len(self.collection) ** 0.5)))

    def _replayed(self) -> Grouping:
        """The result of the acts in effect, from the last regrouping."""
        acts = self.book.ledger.stacks.get(self.topic, Stacks()).done
        steps: list[Step] = [{"action": "count", "count": self._count, "first": 0}]
        steps += [act.body["step"] for act in acts]
        last = max(place for place, one in enumerate(steps) if one["action"] == "count")
        made = self._done(None, steps[last])
        for one in steps[last + 1 :]:
            made = self._done(made, one)
        undo = acts[-1].revision if acts else None
        return replace(made, revision=self.book.ledger.revision, undo=undo)

    def _done(self, now: Grouping | None, step: Step) -> Grouping:
        """The groups after an act."""
        action, first = step["action"], step["first"]
        if action == "count" or now is None:
            clusters = self.collection.group(step["count"])
            count = len(clusters.typical)
            names = tuple(f"group {number + 1}" for number in range(count))
            return Grouping(clusters, tuple(range(first, first + count)), names)
        places = sorted({now.place(number) for number in step["groups"]})
        if action == "name" and len(places) == 1:
            names = (*now.names[: places[0]], check_label(step["name"]), *now.names[places[0] + 1 :])
            return replace(now, names=names)
        if action == "split" and len(places) == 1:
            return self._split(now, places[0], first)
        if action == "merge" and len(places) > 1:
            return _merged(now, places, first)
        raise InputError("groups can be named, split, or merged with another one")

    def _split(self, now: Grouping, place: int, first: int) -> Grouping:
        from halp.tasks.cluster import group_vectors

        rows = np.flatnonzero(now.clusters.group == place)
        if len(rows) < 2:
            raise InputError("a group of one clip cannot be split")
        import_sklearn()
        vectors = self.collection.table.vectors if len(rows) <= 1_000 else self.collection.reduced
        halves = group_vectors(np.asarray(vectors[rows]), 2)
        group = now.clusters.group.copy()
        group[rows[halves.group == 1]] = len(now.ids)
        typical = np.append(now.clusters.typical, rows[halves.typical[1]])
        typical[place] = rows[halves.typical[0]]
        ids = (*now.ids[:place], first, *now.ids[place + 1 :], first + 1)
        names = (*now.names, f"{now.names[place]} b")
        return Grouping(replace(now.clusters, group=group, typical=typical), ids, names)


def _merged(now: Grouping, places: Sequence[int], first: int) -> Grouping:
    target, *rest = places
    keep = [place for place in range(len(now.ids)) if place not in rest]
    new = {old: place for place, old in enumerate(keep)} | dict.fromkeys(rest, keep.index(target))
    group = np.array([new[place] for place in range(len(now.ids))])[now.clusters.group]
    clusters = replace(now.clusters, group=group, typical=now.clusters.typical[keep])
    ids = tuple(first if place == target else now.ids[place] for place in keep)
    return Grouping(clusters, ids, tuple(now.names[place] for place in keep))
