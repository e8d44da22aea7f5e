"""YOLO keypoints as text: one file per frame, one line per person with class, box and 17 keypoints, normalised to the picture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.detections import DetectionReader
from halp.clips.readers.sources import Entry, class_folders, clip_name, runs
from halp.clips.source_files import find_files, first_file, head, read_text
from halp.clips.text_files import checked_scores, coordinates, number, problem
from halp.clips.tracking import Detection
from halp.skeleton import get_topology

COCO_17 = get_topology("coco-17")
_FRAME = re.compile(r"(?P<clip>.*?)[_-]?(?P<frame>\d{1,15})\.txt", re.ASCII | re.IGNORECASE)
# Class and box, 17 keypoints with or without visibility, and perhaps a confidence, a track, or both.
_WIDTHS = {5 + 17 * size + more: size for size in (2, 3) for more in (0, 1, 2)}


@dataclass
class YoloReader(DetectionReader):
    """Files of a folder that differ only in a frame number are one clip (`walk_1.txt`, `walk_2.txt`, …).

    `aspect` (width / height) of the picture evens out the normalised coordinates.
    """

    aspect: float = 1.0

    def sniff(self, path: Path) -> bool:
        found = first_file(path, ".txt")
        if found is None or _FRAME.fullmatch(found.name) is None:
            return False
        words = head(found, 65536).split(b"\n")[0].split()
        try:
            values = [float(word) for word in words]
        except ValueError:
            return False
        return len(words) in _WIDTHS and values[0].is_integer() and all(0 <= value <= 1 for value in values[1:5])

    def info(self, path: Path) -> Info:
        return self.source_info(COCO_17, class_folders(find_files(path, ".txt"), path))

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, ".txt")
        classes, groups = class_folders(files, path), runs(files, _FRAME)
        if not groups:
            raise problem(path, "", "no name ends with a frame number", "expected names like walk_12.txt")
        root = path if path.is_dir() else path.parent
        for (folder, prefix), group in groups.items():
            name = clip_name(folder / f"{prefix or folder.name}.txt", root)
            label = classes.index(folder.relative_to(root).parts[0]) if classes else -1
            yield Item(folder, Entry(name, label, COCO_17, tuple(file.name for file in group)))

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = item.key if isinstance(item.key, Entry) else next(iter(self.items(item.path))).key
        numbers = [int(match["frame"]) for file in entry.files if (match := _FRAME.fullmatch(file))]
        # A frame with nobody has no file; such gaps stay, so that time runs evenly.
        length = numbers[-1] - numbers[0] + 1
        if length > 1000 * len(numbers):
            what = f"frames go from {numbers[0]} to {numbers[-1]}"
            raise problem(item.path, "", f"{what}, but only {len(numbers)} are there", "name the files by frame number")
        frames: list[list[Detection]] = [[] for _ in range(length)]
        for at, file in zip(numbers, entry.files):
            frames[at - numbers[0]] = self._people(item.path / file)
        return [self.clip(frames, entry, COCO_17)]

    def _people(self, path: Path) -> list[Detection]:
        people = []
        for at, line in enumerate(read_text(path).split("\n"), start=1):
            words = line.split()
            if not words:
                continue
            where = f"line {at}"
            if len(words) not in _WIDTHS:
                what = f"{len(words)} numbers are not class, box and 17 keypoints"
                raise problem(path, where, what, "write keypoints with a pose model")
            values = np.array([number(word, path, where) for word in words])
            size = _WIDTHS[len(words)]
            table = values[5 : 5 + 17 * size].reshape(17, size)
            more = values[5 + 17 * size :]
            places = coordinates(table[:, :2] * [self.aspect, 1.0], path, where, axis="joint")
            scores = checked_scores(table[:, 2], path, where) if size == 3 else np.ones(17)
            joints = self.sure_joints(places, scores)
            # A single further number up to 1 is a confidence; a track has a whole number.
            tracked = (
                len(more) and float(more[-1]).is_integer() and (len(more) == 2 or more[-1] > 1) and more[-1] < 2**53
            )
            people.append(Detection(joints, float(scores.mean()), int(more[-1]) if tracked else -1))
        return people


register_reader(YoloReader("yolo", "YOLO keypoint text files, one per frame (17 COCO keypoints)"))
