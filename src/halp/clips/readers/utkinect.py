"""UTKinect-Action3D: `joints_s01_e01.txt` (a line per frame: number, then 20 × 3) cut by the segments of `actionLabel.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.shared import named_files
from halp.clips.source_files import first_file, leads_out, read_text, walk
from halp.clips.splits import Split
from halp.clips.text_files import coordinates, number_table, problem, shown, unless_empty, whole_number
from halp.skeleton import KINECT_V1

# Names in the label file and the classes they stand for.
ACTIONS = {
    name: re.sub("([A-Z])", r" \1", name).lower()
    for name in "walk sitDown standUp pickUp carry throw push pull waveHands clapHands".split()
}
SPLITS = (Split("xsub", "subject", train=(1, 3, 5, 7, 9), test=(2, 4, 6, 8, 10)),)
_NAME = re.compile(r"joints_(s(\d{1,3})_e(\d{1,3}))\.txt", re.ASCII | re.IGNORECASE)
_RECORDING = re.compile(r"s(\d{1,3})[ _]+e(\d{1,3})", re.ASCII | re.IGNORECASE)
_SEGMENT = re.compile(r"(\w+)\s*:\s*(\S+)\s+(\S+)", re.ASCII)

Segments = tuple[tuple[str, int, int], ...]


@dataclass
class UtKinectReader:
    """Recordings of UTKinect-Action3D in metres, one person; a corrected `actionLabel_modified.txt` goes first."""

    name: str = "utkinect"
    description: str = "UTKinect-Action3D: joints_s01_e01.txt files and actionLabel.txt"

    def sniff(self, path: Path) -> bool:
        file = first_file(path, ".txt") if path.is_file() else first_file(path, "_e01.txt", "_e02.txt")
        return file is not None and _NAME.fullmatch(file.name) is not None

    def info(self, path: Path) -> Info:
        return Info(KINECT_V1, 1, tuple(ACTIONS.values()), SPLITS, ("drop-empty", "centre"))

    def items(self, path: Path) -> Iterable[Item]:
        files = named_files(path, _NAME, "joints_s01_e01.txt")
        labels = _label_file(path)
        segments = read_segments(labels)
        if missing := [file for file in files if _recording(file) not in segments]:
            fault = f"it has no segments for '{missing[0].name}'"
            raise problem(labels, "", fault, "use the label file of this data set")
        return [Item(file, segments[_recording(file)]) for file in files]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        subject, repetition = _recording(item.path)
        segments: Segments | None = item.key
        if segments is None:
            segments = read_segments(_label_file(item.path)).get((subject, repetition), ())
        table = number_table(item.path, read_text(item.path), 61, "frame number and 20 joints")
        numbers, first = np.unique(table[:, 0], return_index=True)
        repeated = len(table) - len(first)
        repairs = (f"{repeated} repeated frame numbers in the recording left out",) if repeated else ()
        values = table[first, 1:].reshape(-1, 1, 20, 3)
        clips: list[Clip | Dropped] = []
        for action, start, end in segments:
            name = f"s{subject:02}_e{repetition:02}_{action}"
            chosen = (numbers >= start) & (numbers <= end)
            if start < 0:
                clips.append(Dropped(name, "the label file gives no frames for it", expected=True))
            elif not chosen.any():
                clips.append(Dropped(name, f"the recording has no frame from {start} to {end}"))
            else:
                frames = coordinates(values[chosen], item.path, f"segment '{action}'")
                label = list(ACTIONS).index(action)
                extra = {"repetition": repetition}
                clips.append(unless_empty(Clip(frames, name, label, subject, extra=extra, repairs=repairs)))
        return clips


def read_segments(path: Path) -> dict[tuple[int, int], Segments]:
    """{(subject, repetition): ((action, first frame, last frame), …)}; -1 for a segment without frames (`NaN NaN`)."""
    recordings: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    current: list[tuple[str, int, int]] | None = None
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        where = f"line {number}"
        if not line.strip():
            continue
        if recording := _RECORDING.fullmatch(line.strip()):
            key = (int(recording[1]), int(recording[2]))
            if key in recordings:
                raise problem(path, where, f"recording '{line.strip()}' comes twice", "remove one of the two")
            current = recordings[key] = []
            continue
        match = _SEGMENT.fullmatch(line.strip())
        if match is None or current is None:
            fault = f"{shown(line.strip())} is not a segment"
            raise problem(path, where, fault, "expected 's01 e01', then 'walk: 252 390'")
        action, *ends = match.groups()
        if action not in ACTIONS:
            raise problem(path, where, f"unknown class '{action}'", f"known are {', '.join(ACTIONS)}")
        if any(action == other for other, _, _ in current):
            raise problem(path, where, f"'{action}' comes twice in one recording", "remove one of the two")
        if [end.lower() for end in ends] == ["nan", "nan"]:
            current.append((action, -1, -1))
            continue
        start, end = (whole_number(end, path, where) for end in ends)
        if not 0 <= start <= end:
            raise problem(path, where, f"the segment runs from {start} to {end}", "give the first and the last frame")
        current.append((action, start, end))
    if not recordings:
        raise problem(path, "", "it holds no segments", "use the actionLabel.txt of the data set")
    return {key: tuple(segments) for key, segments in recordings.items()}


def _recording(path: Path) -> tuple[int, int]:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise problem(path, "", "the name tells no subject and repetition", "name it like joints_s01_e01.txt")
    return int(match[2]), int(match[3])


def _label_file(path: Path) -> Path:
    """The label file below the source or, for the folder `joints` or one of its files, beside it."""
    folder = path if path.is_dir() else path.parent
    above = folder.resolve().parent
    try:
        beside = [file for file in sorted(above.iterdir()) if file.is_file() and not leads_out(file, above)]
    except OSError:
        beside = []
    files = [file for file in (*walk(folder), *beside) if file.name.lower().startswith("actionlabel")]
    if not files:
        fault = "there is no actionLabel.txt in it or beside it"
        raise problem(path, "", fault, "put the label file of the data set there")
    return next((file for file in files if "modified" in file.name.lower()), files[0])


register_reader(UtKinectReader())
