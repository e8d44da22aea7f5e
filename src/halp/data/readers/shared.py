"""Shared by readers: items and their names, and base classes for readers with one recording per file.

A reader of one recording per file says how its files look and how one is loaded; the rest (topology of the
whole source, persons, scores, missing joints) is the same for all of them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from halp.core.config import limited
from halp.core.errors import InputError
from halp.data.clip import Clip, Dropped, Frames
from halp.data.readers import Info, Item
from halp.data.source_files import any_file, find_files, place_below
from halp.data.text_files import (
    Floats,
    checked_scores,
    coordinates,
    drop_if_empty,
    mask_low_scores,
    problem,
    shown,
)
from halp.skeleton import Topology, canonical_joints, get_topology, list_topologies, topology_for


@dataclass(frozen=True)
class ClipKey:
    """The key of an item: the clip's name, the topology of the whole source and the files of a longer run.

    `classes` are the class names of the whole source, for files that name their classes themselves. `place`
    is the folder that the recording lies in, where that is not the one of its file: a recording may be a
    folder itself.
    """

    name: str
    topology: Topology | None = None
    files: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    place: Path | None = None

    def __str__(self) -> str:
        return self.name


def key_of(item: Item) -> ClipKey:
    """The entry of an item, derived from the file name if `read` is called with a bare path."""
    return item.key if isinstance(item.key, ClipKey) else ClipKey(item.path.name.split(".")[0])


def clip_name(path: Path, root: Path) -> str:
    """Path below the source without its ending: `walk/anna_01`."""
    below = place_below(path, root) or path.name
    folder, _, name = below.rpartition("/")
    dot = name.rfind(".")  # as `Path.with_suffix` sees an ending
    name = name[:dot] if 0 < dot < len(name) - 1 else name
    return f"{folder}/{name}" if folder else name


def class_folder(item: Item, root: Path) -> str:
    """The folder directly below the source that contains a recording; empty if the source itself does."""
    named = item.key.place if isinstance(item.key, ClipKey) else None
    below = place_below(item.path if named is None else named / "-", root)
    return "" if below is None or "/" not in below else below.partition("/")[0]


def class_folders(items: Sequence[Item], root: Path) -> tuple[str, ...]:
    """Class names: the folders directly below the source, if every recording lies in one of them."""
    folders = {class_folder(item, root) for item in items} if root.is_dir() else {""}
    return () if "" in folders else tuple(sorted(folders))


def entries(
    files: Iterable[Path], root: Path, topology: Topology | None = None, classes: tuple[str, ...] = ()
) -> Iterator[Item]:
    """One item per file, with its name; where the files name classes, folders name none."""
    return (Item(path, ClipKey(clip_name(path, root), topology, classes=classes)) for path in files)


def only_file(path: Path, *suffixes: str, remedy: str = "name the one to prepare") -> Path:
    """The one file of a source that is a single file."""
    files = find_files(path, *suffixes)
    if len(files) > 1:
        raise problem(path, "", f"it holds {len(files)} {' or '.join(suffixes)} files", remedy)
    return files[0]


def find_layout(joints: Sequence[str], dimensions: int, name: str = "custom") -> tuple[Topology, list[int]]:
    """The topology with these joints, in any spelling and order, and each joint's index among them.

    A known one where it has just these joints, otherwise one made for them.
    """
    names = canonical_joints(joints)
    for known in map(get_topology, list_topologies()):
        if set(known.joints) == set(names) and known.dimensions == dimensions:
            return known, [names.index(joint) for joint in known.joints]
    return topology_for(names, dimensions, name=name), list(range(len(names)))


def clip_or_dropped(name: str, make: Callable[..., Clip], *arguments: Any) -> Clip | Dropped:
    """One clip of many in a file, or why it is left out."""
    try:
        return drop_if_empty(make(*arguments))
    except InputError as error:
        return Dropped(name[:200], str(error))


def labelled_clips(
    whole: Clip, spans: Sequence[tuple[str, int, int]], entry: ClipKey
) -> list[Clip | Dropped]:
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
        clips.append(drop_if_empty(clip))
    return clips


MOST_JOINTS, MOST_PERSONS = 500, 50
#: What the option `persons` may be.
PERSONS = {"least": 1, "most": 20}
# Frames per second that are more than this, or not finite, tell nothing.
_FASTEST = 10_000
#: From z up to y up, keeping left and right.
Z_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
#: From a camera's axes (x to its right, y down, z away) to y up with the left side at the smaller x, as in
#: the Kinect sets.
CAMERA = np.diag([-1.0, -1.0, 1.0])


@dataclass
class Poses:
    """Content of a file: frames `(T, P, V, C)`, NaN if missing, scores `(T, P, V)`, frames per second.

    `runs` are class, first frame and the frame after the last, where a file names the class of every frame.
    """

    joints: Sequence[str]
    frames: Floats | Frames
    scores: Floats | None = None
    fps: float = -1.0
    bones: Sequence[tuple[int, int]] = field(default_factory=tuple)
    topology: Topology | None = None
    runs: Sequence[tuple[str, int, int]] = ()
    repairs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.fps <= _FASTEST:
            self.fps = -1.0

    def layout(self, path: Path) -> Topology:
        """The topology of the file: a known one if the joints match, otherwise one made for it."""
        if self.topology is not None:
            return self.topology
        names = canonical_joints([joint.strip() for joint in self.joints])
        if not names or len(names) > MOST_JOINTS or not all(name and name.isprintable() for name in names):
            raise problem(
                path, "", f"it has {len(names)} joints or one without a usable name", "name all joints"
            )
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise problem(path, "", f"joint {shown(twice)} occurs twice", "rename one of the two")
        topology = topology_for(names, self.frames.shape[3])
        return _with_bones(topology, self.bones) if self.bones else topology


def _with_bones(topology: Topology, bones: Sequence[tuple[int, int]]) -> Topology:
    """The topology with a file's own bones (parent, child), where they form trees."""
    parents = list(range(len(topology)))
    for parent, child in bones:
        if not (0 <= parent < len(parents) and 0 <= child < len(parents)) or parents[child] != child:
            return topology
        parents[child] = parent
    try:
        return replace(topology, parents=tuple(parents)) if topology.name == "custom" else topology
    except InputError:
        return topology


