"""Events in `.slp` files of SLEAP (format 2.6 and later): inclusive frame numbers of films, subjects as tracks."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from halp.clips.sandbox import Content, read_hdf5
from halp.clips.text_files import problem
from halp.errors import InputError
from halp.files import atomic_path
from halp.findings.cells import Rows, needed
from halp.findings.events import Event, Events

_COLUMNS = ("video", "start_frame", "end_frame", "type", "subject_kind", "subject_idx", "is_predicted")
_TRACK, _IDENTITY = 1, 2


def read_sleap(path: Path) -> Rows:
    """Events of a `.slp` file; frames become seconds by the frame rate that the file has for a film."""
    content = read_hdf5(path, ("events/*", "event_types/name", "videos_json", "tracks_json", "identity/name"))
    if "events/video" not in content.numbers:
        return [], {}, ["it holds poses and no events"]
    columns = [content.numbers.get(f"events/{name}") for name in _COLUMNS]
    sizes = {None if column is None else column.shape for column in columns}
    if len(sizes) > 1 or any(column is None or column.dtype.kind not in "iub" for column in columns):
        raise problem(path, "group 'events'", "its columns do not fit each other", "save it again with SLEAP")
    films = [_film(text, path) for text in content.texts.get("videos_json", ())]
    people = {_TRACK: _track_names(content, path), _IDENTITY: content.texts.get("identity/name", [])}
    labels, scores = content.texts.get("event_types/name", []), content.numbers.get("events/score")
    events = []
    for number, row in enumerate(zip(*(column.tolist() for column in columns if column is not None))):
        film, first, last, label, kind, subject, predicted = row
        where = f"event {number + 1}"
        if not (0 <= film < len(films) and 0 <= label < len(labels)):
            raise problem(path, where, "its film or its type is not in the file", "save it again with SLEAP")
        name, rate = films[film]
        if rate is None:
            fault = f"the frame rate of '{name}' is not in the file, so that frames cannot become seconds"
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
    """Name of a film without its ending, and its frames per second where they are known."""
    try:
        entry = json.loads(text)
        backend = entry.get("backend", entry)
        name, rate = str(backend.get("filename") or entry.get("filename")), backend.get("fps", entry.get("fps"))
        return PurePosixPath(name.replace("\\", "/")).stem, float(rate) if rate and float(rate) > 0 else None
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        raise problem(path, "'videos_json'", "it does not describe films", "save it again with SLEAP") from None


def _track_names(content: Content, path: Path) -> list[str]:
    names = []
    for text in content.texts.get("tracks_json", ()):
        try:
            entry = json.loads(text)
        except (RecursionError, ValueError):
            raise problem(path, "'tracks_json'", "it does not name tracks", "save it again with SLEAP") from None
        names.append(str(entry[1]) if isinstance(entry, list) and len(entry) > 1 else str(entry))
    return names


def write_sleap(path: Path, events: Events, media: str = "mp4", fps: float = 30.0) -> None:
    """A `.slp` file with all recordings as films; times become whole frames, an event has one frame at least."""
    if not 0 < fps <= 10_000:
        raise InputError(f"fps of {fps:g} cannot be; give the frames per second of the films")
    sleap: Any = needed("sleap_io", "sleap")
    films = {name: sleap.Video(filename=f"{name}.{media}", open_backend=False) for name in events.recordings}
    for film in films.values():
        film.fps = fps
    kinds = {label: sleap.EventType(name=label) for label in sorted({event.label for event in events if event.label})}
    tracks = {name: sleap.Track(name) for name in sorted({event.subject for event in events if event.subject})}
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
