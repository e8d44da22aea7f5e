"""What the commands share: the application they register with, and how they print for machines."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import tyro
from tyro.conf import UseAppendAction

app = tyro.extras.SubcommandApp()
Settings = UseAppendAction[tuple[tuple[str, ...], ...]]


def flat(settings: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(setting for group in settings for setting in group)


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def print_table(table: Any) -> None:
    """A result for people, on standard output; as wide as it needs to be where this is not a terminal."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def first_process() -> bool:
    """Whether this process speaks for the job; others were started by a launcher."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", os.environ.get("SLURM_PROCID", "0")))) == 0
