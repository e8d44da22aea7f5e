"""Events of annotation programs: ELAN, Praat, Audacity and SLEAP.

A file of the first three holds one recording, named like it; a `.slp` file of SLEAP (format 2.6 and later)
holds inclusive frame numbers of films, with subjects as tracks.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any
from xml.parsers import expat

from halp.core.errors import InputError
from halp.core.files import atomic_path, write_text
from halp.data.sandbox import Content, read_hdf5
from halp.data.source_files import read_bytes, read_text
from halp.data.spans import Event, Events
from halp.data.text_files import problem
from halp.tasks.events.cells import LARGEST_FILE, Rows, left_out_points, needed, seconds

_STRING_OR_NUMBER = re.compile(r'"((?:[^"]|"")*)"|(?<![\w\[.])(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w\]])')
_NAMELESS, _MODEL = "events", " (model)"  # the tier of nobody in particular, and what marks tiers of a model
_SLEAP = ("video", "start_frame", "end_frame", "type", "subject_kind", "subject_idx", "is_predicted")
_TRACK, _IDENTITY = 1, 2


def _refuse_doctype(path: Path) -> None:
    """Scan XML for document types and entities, which annotation files never have."""

    def refuse(*_: object) -> None:
        raise problem(
            path, "", "it declares a document type or entities", "do not open it; it may be malicious"
        )

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(read_bytes(path, LARGEST_FILE), True)
    except expat.ExpatError as error:
        raise problem(path, f"line {error.lineno}", "not XML", "check that the file is whole") from None
    except (ValueError, LookupError) as error:  # an encoding that the parser does not know
        raise problem(path, "", f"not XML that can be read ({error})", "save it as UTF-8") from None


def read_elan(path: Path) -> Rows:
    """Aligned annotations of an ELAN file; a tier is a subject, its annotator tells human from model."""
    elan = needed("pympi.Elan")
    _refuse_doctype(path)
    try:
        document = elan.Eaf(str(path), suppress_version_warning=True)
        events, loose = [], 0
        for tier, (aligned, _, attributes, _) in document.tiers.items():
            name, source = _tier_owner(tier)
            subject = attributes.get("PARTICIPANT") or name
            for begin, end, label, *_ in aligned.values():
                times = document.timeslots[begin], document.timeslots[end]
                if None in times:
                    loose += 1
                    continue
                events.append(
                    Event(path.stem, times[0] / 1000, times[1] / 1000, label.strip(), subject, source)
                )
    except InputError:
        raise
    except Exception as error:  # the library does not name its errors
        raise problem(path, "", f"it is not an ELAN file ({error!r})", "save it again in ELAN") from None
    return events, {}, [f"{loose} annotations without times were left out"] if loose else []


def write_elan(path: Path, events: Events) -> None:
    """An ELAN file of one recording, a tier per subject and source; milliseconds; scores are lost."""
    document = needed("pympi.Elan").Eaf(author="halp")
    document.remove_tier("default")
    document.adocument["DATE"] = "1970-01-01T00:00:00+00:00"
    for tier, rows in _named_tiers(events).items():
        document.add_tier(tier, part=rows[0].subject or None, ann=rows[0].source)
        for event in rows:
            begin, end = round(event.start * 1000), round(event.stop * 1000)
            if begin == end:
                raise InputError(f"'{path}': an event of '{event.label}' is shorter than 1 ms; leave it out")
            document.add_annotation(tier, begin, end, event.label)
    with atomic_path(path) as partial:
        document.to_file(str(partial))


def _named_tiers(events: Events) -> dict[str, list[Event]]:
    """Labelled events by tier, named after the subject; tiers of a model say so."""
    tiers: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.label:
            tiers[(event.subject or _NAMELESS) + (_MODEL if event.source == "model" else "")].append(event)
    return dict(tiers)


def _tier_owner(tier: str) -> tuple[str, str]:
    """Subject and source of a tier by its name."""
    name = tier.removesuffix(_MODEL)
    return "" if name in (_NAMELESS, "default") else name, "model" if name != tier else "human"


def read_textgrid(path: Path) -> Rows:
    """Intervals with a text of a Praat TextGrid, long or short; a tier is a subject."""
    words = iter(
        [(s.replace('""', '"'), n) for s, n in _STRING_OR_NUMBER.findall(read_text(path, LARGEST_FILE))]
    )
    events, points = [], 0
    try:
        if (next(words)[0], next(words)[0]) != ("ooTextFile", "TextGrid"):
            raise ValueError
        _, length, tiers = (float(next(words)[1]) for _ in range(3))
        for _ in range(int(tiers)):
            kind, name = next(words)[0], next(words)[0]
            next(words), next(words)
            for _ in range(int(next(words)[1])):
                times = [float(next(words)[1]) for _ in range(2 if kind == "IntervalTier" else 1)]
                label = next(words)[0].strip()
                if len(times) == 1:
                    points += 1
                elif label:
                    events.append(Event(path.stem, times[0], times[1], label, *_tier_owner(name)))
    except (StopIteration, ValueError, OverflowError):
        raise problem(path, "", "it is not a TextGrid, or not whole", "save it as text in Praat") from None
    return events, {path.stem: length}, left_out_points(points)


def write_textgrid(path: Path, events: Events) -> None:
    """A Praat TextGrid (short form) of one recording, a tier per subject and source; scores are lost."""
    end = max([e.stop for e in events] + [events.lengths.get(e.recording, 0.0) for e in events])
    tiers = _named_tiers(events)
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "0",
        f"{end:.6f}",
        "<exists>",
        f"{len(tiers)}",
    ]
    for name, rows in tiers.items():
        parts: list[tuple[float, float, str]] = []
        for event in rows:
            reached = parts[-1][1] if parts else 0.0
            if event.start < reached - 1e-6:
                raise InputError(
                    f"'{path}': events of '{name}' overlap, which a TextGrid cannot hold; use another format"
                )
            parts += [(reached, event.start, "")] if event.start > reached + 1e-6 else []
            parts.append((max(reached, event.start), event.stop, event.label))
        parts += [(parts[-1][1], end, "")] if end > parts[-1][1] + 1e-6 else []
        lines += ['"IntervalTier"', _quoted(name), "0", f"{end:.6f}", f"{len(parts)}"]
        for start, stop, label in parts:
            lines += [f"{start:.6f}", f"{stop:.6f}", _quoted(label)]
    write_text(path, "\n".join(lines) + "\n")


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""').replace("\n", " ") + '"'


def read_audacity(path: Path) -> Rows:
    """Labels of Audacity: start, stop and label, separated by tabs."""
    events = []
    for line, row in enumerate(read_text(path, LARGEST_FILE).splitlines(), start=1):
        cells = row.split("\t")
        if not row.strip() or cells[0] == "\\":  # the line with frequencies
            continue
        if len(cells) < 3:
            raise problem(
                path, f"line {line}", "it is not an Audacity label", "export start, stop and label with tabs"
            )
        start, stop = (seconds(cell, path, f"line {line}") for cell in cells[:2])
        events.append(Event(path.stem, start, stop, cells[2].strip()))
    return events, {}, []


def write_audacity(path: Path, events: Events) -> None:
    """Labels of Audacity for one recording; subjects, sources and scores are lost."""
    rows = sorted((e.start, e.stop, e.label) for e in events if e.label)
    write_text(
        path, "".join(f"{start:.6f}\t{stop:.6f}\t{' '.join(label.split())}\n" for start, stop, label in rows)
    )


def read_sleap(path: Path) -> Rows:
    """Events of a `.slp` file; frames become seconds by the file's frame rate of the video."""
    content = read_hdf5(path, ("events/*", "event_types/name", "videos_json", "tracks_json", "identity/name"))
    if "events/video" not in content.numbers:
        return [], {}, ["it holds poses and no events"]
    columns = [content.numbers.get(f"events/{name}") for name in _SLEAP]
    sizes = {None if column is None else column.shape for column in columns}
    if len(sizes) > 1 or any(column is None or column.dtype.kind not in "iub" for column in columns):
        raise problem(path, "group 'events'", "its columns do not match", "save it again with SLEAP")
    films = [_film(text, path) for text in content.texts.get("videos_json", ())]
    people = {_TRACK: _track_names(content, path), _IDENTITY: content.texts.get("identity/name", [])}
    labels, scores = content.texts.get("event_types/name", []), content.numbers.get("events/score")
    events = []
    for number, row in enumerate(zip(*(column.tolist() for column in columns if column is not None))):
        film, first, last, label, kind, subject, predicted = row
        where = f"event {number + 1}"
        if not (0 <= film < len(films) and 0 <= label < len(labels)):
            raise problem(path, where, "its video or its type is not in the file", "save it again with SLEAP")
        name, rate = films[film]
        if rate is None:
            fault = f"the frame rate of '{name}' is not in the file, so frames cannot be converted to seconds"
            raise problem(path, where, fault, "set `labels.videos[…].fps` with sleap-io and save it again")
        known = people.get(kind, [])
        score = None if scores is None or scores.shape != columns[0].shape else float(scores[number])  # type: ignore[union-attr]
        events.append(
            Event(
                name,
                first / rate,
                (last + 1) / rate,
                labels[label],
                known[subject] if 0 <= subject < len(known) else "",
                "model" if predicted else "human",
                score if score is not None and score == score else None,
            )
        )
    return events, {}, []


