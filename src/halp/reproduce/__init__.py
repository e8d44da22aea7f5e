"""Reproducing the paper: every table and analysis figure as a sweep that can be planned, interrupted and gone on with."""

import halp.reproduce.streams  # noqa: F401  (fills the registry, after the tables of one stream)
from halp.reproduce.command import Prepared, prepare_sweep, reproduce, tables_for
from halp.reproduce.tables import Column, PaperTable, Row, add_rows, list_tables, register_table

__all__ = [
    "Column",
    "PaperTable",
    "Prepared",
    "Row",
    "add_rows",
    "list_tables",
    "prepare_sweep",
    "register_table",
    "reproduce",
    "tables_for",
]
