"""What readers share: which files make which clip, tables with a class in every row, detections frame by frame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from halp.clips.clip import Clip, Dropped, Frames
from halp.clips.readers import Info, Item
from halp.clips.source_files import find_files
from halp.clips.text_files import Table, forget_unsure, problem, read_table, unless_empty
from halp.clips.tracking import Detection, follow
from halp.errors import InputError
from halp.skeleton import Topology

#: Files of runs, by their folder and how their names begin.
Runs = dict[tuple[Path, str], list[Path]]


@dataclass(frozen=True)
class Entry:
    """The key of an item: the clip's name, the topology of the whole source and the files of a longer run.

    `classes` are the class names of the whole source, for files that name their classes themselves. `place` is the folder
    that the recording lies in, where that is not the one of its file: a recording may be a folder itself.
    """

    name: str
    topology: Topology | None = None
    files: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    place: Path | None = None

    def __str__(self) -> str:
        return self.name


def entry_of(item: Item) -> Entry:
    """The entry of an item, made up from the file name where `read` is called with a bare path."""
    return item.key if isinstance(item.key, Entry) else Entry(item.path.name.split(".")[0])


def clip_name(path: Path, root: Path) -> str:
    """Path below the source without its ending: `walk/anna_01`."""
    relative = Path(path.name) if path == root or not root.is_dir() else path.relative_to(root)
    return relative.with_suffix("").as_posix()


def class_folder(item: Item, root: Path) -> str:
    """The folder directly below the source that a recording lies in; empty where it lies in the source itself."""
    place = item.key.place if isinstance(item.key, Entry) and item.key.place is not None else item.path.parent
    return next(iter(place.relative_to(root).parts), "") if place.is_relative_to(root) else ""


def class_folders(items: Sequence[Item], root: Path) -> tuple[str, ...]:
    """Names of the classes: the folders directly below the source, when every recording lies in one of them."""
    folders = {class_folder(item, root) for item in items} if root.is_dir() else {""}
    return () if "" in folders else tuple(sorted(folders))


def entries(
    files: Iterable[Path], root: Path, topology: Topology | None = None, classes: tuple[str, ...] = ()
) -> Iterator[Item]:
    """One item per file, with its name; where the files name classes, folders name none."""
    return (Item(path, Entry(clip_name(path, root), topology, classes=classes)) for path in files)


def only_file(path: Path, *suffixes: str, remedy: str = "name the one to prepare") -> Path:
    """The one file of a source that is a single file."""
    files = find_files(path, *suffixes)
    if len(files) > 1:
        raise problem(path, "", f"it holds {len(files)} {' or '.join(suffixes)} files", remedy)
    return files[0]


def attempt(name: str, make: Callable[[], Clip]) -> Clip | Dropped:
    """One clip of many in a file, or why it is left out."""
    try:
        return unless_empty(make())
    except InputError as error:
        return Dropped(name[:200], str(error))


def run_items(groups: Runs, root: Path, topology: Topology, by_folder: bool = False) -> Iterator[Item]:
    """One item per run of one-frame files, called by its folder and the beginning of its files below `root`.

    A run whose files have no beginning is called once more by its folder, or, with `by_folder`, by the folder alone. A folder per
    run is the recording itself and not a class; where folders hold several, the recordings lie in them.
    """
    several = len({folder for folder, _ in groups}) < len(groups)
    for (folder, prefix), files in groups.items():
        place = folder if several else folder.parent
        name = clip_name(folder / f"{prefix or folder.name}{files[0].suffix}", root)
        if by_folder and not prefix:
            name = "clip" if folder == root.parent else folder.relative_to(root.parent).as_posix()
        yield Item(folder, Entry(name, topology, tuple(file.name for file in files), place=place))


def runs(files: Iterable[Path], pattern: re.Pattern[str]) -> Runs:
    """Files of one folder that differ only in a frame number, in order; `pattern` has the groups `clip` and `frame`."""
    groups: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
    for path in files:
        match = pattern.fullmatch(path.name)
        if match:
            groups.setdefault((path.parent, match["clip"]), []).append((int(match["frame"]), path))
    return {key: [path for _, path in sorted(group)] for key, group in sorted(groups.items())}


def named_files(root: Path, pattern: re.Pattern[str], example: str) -> list[Path]:
    """Files whose names follow the pattern of a data set; none at all is an error that shows what a name looks like."""
    suffix = example[example.rindex(".") :]
    files = [path for path in find_files(root, suffix) if pattern.fullmatch(path.name)]
    if not files:
        raise problem(root, "", f"no file is named like '{example}'", "check the path and the format")
    return files


_COLUMNS = ("class", "label", "action", "activity")
_MOST_CLASSES = 1000
# Where classes change more often than this on average, the rows are not in the order of time.
_SHORTEST = 3


def label_column(columns: Iterable[str]) -> str | None:
    """The column that holds a class, or None."""
    names = set(columns)
    return next((column for column in _COLUMNS if column in names), None)


def labels_in(files: Sequence[Path], header: Callable[[Path], tuple[str, ...]] = lambda path: ()) -> tuple[str, ...]:
    """All classes that the tables name, in order; empty where no table has such a column.

    `header` gives the names of the columns of a table that has none.
    """
    classes: set[str] = set()
    for path in files:
        try:
            table = read_table(path, header(path))
        except InputError:
            continue  # reading it gives the same error, with the name of the clip
        column = label_column(table.columns)
        classes |= set(table.columns[column]) - {""} if column else set()
        if len(classes) > _MOST_CLASSES:
            raise problem(path, f"column '{column}'", "it holds more than a thousand different values", "rename it")
    return tuple(sorted(classes))


def label_runs(table: Table) -> list[tuple[str, int, int]]:
    """Class, first row and the row after the last of every run; classes that alternate row by row are an error."""
    column = label_column(table.columns)
    cells: Sequence[str] = table.columns[column] if column else [""] * len(table)
    starts = [row for row in range(len(cells)) if not row or cells[row] != cells[row - 1]]
    spans = [(cells[start], start, end) for start, end in zip(starts, [*starts[1:], len(cells)])]
    if len(spans) > 10 and len(cells) < _SHORTEST * len(spans):
        fault = f"the class changes {len(spans) - 1} times in {len(cells)} rows"
        raise problem(table.path, f"column '{column}'", fault, "keep the rows of a recording in the order of time")
    return spans


def labelled_clips(whole: Clip, spans: Sequence[tuple[str, int, int]], entry: Entry) -> list[Clip | Dropped]:
    """Clips of the runs; a single run keeps the name of the file, several are numbered from 1."""
    names = entry.classes or tuple(sorted({label for label, _, _ in spans if label}))
    clips: list[Clip | Dropped] = []
    for number, (label, first, last) in enumerate(spans, start=1):
        clip = replace(
            whole,
            frames=whole.frames[first:last],
            name=whole.name if len(spans) == 1 else f"{whole.name}-{number}",
            label=names.index(label) if label in names else -1,
            recording=whole.name if len(spans) > 1 else "",
            start=first / whole.fps if whole.fps > 0 else float(first),
        )
        clips.append(unless_empty(clip))
    return clips


@dataclass
class DetectionReader:
    """Base of these readers.

    At most `persons` are kept, those seen longest; joints with a score below `min_score` are missing.
    """

    name: str
    description: str
    persons: int = 2
    min_score: float = 0.0

    def source_info(self, topology: Topology, classes: tuple[str, ...] = ()) -> Info:
        """What holds for the whole source."""
        return Info(topology, self.persons, classes, normalisation=("drop-empty", "interpolate-gaps", "centre"))

    def sure_joints(self, joints: Frames, scores: npt.NDArray[Any]) -> Frames:
        """Joints with zeros for those that are not sure enough."""
        return forget_unsure(joints, scores, self.min_score)[0]

    def clip(self, frames: Sequence[Sequence[Detection]], entry: Entry, topology: Topology) -> Clip | Dropped:
        """The persons of all frames as one clip."""
        tracked, left_out = follow(frames, self.persons, len(topology), topology.dimensions)
        return unless_empty(Clip(tracked, entry.name, repairs=left_out))
