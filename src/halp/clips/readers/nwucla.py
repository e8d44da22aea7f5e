"""NW-UCLA: one JSON file a sequence, `a01_s01_e00_v01.json`, twenty Kinect-v1 joints in metres, one person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.sources import named_files
from halp.clips.source_files import first_file, read_json
from halp.clips.splits import Split
from halp.clips.text_files import coordinates, json_numbers, problem, unless_empty
from halp.skeleton import KINECT_V1

CLASSES = {
    1: "pick up with one hand",
    2: "pick up with two hands",
    3: "drop trash",
    4: "walk around",
    5: "sit down",
    6: "stand up",
    8: "donning",
    9: "doffing",
    11: "throw",
    12: "carry",
}
SPLITS = (
    Split("xview", "camera", train=(1, 2), test=(3,)),
    Split("xview-2", "camera", train=(1, 3), test=(2,)),
    Split("xview-1", "camera", train=(2, 3), test=(1,)),
    Split("xsub", "subject", train=(1, 3, 5, 7, 9), test=(2, 4, 6, 8, 10)),
)
_NAME = re.compile(r"(a(\d{1,3})_s(\d{1,3})_e(\d{1,3})_v(\d{1,3}))\.json", re.ASCII | re.IGNORECASE)


@dataclass
class NwUclaReader:
    """The JSON files of Northwestern-UCLA Multiview Action3D as the CTR-GCN line of work uses them."""

    name: str = "nw-ucla"
    description: str = "NW-UCLA: a folder of a01_s01_e00_v01.json files"

    def sniff(self, path: Path) -> bool:
        found = first_file(path, ".json")
        return found is not None and _NAME.fullmatch(found.name) is not None

    def info(self, path: Path) -> Info:
        return Info(
            KINECT_V1,
            class_names=tuple(CLASSES.values()),
            splits=SPLITS,
            normalisation=("drop-empty", "centre", "rotate-mean"),
        )

    def items(self, path: Path) -> Iterable[Item]:
        return [Item(file) for file in named_files(path, _NAME, "a01_s01_e00_v01.json")]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        match = _NAME.fullmatch(item.path.name)
        if match is None:
            raise problem(
                item.path, "", "the name tells no action, subject and view", "name it like a01_s01_e00_v01.json"
            )
        action, subject, repetition, camera = map(int, match.groups()[1:])
        if action not in CLASSES:
            raise problem(
                item.path,
                "",
                f"action {action} is not a class of NW-UCLA ({', '.join(map(str, CLASSES))})",
                "leave it out",
            )
        data = read_json(item.path)
        if not isinstance(data, dict) or "skeletons" not in data:
            raise problem(item.path, "", "it has no key 'skeletons'", "check that this is an NW-UCLA file")
        skeletons = json_numbers(data["skeletons"], (None, 20, 3), item.path, "key 'skeletons'")
        frames = coordinates(skeletons, item.path, "key 'skeletons'")[:, None]
        clip = Clip(
            frames,
            match[1].lower(),
            label=list(CLASSES).index(action),
            subject=subject,
            camera=camera,
            extra={"repetition": repetition},
        )
        return [unless_empty(clip)]


register_reader(NwUclaReader())
