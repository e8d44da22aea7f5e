"""Reproducing the paper: every table and analysis figure as a resumable sweep.

`paper_tables.toml` the published tables as data, `tables.py` what they mean and which rows run · `scales.py`
from tiny to the paper's · `scheduler.py` which runs a table needs · `runner.py` trains, evaluates and
measures them ·
`summary.py` the outcome · `reproduce_table.py` all of it in one call, `halp.reproduce("hardness")`.
"""

import sys
from types import ModuleType
from typing import Any

from halp.reproduce.reproduce_table import prepare_sweep, reproduce, tables_for
from halp.reproduce.tables import list_rows, list_tables

__all__ = ["list_rows", "list_tables", "prepare_sweep", "reproduce", "tables_for"]


class _Callable(ModuleType):
    """`halp.reproduce` names this package once anything in it is imported, and the verb always."""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return reproduce(*args, **keywords)


sys.modules[__name__].__class__ = _Callable
