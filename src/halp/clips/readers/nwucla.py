"""NW-UCLA: one JSON file per sequence, `a01_s01_e00_v01.json`, twenty Kinect-v1 joints in metres, one person."""

from __future__ import annotations

from pathlib import Path

from halp.clips.clip import Frames
from halp.clips.readers import register_reader
from halp.clips.readers.named_files import NamedDataset, NamedFileReader
from halp.clips.source_files import first_file, read_json
from halp.clips.splits import Split
from halp.clips.text_files import coordinates, json_numbers, problem

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


class NwUclaReader(NamedFileReader):
    """The JSON files of Northwestern-UCLA Multiview Action3D as the CTR-GCN line of work uses them."""

    dataset = NamedDataset(
        "NW-UCLA",
        "a01_s01_e00_v01",
        ".json",
        CLASSES,
        SPLITS,
        ("action", "subject", "repetition", "camera"),
        ("drop-empty", "centre", "rotate-mean"),
    )

    def sniff(self, path: Path) -> bool:
        found = first_file(path, self.dataset.ending)
        return found is not None and self.dataset.pattern.fullmatch(found.name) is not None

    def load(self, path: Path) -> tuple[Frames, tuple[str, ...]]:
        data = read_json(path)
        if not isinstance(data, dict) or "skeletons" not in data:
            raise problem(path, "", "it has no key 'skeletons'", "check that this is an NW-UCLA file")
        skeletons = json_numbers(data["skeletons"], (None, 20, 3), path, "key 'skeletons'")
        return coordinates(skeletons, path, "key 'skeletons'"), ()


register_reader(NwUclaReader("nw-ucla", "NW-UCLA: a folder of a01_s01_e00_v01.json files"))
