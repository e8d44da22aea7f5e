"""Tables with a class in every row: runs of rows with the same class are clips of that class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Item
from halp.clips.readers.sources import Entry
from halp.clips.text_files import Table, problem, read_table, unless_empty
from halp.errors import InputError

_COLUMNS = ("class", "label", "action", "activity")
_MOST_CLASSES = 1000
# Where classes change more often than this on average, the rows are not in the order of time.
_SHORTEST = 3


def label_column(columns: Iterable[str]) -> str | None:
    """The column that holds a class, or None."""
    names = set(columns)
    return next((column for column in _COLUMNS if column in names), None)


def labels_in(files: Sequence[Path]) -> tuple[str, ...]:
    """All classes that the tables name, in order; empty where no table has such a column."""
    found: set[str] = set()
    for path in files:
        try:
            table = read_table(path)
        except InputError:
            continue  # reading it gives the same error, with the name of the clip
        column = label_column(table.columns)
        found |= set(table.columns[column]) - {""} if column else set()
        if len(found) > _MOST_CLASSES:
            raise problem(path, f"column '{column}'", "it holds more than a thousand different values", "rename it")
    return tuple(sorted(found))


def label_runs(table: Table) -> list[tuple[str, int, int]]:
    """Class, first row and the row after the last of every run; classes that alternate row by row are an error."""
    column = label_column(table.columns)
    cells: Sequence[str] = table.columns[column] if column else [""] * len(table)
    starts = [row for row in range(len(cells)) if not row or cells[row] != cells[row - 1]]
    found = [(cells[start], start, end) for start, end in zip(starts, [*starts[1:], len(cells)])]
    if len(found) > 10 and len(cells) < _SHORTEST * len(found):
        what = f"the class changes {len(found) - 1} times in {len(cells)} rows"
        raise problem(
            table.path, f"column '{column}'", what, "keep the rows in the order of time, one recording after another"
        )
    return found


def with_classes(items: Iterable[Item], classes: tuple[str, ...]) -> Iterator[Item]:
    """Items that know the classes which the tables of their source name; folders then name none."""
    for item in items:
        key = item.key
        yield Item(item.path, replace(key, label=-1, classes=classes) if classes and isinstance(key, Entry) else key)


def labelled_clips(whole: Clip, found: Sequence[tuple[str, int, int]], entry: Entry) -> list[Clip | Dropped]:
    """Clips of the runs; a single run keeps the name of the file, several are numbered from 1."""
    names = entry.classes or tuple(sorted({label for label, _, _ in found if label}))
    clips: list[Clip | Dropped] = []
    for number, (label, first, last) in enumerate(found, start=1):
        clip = replace(
            whole,
            frames=whole.frames[first:last],
            name=whole.name if len(found) == 1 else f"{whole.name}-{number}",
            label=names.index(label) if label in names else -1,
            recording=whole.name if len(found) > 1 else "",
            start=first / whole.fps if whole.fps > 0 else float(first),
        )
        clips.append(unless_empty(clip))
    return clips