def _film(text: str, path: Path) -> tuple[str, float | None]:
    """Name of a video without its ending, and its frames per second if known."""
    try:
        entry = json.loads(text)
        backend = entry.get("backend", entry)
        name, rate = (
            str(backend.get("filename") or entry.get("filename")),
            backend.get("fps", entry.get("fps")),
        )
        return PurePosixPath(name.replace("\\", "/")).stem, float(rate) if rate and float(rate) > 0 else None
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        raise problem(
            path, "'videos_json'", "it does not describe videos", "save it again with SLEAP"
        ) from None


def _track_names(content: Content, path: Path) -> list[str]:
    names = []
    for text in content.texts.get("tracks_json", ()):
        try:
            entry = json.loads(text)
        except (RecursionError, ValueError):
            raise problem(
                path, "'tracks_json'", "it does not name tracks", "save it again with SLEAP"
            ) from None
        names.append(str(entry[1]) if isinstance(entry, list) and len(entry) > 1 else str(entry))
    return names


def write_sleap(path: Path, events: Events, media: str = "mp4", fps: float = 30.0) -> None:
    """Write a `.slp` file with all recordings as videos; times become frames, at least one per event."""
    if not 0 < fps <= 10_000:
        raise InputError(f"a frame rate of {fps:g} is not possible; give that of the videos")
    sleap: Any = needed("sleap_io", "sleap")
    films = {name: sleap.Video(filename=f"{name}.{media}", open_backend=False) for name in events.recordings}
    for film in films.values():
        film.fps = fps
    kinds = {
        label: sleap.EventType(name=label)
        for label in sorted({event.label for event in events if event.label})
    }
    tracks = {
        name: sleap.Track(name) for name in sorted({event.subject for event in events if event.subject})
    }
    rows = []
    for event in events:
        if not event.label:
            continue
        first = round(event.start * fps)
        span: dict[str, Any] = {
            "type": kinds[event.label],
            "video": films[event.recording],
            "start_frame": first,
            "end_frame": max(first, round(event.stop * fps) - 1),
            "subject": tracks.get(event.subject),
        }
        model = event.source == "model"
        rows.append(sleap.PredictedEvent(score=event.score, **span) if model else sleap.UserEvent(**span))
    labels = sleap.Labels(videos=list(films.values()), tracks=list(tracks.values()), events=rows)
    with atomic_path(path) as partial:
        sleap.save_slp(labels, str(partial), embed=False)
