"""Terminal output by type of answer: text and tables. JSON is produced by the answers themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from halp.cli.app import table_of
from halp.data.spans import COLUMNS, UNSEEN, Event

_LONGEST = 20  # entries of a count table on a line


@dataclass(frozen=True)
class Shown:
    """Text before the tables, the tables, text after them, how `--out` is written if not as events, and which
    numbers have no interval and why.
    """

    tables: Sequence[Any] = ()
    said: Sequence[str] = ()
    after: Sequence[str] = ()
    write: Callable[[Path], list[Path]] | None = None
    reasons: str = ""


def present(answer: Any) -> Shown:
    """The parts of an answer shown on a terminal."""
    from halp.tasks.intervals import without_interval

    _register()
    return replace(_present(answer), reasons=without_interval(answer))


@singledispatch
def _present(answer: Any) -> Shown:
    """The table of an answer whose JSON is a list of rows."""
    return Shown([table_of(answer.to_json(), digits=2)])


def _register() -> None:
    """Presentations by type of answer; registered after a verb has run, when its types are loaded."""
    from halp.data.inspect import Inspection
    from halp.tasks.agreement import Agreement
    from halp.tasks.angles import Angles
    from halp.tasks.cluster import Clustering
    from halp.tasks.compare import Comparison
    from halp.tasks.curves import Curves
    from halp.tasks.deviation import Deviations
    from halp.tasks.find_motifs import Motifs
    from halp.tasks.gait import Gaits
    from halp.tasks.people import People
    from halp.tasks.repetitions import RepetitionCounts
    from halp.tasks.same_people import SamePeople
    from halp.tasks.search import SearchResults
    from halp.tasks.segments import Predictions
    from halp.tasks.stats import Statistics

    for kind, function in (
        (Inspection, _inspection),
        (SearchResults, _hits),
        (Clustering, _groups),
        (Comparison, _comparison),
        (Predictions, _predictions),
        (SamePeople, _people),
        (People, _people),
        (Statistics, _statistics),
        (Angles, _angles),
        (RepetitionCounts, _repetitions),
        (Gaits, _gaits),
        (Curves, _curves),
        (Agreement, _agreement),
        (Motifs, _motifs),
        (Deviations, _deviations),
    ):
        _present.register(kind, function)


def _hits(answer: Any) -> Shown:
    rows = [
        {"": place, "recording": hit.recording, "similarity": hit.score, "start": hit.start, "stop": hit.stop}
        for place, hit in enumerate(answer, start=1)
    ]
    said = []
    if facts := answer.facts:
        measured = f"recall@10 {facts.recall:.3f}, measured with {facts.queries} queries"
        said = [f"approximate search over {facts.vectors} vectors: {measured}"]
    return Shown([table_of(rows)], said, write=lambda out: _write_in_order(out, answer))


def _groups(answer: Any) -> Shown:
    found = answer.clusters
    said = [f"silhouette {found.silhouette:.2f} (1: far apart, 0: touching)"]
    tables = [table_of(answer.summary(), digits=2)]
    if found.silhouettes:
        marks = {found.suggested: "suggested", len(answer): "shown"}
        tried = [{"groups": n, "silhouette": v, "": marks.get(n, "")} for n, v in found.silhouettes.items()]
        tables.append(table_of(tried, digits=2))
    if found.suggested not in (None, len(answer)):
        said.append(f"{found.suggested} groups are nearly as far apart and finer: --groups {found.suggested}")
    return Shown(tables, said)


def _comparison(answer: Any) -> Shown:
    plain = answer.to_json()
    one, other = ("s" if clip.fps > 0 else "frames" for clip in (answer.first, answer.second))
    rows = [
        {f"start ({one})": stretch["start"], f"end ({one})": stretch["end"]}
        | {f"start in the second ({other})": stretch["other_start"]}
        | {f"end in the second ({other})": stretch["other_end"]}
        | {"difference (bone lengths)": stretch["difference"], "joints": " ".join(stretch["joints"])}
        for stretch in plain["stretches"]
    ]
    worst = [
        f"{j['joint']} {j['difference']:.2f}" for j in plain["joints"][:5] if j["difference"] is not None
    ]
    stretches = table_of(rows, digits=2) if rows else "no stretch differs clearly from the rest"
    return Shown([stretches, f"joints that differ most overall, in mean bone lengths: {', '.join(worst)}"])


def _predictions(answer: Any) -> Shown:
    rows = [_prediction_row(event) for event in answer]
    columns = ["recording", "start", "stop", "label", "score", "best", ""]
    return Shown([table_of(rows, columns, digits=2)], write=lambda out: _write_in_order(out, answer))


def _prediction_row(event: Event) -> dict[str, Any]:
    """A row for reading: a span without a class shows why."""
    state = event.label if event.label in UNSEEN else "rejected" if event.more.get("rejected") else ""
    row = {"recording": event.recording, "start": event.start, "stop": event.stop, "score": event.score}
    return row | {"label": "" if state else event.label, "best": event.more.get("best"), "": state}


def _write_in_order(out: Path, events: Sequence[Event]) -> list[Path]:
    """A CSV table in the order of the answer; other formats as `halp events` writes them."""
    from halp.core.files import write_csv
    from halp.data.spans import Events
    from halp.tasks.events.formats import write_events

    if out.suffix.lower() != ".csv":
        return write_events(Events(events), out)
    more = dict.fromkeys(name for event in events for name in event.more)
    return [write_csv(out, [*COLUMNS, *more], [event.to_json() for event in events])]


def _inspection(answer: Any) -> Shown:
    head = {
        "store": answer.path,
        "clips": f"{answer.clips} ({answer.frames} frames)",
        "lengths": ", ".join(f"{name} {value:g}" for name, value in answer.lengths.items()),
        "topology": (
            f"{answer.topology}: {answer.joints} joints, {answer.dimensions}D,"
            f" persons per clip: at most {answer.persons}"
        ),
        "persons": ", ".join(
            f"{clips} clips with {count}" for count, clips in answer.clips_with_persons.items()
        ),
        "normalisation": ", ".join(answer.normalisation) or "none",
        "empty frames": f"{answer.empty_frames}, and {answer.absent_frames} left out",
        "missing joints": _few({k: f"{v:.2%}" for k, v in answer.missing_joints.items() if v}) or "none",
        "dropped": f"{answer.dropped} {_few(answer.dropped_reasons)}".strip(),
        "repaired": str(answer.repaired),
        "fingerprint": answer.hash[:16],
    }
    splits = [
        {
            "split": name,
            **{key: "–" if sizes[key] is None else str(sizes[key]) for key in ("train", "test", "hash")},
        }
        for name, sizes in answer.splits.items()
    ]
    wrong = [{"what to look at": one.problem, "remedy": one.remedy} for one in answer.findings]
    columns = {"class": answer.classes, **answer.columns}
    counts = [
        {"column": name, "values": str(len(values.keys() - {"unknown"})), "clips of each": _few(values)}
        for name, values in columns.items()
    ]
    facts = [{"": name, "value": value} for name, value in head.items()]
    return Shown([table_of(rows) for rows in (facts, splits, wrong, counts) if rows])


def _few(counts: Mapping[Any, Any]) -> str:
    """The first entries of a count table on one line."""
    shown = ", ".join(f"{name}: {count}" for name, count in list(counts.items())[:_LONGEST])
    return shown + (f", … ({len(counts)} in all)" if len(counts) > _LONGEST else "")


def _statistics(answer: Any) -> Shown:
    from halp.core.files import write_csv
    from halp.reports.pages.findings import group_rows, shown_groups
    from halp.tasks.bouts import HEADINGS
    from halp.tasks.intervals import headed

    tables = {name: rows for name, rows in answer.to_json().items() if name not in ("groups", "no_interval")}
    if answer.groups:
        tables["groups"] = group_rows(answer.groups)

    def write(folder: Path) -> list[Path]:
        return [
            write_csv(folder / f"{name}.csv", list(rows[0]), rows) for name, rows in tables.items() if rows
        ]

    shown = [table_of([headed(row, HEADINGS) for row in tables["recordings"]])]
    if answer.groups:
        measure = answer.groups["measure"]
        shown += [
            f"groups compared by {HEADINGS.get(measure, measure)}, the first minus the second",
            table_of(shown_groups(answer.groups)),
        ]
    return Shown(shown, write=write)


def _people(answer: Any) -> Shown:
    from halp.tasks.people import people_rows

    return Shown([table_of(people_rows(answer.to_json()), digits=2)])


def _angles(answer: Any) -> Shown:
    from halp.core.files import write_csv
    from halp.tasks.angles import angle_row

    def write(path: Path) -> list[Path]:
        rows = answer.series()
        return [write_csv(path, list(rows[0]) if rows else [], rows)]

    rows = [angle_row(row, ("isb",)) for row in answer.to_json()]
    return Shown([table_of(rows, digits=1)], write=write)


def _repetitions(answer: Any) -> Shown:
    from halp.tasks.repetitions import repetition_row

    return Shown([table_of([repetition_row(row) for row in answer.to_json()])])


def _curves(answer: Any) -> Shown:
    plain = answer.to_json()
    rows = [
        {"group": g["group"] or "all", "people": g["people"], "cycles": g["cycles"]}
        | {"min (°)": min(g["mean"]), "min at (%)": int(np.argmin(g["mean"]))}
        | {"max (°)": max(g["mean"]), "max at (%)": int(np.argmax(g["mean"]))}
        | {
            "widest band (±°)": (
                None if g["high"] is None else max(h - m for h, m in zip(g["high"], g["mean"]))
            )
        }
        for g in plain["groups"]
    ]
    tables, test = [table_of(rows, digits=1)], plain["test"]
    said = [f"{plain['angle']} in degrees over a cycle of 0 to 100 %"]
    if test and "reason" in test:
        said.append(f"not tested: {test['reason']}")
    elif test:
        found = [
            {
                "from (%)": c["start"],
                "to (%)": c["stop"],
                "larger": test["first"] if c["sign"] > 0 else test["second"],
                "p": c["p"],
            }
            for c in test["clusters"]
        ]
        kind = "all" if test["exact"] else "random"
        said.append(
            f"{test['test']}, {test['permutations']} {kind} permutations of people: p = {test['p']:.3g}"
        )
        tables += [table_of(found)] if found else []
    return Shown(tables, said)


def _gaits(answer: Any) -> Shown:
    from halp.tasks.gait import gait_row

    return Shown([table_of([gait_row(row) for row in answer.to_json()])])


def _agreement(answer: Any) -> Shown:
    from halp.tasks.intervals import intervals_beside, with_interval

    kappa = with_interval(answer["kappa"], answer["kappa_interval"], digits=3)
    chance = kappa or "undefined, there is one label only"
    head = f"Cohen's kappa {chance}; the same label in {answer['agreement']:.1%} of the bins"
    return Shown([head, table_of([intervals_beside(row) for row in answer["labels"]])])


def _motifs(answer: Any) -> Shown:
    from halp.tasks.intervals import intervals_beside

    after = []
    if answer.stability is not None:
        shown = {
            name: "unknown" if value is None else f"{value:.2f}" for name, value in answer.stability.items()
        }
        after = [
            f"adjusted Rand index (1: the same motifs, 0: chance): seeds {shown['seeds']}, halves"
            f" {shown['halves']}"
        ]
    return Shown([table_of([intervals_beside(row) for row in answer.rows])], after=after)


def _deviations(answer: Any) -> Shown:
    from halp.tasks.intervals import intervals_beside

    hidden = ("joints", "moments", "reference", "other_windows", "no_interval")
    flat = [
        intervals_beside({k: v for k, v in row.items() if k not in hidden}, digits=1)
        | {f"percentile, {o['window']:g} s windows": o["percentile"] for o in row.get("other_windows", ())}
        | {"unlike": "unlike the reference" if row["unlike"] else ""}
        | {"joints": ", ".join(joint["joint"] for joint in row["joints"][:3])}
        for row in answer.rows
    ]
    spread = answer.rows[0]["reference"] if answer.rows else {}
    said = "scores of the reference, each person against the others: " + ", ".join(
        f"{name} {value:.3f}" for name, value in spread.items()
    )
    return Shown([table_of(flat)], [said])
