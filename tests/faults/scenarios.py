"""What is written under faults: for each writer how to begin, what to do, and what must hold whatever
happens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halp.core import files
from halp.data.clip import Clip
from halp.data.splits import Split
from halp.data.store import open_store
from halp.data.store_writer import StoreWriter, add_split
from halp.reports.page import Report
from halp.skeleton import KINECT_V1

ABSENT = "absent"


@dataclass(frozen=True)
class Scenario:
    """`begin` makes the old state of a folder, `act` writes the new one, `state` tells what a reader finds
    there.

    `state` raises where a reader would stumble. A writer by `best_effort` warns instead of failing, as a
    cache does; one that writes `once` refuses what is there already.
    """

    begin: Callable[[Path], None]
    act: Callable[[Path], None]
    state: Callable[[Path], str]
    best_effort: bool = False
    once: bool = False


def clip(seed: int, name: str) -> Clip:
    frames = np.random.default_rng(seed).normal(size=(4, 1, 20, 3)).astype(np.float32)
    return Clip(frames, name, label=seed % 2, subject=seed)


def write_store(path: Path, seed: int, *, overwrite: bool = False) -> None:
    splits = [Split("xsub", "subject", (seed,))]
    with StoreWriter(
        path, KINECT_V1, persons=1, class_names=["a", "b"], splits=splits, overwrite=overwrite
    ) as writer:
        for number in range(3):
            writer.add(clip(seed + number, f"clip{number}"))
        writer.manifest = {"dropped": [], "repaired": []}


def store_state(folder: Path) -> str:
    path = folder / "store"
    try:
        store = open_store(path)
    except ValueError as error:
        if "there is no store" in str(error):
            return ABSENT
        raise
    return f"{store.hash} {sorted(store.splits)} {store.manifest()}"


def nothing(folder: Path) -> None:
    """Begin with an empty folder."""


def file_state(name: str) -> Callable[[Path], str]:
    def state(folder: Path) -> str:
        path = folder / name
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ABSENT

    return state


def write_report(folder: Path, text: str) -> None:
    report = Report("Title", "subtitle")
    report.section(text)
    report.save(folder / "report.html")


def without_exchange(act: Callable[[Path], None]) -> Callable[[Path], None]:
    """The same on a system that cannot exchange two names in one step."""

    def acting(folder: Path) -> None:
        files._exchange = lambda one, two: False
        act(folder)

    return acting


def all_scenarios() -> dict[str, Scenario]:
    """Every writer by name."""
    from faults import training, use  # they load torch

    return {**data_scenarios(), **training.scenarios(), **use.scenarios()}


def data_scenarios() -> dict[str, Scenario]:
    """Writers of data and reports by name."""
    return {
        "a new store": Scenario(
            nothing, lambda folder: write_store(folder / "store", 1), store_state, once=True
        ),
        "a store that replaces another": Scenario(
            lambda folder: write_store(folder / "store", 1),
            lambda folder: write_store(folder / "store", 5, overwrite=True),
            store_state,
        ),
        "a store that replaces another in two steps": Scenario(
            lambda folder: write_store(folder / "store", 1),
            without_exchange(lambda folder: write_store(folder / "store", 5, overwrite=True)),
            store_state,
        ),
        "a split added to a store": Scenario(
            lambda folder: write_store(folder / "store", 1),
            lambda folder: add_split(folder / "store", Split("own", "subject", (2,))),
            store_state,
        ),
        "a report": Scenario(
            lambda folder: write_report(folder, "old"),
            lambda folder: write_report(folder, "new"),
            file_state("report.html"),
        ),
    }
