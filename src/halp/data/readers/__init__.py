"""Readers: one file per format, each turning pose files into clips; registered by name.

A reader is split so that many processes can share the work: `items` lists cheaply what there is (names only),
`read` turns one item into clips. A new format is one module in this folder that ends with
`register_reader(MyReader())`.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import pkgutil
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from halp.core.config import check_limits, checked_value, field_types, parse_value
from halp.core.errors import InputError, check_choice
from halp.core.registry import NoSettings, load_installed_plugins
from halp.data.clip import Clip, Dropped
from halp.data.sandbox import is_hdf5, object_names
from halp.data.source_files import walk
from halp.data.splits import SplitRule
from halp.data.text_tables import NO_HEADER, header_cells
from halp.skeleton import Topology


@dataclass(frozen=True)
class Item:
    """One unit of work: what one call of `read` opens. Small and picklable; `key` is the reader's own."""

    path: Path
    key: Any = None

    def __str__(self) -> str:
        return str(self.path) if self.key is None else f"{self.path} [{self.key}]"


@dataclass(frozen=True)
class Info:
    """Facts of a whole source. `persons` is the most in a clip, `normalisation` what the format requires.

    `applied` names the steps that the source has been through already; a store records both, `prepare`
    applies the second.
    `shared` says whether several processes may read items at once; False for a single file that must be in
    memory whole.
    `slow` is for items of which each is worth a process of its own, such as films.
    """

    topology: Topology
    persons: int = 1
    class_names: tuple[str, ...] = ()
    splits: tuple[SplitRule, ...] = ()
    normalisation: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    shared: bool = True
    slow: bool = False
    origin: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Reader(Protocol):
    """What a format provides. Readers hold no open files and no data, so they can be pickled."""

    name: str
    description: str

    def sniff(self, path: Path) -> bool:
        """Whether `path` looks like this format, by names and first bytes; never raises if it is readable."""
        ...

    def info(self, path: Path) -> Info:
        """Topology, persons, classes, splits and default normalisation of the source."""
        ...

    def items(self, path: Path) -> Iterable[Item]:
        """The work, in a fixed order. An empty source raises `InputError`."""
        ...

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        """The clips of one item. Raises `InputError` (file, line or key, problem, remedy) without any."""
        ...


@runtime_checkable
class ChoosesDimensions(Protocol):
    """A reader that can return its clips in 2D (image) or 3D, as the encoder requires."""

    def for_dimensions(self, dimensions: int) -> Reader:
        """The reader for this number of coordinates."""
        ...


_READERS: dict[str, Reader] = {}
# of readers that were registered with settings
_BUILDERS: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {}


