"""The tables, ablations and analysis figures of the paper that one stream can produce, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from halp.reproduce.table_registry import PaperTable, TableColumn, TableRow, register_table

XSUB = TableColumn("NTU-60 x-sub")
_FIVE = (
    ("NTU-60 x-sub", "ntu60", "xsub"),
    ("NTU-60 x-view", "ntu60", "xview"),
    ("NTU-120 x-sub", "ntu120", "xsub"),
    ("NTU-120 x-set", "ntu120", "xset"),
    ("PKU-II x-sub", "pku2", "xsub"),
)


def _baseline(
    *paper: float | None, name: str = "baseline (MoCo)", settings: Mapping[str, Any] | None = None
) -> TableRow:
    return TableRow(name, "moco", settings or {}, paper, baseline=True)


def _ablation(
    id: str,
    title: str,
    source: str,
    caption: str,
    key: str,
    values: Sequence[tuple[Any, float]],
    symbol: str,
    baseline: float = 78.0,
) -> PaperTable:
    """One setting varied, linear evaluation on NTU-60 x-sub."""
    rows = [TableRow(f"{symbol} = {value}", settings={key: value}, paper=(published,)) for value, published in values]
    return register_table(PaperTable(id, title, source, caption, (XSUB,), (_baseline(baseline), *rows)))


def _variant(id: str, title: str, caption: str, halp: str, other: tuple[str, Mapping[str, Any], float]) -> PaperTable:
    """HaLP beside one variant of it that the text of Section 4.4 mentions, linear evaluation on NTU-60 x-sub."""
    name, settings, published = other
    rows = (_baseline(78.0), TableRow(halp, paper=(79.7,)), TableRow(name, settings=settings, paper=(published,)))
    return register_table(PaperTable(id, title, "Section 4.4, text", caption, (XSUB,), rows))


register_table(
    PaperTable(
        "linear",
        "Linear evaluation",
        "Table 1",
        "HaLP improves over the single-modality baseline on all data sets.",
        tuple(TableColumn(title, data, split) for title, data, split in _FIVE),
        (_baseline(78.0, 85.5, 69.1, 69.8, 42.9), TableRow("HaLP", paper=(79.7, 86.8, 71.1, 72.2, 43.5))),
    )
)
register_table(
    PaperTable(
        "knn",
        "kNN evaluation",
        "Table 2",
        "k = 1 on the features, no training: HaLP improves over the single-modality baseline.",
        tuple(TableColumn(title, data, split, "knn") for title, data, split in _FIVE[:4]),
        (_baseline(63.6, 82.8, 51.7, 55.3), TableRow("HaLP", paper=(65.8, 83.6, 55.8, 59.0))),
    )
)
register_table(
    PaperTable(
        "transfer",
        "NTU to PKU transfer",
        "Table 3",
        "Pre-trained on NTU, the whole network fine-tuned on PKU-II.",
        (
            TableColumn("NTU-60 → PKU-II", "ntu60", "xsub", "finetune", target="pku2"),
            TableColumn("NTU-120 → PKU-II", "ntu120", "xsub", "finetune", target="pku2"),
        ),
        (_baseline(53.3, 53.4), TableRow("HaLP", paper=(54.8, 55.4))),
    )
)
register_table(
    PaperTable(
        "cost",
        "Time and memory",
        "Table 4",
        "HaLP costs little more time per epoch and no more memory than the baseline.",
        (TableColumn("time per epoch, ×", metric="time"), TableColumn("memory, ×", metric="memory"), XSUB),
        (_baseline(1.0, 1.0, 78.0), TableRow("HaLP", paper=(1.13, 1.0, 79.7))),
    )
)
_ablation(
    "hardness",
    "Hardness λ",
    "Table 5",
    "λ controls the maximum hardness of generated positives; large values do better.",
    "halp.hardness",
    ((1.0, 79.7), (0.8, 79.7), (0.6, 79.6), (0.4, 79.6), (0.2, 79.5)),
    "λ",
)
_ablation(
    "prototypes",
    "Number of prototypes",
    "Table 6",
    "20 prototypes are best for NTU-60.",
    "halp.prototypes",
    ((10, 79.5), (20, 79.7), (40, 79.5), (60, 79.5)),
    "N",
)
_variant(
    "interpolation",
    "Query–key interpolation",
    "Positives between key and query do not improve over the baseline.",
    "towards a prototype (HaLP)",
    ("from key to query", {"halp.direction": "query"}, 77.92),
)
_variant(
    "hardest",
    "Hardest positives only",
    "Always taking the hardest step t* is worse than a range of hardness.",
    "t ~ U(0, λt*) (HaLP)",
    ("t = t*", {"halp.step": "hardest"}, 79.4),
)
_variant(
    "anchor",
    "Anchor",
    "Walking from the query instead of the key does not improve over the baseline.",
    "key (HaLP)",
    ("query", {"halp.anchor": "query"}, 77.9),
)
_SHARES = (0.01, 0.05, 0.1, 0.2)
# the text of the supplement trains an MLP on the features, the caption and CMD fine-tune the network: both are offered
for _id, _what, _settings in (
    ("semi", "a classifier on frozen features", {"head": "mlp"}),
    ("semi-network", "the whole network", {"variant": "network"}),
):
    register_table(
        PaperTable(
            _id,
            f"Semi-supervised learning, {_what}",
            "Supplement, Table 7",
            f"Trained with 1, 5, 10 and 20 % of the labels: {_what}; mean of five draws.",
            tuple(
                TableColumn(f"NTU-60 {title} {100 * share:g} %", "ntu60", split, "semi", {"share": share, **_settings})
                for split, title in (("xview", "x-view"), ("xsub", "x-sub"))
                for share in _SHARES
            ),
            (
                _baseline(45.4, 69.0, 75.2, 81.0, 42.6, 64.3, 70.0, 74.7),
                TableRow("HaLP", paper=(48.7, 71.5, 77.1, 82.4, 46.6, 66.9, 72.6, 76.1)),
            ),
        )
    )
register_table(
    PaperTable(
        "filter",
        "Filters",
        "Supplement, Table 8",
        "The rank filter against a filter by the query (variant-1) and by the target (variant-2).",
        (TableColumn("kept of 100", metric="kept"), XSUB),
        (
            _baseline(None, 78.0),
            TableRow("rank filter", settings={"halp.filter": "rank"}, paper=(91, 79.7)),
            TableRow("variant-1", settings={"halp.filter": "variant-1"}, paper=(16, 79.5)),
            TableRow("variant-2", settings={"halp.filter": "variant-2"}, paper=(100, 79.6)),
        ),
    )
)
_ablation(
    "weight",
    "Weight μ",
    "Supplement, Table 9",
    "A larger weight of the HaLP loss helps and saturates.",
    "halp.weight",
    ((0.5, 78.8), (1.0, 79.7), (1.5, 79.9), (2.0, 80.0)),
    "μ",
)
_ablation(
    "positives",
    "Number of positives",
    "Supplement, Table 10",
    "100 positives per key do best; all numbers beat the baseline.",
    "halp.count",
    ((1, 79.59), (5, 79.63), (10, 79.50), (50, 79.56), (100, 79.71), (150, 79.43)),
    "G",
    baseline=77.96,
)
_ablation(
    "start",
    "Start epoch",
    "Supplement, Table 11",
    "Positives from noisy early features or too late help less.",
    "halp.start_epoch",
    ((50, 79.6), (100, 79.6), (200, 79.7), (300, 78.7), (400, 78.3)),
    "from epoch",
)
_ablation(
    "recent",
    "Recent keys (top-K)",
    "Supplement, Table 12",
    "How many of the newest keys are clustered into prototypes.",
    "halp.recent",
    ((256, 79.7), (512, 79.5), (1024, 79.4), (2048, 79.5), (3072, 79.7)),
    "K",
)
register_table(
    PaperTable(
        "similarities",
        "Evolution of similarities",
        "Supplement, Figures 4 and 5",
        "Similarity of real keys and hallucinated positives to the query and to the queue.",
        (XSUB,),
        (TableRow("HaLP"),),
        kind="similarities",
    )
)
register_table(
    PaperTable(
        "prototype-similarity",
        "Similarity to prototypes",
        "Supplement, Figure 6",
        "A key, two positives that are kept and one that the rank filter drops, against every prototype.",
        (XSUB,),
        (TableRow("HaLP"),),
        kind="prototypes",
    )
)
# AimCLR's own linear protocol; 74.34 is the joint stream of its README, and the paper gives the two figures and no settings
_AIMCLR_LINEAR = {"learning_rate": 3.0, "epochs": 100, "milestones": (80,), "batch_size": 128, "crops": 0}
register_table(
    PaperTable(
        "aimclr",
        "HaLP + AimCLR",
        "Supplement, Section E",
        "HaLP as a plug-in: AimCLR on ST-GCN, joint stream, linear evaluation by AimCLR's schedule; kNN beside it.",
        (replace(XSUB, settings=_AIMCLR_LINEAR), TableColumn("NTU-60 x-sub, kNN", protocol="knn")),
        (
            TableRow("AimCLR", "moco", paper=(74.34, None), baseline=True, recipe="aimclr-halp"),
            TableRow("HaLP + AimCLR", paper=(75.24, None), recipe="aimclr-halp"),
        ),
    )
)
for _id, _title, _more in (("no-queue", "", {}), ("no-queue-no-momentum", " and momentum", {"contrast.momentum": 0.0})):
    _no_queue = {"contrast.queue": 0, **_more}
    register_table(
        PaperTable(
            _id,
            f"Without memory bank{_title}",
            "Supplement, Section B.7",
            f"Negatives and prototypes from the batch; keys by the {'query' if _more else 'momentum'} encoder's weights.",
            (TableColumn("NTU-60 x-sub", protocol="knn"),),
            (
                _baseline(58.9, name=f"baseline without queue{_title}", settings=_no_queue),
                TableRow(f"HaLP without queue{_title}", settings={**_no_queue, "halp.source": "batch"}, paper=(64.2,)),
            ),
        )
    )
