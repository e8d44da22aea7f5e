"""Columns that rows of a collection can be coloured and filtered by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.reports.player import order_by_frequency

MOST_CATEGORIES = 500
SEPARATORS = "_/ -."  # of the parts of a recording's name; the first one that parts all names alike is taken


@dataclass(frozen=True)
class Column:
    """A value for every row: the place of a category (−1: none), or a number."""

    title: str
    values: npt.NDArray[Any]
    categories: list[str] | None = None


def name_parts(names: Sequence[str], pattern: str = "") -> dict[str, list[str]]:
    """Parts of names by column: of a pattern, else between separators if all names have equally many."""
    if pattern:
        pieces = re.split(r"\{(\w+)\}", pattern)
        fields = pieces[1::2]
        if not fields or len(set(fields)) != len(fields):
            raise InputError(
                f"the pattern '{pattern}' names no part, or one twice; write it like"
                " {action}_{person}_{n}"
            )
        expression = "".join(
            f"(.+{'?' if i < len(pieces) - 2 else ''})" if i % 2 else re.escape(one)
            for i, one in enumerate(pieces)
        )
        found = [re.fullmatch(expression, name) for name in names]
        if not any(found):
            return {}
        return {
            field: [one[number] if one else "" for one in found]
            for number, field in enumerate(fields, start=1)
        }
    for separator in SEPARATORS if len(names) > 3 else "":
        parted = [name.split(separator) for name in names]
        if len(parted[0]) > 1 and len({len(parts) for parts in parted}) == 1:
            return {
                f"name, part {place + 1}": [parts[place] for parts in parted]
                for place in range(len(parted[0]))
            }
    return {}


def make_column(name: str, values: npt.NDArray[Any]) -> Column | None:
    """A column of a store to colour by; None if it has one value, or too many."""
    categories, codes = np.unique(values, return_inverse=True)
    if len(categories) < 2:
        return None
    if values.dtype.kind == "f":
        return Column(name, np.where(values == -1, np.nan, values).astype(np.float32))
    if len(categories) > MOST_CATEGORIES:
        return None if values.dtype.kind == "U" else Column(name, values.astype(np.float32))
    unknown = categories[0] in (-1, "")
    named = [str(one) for one in (categories[1:] if unknown else categories)]
    return ranked_column(name, codes - int(unknown), named)


def ranked_column(name: str, values: npt.NDArray[np.int64], categories: list[str]) -> Column:
    """A column of categories; the map distinguishes the most frequent."""
    categories, values = order_by_frequency(categories, values)
    return Column(name, values.astype(np.int16), categories)
