"""Splits: named rules that say which clips are for training and which for testing. A store carries its own.

A rule is data: it is saved with the store, has a fingerprint, and draws by the clips' names, so that the same
rule gives the same clips on every machine and whatever the order of the store.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice

if TYPE_CHECKING:
    pass

Indices = npt.NDArray[np.int64]
Columns = Mapping[str, npt.NDArray[Any]]


class SplitRule(ABC):
    """What all splits share: indices of the two parts, a fingerprint, and a form to save them in."""

    name: str
    kind: ClassVar[str]

    @abstractmethod
    def indices(self, columns: Columns) -> tuple[Indices, Indices]:
        """Indices of the training and of the test clips."""

    @property
    def hash(self) -> str:
        """Short fingerprint of the rule, recorded with every result."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]  # type: ignore[call-overload]

    def to_json(self) -> dict[str, Any]:
        """The rule without its name, as stored."""
        data: dict[str, Any] = {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]
        del data["name"]
        base = getattr(self, "base", None)
        return data if base is None else {**data, "base": {"name": base.name, **base.to_json()}}

    def _checked(
        self, in_train: npt.NDArray[np.bool_], in_test: npt.NDArray[np.bool_]
    ) -> tuple[Indices, Indices]:
        if (in_train & in_test).any():
            clip = int(np.argmax(in_train & in_test))
            raise InputError(f"split '{self.name}': clip {clip} is in the training and in the test part")
        for part, chosen in (("training", in_train), ("test", in_test)):
            if not chosen.any():
                raise InputError(f"split '{self.name}' leaves no {part} clip in this store; choose another")
        return np.flatnonzero(in_train), np.flatnonzero(in_test)

    def _column(self, columns: Columns, column: str) -> npt.NDArray[Any]:
        if column not in columns:
            raise InputError(
                f"split '{self.name}' needs the column '{column}', which this store lacks; it has:"
                f" {', '.join(columns)}"
            )
        return columns[column]


@dataclass(frozen=True)
class Split(SplitRule):
    """Clips whose `column` (subject, camera, …) is in `train` are for training, in `test` for testing.

    An empty `test` means "all the others". Clips in neither are left out. With `column="name"` this is a pair
    of lists.
    """

    name: str
    column: str
    train: tuple[int | str, ...]
    test: tuple[int | str, ...] = ()
    kind: ClassVar[str] = "values"

    def indices(self, columns: Columns) -> tuple[Indices, Indices]:
        """Indices of the training and of the test clips.

        >>> rule = Split("xsub", "subject", train=(1, 3))
        >>> [part.tolist() for part in rule.indices({"subject": np.array([1, 2, 3, 4])})]
        [[0, 2], [1, 3]]
        """
        values = self._column(columns, self.column)
        in_train = np.isin(values, np.array(self.train))
        in_test = np.isin(values, np.array(self.test)) if self.test else ~in_train
        return self._checked(in_train, in_test)


@dataclass(frozen=True)
class Fold(SplitRule):
    """Part `fold` of `folds` is for testing, the others for training; clips equal in `column` stay together.

    Without a column single clips are drawn; `stratified` then deals the clips (or recordings) of every class
    out evenly.
    """

    name: str
    folds: int
    fold: int
    column: str = "name"
    seed: int = 0
    stratified: bool = False
    kind: ClassVar[str] = "fold"

    def __post_init__(self) -> None:
        if self.folds < 2 or not 0 <= self.fold < self.folds:
            raise InputError(
                f"split '{self.name}': fold {self.fold} of {self.folds} does not exist; count from 0"
            )

    def indices(self, columns: Columns) -> tuple[Indices, Indices]:
        """Indices of the training and of the test clips.

        >>> parts = Fold("a", 2, 0, "subject").indices({"subject": np.array([1, 2, 1, 2])})
        >>> sorted(sum((part.tolist() for part in parts), []))
        [0, 1, 2, 3]
        """
        values = self._column(columns, self.column)
        groups, member = np.unique(values, return_inverse=True)
        order = ranking(groups, self.seed)
        if self.stratified and self.column in ("name", "recording"):
            labels = self._column(columns, "label")[np.unique(values, return_index=True)[1]]
            order = order[np.argsort(labels[order], kind="stable")]
        place = np.empty(len(groups), dtype=np.int64)
        place[order] = np.arange(len(groups)) % self.folds
        in_test = place[member] == self.fold
        return self._checked(~in_test, in_test)


