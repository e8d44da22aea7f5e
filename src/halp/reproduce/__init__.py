"""Reproducing the paper: every table and analysis figure as a sweep that can be scheduled, interrupted and resumed.

`paper_tables.py`, `multi_stream_tables.py`, `other_systems.py` the published tables as data · `row_list.py` which rows run ·
`table_registry.py` what a table is · `scales.py` from tiny to the paper's · `scheduler.py` which runs a table needs · `runner.py`
trains and evaluates them · `cost.py` time and memory · `summary.py`, `summary_page.py`, `terminal_tables.py` the outcome ·
`reproduce_table.py` all of it in one call.
"""

import halp.reproduce.other_systems  # noqa: F401  (fills the registry, after the tables of one stream and of several)
from halp.reproduce.reproduce_table import PreparedSweep, prepare_sweep, reproduce_table, tables_for
from halp.reproduce.row_list import RowStatus, list_rows
from halp.reproduce.table_registry import PaperTable, TableColumn, TableRow, add_rows, list_tables, register_table

__all__ = [
    "PaperTable",
    "PreparedSweep",
    "RowStatus",
    "TableColumn",
    "TableRow",
    "add_rows",
    "list_rows",
    "list_tables",
    "prepare_sweep",
    "register_table",
    "reproduce_table",
    "tables_for",
]
