"""BORIS: read tabular and aggregated tables, read and write projects, write workbooks to import."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from halp.core.files import write_json
from halp.data.source_files import read_json_source
from halp.data.spans import Event, Events, stem
from halp.data.text_files import problem
from halp.tasks.events.cells import LARGEST_FILE, Rows, left_out_points, seconds, write_workbook

_NO_SUBJECT = "no focal subject"


def aggregated_rows(path: Path, table: Iterable[tuple[int, Mapping[str, str]]]) -> Rows:
    events: list[Event] = []
    lengths: dict[str, float] = {}
    points = 0
    for line, cells in table:
        if cells.get("behavior type", "").upper() == "POINT":
            points += 1
            continue
        name = _boris_recording(path, cells)
        start, stop = (
            seconds(cells[key], path, f"line {line}, column '{key}'") for key in ("start (s)", "stop (s)")
        )
        events.append(Event(name, start, stop, cells["behavior"], _boris_subject(cells.get("subject", ""))))
        lengths |= _boris_length(name, cells)
    return events, lengths, left_out_points(points)


def tabular_rows(path: Path, table: Iterable[tuple[int, Mapping[str, str]]]) -> Rows:
    """Rows of BORIS with one time each; without a status, starts and stops of a behaviour alternate."""
    events: list[Event] = []
    lengths: dict[str, float] = {}
    points = 0
    begun: dict[tuple[str, str, str], tuple[float, int]] = {}
    for line, cells in table:
        name, subject = _boris_recording(path, cells), _boris_subject(cells.get("subject", ""))
        key = (name, subject, cells.get("behavior") or cells.get("code", ""))
        turn = "STOP" if key in begun else "START"
        status = (cells.get("status", cells.get("behavior type", turn)) or turn).upper()
        if status == "POINT":
            points += 1
            continue
        time = seconds(cells["time"], path, f"line {line}, column 'Time'")
        if status not in ("START", "STOP"):
            raise problem(
                path, f"line {line}", f"its status is '{status}'", "export START and STOP rows from BORIS"
            )
        if status != turn:
            fault = f"'{key[2]}' stops without a start" if status == "STOP" else f"'{key[2]}' starts twice"
            raise problem(path, f"line {line}", fault, "correct the unpaired events in BORIS")
        if status == "START":
            begun[key] = time, line
        else:
            events.append(Event(name, begun.pop(key)[0], time, key[2], subject))
        lengths |= _boris_length(name, cells)
    for (_, _, label), (_, line) in begun.items():
        raise problem(
            path, f"line {line}", f"'{label}' starts and never stops", "correct the unpaired events in BORIS"
        )
    return events, lengths, left_out_points(points)


def _boris_recording(path: Path, cells: Mapping[str, str]) -> str:
    """The stem of the video, else the observation, else the stem of the file."""
    media = cells.get("media file name") or cells.get("media file path") or ""
    return stem(media.split(";")[0]) or cells.get("observation id", "") or path.stem


def _boris_length(name: str, cells: Mapping[str, str]) -> dict[str, float]:
    length = (cells.get("media duration (s)") or cells.get("total length") or "").split(";")[0]
    return {name: float(length)} if re.fullmatch(r"\d+(\.\d+)?", length) and float(length) > 0 else {}


def _boris_subject(text: str) -> str:
    return "" if text.lower() == _NO_SUBJECT else text


def write_boris_excel(path: Path, events: Events) -> None:
    """A workbook that BORIS imports into an observation: two rows per event, its start and its stop."""
    rows = [[time, subject, code, "", comment] for time, subject, code, comment in _boris_marks(events)]
    write_workbook(path, ["time", "subject", "code", "modifier", "comment"], rows)


def _boris_marks(events: Events) -> Iterator[tuple[float, str, str, str]]:
    """Time, subject, code and comment of both ends of each event; stops precede starts of the same time."""
    marks = []
    for event in events:
        if event.label:
            comment = event.source if event.score is None else f"{event.source} {event.score:.3f}"
            marks.append((round(event.start, 3), 1, event.subject, event.label, comment))
            marks.append((round(event.stop, 3), 0, event.subject, event.label, ""))
    for time, _, subject, label, comment in sorted(marks):
        yield time, subject, label, comment


def write_boris(path: Path, events: Events, media: str = "mp4") -> None:
    """A BORIS project (format 7.0) with an observation for every recording; `boris.json` is the template."""
    empty = json.loads(Path(__file__).with_name("boris.json").read_text(encoding="utf-8"))
    observations = {}
    for name, part in events.by_recording().items():
        film = f"{stem(name)}.{media.lstrip('.')}"
        length = events.lengths.get(name) or max((event.stop for event in part), default=0.0)
        facts = {"length": length, "fps": 0.0, "hasVideo": True, "hasAudio": False}
        observations[name] = empty["observation"] | {
            "file": {"1": [film], **{str(player): [] for player in range(2, 9)}},
            "events": [[*mark[:3], "", mark[3], "NA"] for mark in _boris_marks(part)],
            "media_info": {key: {film: value} for key, value in facts.items()} | {"offset": {"1": 0.0}},
        }
    subjects = [
        empty["subject"] | {"name": name} for name in sorted({event.subject for event in events} - {""})
    ]
    behaviours = [
        empty["behaviour"] | {"code": code} for code in sorted({event.label for event in events} - {""})
    ]
    project = empty["project"] | {"project_name": path.stem, "observations": observations}
    project["subjects_conf"] = {str(number): entry for number, entry in enumerate(subjects)}
    project["behaviors_conf"] = {str(number): entry for number, entry in enumerate(behaviours)}
    write_json(path, project)


def read_boris(path: Path) -> Rows:
    """State events of a BORIS project; its point events are left out."""
    project = read_json_source(path, LARGEST_FILE)
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        points = {
            b["code"] for b in project["behaviors_conf"].values() if b["type"].lower().startswith("point")
        }
        for name, observation in project["observations"].items():
            films = observation["file"].get("1", []) if isinstance(observation["file"], dict) else []
            for at, (time, subject, code, *_) in enumerate(
                sorted(observation["events"], key=lambda mark: mark[0]), 1
            ):
                status = "POINT" if code in points else ""
                cells = {
                    "code": code,
                    "status": status,
                    "subject": subject,
                    "time": str(time),
                    "observation id": name,
                }
                rows.append((at, cells | {"media file name": films[0] if films else ""}))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise problem(path, "", f"it is not a BORIS project ({error!r})", "save it again in BORIS") from None
    return tabular_rows(path, rows)
