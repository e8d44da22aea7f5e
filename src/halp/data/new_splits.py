"""New splits on request: folds over a column, stratified folds, or a list of held-out values."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from halp.core.errors import InputError, check_choice
from halp.data.choose_splits import drawn_by
from halp.data.splits import Split, SplitRule, k_fold
from halp.data.store import Store, open_store
from halp.data.store_writer import add_split

STRATIFIED = "stratified"


def split(
    store: str | os.PathLike[str],
    by: str = "subject",
    *,
    folds: int | None = None,
    hold_out: Sequence[str] = (),
    name: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> list[SplitRule]:
    """Make named train/test splits and save them in a store.

    Parameters
    ----------
    store : path
        The store.
    by : str
        A column (subject, camera, label, recording, …) whose values stay together, or `stratified`, which
        deals the clips of every class out evenly.
    folds : int, optional
        Make this many folds, called NAME-1, NAME-2, …
    hold_out : sequence of str
        Values of the column to test on; all others are for training.
    name : str, optional
        What to call the split (default: the column).
    seed : int
        Another seed draws other folds.
    overwrite : bool
        Replace splits of the same name.

    Returns
    -------
    list of SplitRule
        As saved in the store.
    """
    path, opened = store, open_store(store)
    if (folds is None) == (not hold_out):
        raise InputError("a split needs either --folds NUMBER or --hold-out VALUE …, and not both")
    if by == STRATIFIED and hold_out:
        raise InputError(
            "stratified folds cannot hold out values; give --folds, or --by a column with --hold-out"
        )
    rules = _hold_out(opened, by, hold_out, name) if hold_out else _folds(opened, by, folds or 0, name, seed)
    for rule in rules:
        rule.indices(opened.columns)
    for rule in rules:
        add_split(path, rule, replace=overwrite)
    return rules


def _folds(store: Store, by: str, folds: int, name: str | None, seed: int) -> list[SplitRule]:
    if folds < 2:
        raise InputError(f"{folds} folds are not possible; choose at least 2")
    if by == STRATIFIED:
        if not (store.labels >= 0).any():
            raise InputError(f"store '{store.path}' has no labels to stratify by; use --by subject or name")
        return [*k_fold(name or STRATIFIED, folds, column=drawn_by(store), seed=seed, stratified=True)]
    values = np.unique(_column(store, by))
    if len(values) < folds:
        raise InputError(
            f"store '{store.path}' has {len(values)} values of '{by}', too few for {folds} folds; choose"
            " fewer folds"
        )
    return [*k_fold(name or by, folds, column=by, seed=seed)]


def _hold_out(store: Store, by: str, values: Sequence[str], name: str | None) -> list[SplitRule]:
    names = f"{by}_name"
    if names in store.columns and not all(value in map(str, store.columns[by].tolist()) for value in values):
        by = names
    column = _column(store, by)
    known = {str(value): value for value in np.unique(column).tolist()}
    if by == "label":
        known = {
            text: label for label, text in enumerate(store.class_names) if label in known.values()
        } or known
    held = tuple(known[check_choice(f"{by} in store '{store.path}'", value, known)] for value in values)
    train = tuple(value for value in np.unique(column).tolist() if value not in held)
    if not train:
        raise InputError(f"all values of '{by}' are held out, so nothing is left for training; leave some")
    return [Split(name or by, by, train, held)]


def _column(store: Store, by: str) -> np.ndarray:
    """A column with known values; one that is entirely unknown is an error."""
    columns = {column: values for column, values in store.columns.items() if column != "length"}
    column = columns[check_choice(f"column of store '{store.path}'", by, [*columns, STRATIFIED])]
    if len(np.unique(column)) < 2:
        verb = "does not know" if column[0] in (-1, "") else "has a single value of"
        raise InputError(
            f"store '{store.path}' {verb} '{by}'; give it at prepare time with --labels TABLE or --pattern"
            " PATTERN, or split by another column"
        )
    return column
