"""OpenPose: a folder of `*_keypoints.json`, one file per frame, BODY_25 or COCO-18 in pixels, persons followed over frames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.detections import DetectionReader
from halp.clips.readers.sources import Entry, class_folders, clip_name, runs
from halp.clips.source_files import find_files, first_file, read_json
from halp.clips.text_files import checked_scores, coordinates, json_numbers, problem
from halp.clips.tracking import Detection
from halp.skeleton import Topology, get_topology

_SUFFIX = "_keypoints.json"
_NAME = re.compile(r"(?P<clip>.*?)_?(?P<frame>\d{1,15})_keypoints\.json", re.ASCII | re.IGNORECASE)
_KEYS = ("pose_keypoints_2d", "pose_keypoints")
_SIZES = {75: "openpose-25", 54: "openpose-18"}


class OpenPoseReader(DetectionReader):
    """Files of one folder with the same beginning are one clip; folders below the source are taken as classes."""

    def sniff(self, path: Path) -> bool:
        return first_file(path, _SUFFIX) is not None

    def info(self, path: Path) -> Info:
        files = find_files(path, _SUFFIX)
        return self.source_info(_topology(files), _classes(files, path))

    def items(self, path: Path) -> Iterable[Item]:
        files = find_files(path, _SUFFIX)
        topology, classes, groups = _topology(files), _classes(files, path), runs(files, _NAME)
        if not groups:
            raise problem(
                path, "", "no name ends with a frame number", "expected names like walk_000000000012_keypoints.json"
            )
        root = path if path.is_dir() else path.parent
        for (folder, prefix), group in groups.items():
            # A run without a prefix is called after its folder.
            name = clip_name(folder / f"{prefix}.json", root) if prefix else clip_name(folder / "_", root.parent)[:-2]
            label = classes.index(folder.relative_to(root).parts[0]) if classes else -1
            yield Item(folder, Entry(name or "clip", label, topology, tuple(file.name for file in group)))

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        entry = item.key if isinstance(item.key, Entry) else next(iter(self.items(item.path))).key
        topology = entry.topology or _topology([item.path / file for file in entry.files])
        frames = [self._people(item.path / file, topology) for file in entry.files]
        return [self.clip(frames, entry, topology)]

    def _people(self, path: Path, topology: Topology) -> list[Detection]:
        found = []
        for index, person in enumerate(_persons(path)):
            where = f"person {index}"
            values = _values(person, path, where)
            if len(values) != 3 * len(topology):
                what = f"{len(values)} numbers instead of the {3 * len(topology)} of '{topology.name}'"
                raise problem(path, where, what, "prepare layouts one by one")
            table = values.reshape(-1, 3)
            joints = coordinates(table[:, :2], path, where, axis="joint")
            scores = checked_scores(table[:, 2], path, where)
            joints = self.sure_joints(joints, scores)
            identity = person.get("person_id", [-1])
            known = isinstance(identity, list) and len(identity) == 1 and type(identity[0]) is int
            score = float(np.clip(scores, 0, 1).mean())
            found.append(Detection(joints, score, identity[0] if known else -1))
        return found


def _classes(files: Sequence[Path], path: Path) -> tuple[str, ...]:
    """Classes are folders that hold folders or several runs; a folder per clip is not a class."""
    root = path if path.is_dir() else path.parent
    groups = runs(files, _NAME)
    deep = all(len(folder.relative_to(root).parts) > 1 for folder, _ in groups)
    several = len({folder for folder, _ in groups}) < len(groups)
    return class_folders(files, root) if groups and (deep or several) else ()


def _topology(files: Sequence[Path]) -> Topology:
    """The layout of the first person in the first files."""
    for path in files[:1000]:
        for index, person in enumerate(_persons(path)):
            size = len(_values(person, path, f"person {index}"))
            if size not in _SIZES:
                what = f"{size} numbers are neither BODY_25 (75) nor COCO-18 (54)"
                raise problem(path, f"person {index}", what, "write the keypoints with one of these models")
            return get_topology(_SIZES[size])
    raise problem(files[0], "key 'people'", "nobody is in it, nor in the files that follow", "leave this source out")


def _persons(path: Path) -> list[dict[str, Any]]:
    data = read_json(path)
    people = data.get("people") if isinstance(data, dict) else None
    if not isinstance(people, list) or not all(isinstance(person, dict) for person in people):
        raise problem(path, "key 'people'", "it is not a list of persons", "check that this is an OpenPose file")
    return people


def _values(person: dict[str, Any], path: Path, where: str) -> Any:
    key = next((key for key in _KEYS if person.get(key)), None)
    if key is None:
        raise problem(path, where, f"it has no '{_KEYS[0]}'", "write 2D keypoints of the body")
    return json_numbers(person[key], (None,), path, f"{where}, key '{key}'")


register_reader(OpenPoseReader("openpose", "OpenPose: folders of *_keypoints.json (BODY_25 or COCO-18)"))
