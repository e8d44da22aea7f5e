"""Events: who did what, when and in which recording; used for segments, labels and statistics.

Times are half-open, `start <= t < stop`, in seconds of the recording's own clock. The label `nobody` says
that nobody was there, `absent` that this person of a video was not; an empty label says that somebody was
there who did none of the labelled things.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from halp.core.errors import InputError, check_choice
from halp.core.listed import Listed

COLUMNS = ("recording", "start", "stop", "label", "subject", "source", "score")
SOURCES = ("human", "model")
NOBODY = "nobody"
ABSENT = "absent"
UNSEEN = (NOBODY, ABSENT)  # labels of time in which a recording shows nothing
# ten days: what is larger counts milliseconds, frames or the seconds since 1970
LATEST = 864_000.0
_SLACK = 1e-6  # seconds that rounding may let two events overlap by


@dataclass(frozen=True, slots=True)
class Event:
    """A span of a recording with a label, half-open, in seconds of the recording's own clock.

    Attributes
    ----------
    recording : str
        The name of the recording.
    start, stop : float
        Seconds (frames if the frame rate is unknown).
    label : str
        `nobody` where nobody was there; empty where somebody was there who did none of the labelled things.
    subject : str
        Who it is, if it is known.
    source : str
        `human` or `model`.
    score : float, optional
        How sure a model is, or how similar a hit.
    more : mapping
        Further columns, such as a group, the best class of a model, or the number of the person where the
        recording is one of several people of a video.

    Examples
    --------
    >>> Event("walk_01", 0.5, 2.0, "walk").duration
    1.5
    """

    recording: str
    start: float
    stop: float
    label: str
    subject: str = ""
    source: str = "human"
    score: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        person = person_of(self.recording)
        if person is not None:
            object.__setattr__(self, "more", {**self.more, "person": person})

    @property
    def duration(self) -> float:
        return self.stop - self.start

    def to_json(self) -> dict[str, Any]:
        """The columns of the contract, then further ones."""
        values = {name: getattr(self, name) for name in COLUMNS}
        return {name: round(v, 6) if isinstance(v, float) else v for name, v in values.items()} | dict(
            self.more
        )


@dataclass(frozen=True)
class Events(Listed[Event]):
    """Events in order of recording, subject and time.

    Attributes
    ----------
    events : sequence of Event
        In any order; they are sorted and checked.
    lengths : mapping
        Seconds of recordings, if they are known.
    origin : str
        If they come from, for messages.

    Examples
    --------
    >>> events = Events([Event("a", 2, 3, "sit"), Event("a", 0, 2, "walk")])
    >>> [event.label for event in events], events.labels
    (['walk', 'sit'], ['sit', 'walk'])
    """

    listed = "events"

    events: Sequence[Event]
    lengths: Mapping[str, float] = field(default_factory=dict)
    origin: str = "the events"

    def __post_init__(self) -> None:
        for number, event in enumerate(self.events, start=1):
            self._check_event(event, f"{self.origin}, event {number}")
        key = sorted(self.events, key=lambda e: (e.recording, e.subject, e.source, e.start, e.stop, e.label))
        object.__setattr__(self, "events", tuple(key))

    def _check_event(self, event: Event, where: str) -> None:
        name = f"{where} ('{event.label}' of '{event.recording}')"
        if not event.recording:
            raise InputError(f"{where}: it names no recording; fill the column recording")
        if not (math.isfinite(event.start) and math.isfinite(event.stop)):
            raise InputError(f"{name}: its times are not finite; give start and stop in seconds")
        if event.start < 0:
            raise InputError(
                f"{name}: it starts at {event.start:g} s; times count from the start of the recording, shift"
                " them"
            )
        if event.stop <= event.start:
            raise InputError(
                f"{name}: it stops at {event.stop:g} s and starts at {event.start:g} s; stop must come after"
                " start"
            )
        length = self.lengths.get(event.recording)
        if event.stop > LATEST or (length is not None and event.stop > length + max(0.5, 0.01 * length)):
            beyond = "ten days" if length is None else f"the {length:g} s of its recording"
            raise InputError(
                f"{name}: it stops at {event.stop:g} s, beyond {beyond}: another clock (frames, milliseconds,"
                " the time of day?); give seconds from the start of the recording"
            )
        if event.source not in SOURCES:
            raise InputError(f"{name}: its source is '{event.source}'; write human or model")
        if event.score is not None and not math.isfinite(event.score):
            raise InputError(f"{name}: its score is not finite; leave the cell empty if it is unknown")

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    @property
    def recordings(self) -> list[str]:
        return sorted({event.recording for event in self.events} | set(self.lengths))

    @property
    def ends(self) -> dict[str, float]:
        """Where every recording ends: its length if known, else the stop of its last event."""
        ends: dict[str, float] = {}
        for event in self.events:
            ends[event.recording] = max(ends.get(event.recording, 0.0), event.stop)
        return ends | {name: length for name, length in self.lengths.items() if length}

    @property
    def labels(self) -> list[str]:
        """Labels of movements: neither `nobody` nor the empty one."""
        return sorted({event.label for event in self.events} - {"", *UNSEEN})

    def with_events(self, events: Iterable[Event]) -> Events:
        """Other events of the same recordings."""
        return replace(self, events=tuple(events))

    def where(self, **values: str) -> Events:
        """Events whose columns have these values, as `events.where(source="model")`."""
        return self.with_events(e for e in self.events if all(getattr(e, k) == v for k, v in values.items()))

    def by_recording(self) -> dict[str, Events]:
        """The events of every recording, those without events included."""
        parts: dict[str, list[Event]] = {name: [] for name in self.recordings}
        for event in self.events:
            parts[event.recording].append(event)
        return {name: self.with_events(events) for name, events in parts.items()}

    def tiers(self) -> dict[tuple[str, str, str], list[Event]]:
        """Events by recording, subject and source, each in order of time."""
        tiers: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
        for event in self.events:
            tiers[event.recording, event.subject, event.source].append(event)
        return dict(tiers)

    def check(self, *, labels: Iterable[str] | None = None, concurrent: bool = False) -> Events:
        """Raise if a label is not among `labels`, or if events of one tier overlap.

        With `concurrent`, events of different labels may overlap: a person may walk and talk.
        """
        if labels is not None:
            known = {*labels, "", *UNSEEN}
            for event in self.events:
                if event.label not in known:
                    check_choice(f"label of '{event.recording}' in {self.origin}:", event.label, known - {""})
        for (recording, subject, _), tier in self.tiers().items():
            last: dict[str, Event] = {}
            for event in tier:
                before = last.get(event.label if concurrent else "")
                if before is not None and event.start < before.stop - _SLACK:
                    of = f" of '{subject}'" if subject else ""
                    remedy = (
                        "correct one of them"
                        if event.label == before.label
                        else "give them subjects of their own, or allow it with --concurrent"
                    )
                    raise InputError(
                        f"{self.origin}: '{before.label}' ({before.start:g} – {before.stop:g} s) and"
                        f" '{event.label}' ({event.start:g} – {event.stop:g} s){of} overlap in recording"
                        f" '{recording}'; {remedy}"
                    )
                if before is None or event.stop > before.stop:
                    last[event.label if concurrent else ""] = event
        return self

    def merged(self, gap: float = 0.0, shortest: float = 0.0) -> Events:
        """Merge events of one tier and label that are up to `gap` seconds apart, then drop short ones.

        Another label between two events keeps them apart; an empty label between them is swallowed.
        Recordings keep their
        end: without a known length, it is the stop of the last event before anything is left out.
        """
        bouts: list[Event] = []
        for tier in self.tiers().values():
            bout: dict[str, Event] = {}
            latest = ""
            for event in tier:
                before = bout.get(event.label)
                joined = before is not None and event.start - before.stop <= gap + _SLACK
                if (
                    before is not None
                    and joined
                    and (event.label in ("", latest) or bout[latest].stop <= before.stop)
                ):
                    event = replace(
                        before, stop=max(before.stop, event.stop), score=_joint_score(before, event)
                    )
                elif before is not None:
                    bouts.append(before)
                bout[event.label] = event
                latest = event.label or latest
            bouts += bout.values()
        long = replace(
            self,
            events=tuple(e for e in bouts if e.duration >= shortest - _SLACK or e.label in ("", *UNSEEN)),
            lengths=self.ends,
        )
        return long.with_events(e for tier in long.tiers().values() for e in _without_covered(tier))

    def matched(self, recordings: Sequence[str]) -> tuple[Events, list[str], list[str]]:
        """Events under the names of these recordings, and names of events and recordings without a partner.

        The whole name decides, then its stem without folders and endings, then the stem in any case, each
        where unique.
        """
        match = name_matcher(recordings)
        partner = {name: match(name) for name in sorted({e.recording for e in self.events})}
        kept = [replace(e, recording=name) for e in self.events if (name := partner[e.recording])]
        lengths = {name: v for key, v in self.lengths.items() if (name := match(key))}
        missed = [name for name, found in partner.items() if not found]
        return (
            replace(self, events=kept, lengths=lengths),
            missed,
            sorted(set(recordings) - set(partner.values())),
        )


def stem(name: str) -> str:
    """The name of a recording without folders and endings.

    >>> stem("C:\\\\films\\\\visit 1.mp4"), stem("a/b.skeleton")
    ('visit 1', 'b')
    """
    return PurePosixPath(name.replace("\\", "/")).stem


def person_recording(recording: str, person: int) -> str:
    """The name under which one of several people of a video is a recording of his or her own."""
    return f"{recording}#{person}"


def person_of(recording: str) -> int | None:
    """The number of the person, from 1, where a recording is one of several people of a video.

    >>> person_of("visit#2"), person_of("visit")
    (2, None)
    """
    _, mark, number = recording.rpartition("#")
    return int(number) if mark and number.isascii() and number.isdecimal() and len(number) < 4 else None


def film_of(recording: str) -> str:
    """The video in which a person was seen; any other recording itself.

    >>> film_of("visit#2"), film_of("visit")
    ('visit', 'visit')
    """
    return recording if person_of(recording) is None else recording.rpartition("#")[0]


def name_matcher(recordings: Iterable[str]) -> Callable[[str], str]:
    """A function from a name to the recording it means, or an empty string if none or several match."""
    forms: tuple[Callable[[str], str], ...] = (str, stem, lambda text: stem(text).casefold())
    found: list[dict[str, list[str]]] = [defaultdict(list) for _ in forms]
    for recording in dict.fromkeys(recordings):
        for form, names in zip(forms, found):
            names[form(recording)].append(recording)

    def match(name: str) -> str:
        fitting = (names.get(form(name), ()) for form, names in zip(forms, found))
        return next((recordings[0] for recordings in fitting if len(recordings) == 1), "")

    return match


def _without_covered(tier: Sequence[Event]) -> Iterator[Event]:
    """Events of a tier without those of the empty label that lie inside of a bout."""
    reached = -math.inf
    for event in tier:
        if event.label:
            reached = max(reached, event.stop)
        if event.label or event.stop > reached:
            yield event


def _joint_score(first: Event, second: Event) -> float | None:
    if first.score is None or second.score is None:
        return None
    return (first.score * first.duration + second.score * second.duration) / (
        first.duration + second.duration
    )
