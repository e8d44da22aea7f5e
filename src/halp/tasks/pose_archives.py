"""Poses for archives: Motion-BIDS, tables by participant, and NWB with ndx-pose, a file per person."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import atomic_path, write_csv, write_json, write_text
from halp.tasks.events.cells import needed
from halp.tasks.pose_tracks import PoseTrack

BIDS_VERSION = "1.10.0"
_AXES = ("x", "y", "z")


def write_bids(people: Iterable[PoseTrack], folder: Path) -> list[Path]:
    """A Motion-BIDS data set: joint positions by participant, task (the recording) and run; NaN is n/a.

    A participant is the subject of a recording, or the recording where subjects are not known. `scans.tsv`
    has the names of recordings as they were, since labels of BIDS are letters and digits only.
    """
    if (folder / "dataset_description.json").exists():
        raise InputError(f"'{folder}' holds a data set of BIDS already; choose an empty folder")
    paths: list[Path] = []
    runs: Counter[tuple[str, str]] = Counter()
    scans: dict[str, list[dict[str, Any]]] = {}
    for poses in people:
        participant = _label(poses.subject or poses.recording) + (
            f"p{poses.person + 1}" if poses.person else ""
        )
        task = _label(poses.recording)
        runs[participant, task] += 1
        stem = f"sub-{participant}_task-{task}_tracksys-pose_run-{runs[participant, task]:02}"
        place = folder / f"sub-{participant}" / "motion"
        write_text(place / f"{stem}_motion.tsv", _table(poses))
        write_csv(place / f"{stem}_channels.tsv", list(_channels(poses)[0]), _channels(poses), delimiter="\t")
        write_json(place / f"{stem}_motion.json", _sidecar(poses, task))
        paths.append(place / f"{stem}_motion.tsv")
        row = {
            "filename": f"motion/{stem}_motion.tsv",
            "recording": poses.recording,
            "person": poses.person + 1,
        }
        scans.setdefault(participant, []).append(row)
    if not paths:
        raise InputError("there are no poses to write")
    for participant, rows in scans.items():
        name = f"sub-{participant}"
        write_csv(folder / name / f"{name}_scans.tsv", list(rows[0]), rows, delimiter="\t")
    described = {
        "recording": {"Description": "Name of the recording before it was written as BIDS"},
        "person": {"Description": "Number of the person in the recording, from 1"},
    }
    write_json(folder / "scans.json", described)
    people_rows = [{"participant_id": f"sub-{name}"} for name in scans]
    write_csv(folder / "participants.tsv", ["participant_id"], people_rows, delimiter="\t")
    write_text(
        folder / "README",
        "Positions of joints, written by halp. Units are as recorded (metres for most formats).\n",
    )
    facts = {"Name": "Poses", "BIDSVersion": BIDS_VERSION, "DatasetType": "raw", "Authors": ["unknown"]}
    write_json(
        folder / "dataset_description.json",
        facts | {"GeneratedBy": [{"Name": "halp", "Version": __version__}]},
    )
    return paths


def _label(name: str) -> str:
    """Letters and digits of a name, as BIDS labels require."""
    return re.sub(r"[^A-Za-z0-9]", "", name) or "unnamed"


def _table(poses: PoseTrack) -> str:
    rows = poses.joints.reshape(len(poses.joints), -1)
    return "\n".join("\t".join("n/a" if np.isnan(v) else f"{v:.6f}" for v in row) for row in rows) + "\n"


def _channels(poses: PoseTrack) -> list[dict[str, Any]]:
    unit = "m" if poses.topology.dimensions == 3 else "n/a"
    return [
        {"name": f"{joint}_{axis}", "component": axis, "type": "POS", "tracked_point": joint, "units": unit}
        | {"sampling_frequency": f"{poses.fps:.6g}"}
        for joint in poses.topology.joints
        for axis in _AXES[: poses.topology.dimensions]
    ]


def _sidecar(poses: PoseTrack, task: str) -> dict[str, Any]:
    count = len(poses.topology.joints) * poses.topology.dimensions
    return {
        "TaskName": task,
        "TaskDescription": f"Recording {poses.recording}",
        "SamplingFrequency": round(poses.fps, 6),
        "SamplingFrequencyEffective": round(poses.fps, 6),
        "TrackingSystemName": "pose",
        "RecordingType": "continuous",
        "RecordingDuration": round(len(poses.joints) / poses.fps, 6),
        "MotionChannelCount": count,
        "TrackedPointsCount": len(poses.topology.joints),
        "POSChannelCount": count,
        "MissingValues": "n/a",
        "SoftwareVersions": f"halp {__version__}",
    }


def write_nwb(path: Path, poses: PoseTrack) -> None:
    """An NWB file with a skeleton and positions per joint (ndx-pose); missing: NaN, confidence 0.

    The time of day of a recording is not known to halp and stands as 1970.
    """
    pynwb, ndx_pose = needed("pynwb", "nwb"), needed("ndx_pose", "nwb")
    name = poses.subject or poses.name
    file = pynwb.NWBFile(
        session_description=(
            f"Poses of {poses.name}; the date of the recording is not known and stands as 1970"
        ),
        identifier=poses.name,
        session_start_time=datetime(1970, 1, 1, tzinfo=timezone.utc),
    )
    file.subject = pynwb.file.Subject(
        subject_id=name, description="person recorded", species="Homo sapiens", age="P0D/", sex="U"
    )
    topology = poses.topology
    edges = np.array(topology.bones, dtype="uint8").reshape(-1, 2)
    skeleton = ndx_pose.Skeleton(name=topology.name, nodes=list(topology.joints), edges=edges)
    unit = "meters" if topology.dimensions == 3 else "image coordinates"
    series = [
        ndx_pose.PoseEstimationSeries(
            name=joint,
            data=poses.joints[:, place],
            unit=unit,
            description=f"position of {joint} in every frame",
            reference_frame="axes and origin as recorded",
            rate=float(poses.fps),
            starting_time=float(poses.start),
            confidence=np.isfinite(poses.joints[:, place].sum(axis=1)).astype(float),
            confidence_definition="1 where the joint was seen, 0 if it is missing",
        )
        for place, joint in enumerate(topology.joints)
    ]
    module = file.create_processing_module("behavior", "poses of one person")
    module.add(ndx_pose.Skeletons(skeletons=[skeleton]))
    module.add(
        ndx_pose.PoseEstimation(
            name="PoseEstimation",
            pose_estimation_series=series,
            description=f"Positions of joints, layout {topology.name}",
            source_software="halp",
            source_software_version=__version__,
            skeleton=skeleton,
        )
    )
    with atomic_path(path) as partial, pynwb.NWBHDF5IO(str(partial), "w") as output:
        output.write(file)
