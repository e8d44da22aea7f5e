"""Choose the splits of a store for training and evaluation if the user names none."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from halp.core.errors import InputError

if TYPE_CHECKING:
    from halp.data.store import Store
from halp.data.splits import Indices, SplitRule, k_fold

#: The name that stands for "every clip, with no split".
ALL = "all"


def split_command(store: Store) -> str:
    """The command that makes suitable splits for a store."""
    subjects = len(np.unique(store.subjects))
    by, folds = ("subject", min(5, subjects)) if subjects > 1 else ("stratified", 5)
    return f"halp split {quote(str(store.path))} --by {by} --folds {folds}"


def training_clips(store: Store, split: str) -> tuple[Indices, str]:
    """Indices of the clips to learn from, and a note if they are not those of the requested split.

    A store without any split is learned from whole; a store that has others is an error that lists them.
    """
    if split == ALL:
        return np.arange(len(store)), ""
    if split in store.splits:
        return store.split(split)[0], ""
    if not store.splits:
        return (
            np.arange(len(store)),
            (
                f"store '{store.path}' has no splits: learning from all {len(store)} clips (make splits with "
                f"`{split_command(store)}`)"
            ),
        )
    raise InputError(
        f"store '{store.path}' has no split '{split}'; it has {', '.join(sorted(store.splits))}: choose one"
        f" with --set split=NAME, learn from all clips with --set split={ALL}, or make one with"
        f" `{split_command(store)}`"
    )


def drawn_by(store: Store) -> str:
    """The column whose values stay together in stratified folds: recordings if known, else clips."""
    recordings = store.columns.get("recording")
    return "recording" if recordings is not None and recordings.dtype.kind == "U" else "name"


def default_split(store: Store, folds: int = 5) -> tuple[list[SplitRule], str]:
    """Rules to evaluate with if a store has no splits, and a sentence that names and explains them.

    Folds over subjects where at least two are known, otherwise folds in which every class has its share;
    windows of one recording stay together, so that no test clip overlaps a training clip.
    """
    labelled = store.labels >= 0
    subjects = np.unique(store.subjects[labelled & (store.subjects >= 0)])
    if len(subjects) > 1 and (store.subjects[labelled] >= 0).all():
        number = min(folds, len(subjects))
        rules: list[SplitRule] = [*k_fold("subjects", number, column="subject")]
        return rules, f"store '{store.path}' has no splits: {number} folds over its {len(subjects)} subjects"
    if len(np.unique(store.labels[labelled])) < 2:
        raise InputError(
            f"store '{store.path}' has no splits and fewer than two classes; give labels with "
            "`halp prepare … --labels TABLE`, or folders named after the classes"
        )
    column = drawn_by(store)
    groups = store.columns[column][labelled]
    sizes = [
        len(np.unique(groups[store.labels[labelled] == label])) for label in np.unique(store.labels[labelled])
    ]
    number = max(2, min(folds, *sizes))
    rules = [*k_fold("folds", number, column=column, stratified=True)]
    kind = "recordings" if column == "recording" else "clips"
    return (
        rules,
        (
            f"store '{store.path}' has no splits and does not know all subjects: {number} stratified folds"
            f" over {kind}, so that a person may be in both the training and the test part"
        ),
    )


def evaluation_splits(store: Store, asked: Sequence[str], trained_on: str) -> tuple[Store, list[str], str]:
    """The store, the names of the splits to evaluate with, and a note if the user did not choose them.

    Those that were asked for, else the one that was trained on; a store without splits is given those of
    `default_split`, in memory only, so that the files stay as they are.
    """
    if asked and (store.splits or list(asked) != [ALL]):
        return store, list(asked), ""
    if trained_on in store.splits:
        return store, [trained_on], ""
    if store.splits:
        raise InputError(
            f"the encoder was trained on {'all clips' if trained_on == ALL else repr(trained_on)}, and store"
            f" '{store.path}' has the splits {', '.join(sorted(store.splits))}; choose one or several with"
            " --split"
        )
    rules, note = default_split(store)
    view = copy.copy(store)
    view.splits = {rule.name: rule for rule in rules}
    return view, [rule.name for rule in rules], note