def register_reader(reader: Any, settings: type[Any] | None = None) -> Any:
    """Register a reader by its name; a later one of the same name replaces it.

    Either a reader itself, or its name and the dataclass of its settings as a decorator over `build(settings)
    → reader`;
    `halp prepare … --option key=value` changes the settings.
    """
    if not isinstance(reader, str):
        _READERS[reader.name] = reader
        return reader
    name = reader
    kind = NoSettings if settings is None else settings

    def add(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        _BUILDERS[name] = (kind, build)
        _READERS[name] = _build(name, kind())
        return build

    return add


def _build(name: str, settings: Any) -> Reader:
    reader = _BUILDERS[name][1](settings)
    reader.name, reader.settings = name, settings
    return reader


def _load_all() -> None:
    """Import every module of this folder and every installed plugin once; each registers its reader."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    load_installed_plugins()


def list_readers() -> dict[str, str]:
    """Names of all formats with their descriptions."""
    _load_all()
    return {name: _READERS[name].description for name in sorted(_READERS)}


def list_formats() -> dict[str, str]:
    """Formats that `halp prepare` reads.

    Returns
    -------
    dict of str to str
        Name and description of each.

    Examples
    --------
    >>> sorted(list_formats())[:2]
    ['amass', 'arrays']
    """
    return {**list_readers(), "synthetic": "synthetic people; takes a number of clips instead of a source"}


def get_reader(name: str) -> Reader:
    """The reader of that format."""
    _load_all()
    return _READERS[check_choice("format", name, _READERS)]


Option = bool | int | float | str | tuple[Any, ...]


def _settings(reader: Reader) -> Any:
    """The dataclass that holds the settings of a reader: its own fields, or what it was registered with."""
    return reader.settings if reader.name in _BUILDERS else reader  # type: ignore[attr-defined]


def reader_options(reader: Reader) -> dict[str, Option]:
    """Settings of a reader that may be changed, such as `min_score`, with their values."""
    settings = _settings(reader)
    if not dataclasses.is_dataclass(settings):
        return {}
    fixed = ("name", "description") if settings is reader else ()
    return {
        each.name: getattr(settings, each.name)
        for each in dataclasses.fields(settings)
        if each.name not in fixed
    }


def with_options(reader: Reader, options: Mapping[str, Any]) -> Reader:
    """The reader with some settings changed; unknown settings and invalid values are named.

    Values may be text, as `--option name=value` gives them: `true`, `0.3`, `[1, 2]` or `a,b`.
    """
    if not options:
        return reader
    known = reader_options(reader)
    if not known:
        raise InputError(f"format '{reader.name}' has no options; leave out {', '.join(options)}")
    hints = field_types(type(_settings(reader)))
    changed = {
        name: _option(
            reader.name, check_choice(f"option of format '{reader.name}'", name, known), value, hints[name]
        )
        for name, value in options.items()
    }
    check_limits(type(_settings(reader)), changed, f"format '{reader.name}': option ")
    if reader.name in _BUILDERS:
        return _build(reader.name, dataclasses.replace(_settings(reader), **changed))
    return dataclasses.replace(reader, **changed)  # type: ignore[type-var]


def _option(format: str, name: str, value: Any, hint: Any) -> Option:
    """A value of an option as its kind, checked."""
    title = f"option {name} of format '{format}'"
    if isinstance(value, str) and hint is not str:
        value = parse_value(value)
        if typing.get_origin(hint) is tuple and not isinstance(value, list):
            value = [parse_value(part) for part in value.split(",")] if isinstance(value, str) else [value]
    if hint is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    option: Option = checked_value(hint, value, title)
    if isinstance(option, float) and not math.isfinite(option):
        raise InputError(f"{title} cannot be {value}; it is a finite number")
    return option


def sniff_reader(path: Path) -> Reader:
    """The one reader that recognises `path`; an error lists the candidates, or the files found instead."""

    _load_all()
    if not path.exists():
        raise InputError(f"there is nothing at '{path}'; check the path of the source")
    fitting = [reader for _, reader in sorted(_READERS.items()) if reader.sniff(path)]
    if len(fitting) > 1:
        fitting = [reader for reader in fitting if not getattr(reader, "fallback", False)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " or ".join(reader.name for reader in fitting)
        raise InputError(
            f"'{path}' could be of several formats; name one of them instead of auto ({names}), or prepare"
            " the files of each format from a folder of its own"
        )
    raise InputError(describe_unknown(path))


_VIDEOS = frozenset(".mp4 .avi .mov .mkv .webm .m4v .mpg .mpeg .wmv".split())
_PICTURES = frozenset(".jpg .jpeg .png .bmp .tif .tiff .webp".split())
# Endings that tell what a file is, and how to get joints out of it.
_ADVICE = {
    ".fbx": "export the animation as BVH or C3D",
    ".blend": "export the animation as BVH",
    ".slp": "export it from SLEAP as an analysis file (.h5 or .csv)",
    ".rrd": "export the joint positions as CSV",
    ".mkv": "process Azure Kinect recordings with the body tracking SDK to JSON",
    ".bag": "export the joint positions as CSV",
    ".xlsx": "save the sheet with joint positions as CSV",
    ".zip": "unpack the archive",
    ".tar": "unpack the archive",
    ".gz": "unpack the archive",
    ".7z": "unpack the archive",
}
_ANY_SKELETON = (
    "`halp formats` lists those it reads, and a table with the columns clip, frame, joint, x, y, z fits any"
    " skeleton"
)
_MOST = 10_000


def describe_unknown(path: Path) -> str:
    """One sentence: the number and kinds of files, and the remedy."""
    try:
        files = [file for file, _ in zip(walk(path), range(_MOST))]
    except (InputError, OSError) as error:
        return str(error)
    if not files:
        return f"the folder '{path}' is empty; put recordings into it, or check the path"
    empty = [file for file in files if file.is_file() and not file.stat().st_size]
    if len(empty) == len(files):
        what = (
            f"'{empty[0]}' is empty" if len(empty) == 1 else f"all {len(empty)} files of '{path}' are empty"
        )
        return f"{what}; fetch or export the recordings again"
    endings = Counter(file.suffix.lower() for file in files)
    kinds = ", ".join(f"{count} {ending or 'without ending'}" for ending, count in endings.most_common(4))
    held = f"1 file ({kinds}), which is" if len(files) == 1 else f"{len(files)} files ({kinds}), which are"
    subject = f"'{path}' is" if path.is_file() else f"'{path}' holds {held}"
    if endings.keys() <= _VIDEOS | _PICTURES:
        kind = "video" if endings.keys() & _VIDEOS else "a picture" if len(files) == 1 else "pictures"
        return (
            f"{subject} {kind}, not poses; run a pose estimator first (MediaPipe, MMPose, OpenPose, YOLO, …)"
            " and give halp its output"
        )
    advice = (remedy for ending, remedy in _ADVICE.items() if ending in endings)
    remedy = _closer_look(files) or next(advice, _ANY_SKELETON)
    return f"{subject} in no format that halp recognises; {remedy}"


def _closer_look(files: Sequence[Path]) -> str:
    """A remedy for files that are close to a known format, or an empty string."""
    first = files[0]
    if is_hdf5(first):
        if importlib.util.find_spec("h5py") is None:
            return "HDF5 files need h5py: install it with `pip install 'halp-motion[formats]'`, or export CSV"
        names = ", ".join(sorted(object_names(first) - {""})[:5]) or "nothing that can be read"
        return (
            f"'{first.name}' is HDF5 with {names}: export it from DeepLabCut (a table of scorer, bodyparts,"
            " coords), SLEAP (an analysis file with tracks) or movement, or as CSV"
        )
    cells = header_cells(first) if first.suffix.lower() == ".csv" else [""]
    if all(re.fullmatch(r"\s*[-+.\de]+\s*", cell, re.ASCII) for cell in cells[1:] or cells):
        return f"'{first.name}' holds numbers and no names of columns: {NO_HEADER}"
    return ""
