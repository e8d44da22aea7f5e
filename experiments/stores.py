"""Stores of the public Kinect sets, prepared once each; data is looked for in `HALP_SHARED/data` (default
`../shared/data`).
"""

from __future__ import annotations

from pathlib import Path

from experiments.files import DATA
from halp.data.ingest.prepare import prepare
from halp.data.splits import Split
from halp.data.store import Store, open_store

NORMALISATION = ("drop-empty", "centre", "rotate-mean")
# the test split of each set, and a split of its training part for choosing settings
SETS: dict[str, tuple[str, Split]] = {
    "nw-ucla": ("xview", Split("xview-validation", "camera", (1,), (2,))),
    "utd-mhad": ("xsub", Split("xsub-validation", "subject", (1, 5), (3, 7))),
    "msr-action3d": ("xsub", Split("xsub-validation", "subject", (1, 5, 9), (3, 7))),
}


def prepared_store(name: str, folder: Path) -> Store:
    """The store of a set, made once, with full rotation and its validation split."""
    path = folder / name
    if not (path / "store.json").exists():
        splits = (SETS[name][1],) if name in SETS else ()
        prepare(
            "interchange",
            DATA / f"{name}.npz",
            path,
            normalisation=NORMALISATION,
            splits=splits,
            progress=False,
        )
    return open_store(path)