@dataclass(frozen=True)
class FewLabels(SplitRule):
    """A seeded part of another rule's training clips, its test clips whole: the semi-supervised setting.

    `share` is the fraction kept; with `per_class` that many of every class instead. `stratified` takes the
    fraction of every class, at least one clip; otherwise it is drawn from all clips at once, as CMD and HaLP
    do.
    """

    name: str
    base: SplitRule
    share: float = 0.1
    per_class: int = 0
    seed: int = 0
    stratified: bool = False
    kind: ClassVar[str] = "few-labels"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or self.per_class < 0:
            raise InputError(f"split '{self.name}': a share of {self.share} is not above 0 and up to 1")

    def indices(self, columns: Columns) -> tuple[Indices, Indices]:
        """Indices of the few labelled and of the test clips.

        >>> columns = {"name": np.array(list("abcdef")), "subject": np.array([1, 1, 1, 1, 2, 2]), "label": np.arange(6)}
        >>> few, test = FewLabels("half", Split("xsub", "subject", (1,)), share=0.5).indices(columns)
        >>> len(few), test.tolist()
        (2, [4, 5])
        """
        train, test = self.base.indices(columns)
        order = train[ranking(self._column(columns, "name")[train], self.seed)]
        if not self.stratified and not self.per_class:
            return np.sort(order[: max(1, round(self.share * len(order)))]), test
        labels = self._column(columns, "label")[order]
        chosen = []
        for label in np.unique(labels):
            members = order[labels == label]
            chosen.append(members[: self.per_class or max(1, round(self.share * len(members)))])
        return np.sort(np.concatenate(chosen)), test


@dataclass(frozen=True)
class Within(SplitRule):
    """Another rule restricted to clips whose `column` is `value`, such as one source of a merged store."""

    name: str
    base: SplitRule
    column: str
    value: int | str
    kind: ClassVar[str] = "within"

    def indices(self, columns: Columns) -> tuple[Indices, Indices]:
        """Indices in the whole store of the training and of the test clips."""
        rows = np.flatnonzero(self._column(columns, self.column) == self.value)
        train, test = self.base.indices({name: values[rows] for name, values in columns.items()})
        return rows[train], rows[test]


def ranking(names: npt.NDArray[Any], seed: int) -> Indices:
    """A shuffled order `(n,)` that depends on the names and the seed only, not on a library's random numbers.

    >>> ranking(np.array(["a", "b", "c"]), 0).tolist() == ranking(np.array(["a", "b", "c"]), 0).tolist()
    True
    """
    digests = [hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names.tolist()]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)


def k_fold(name: str, folds: int, **settings: Any) -> list[Fold]:
    """All folds of a cross-validation, called `NAME-1`, `NAME-2`, …

    >>> [fold.name for fold in k_fold("cv", 3, column="subject")]
    ['cv-1', 'cv-2', 'cv-3']
    """
    return [Fold(f"{name}-{fold + 1}", folds, fold, **settings) for fold in range(folds)]


def few_labels(
    base: SplitRule, shares: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2), **settings: Any
) -> list[FewLabels]:
    """The usual fractions of a split's labels, called `xsub-1%` and so on."""
    return [FewLabels(f"{base.name}-{share * 100:g}%", base, share, **settings) for share in shares]


def split_sizes(rules: Iterable[SplitRule], columns: Columns) -> dict[str, dict[str, int] | None]:
    """How many clips each rule trains and tests on; None if it leaves a part empty or lacks its column."""
    sizes: dict[str, dict[str, int] | None] = {}
    for rule in rules:
        try:
            train, test = rule.indices(columns)
            sizes[rule.name] = {"train": len(train), "test": len(test)}
        except InputError:
            sizes[rule.name] = None
    return sizes


_KINDS: dict[str, type[SplitRule]] = {kind.kind: kind for kind in (Split, Fold, FewLabels, Within)}
# What the fields of a rule may hold, by their types as they are written.
_TYPES: dict[str, set[type]] = {
    "str": {str},
    "int": {int},
    "float": {int, float},
    "bool": {bool},
    "int | str": {int, str},
    "tuple[int | str, ...]": {int, str, float},
}


def rule_from_json(name: str, data: Mapping[str, Any]) -> SplitRule:
    """The rule that `to_json` wrote; a recorded fingerprint must match."""
    fields = dict(data)
    kind = check_choice("kind of split", fields.pop("kind", Split.kind), _KINDS)
    recorded = fields.pop("hash", None)
    try:
        if "base" in fields:
            base = dict(fields["base"])
            fields["base"] = rule_from_json(base.pop("name"), base)
        fields |= {key: tuple(fields[key]) for key in ("train", "test") if key in fields}
        rule = _KINDS[kind](name, **fields)  # type: ignore[call-arg]
        _check_types(rule)
    except (TypeError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"split '{name}' is damaged ({error}); add it again") from error
    if recorded is not None and recorded != rule.hash:
        raise InputError(
            f"split '{name}' was changed after it was saved (fingerprint {recorded}); add it under a new name"
        )
    return rule


def _check_types(rule: SplitRule) -> None:
    for field in dataclasses.fields(rule):  # type: ignore[arg-type]
        value = getattr(rule, field.name)
        values = value if isinstance(value, tuple) else () if isinstance(value, SplitRule) else (value,)
        if not {type(entry) for entry in values} <= _TYPES.get(str(field.type), set()):
            raise TypeError(f"'{field.name}' is {str(value)[:40]!r}")
        if any(isinstance(entry, int) and abs(entry) >= 2**63 for entry in values):
            raise ValueError(f"a number of '{field.name}' is too large")
