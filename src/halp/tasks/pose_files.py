"""Pose files: TRC for OpenSim, BVH for animation, netCDF for `movement`; a file per person of a recording."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from typing_extensions import Unpack

from halp.core.errors import InputError, check_choice
from halp.core.files import atomic_path, write_text
from halp.data.reading import Reading, ReadingKeywords
from halp.data.spans import stem
from halp.data.text_files import safe_name
from halp.features.source import AnySource
from halp.tasks.events.cells import needed
from halp.tasks.pose_archives import write_bids, write_nwb
from halp.tasks.pose_tracks import Floats, PoseTrack, filled, read_poses

FORMATS = ("trc", "bvh", "nc", "nwb", "bids")
_FLAT = ("nc", "nwb", "bids")  # formats that hold two dimensions as well


def poses(
    source: AnySource,
    out: str | os.PathLike[str],
    *,
    to: str = "trc",
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> list[Path]:
    """Write poses for other programs: TRC (OpenSim), BVH (animation), netCDF, NWB or Motion-BIDS.

    A file per person; Motion-BIDS is one data set with a folder per participant.

    Parameters
    ----------
    source : source
        A store, or recordings of any format; TRC and BVH need three dimensions.
    out : path
        The folder to write to.
    to : str
        trc, bvh, nc, nwb (with the extra nwb) or bids.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields.

    Returns
    -------
    list of path
        The files.
    """
    return write_poses(read_poses(source, reading, **keywords), Path(out), to)


def write_poses(people: Iterable[PoseTrack], folder: Path, file_format: str) -> list[Path]:
    """Write every person to a file named after the recording; units stay the same (mostly metres)."""
    check_choice("format of poses", file_format, FORMATS)
    if file_format == "bids":
        try:
            return write_bids(people, folder)
        except OSError as error:
            raise InputError(f"'{folder}' cannot be written ({error}); choose another path") from error
    paths: list[Path] = []
    for poses in people:
        if poses.topology.dimensions != 3 and file_format not in _FLAT:
            raise InputError(f"'{poses.recording}' has poses of two dimensions; {file_format} needs three")
        name = stem(safe_name(poses.recording, folder, "")) + (
            f"-person{poses.person + 1}" if poses.person else ""
        )
        path = folder / f"{name}.{file_format}"
        if path in paths:
            raise InputError(f"two recordings would be called '{path.name}'; write them to separate folders")
        try:
            if file_format in ("nc", "nwb"):
                (write_netcdf if file_format == "nc" else write_nwb)(path, poses)
            else:
                write_text(path, trc(poses, path.name) if file_format == "trc" else bvh(poses))
        except OSError as error:
            raise InputError(f"'{path}' cannot be written ({error}); choose another path") from error
        paths.append(path)
    return paths


def trc(poses: PoseTrack, name: str) -> str:
    """Marker trajectories as text; a missing marker is an empty cell."""
    rate, frames, joints = f"{poses.fps:.6g}", len(poses.joints), poses.topology.joints
    lines = [
        f"PathFileType\t4\t(X/Y/Z)\t{name}",
        "DataRate\tCameraRate\tNumFrames\tNumMarkers\tUnits\tOrigDataRate\tOrigDataStartFrame\tOrigNumFrames",
        f"{rate}\t{rate}\t{frames}\t{len(joints)}\tm\t{rate}\t1\t{frames}",
        "Frame#\tTime\t" + "\t\t\t".join(joints) + "\t\t",
        "\t\t" + "\t".join(f"{axis}{number}" for number in range(1, len(joints) + 1) for axis in "XYZ"),
    ]
    for number, (time, frame) in enumerate(zip(poses.times, poses.joints), start=1):
        cells = ("" if np.isnan(value) else f"{value:.6f}" for value in frame.ravel())
        lines.append("\t".join([str(number), f"{time:.6f}", *cells]))
    return "\n".join(lines) + "\n"


def write_netcdf(path: Path, poses: PoseTrack) -> None:
    """A data set of `movement` with one individual; a missing joint is NaN and has the confidence 0."""
    h5netcdf = needed("h5netcdf", "formats")
    axes = {"space": list("xyz"[: poses.topology.dimensions]), "keypoints": list(poses.topology.joints)}
    names = {**axes, "individuals": [f"person{poses.person + 1}"]}
    with atomic_path(path) as partial, h5netcdf.File(partial, "w") as file:
        file.dimensions = {"time": len(poses.joints), **{axis: len(values) for axis, values in names.items()}}
        file.create_variable("time", ("time",), data=np.asarray(poses.times, dtype=np.float64))
        for axis, values in names.items():
            text = needed("h5py", "formats").string_dtype()
            file.create_variable(axis, (axis,), data=np.array(values, dtype=object), dtype=text)
        position = np.asarray(poses.joints, dtype=np.float64).transpose(0, 2, 1)[..., None]
        file.create_variable("position", ("time", "space", "keypoints", "individuals"), data=position)
        there = np.isfinite(position).all(axis=1).astype(np.float64)
        file.create_variable("confidence", ("time", "keypoints", "individuals"), data=there)
        file.attrs.update(ds_type="poses", source_software="halp", fps=float(poses.fps), time_unit="seconds")


def bvh(poses: PoseTrack) -> str:
    """A skeleton with rotations as text. Bones have median lengths and rotate from the first pose.

    A bone alone at a joint is turned by the smallest rotation, several by the best common one. Gaps are
    filled.
    """
    topology, joints = poses.topology, filled(poses.joints)
    children: list[list[int]] = [[] for _ in topology.joints]
    for child, parent in topology.bones:
        children[parent].append(child)
    roots = [joint for joint, parent in enumerate(topology.parents) if joint == parent]
    if len(roots) != 1:
        raise InputError(
            f"topology '{topology.name}' has {len(roots)} roots; a BVH file has one, map it to another layout"
            " first"
        )
    order = [roots[0]]
    for joint in order:
        order += children[joint]
    offsets = np.zeros((len(topology), 3))
    for child, parent in topology.bones:
        vectors = joints[:, child] - joints[:, parent]
        lengths = np.linalg.norm(vectors, axis=1)
        offsets[child] = vectors[0] / max(lengths[0], 1e-12) * np.median(lengths)
    world = np.zeros((len(topology), len(joints), 3, 3))
    local = np.zeros_like(world)
    for joint in order:
        before = (
            world[topology.parents[joint]] if joint != roots[0] else np.tile(np.eye(3), (len(joints), 1, 1))
        )
        bones = [(offsets[child], joints[:, child] - joints[:, joint]) for child in children[joint]]
        bones = [(rest, now) for rest, now in bones if np.linalg.norm(rest) > 1e-9]
        world[joint] = before if not bones else _turned(before, bones)
        local[joint] = np.swapaxes(before, 1, 2) @ world[joint]
    lines = ["HIERARCHY"]

    def describe(joint: int, depth: int) -> None:
        pad = "  " * depth
        lines.append(f"{pad}{'JOINT' if depth else 'ROOT'} {topology.joints[joint]}")
        lines.append(f"{pad}{{")
        lines.append(f"{pad}  OFFSET {' '.join(f'{v:.6f}' for v in offsets[joint])}")
        place = "" if depth else "Xposition Yposition Zposition "
        lines.append(f"{pad}  CHANNELS {3 if depth else 6} {place}Zrotation Xrotation Yrotation")
        for child in children[joint]:
            describe(child, depth + 1)
        if not children[joint]:
            lines.extend([f"{pad}  End Site", f"{pad}  {{", f"{pad}    OFFSET 0 0 0", f"{pad}  }}"])
        lines.append(f"{pad}}}")

    describe(roots[0], 0)
    depth_first = [
        topology.joints.index(line.split()[1]) for line in lines if line.split()[0] in ("ROOT", "JOINT")
    ]
    angles = np.concatenate([_euler(local[joint]) for joint in depth_first], axis=1)
    motion = np.concatenate([joints[:, roots[0]], angles], axis=1)
    lines += ["MOTION", f"Frames: {len(joints)}", f"Frame Time: {1 / poses.fps:.8f}"]
    lines += [" ".join(f"{value:.5f}" for value in row) for row in motion]
    return "\n".join(lines) + "\n"


def _turned(before: Floats, bones: list[tuple[Floats, Floats]]) -> Floats:
    """Rotations `(T, 3, 3)` of bones from rest to their positions, relative to the parent's rotation."""
    if len(bones) == 1:
        rest, now = bones[0]
        a, b = (
            before @ (rest / np.linalg.norm(rest)),
            now / np.maximum(np.linalg.norm(now, axis=1, keepdims=True), 1e-12),
        )
        axis, cosine = np.cross(a, b), (a * b).sum(1)
        cross = np.zeros((len(a), 3, 3))
        cross[:, [2, 0, 1], [1, 2, 0]], cross[:, [1, 2, 0], [2, 0, 1]] = axis, -axis
        # a bone that turns right round has no smallest rotation; half a millionth keeps the formula finite
        smallest = np.eye(3) + cross + cross @ cross / np.maximum(1 + cosine, 5e-7)[:, None, None]
        return smallest @ before
    spread = sum(np.einsum("ti,j->tij", now, rest) for rest, now in bones)
    u, _, v = np.linalg.svd(np.asarray(spread) + 1e-9 * before)
    u[..., -1] *= np.sign(np.linalg.det(u @ v))[:, None]
    return np.asarray(u @ v)


def _euler(rotations: Floats) -> Floats:
    """Angles `(T, 3)` in degrees about z, x and y, in the order of the channels."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_matrix(rotations).as_euler("ZXY", degrees=True))
