"""Rows of the paper's tables that are other people's systems: run by recipes of ours where there are any, else quoted.

Whether a row runs follows from the recipes: one of the name `DATA-STEM`, `cpu-STEM` or `small-STEM` is enough. A row without a
recipe stays in the list with the reason why.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import halp.reproduce.multi_stream_tables  # noqa: F401  (the tables that these continue)
from halp.recipe_list import list_recipes
from halp.reproduce.table_registry import TableRow, get_table, register_table


@dataclass(frozen=True)
class OtherSystem:
    """A system that the paper compares with."""

    name: str
    stem: str  # its recipes end in it
    reason: str  # why it is quoted, as long as it has no recipe
    note: str = ""  # what a reader of our figure has to know
    settings: dict[str, Any] = field(default_factory=dict)

    def recipes(self) -> list[str]:
        """The recipes that run it."""
        return [name for name in list_recipes() if name.partition("-")[2] == self.stem]


_CODE = "there is no public code, and its paper leaves open "
LONGT_GAN = OtherSystem("LongT GAN", "longt-gan", _CODE + "sizes and schedule", "its published figures are of kNN type")
MS2L = OtherSystem("MS2L", "ms2l", "not built")
PC = OtherSystem("P&C", "predict-cluster", "not built", "published: 1-NN on further features, the best epoch on test")
AS_CAL = OtherSystem("AS-CAL", "ascal", "not built")
H_TRANSFORMER = OtherSystem(
    "H-Transformer", "h-transformer", "not built", "the width of its feed-forward layers is ours"
)
SKT = OtherSystem(
    "SKT", "skeletonbt", "not built", "run as SkeletonBT, its public sibling; see its recipe for the input"
)
GL_TRANSFORMER = OtherSystem("GL-Transformer", "gl-transformer", "not built", "published: the best epoch on test")
SEBIRENET = OtherSystem("SeBiReNet", "sebirenet", "not built", "published: a recurrent classifier on codes of frames")
AIMCLR = OtherSystem("AimCLR", "aimclr", "not built", "its input and linear protocol differ; see its recipe")
ASSL = OtherSystem("ASSL", "assl", "needs labels while it trains, and there is no public code")
CROSCLR_3S = OtherSystem("3s-CrosSCLR", "crosclr", "not built", "its input differs; see its recipe")
AIMCLR_3S = replace(AIMCLR, name="3s-AimCLR", settings={"streams": ["joint", "motion", "bone"]})

_PUBLISHED: dict[str, tuple[tuple[OtherSystem, tuple[float | None, ...]], ...]] = {
    "linear": (
        (LONGT_GAN, (39.1, 48.1, None, None, 26.0)),
        (MS2L, (52.6, None, None, None, 27.6)),
        (PC, (50.7, 76.3, 42.7, 41.7, 25.5)),
        (AS_CAL, (58.5, 64.8, 48.6, 49.2, None)),
        (H_TRANSFORMER, (69.3, 72.8, None, None, None)),
        (SKT, (72.6, 77.1, 62.6, 64.3, None)),
        (GL_TRANSFORMER, (76.3, 83.8, 66.0, 68.7, None)),
        (SEBIRENET, (None, 79.7, None, None, None)),
        (AIMCLR, (74.3, 79.7, None, None, None)),
    ),
    "knn": ((LONGT_GAN, (39.1, 48.1, 31.5, 35.5)), (PC, (50.7, 76.3, 39.5, 41.8))),
    "transfer": ((LONGT_GAN, (44.8, None)), (MS2L, (45.8, None))),
    "semi-network": (
        (LONGT_GAN, (None, None, None, None, 35.2, None, 62.0, None)),
        (MS2L, (None, None, None, None, 33.1, None, 65.1, None)),
        (ASSL, (None, 63.6, 69.8, 74.7, None, 57.3, 64.3, 68.0)),
        (AIMCLR, (47.2, None, 74.6, None, 45.7, None, 71.4, None)),
    ),
    "ensemble": (
        (CROSCLR_3S, (77.8, 83.4, 67.9, 66.7, 21.2)),
        (AIMCLR_3S, (78.9, 83.8, 68.2, 68.8, 39.5)),
    ),
}

#: rows that no recipe runs, by the table that they stand in: system and published figures
QUOTED: dict[str, list[tuple[OtherSystem, tuple[float | None, ...]]]] = {}

for _id, _entries in _PUBLISHED.items():
    _known = get_table(_id)
    QUOTED[_id] = [(system, paper) for system, paper in _entries if not system.recipes()]
    _rows = tuple(
        TableRow(system.name, "recipe", system.settings, paper, recipe=system.stem, note=system.note)
        for system, paper in _entries
        if system.recipes()
    )
    if _rows:
        register_table(
            replace(
                _known,
                id=f"{_id}-others",
                title=f"{_known.title}, other systems",
                caption="Systems that the paper compares with, each by its own recipe.",
                rows=_rows,
            )
        )
