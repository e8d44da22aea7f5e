"""netCDF files of the `movement` package: `position` over time, space, keypoints and individuals, with `confidence`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import ClassVar

from halp.clips.readers import register_reader
from halp.clips.readers.pose_files import MOST_PERSONS, PeopleFileReader, Poses
from halp.clips.sandbox import column, object_names, read_hdf5
from halp.clips.text_files import as_floats, problem

# In which order the axes stand, today's first: t time, c space, v keypoints, p individuals.
_ORDERS = ("tcvp", "tpvc", *("".join(order) for order in itertools.permutations("tcvp")))


class MovementReader(PeopleFileReader):
    """One file per recording, in the netCDF-4 layout (which is HDF5)."""

    suffixes: ClassVar[tuple[str, ...]] = (".nc",)

    def looks_right(self, path: Path) -> bool:
        return {"position", "keypoints"} <= object_names(path)

    def load(self, path: Path) -> Poses:
        content = read_hdf5(
            path, ("position", "confidence", "keypoints", "keypoint", "space", "individuals", "individual")
        )
        joints = content.texts.get("keypoints", content.texts.get("keypoint"))
        space = content.texts.get("space", ["x", "y"])
        people = content.texts.get("individuals", content.texts.get("individual", [""]))
        position = column(content, "position", path, axes=4)
        sizes = {"c": len(space), "v": len(joints or ()), "p": len(people)}
        if not joints or len(space) not in (2, 3) or len(people) > MOST_PERSONS:
            fault = "keypoints, space or individuals are missing"
            raise problem(path, "", fault, "save it with movement's save_dataset")
        fitting = (
            axes for axes in _ORDERS if all(sizes.get(axis, size) == size for axis, size in zip(axes, position.shape))
        )
        order = next(fitting, None)
        if order is None:
            fault = f"its shape {position.shape} does not fit {len(joints)} keypoints of {len(people)} individuals"
            raise problem(path, "array 'position'", fault, "save it with movement's save_dataset")
        frames = position.transpose([order.index(axis) for axis in "tpvc"])
        scores = content.numbers.get("confidence")
        if scores is not None and scores.ndim == 3:
            scores = scores.transpose([order.replace("c", "").index(axis) for axis in "tpv"])
            scores = as_floats(scores) if scores.shape == frames.shape[:3] else None
        return Poses(joints, frames, scores, float(content.attributes.get("", {}).get("fps", "-1") or -1))


register_reader(MovementReader("movement", "netCDF files of the movement package (.nc)"))
