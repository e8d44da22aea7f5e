"""Events of annotation programs: ELAN, Praat and Audacity; a file holds one recording, named like it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from xml.parsers import expat

from halp.clips.source_files import read_bytes, read_text
from halp.clips.text_files import problem
from halp.errors import InputError
from halp.files import atomic_path, write_text
from halp.findings.cells import LARGEST, Rows, left_out_points, needed, seconds
from halp.findings.events import Event, Events

_STRING_OR_NUMBER = re.compile(r'"((?:[^"]|"")*)"|(?<![\w\[.])(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w\]])')
_NAMELESS, _MODEL = "events", " (model)"  # the tier of nobody in particular, and what marks tiers of a model


def _refuse_doctype(path: Path) -> None:
    """Read XML once for what annotation files never have: document types and entities."""

    def refuse(*_: object) -> None:
        raise problem(path, "", "it declares a document type or entities", "do not open it, it could be an attack")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(read_bytes(path, LARGEST), True)
    except expat.ExpatError as error:
        raise problem(path, f"line {error.lineno}", "not XML", "check that the file is whole") from None


def read_elan(path: Path) -> Rows:
    """Aligned annotations of an ELAN file; a tier is a subject, its annotator says whether a model made it."""
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
                events.append(Event(path.stem, times[0] / 1000, times[1] / 1000, label.strip(), subject, source))
    except InputError:
        raise
    except Exception as error:  # the library does not name its errors
        raise problem(path, "", f"it is not an ELAN file ({error!r})", "save it again in ELAN") from None
    return events, {}, [f"{loose} annotations without times were left out"] if loose else []


def write_elan(path: Path, events: Events) -> None:
    """An ELAN file of one recording, a tier for every subject and source; times in whole milliseconds, scores are lost."""
    document = needed("pympi.Elan").Eaf(author="halp")
    document.remove_tier("default")
    document.adocument["DATE"] = "1970-01-01T00:00:00+00:00"
    for tier, rows in _named_tiers(events).items():
        document.add_tier(tier, part=rows[0].subject or None, ann=rows[0].source)
        for event in rows:
            begin, end = round(event.start * 1000), round(event.stop * 1000)
            if begin == end:
                raise InputError(f"'{path}': an event of '{event.label}' is shorter than a millisecond; leave it out")
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
    words = iter([(s.replace('""', '"'), n) for s, n in _STRING_OR_NUMBER.findall(read_text(path, LARGEST))])
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
    except (StopIteration, ValueError):
        raise problem(path, "", "it is not a TextGrid, or not whole", "save it as text in Praat") from None
    return events, {path.stem: length}, left_out_points(points)


def write_textgrid(path: Path, events: Events) -> None:
    """A Praat TextGrid (short form) of one recording, a tier for every subject and source; scores are lost."""
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
    for line, row in enumerate(read_text(path, LARGEST).splitlines(), start=1):
        cells = row.split("\t")
        if not row.strip() or cells[0] == "\\":  # the line with frequencies
            continue
        if len(cells) < 3:
            raise problem(path, f"line {line}", "it is no label of Audacity", "export start, stop and label with tabs")
        start, stop = (seconds(cell, path, f"line {line}") for cell in cells[:2])
        events.append(Event(path.stem, start, stop, cells[2].strip()))
    return events, {}, []


def write_audacity(path: Path, events: Events) -> None:
    """Labels of Audacity for one recording; subjects, sources and scores are lost."""
    rows = sorted((e.start, e.stop, e.label) for e in events if e.label)
    write_text(path, "".join(f"{start:.6f}\t{stop:.6f}\t{' '.join(label.split())}\n" for start, stop, label in rows))
