"""The explorer's collection: clips or windows with vectors, columns, maps, groups and frames."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.clip import Clip, Frames
from halp.data.normalise import normalise
from halp.data.windows import STRIDE, WINDOW, squeeze_warning
from halp.explorer.columns import MOST_CATEGORIES, SEPARATORS, Column, make_column, name_parts, ranked_column
from halp.explorer.imports import import_sklearn
from halp.explorer.layout import even_rows, group_evenly, load_or_compute, pack_groups, place_rows
from halp.features.content import RecordingFiles
from halp.features.embed import Embedding, keep_rows, make_table
from halp.features.known import SomeEncoder, loaded
from halp.features.source import Source
from halp.features.table import FeatureTable
from halp.reports.player import Box, Up, bounding_box, pack_joints, upward
from halp.video.film import SUFFIXES as FILMS

if TYPE_CHECKING:
    # brings the training along, which is slow to import
    from halp.encoders.pretrained import PretrainedEncoder
    from halp.evaluation.analysis.prototypes import KeySpace
    from halp.tasks.cluster import Clusters

REDUCED = 64  # principal components that maps, groups of large collections and static pages are computed from
GROUPED = 1_000  # vectors that are grouped as they are; of more, principal components are
CHUNK = 1_500  # frames of a recording that are sent at once
LONGEST = 3_000  # frames of one clip that are sent; longer ones are thinned
SHORTEST = 0.25  # seconds for which nobody must be there to be shown as absent
_OPEN = 16  # recordings that are kept as they are shown

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shown:
    """A recording for display: evenly spaced frames from `start` on, `clock` of them per unit of time."""

    frames: Frames
    start: float
    clock: float
    box: Box
    facts: dict[str, Any]


class Collection:
    """Rows (clips or windows of recordings) of a source. Frames stay on disk; vectors use the cache."""

    def __init__(
        self,
        encoder: SomeEncoder,
        source: Source,
        table: FeatureTable | None = None,
        begun: Callable[[SomeEncoder, Source], None] | None = None,
    ) -> None:
        self._encoder = encoder
        keep_rows(source)
        whole = source.cutting.window is None and bool((source.fps > 0).all())
        too_long = whole and squeeze_warning(source.rows["length"], encoder.frames) is not None
        self.note = (
            f"some recordings are long, so all of them were cut into pieces of {WINDOW:g} s, one every"
            f" {STRIDE:g} s; --window and --stride choose other lengths"
            if too_long
            else ""
        )
        self.source = source = source.cut(WINDOW, STRIDE) if too_long else source
        if begun is not None:
            begun(encoder, source)
        self.table = make_table(source, Embedding(encoder)) if table is None else table
        if not len(self.table):
            raise InputError(f"nobody is seen in '{source.name}'; there is nothing to explore")
        self.recordings, self.recording = self.table.recordings, self.table.recording
        self.maps: dict[str, npt.NDArray[np.float32]] = {}
        # vectors of rows by encoders that this one is compared with
        self.beside: dict[str, dict[int, npt.NDArray[np.float32]]] = {}
        self._shown: OrderedDict[int, Shown] = OrderedDict()
        self._keys: dict[int, npt.NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return len(self.table)

    @property
    def encoder(self) -> PretrainedEncoder:
        """The encoder, loaded on first use."""
        return loaded(self._encoder)

    @property
    def story(self) -> str:
        """What a shipped encoder's gain comes from, in a sentence or two."""
        return str(self._encoder.origin.get("story", ""))

    @cached_property
    def timed(self) -> bool:
        """Whether times are seconds rather than frames."""
        return bool((self.source.fps > 0).all())

    @property
    def overlapping(self) -> int:
        """Windows that share time with one of them, itself included; 1 for clips."""
        window, stride = self.source.cutting.window, self.source.cutting.stride
        if window is None or stride is None or stride >= window:
            return 1
        return 2 * int(np.ceil(window / stride)) - 1

    def rate(self, row: int) -> float:
        """Frames per second of a row, 30 if unknown."""
        fps = float(self.source.rows[row]["fps"])
        return fps if fps > 0 else 30.0

    # -- rows

    def span(self, row: int) -> tuple[str, float, float]:
        """Recording, start and stop of a row."""
        return self.table.name(row), float(self.table.starts[row]), float(self.table.stops[row])

    def subject(self, row: int) -> str:
        number = int(self.table.subjects[row])
        return str(number) if number >= 0 else ""

    def describe(self, row: int) -> dict[str, Any]:
        """Facts about a row as text."""
        name, start, stop = self.span(row)
        times = {"start": round(start, 3), "stop": round(stop, 3), "rate": self.rate(row)}
        return {"row": row, "name": name, "recording": int(self.recording[row]), **times}

    def find(self, text: str, most: int = 50) -> list[int]:
        """The first row of every recording whose name has all words of a text."""
        words = text.lower().split()
        fitting = [
            number
            for number, name in enumerate(self.recordings)
            if words and all(word in name.lower() for word in words)
        ]
        return [row for number in fitting[:most] for row in self.rows_of(number)[:1].tolist()]

    def rows_of(self, recording: int) -> Numbers:
        """Rows of a recording in the order of time."""
        rows = np.flatnonzero(self.recording == recording)
        return rows[np.argsort(self.table.starts[rows], kind="stable")]

    # -- frames

    def hold_files(self) -> None:
        """List the files now; files added later appear after a restart."""
        if isinstance(self.source.content, RecordingFiles):
            self.source.content.files[:0]

    @cached_property
    def _steps(self) -> tuple[str, ...]:
        """Steps for showing raw recordings: the encoder's, if the joints allow it; keeps frames and gaps."""
        steps = tuple(step for step in self._encoder.normalisation if step not in ("drop-empty", "fill-gaps"))
        try:
            normalise(self.source.recording(0).frames[:8], self.source.topology, steps)
        except InputError:
            return ()
        return steps

    @cached_property
    def up_axis(self) -> Up:
        """The up axis of the players, and its sign."""
        rows = np.unique(np.linspace(0, len(self) - 1, 12).astype(int)).tolist()
        axis, sign = self._kept(
            "up",
            lambda: np.array(
                upward([self._as_shown(self.source.clip(row)) for row in rows], self.source.topology)
            ),
        ).tolist()
        return int(axis), float(sign)

    def _as_shown(self, clip: Clip) -> Frames:
        if self.source.applied or not self._steps:
            return clip.frames
        return normalise(clip.frames, self.source.topology, self._steps, clip.fps)

    def frames(self, row: int) -> Frames:
        """Frames `(T, P, V, C)` of a row, as displayed."""
        if self.source.cutting.window is None:
            return self._as_shown(self.source.clip(row))
        first = int(self.source.rows[row]["first"])
        return self._as_shown(self.source.recording(row))[
            first : first + int(self.source.rows[row]["length"])
        ]

    def packed(self, row: int) -> tuple[npt.NDArray[np.int16], dict[str, Any]]:
        """Joints of a row for the player, every n-th frame of a long one."""
        frames = self.frames(row)
        step = -(-len(frames) // LONGEST)
        joints, facts = pack_joints(frames[::step], self.up_axis)
        return joints, {**self.describe(row), **facts, "rate": self.rate(row) / step}

    def shown(self, recording: int) -> Shown:
        """A recording; overlapping pieces are merged."""
        if recording not in self._shown:
            rows = self.rows_of(recording)
            _, first = np.unique(self.source.rows[rows][["item", "place"]], return_index=True)
            clips = [self.source.recording(row) for row in rows[np.sort(first)].tolist()]
            clock, parts, until = (clips[0].fps if clips[0].fps > 0 else 1.0), [], clips[0].start
            for clip in clips:
                skipped = max(0, round((until - clip.start) * clock))
                if skipped < len(clip.frames):
                    parts.append(self._as_shown(clip)[skipped:])
                    until = clip.start + len(clip.frames) / clock
            frames = np.concatenate(parts) if len(parts) > 1 else parts[0]
            some = frames[:: -(-len(frames) // 2_000)]
            box = bounding_box(some, self.up_axis)
            facts = pack_joints(some, self.up_axis, box)[1]
            while len(self._shown) >= _OPEN:
                self._shown.popitem(last=False)
            self._shown[recording] = Shown(frames, clips[0].start, clock, box, facts)
        return self._shown[recording]

    def extent(self, recording: int) -> dict[str, Any]:
        """Clock, rate and number of frames of a recording."""
        shown = self.shown(recording)
        return {
            "recording": recording,
            "name": self.recordings[recording],
            "start": shown.start,
            "stop": shown.start + len(shown.frames) / shown.clock,
            "rate": shown.clock if self.timed else 30.0,
            "clock": shown.clock,
            "frames": len(shown.frames),
            "chunk": CHUNK,
            "film": self.film(recording) is not None,
        }

    def film(self, recording: int) -> Path | None:
        """The video in which a recording was seen, if any."""
        content = self.source.content
        if not isinstance(content, RecordingFiles):
            return None
        path = content.files[int(self.source.rows[self.rows_of(recording)[0]]["item"])].path
        return path if path.suffix.lower() in FILMS else None

    def packed_chunk(self, recording: int, chunk: int) -> tuple[npt.NDArray[np.int16], dict[str, Any]]:
        """A part of a recording for the player, in the scale of all of it."""
        shown = self.shown(recording)
        joints, own = pack_joints(shown.frames[chunk * CHUNK : (chunk + 1) * CHUNK], self.up_axis, shown.box)
        return joints, {**shown.facts, "shape": own["shape"]}

    def nobody(self, recording: int) -> list[tuple[float, float]]:
        """Spans without a person."""
        least = SHORTEST if self.timed else 8
        return [(start, stop) for start, stop in self.table.absent(recording) if stop - start >= least]

    def keys(self, space: KeySpace, rows: Numbers) -> npt.NDArray[np.float32]:
        """Rows on the sphere of the keys of a training; each is computed once."""
        from halp.features.encode import embed_frames, ready_clips

        missing = [row for row in rows.tolist() if row not in self._keys]
        if missing:
            frames = [clip.frames for clip in ready_clips(space.encoder, self.source, missing)]
            self._keys.update(zip(missing, embed_frames(space.encoder, frames)))
        return np.stack([self._keys[row] for row in rows.tolist()])

    # -- columns, maps, groups

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Columns for colouring: class, subject, camera, columns of a store, parts of recordings' names."""
        made: dict[str, Column] = {}
        if (self.table.labels >= 0).any():
            known = list(self.table.class_names) or [
                str(number) for number in range(int(self.table.labels.max()) + 1)
            ]
            made["class"] = ranked_column("class", self.table.labels, known)
        store, own = self.source.store, "name length label subject recording start end fps".split()
        further = {} if store is None else {name: v for name, v in store.columns.items() if name not in own}
        items = self.source.rows["item"]
        for name, values in {
            "subject": self.table.subjects,
            **{n: np.asarray(v)[items] for n, v in further.items()},
        }.items():
            column = make_column(name, values)
            if column is not None:
                made[name] = column
        if 1 < len(self.recordings) < min(len(self), MOST_CATEGORIES):
            made["recording"] = ranked_column("recording", self.recording, self.recordings)
        for name, parts in name_parts(self.recordings, self.pattern).items():
            column = make_column(name, np.array(parts)[self.recording]) if name not in made else None
            if column is not None and column.categories and len(column.categories) < len(self.recordings):
                made[name] = column
        return made

    pattern = ""  # how recordings are named, such as {set}_{action}_{style}_{n}

    def name_by(self, pattern: str) -> None:
        """Read columns from the names of recordings; an empty pattern splits them at their separators."""
        if pattern and not name_parts(self.recordings, pattern):
            raise InputError(f"no recording name matches '{pattern}'; the first is '{self.recordings[0]}'")
        self.pattern = pattern
        self.__dict__.pop("columns", None)

    @cached_property
    def shared_prefix(self) -> int:
        """Length of the common prefix of all names of recordings."""
        first, last = min(self.recordings), max(self.recordings)
        same = next((at for at, (one, two) in enumerate(zip(first, last)) if one != two), 0)
        return max(first[:same].rfind(separator) for separator in SEPARATORS) + 1

    def _kept(self, name: str, compute: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Load an array kept with the vectors, or compute it."""
        folder = self.table.folder

        def computed() -> npt.NDArray[Any]:
            import_sklearn()
            return compute()

        return computed() if folder is None else load_or_compute(folder / f"{name}.npy", computed)

    @cached_property
    def reduced(self) -> npt.NDArray[np.float32]:
        """Principal components `(N, ≤ 64)`, of a sample if there are many rows."""

        def computed() -> npt.NDArray[np.float32]:
            from halp.evaluation.analysis.embedding import principal_places

            return principal_places(self.table.vectors, REDUCED)

        return self._kept(f"principal-{REDUCED}", computed)

    def lay_out(self, method: str) -> npt.NDArray[np.float32]:
        """Places `(N, 2)` on the map, within −1 … 1."""
        if method not in self.maps:
            self.maps[method] = self._kept(f"map-{method}", lambda: place_rows(self.reduced, method))
        return self.maps[method]

    @cached_property
    def even_rows(self) -> Numbers:
        """Rows balanced over recordings, so that long ones do not outweigh short ones."""
        return even_rows(self.recording, self.table.starts)

    @property
    def _grouped_by(self) -> npt.NDArray[np.float32]:
        return np.asarray(self.table.vectors if len(self) <= GROUPED else self.reduced)

    def silhouettes(self) -> dict[int, float]:
        """Silhouettes of every number of groups tried, of at most 2,000 rows."""
        from halp.tasks.cluster import group_vectors

        rows = self.even_rows
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, 2_000).astype(int))]

        def tried() -> npt.NDArray[np.float64]:
            found = group_vectors(self._grouped_by[rows]).silhouettes if len(rows) > 2 else {}
            return np.array([[count, value] for count, value in found.items()], dtype=np.float64).reshape(
                -1, 2
            )

        return {int(count): float(value) for count, value in self._kept("silhouettes", tried).tolist()}

    def group(self, count: int | None = None) -> Clusters:
        """Groups as `halp cluster` makes them, recordings weighted about equally; above 1,000 rows by PCA."""
        from halp.tasks.cluster import Clusters

        name = f"even-groups-{count or 'auto'}"
        group = self._kept(name, lambda: pack_groups(group_evenly(self._grouped_by, self.even_rows, count)))
        typical = len(self) + np.arange(len(group) - len(self) - 1)
        silhouette = float(group[-1])
        return Clusters(group[: len(self)].astype(np.int64), group[typical].astype(np.int64), silhouette, {})
