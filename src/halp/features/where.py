"""Filters on rows: `subject = 3 and label in ('walk', 'run')` as a mask over the rows of a source."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice
from halp.features.content import StoredClips
from halp.features.source import Source, edges

Mask = npt.NDArray[np.bool_]
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_EXAMPLE = "write it like \"subject = 3 and label in ('walk', 'run')\""


def row_columns(source: Source) -> dict[str, npt.NDArray[Any]]:
    """Columns that a filter may name: of the rows, of the files, and of the store."""
    rows = source.rows
    names = np.array([*source.class_names, ""])
    label = np.where((rows["label"] >= 0) & (rows["label"] < len(source.class_names)), rows["label"], -1)
    columns = {name: rows[name] for name in ("start", "stop", "length", "fps", "seen", "subject", "camera")}
    columns |= {"recording": np.array(source.recordings)[rows["recording"]], "label": names[label]}
    content = source.content
    if isinstance(content, StoredClips):
        own = {name: values[rows["item"]] for name, values in content.store.columns.items()}
        named = {name: own[f"{name}_name"] for name in ("subject", "camera") if f"{name}_name" in own}
        return {**own, **columns, **named}
    for name, known in source.named.items():
        columns[name] = np.array([*known, ""])[np.where(rows[name] < len(known), rows[name], -1)]
    sizes = np.diff([0, *edges(rows).tolist(), len(rows)])
    columns["file"] = (
        np.repeat([file for _, file in source.known.clips], sizes) if len(rows) else np.array([""])
    )
    return columns


def matching_rows(source: Source, where: str) -> Mask:
    """Which rows of a source pass a filter: =, !=, <, <=, >, >=, in, joined by and, or, not."""
    columns = row_columns(source)
    mask = np.broadcast_to(evaluate(where, columns), len(source.rows))
    if not mask.any():
        raise InputError(f"no row of '{source.name}' passes the filter '{where}'; check its values")
    return mask


def evaluate(where: str, columns: Mapping[str, npt.NDArray[Any]]) -> Mask:
    """A filter over columns.

    >>> evaluate("camera = 2 or not name in ('a', 'b')", {"camera": np.array([1, 2, 1]), "name": np.array(["a", "b", "c"])})
    array([False,  True,  True])
    """
    spelled = re.sub(r"""('[^']*'|"[^"]*")|(?<![<>=!])=(?!=)|<>|\b(AND|OR|NOT|IN)\b""", _python, where)
    try:
        return _mask(ast.parse(spelled.strip(), mode="eval").body, columns)
    except InputError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"the filter '{where}' cannot be read; {_EXAMPLE}") from None


def _python(match: re.Match[str]) -> str:
    """Translate SQL keywords to Python; quoted strings stay unchanged."""
    return match[1] or {"=": "==", "<>": "!="}.get(match[0], match[0].lower())


def _mask(node: ast.expr, columns: Mapping[str, npt.NDArray[Any]]) -> Mask:
    if isinstance(node, ast.BoolOp):
        masks = [_mask(value, columns) for value in node.values]
        return np.logical_and.reduce(masks) if isinstance(node.op, ast.And) else np.logical_or.reduce(masks)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~_mask(node.operand, columns)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.left, ast.Name):
        column = columns[check_choice("column of a filter", node.left.id, columns)]
        value, kind = ast.literal_eval(node.comparators[0]), type(node.ops[0])
        if kind in (ast.In, ast.NotIn):
            several = value if isinstance(value, (tuple, list)) else [value]
            found = np.logical_or.reduce(
                [_compared(node.left.id, column, operator.eq, each) for each in several]
            )
            return ~found if kind is ast.NotIn else found
        return _compared(node.left.id, column, _COMPARISONS[kind], value)
    raise ValueError(ast.dump(node))


def _compared(name: str, column: npt.NDArray[Any], compare: Callable[[Any, Any], Any], value: Any) -> Mask:
    """Compare a column with one value; a number given as text is compared as a number."""
    if name in ("subject", "camera") and column.dtype.kind in "iu" and (column < 0).all():
        raise InputError(
            f"no {name} of these recordings is known; name it with --pattern or --labels of halp prepare,"
            " and search the store"
        )
    if column.dtype.kind == "U":
        return np.asarray(compare(column, str(value)))
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise InputError(f"a filter compares '{name}', a number, with '{value}'; {_EXAMPLE}") from None
    return np.asarray(compare(column, value))
