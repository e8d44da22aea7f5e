"""Events of any format, checked and matched with recordings; people and study groups from a table."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from halp.core.errors import InputError, check_choice
from halp.data.spans import SOURCES, Events
from halp.data.text_files import problem
from halp.data.text_tables import read_plain_table
from halp.features.source import AnySource
from halp.tasks.events.formats import read_events
from halp.tasks.pose_tracks import recording_lengths

EventsLike = Events | str | os.PathLike[str]


def events(
    source: EventsLike,
    *,
    from_format: str = "auto",
    recordings: AnySource | None = None,
    allowed_labels: Sequence[str] = (),
    concurrent: bool = False,
) -> Events:
    """Read and check events of any format: CSV, Parquet, Excel, BORIS, ELAN, Praat, Audacity, SLEAP.

    Parameters
    ----------
    source : path or Events
        A file with events, or a folder of them.
    from_format : str
        csv, tsv, parquet, excel, boris, elan, textgrid, audacity or sleap (default: by the ending).
    recordings : source, optional
        A store or recordings that events are matched with by name, and checked against by length.
    allowed_labels : sequence of str
        Any other label is an error.
    concurrent : bool
        Allow events of different labels to overlap.

    Returns
    -------
    Events
        In order of recording, subject and time. `halp.tasks.events.formats.write_events` writes them in
        another format.

    Examples
    --------
    >>> from halp import Event, Events
    >>> events(Events([Event("a", 0, 2, "walk")]), allowed_labels=["walk"]).labels
    ['walk']
    """
    return read_matched(source, from_format, recordings).check(
        labels=allowed_labels or None, concurrent=concurrent
    )


def read_matched(
    source: EventsLike, file_format: str = "auto", recordings: AnySource | None = None
) -> Events:
    """Events of a file or folder, matched with recordings if given; what does not fit is a warning."""
    found, notes = (source, []) if isinstance(source, Events) else read_events(source, file_format)
    if recordings is not None:
        lengths = recording_lengths(recordings)
        matched, missed, without = found.matched(list(lengths))
        if not len(matched):
            raise InputError(
                f"no event of {found.origin} belongs to a recording of '{recordings}' (events name"
                f" '{missed[0] if missed else ''}', recordings '{next(iter(lengths))}'); names without"
                " endings must be the same"
            )
        notes = [*notes, *(f"no recording is called '{name}', its events are left out" for name in missed)]
        notes += [f"recording '{name}' has no events" for name in without]
        found = replace(matched, lengths=lengths)
    for sentence in notes:
        warnings.warn(sentence, stacklevel=3)
    return found


def of_source(found: Events, source: str | None) -> Events:
    """Events of people or of a model alone, if one is chosen."""
    return found if source is None else found.where(source=check_choice("source", source, SOURCES))


def read_people(
    path: str | os.PathLike[str],
    by: str | None,
    keys: Sequence[str] = ("subject", "person", "participant", "recording", "name"),
) -> dict[str, str]:
    """A column of a table by the names of people or recordings."""
    path = Path(path)
    if by is None:
        raise InputError(f"'{path}' names people; name its column of study groups with --by")
    if not path.is_file():
        raise InputError(
            f"there is no table '{path}'; give a CSV file with the columns subject (or recording) and {by}"
        )
    table = read_plain_table(path)
    key = next((name for name in keys if name in table.columns), None)
    if key is None:
        raise problem(path, "line 1", "no column identifies the person", f"call one of them {keys[0]}")
    check_choice(f"column of '{path}'", by.lower(), table.columns)
    return dict(zip(table.columns[key], table.columns[by.lower()]))
