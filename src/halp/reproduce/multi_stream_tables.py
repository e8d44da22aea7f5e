"""The blocks of the paper's tables with several streams or encoders, the ensemble table, and guided positives, as data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import halp.reproduce.paper_tables  # noqa: F401  (the tables that these continue)
from halp.reproduce.table_registry import PaperTable, TableColumn, TableRow, get_table, register_table

THREE = ["joint", "motion", "bone"]
CMD: dict[str, Any] = {"streams": THREE, "terms": ["infonce", "cmd"]}
HALP_CMD: dict[str, Any] = {"streams": THREE, "terms": ["infonce", "cmd", "halp"]}
CROSCLR_B: dict[str, Any] = {"streams": THREE, "terms": ["mining"], "mining.start_epoch": 150}
ISC: dict[str, Any] = {
    "streams": ["joint", "joint@stgcn"],
    "terms": ["cross"],
    "encoder.input_norm": False,
    "encoders.stgcn.name": "stgcn",
    "encoders.stgcn.output": 256,
}


# ISC's published scripts: 350 epochs on NTU-120 with a drop at 251 (a second one, at 351, is never reached)
ISC_ON_DATA: dict[str, dict[str, Any]] = {"ntu120": {"epochs": 350, "optimiser.milestones": [251]}}


def _block(
    tables: tuple[str, ...],
    isc: tuple[float, ...],
    mining: tuple[float, ...],
    cmd: tuple[float, ...],
    both: tuple[float, ...],
) -> None:
    """The block "additional training modalities or encoders" of tables; evaluation is on the joint stream."""
    for table in tables:
        known = get_table(table)
        register_table(
            replace(
                known,
                id=f"{table}-streams",
                title=f"{known.title}, several streams",
                caption="Trained with further streams or encoders, evaluated on the joint stream.",
                rows=(
                    TableRow("ISC", "moco", ISC, isc, data_settings=ISC_ON_DATA),
                    TableRow("CrosSCLR-B", "moco", CROSCLR_B, mining),
                    TableRow("CMD", "moco", CMD, cmd, baseline=True),
                    TableRow("HaLP + CMD", settings=HALP_CMD, paper=both),
                ),
            )
        )


_block(
    ("linear",),
    (76.3, 85.2, 67.1, 67.9, 36.0),
    (77.3, 85.1, 67.1, 68.6, 41.9),
    (79.8, 86.9, 70.3, 71.5, 43.0),
    (82.1, 88.6, 72.6, 73.1, 47.5),
)
_block(
    ("knn",),
    (62.5, 82.6, 50.6, 52.3),
    (66.1, 81.3, 52.5, 54.9),
    (70.6, 85.4, 58.3, 60.9),
    (71.0, 86.4, 59.4, 61.9),
)
_block(("transfer",), (51.1, 52.3), (54.0, 52.8), (56.0, 57.0), (56.6, 57.3))
# the published rows are of fine-tuned networks; frozen features stand beside them, as in the paper's text
_block(
    ("semi", "semi-network"),
    (38.1, 65.7, 72.5, 78.2, 35.7, 59.6, 65.9, 70.8),
    (49.8, 70.6, 77.0, 81.9, 48.6, 67.7, 72.4, 76.1),
    (53.0, 75.3, 80.2, 84.3, 50.6, 71.0, 75.4, 78.7),
    (53.0, 75.3, 80.4, 84.6, 52.6, 71.4, 76.0, 79.2),
)
_cost = get_table("cost")
register_table(
    replace(
        _cost,
        id="cost-streams",
        title="Time and memory, several streams",
        caption="HaLP adds little to CMD, which needs three encoder pairs.",
        rows=(
            *_cost.rows,
            TableRow("CMD", "moco", CMD, (3.0, 1.94, 79.8)),
            TableRow("HaLP + CMD", settings=HALP_CMD, paper=(3.32, 1.94, 82.1)),
        ),
    )
)
_ensemble = tuple(replace(column, protocol="ensemble") for column in get_table("linear").columns)
register_table(
    PaperTable(
        "ensemble",
        "Ensemble of three streams",
        "Supplement, Table 13",
        "Linear evaluation, late fusion of joint, motion and bone.",
        _ensemble,
        (
            TableRow("3s-CrosSCLR-B", "moco", CROSCLR_B, (82.1, 89.2, 71.6, 73.4, 51.0)),
            TableRow("3s-CMD", "moco", CMD, (84.1, 90.9, 74.7, 76.1, 52.6), baseline=True),
            TableRow("3s-HaLP + CMD", settings=HALP_CMD, paper=(85.1, 91.0, 75.5, 76.8, 53.4)),
        ),
    )
)
register_table(
    PaperTable(
        "guide",
        "Positives across modalities",
        "beyond the paper",
        "Prototypes from the clusters of the other streams instead of the own.",
        (
            TableColumn("NTU-60 x-sub"),
            TableColumn("NTU-60 x-sub, kNN", protocol="knn"),
            replace(_ensemble[0], title="NTU-60 x-sub, 3s"),
        ),
        (
            TableRow("CMD", "moco", CMD, baseline=True),
            TableRow("HaLP + CMD, own clusters", settings=HALP_CMD, paper=(82.1, 71.0, 85.1)),
            TableRow("HaLP + CMD, the others' clusters", settings={**HALP_CMD, "halp.guide": "cross"}),
        ),
    )
)