@dataclass
class PoseFileReader(abc.ABC):
    """Base of readers with one recording per file; all files of a source need the joints of the first one.

    At most `persons` are kept, those seen longest; joints with a score below `min_score` are missing.
    """

    name: str
    description: str
    suffixes: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[tuple[str, ...]] = ("drop-empty", "interpolate-gaps", "centre")

    @abc.abstractmethod
    def looks_right(self, path: Path) -> bool:
        """Whether a file looks like this format, by its first bytes; never raises for a readable path."""

    @abc.abstractmethod
    def load(self, path: Path) -> Poses:
        """The recording of a file."""

    def sniff(self, path: Path) -> bool:
        return any_file(path, self.looks_right, *self.suffixes)

    def files(self, path: Path) -> list[Path]:
        """The files of a source, one recording each."""
        return find_files(path, *self.suffixes)

    def classes(self, files: Sequence[Path]) -> tuple[str, ...]:
        """All classes that the files themselves name."""
        return ()

    def info(self, path: Path) -> Info:
        files = self.files(path)
        topology, persons = self.first(files)
        steps = tuple(step for step in self.steps if step != "centre" or topology.centre)
        return Info(topology, persons, self.classes(files), normalisation=steps)

    def items(self, path: Path) -> Iterable[Item]:
        files = self.files(path)
        return entries(files, path, self.first(files)[0], self.classes(files))

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = key_of(item)
        poses = self.load(item.path)
        layout = poses.layout(item.path)
        frames, repairs = self.clean(poses, item.path)
        topology = entry.topology or layout
        if layout.joints != topology.joints or layout.dimensions != topology.dimensions:
            frames = _reordered(frames, layout, topology, item.path)
        clip = drop_if_empty(Clip(frames, entry.name, repairs=repairs, fps=poses.fps))
        return labelled_clips(clip, poses.runs, entry) if poses.runs and isinstance(clip, Clip) else [clip]

    def clean(self, poses: Poses, path: Path) -> tuple[Frames, tuple[str, ...]]:
        """Frames with zeros for what is missing or unsure, of at most as many persons as the reader keeps."""
        missing = np.isnan(poses.frames).any(axis=-1, keepdims=True)
        frames = coordinates(np.where(missing, 0.0, poses.frames), path)
        repairs = poses.repairs
        if poses.scores is not None:
            scores = checked_scores(poses.scores, path)
            frames, lost = mask_low_scores(frames, scores, getattr(self, "min_score", 0.0))
            repairs += lost
        persons = getattr(self, "persons", 1)
        if frames.shape[1] > persons:
            seen = (frames != 0).any(axis=(2, 3)).sum(axis=0)
            frames = frames[:, np.argsort(-seen, kind="stable")[:persons]]
            repairs += (f"the {persons} of {len(seen)} persons seen longest kept",)
        return frames, repairs

    def first(self, files: Sequence[Path]) -> tuple[Topology, int]:
        """Topology and persons of the first readable file; if there is none, the first file's error."""
        first_error: InputError | None = None
        for path in files[:1000]:
            try:
                return self.layout_of(path)
            except InputError as error:
                first_error = first_error or error
        raise first_error or problem(files[0], "", "it cannot be read", "leave it out")

    def layout_of(self, path: Path) -> tuple[Topology, int]:
        """Topology and persons of a file."""
        poses = self.load(path)
        return poses.layout(path), getattr(self, "persons", 1) if poses.frames.shape[1] > 1 else 1


@dataclass
class PeopleFileReader(PoseFileReader):
    """Base class of readers whose files may hold several persons and scores."""

    persons: int = limited(2, **PERSONS)
    min_score: float = limited(0.0, least=0)


def _reordered(frames: Frames, layout: Topology, target: Topology, path: Path) -> Frames:
    """Frames reordered to the joints of the first file; a missing joint is an error."""
    missing = [joint for joint in target.joints if joint not in layout.joints]
    if missing or layout.dimensions != target.dimensions:
        fault = (
            f"no joint {', '.join(missing[:5])}" if missing else f"{layout.dimensions} coordinates per joint"
        )
        remedy = "prepare files of another layout on their own"
        raise problem(path, "", f"it has {fault}, unlike the first file", remedy)
    return frames[:, :, [layout.index(joint) for joint in target.joints]]


def turned(frames: Floats, rotation: npt.NDArray[np.float64], scale: float = 1.0) -> Floats:
    """Frames `(…, 3)` rotated and scaled; NaN stays NaN."""
    return np.asarray(frames @ (rotation.T * scale))
