"""Which files make which clip: names from paths, classes from folders, runs of one-frame files joined to one clip."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from halp.clips.readers import Item
from halp.clips.source_files import find_files
from halp.clips.text_files import problem
from halp.skeleton import Topology


@dataclass(frozen=True)
class Entry:
    """The key of an item: the clip's name, its class, the topology of the whole source and the files of a longer run.

    `classes` are the class names of the whole source, for files that name their classes themselves.
    """

    name: str
    label: int = -1
    topology: Topology | None = None
    files: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def entry_of(item: Item) -> Entry:
    """The entry of an item, made up from the file name where `read` is called with a bare path."""
    return item.key if isinstance(item.key, Entry) else Entry(item.path.name.split(".")[0])


def clip_name(path: Path, root: Path) -> str:
    """Path below the source without its ending: `walk/anna_01`."""
    relative = Path(path.name) if path == root or not root.is_dir() else path.relative_to(root)
    return relative.with_suffix("").as_posix()


def class_folders(files: Iterable[Path], root: Path) -> tuple[str, ...]:
    """Names of the classes: the folders directly below the source, when every file lies in one of them."""
    if not root.is_dir():
        return ()
    folders = {path.relative_to(root).parts[:-1][:1] for path in files}
    return () if () in folders else tuple(sorted(folder[0] for folder in folders))


def entries(files: Iterable[Path], root: Path, topology: Topology | None = None) -> Iterator[Item]:
    """One item a file, with its name and the class of its folder."""
    files = list(files)
    classes = class_folders(files, root)
    for path in files:
        label = classes.index(path.relative_to(root).parts[0]) if classes else -1
        yield Item(path, Entry(clip_name(path, root), label, topology))


def runs(files: Iterable[Path], pattern: re.Pattern[str]) -> dict[tuple[Path, str], list[Path]]:
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
    found = [path for path in find_files(root, suffix) if pattern.fullmatch(path.name)]
    if not found:
        raise problem(root, "", f"no file is named like '{example}'", "check the path and the format")
    return found
