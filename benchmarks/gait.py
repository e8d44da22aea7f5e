"""`python -m benchmarks.gait FOLDER`: foot contacts and stride times against the events that laboratories wrote
into their files.

FOLDER holds C3D files of marker-based gait analysis with events (`Foot Strike`, `Foot Off`, by side), such as
the samples of c3d.org and of Plug-in Gait that the repository `Biomechanical-ToolKit/BTKData` collects. The
method reads the markers only. Every event of a file is compared with the nearest of the same kind and side
that was found; files that hold the same events as another one count once. For stride times, both ends are
events. Written to `results/gait.json`. `--clips FOLDER` counts strides in
clips without events and adds the counts to that file.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.signal import find_peaks

from benchmarks.harness import RESULTS
from halp.core.errors import InputError
from halp.data.readers.markers import Parameters, _parameters
from halp.evaluation.results import versions
from halp.skeleton import topology_for
from halp.tasks.body_frame import body_frame
from halp.tasks.foot_contacts import SIDES
from halp.tasks.gait import Gait, find_gait
from halp.tasks.pose_tracks import PoseTrack, filled, read_poses

Times = dict[tuple[str, str], np.ndarray]
KINDS = {"foot strike": "contacts", "foot off": "toe_offs"}
FAR = 0.15  # seconds beyond which an event of the file was not found


def file_events(path: Path) -> Times:
    """Events of a C3D file by kind and side, in seconds of its first frame."""
    data = path.read_bytes()
    order = {86: ">", 85: "dec"}.get(data[(data[0] - 1) * 512 + 3], "<")
    found = Parameters(_parameters(data, (data[0] - 1) * 512, order, path))
    if ("EVENT", "TIMES") not in found:
        return {}
    texts = {
        name: [row.tobytes().decode("latin-1").strip(" \0").lower() for row in found["EVENT", name]]
        for name in ("LABELS", "CONTEXTS")
    }
    first, rate = np.frombuffer(data, "<u2", 1, 6)[0], found["POINT", "RATE"].ravel()[0]
    times = found["EVENT", "TIMES"].reshape(-1, 2) @ [60, 1] - (first - 1) / rate
    result: dict[tuple[str, str], list[float]] = {}
    for label, side, moment in zip(texts["LABELS"], texts["CONTEXTS"], times):
        if label in KINDS and moment >= -1e-6:  # some files keep empty events at 0
            result.setdefault((KINDS[label], side), []).append(round(float(moment), 4))
    return {key: np.array(sorted(values)) for key, values in result.items()}


def compare(found: Gait, events: Times) -> dict[str, Any]:
    """Differences in seconds of events, and of stride times between events that were found."""
    rows: dict[str, Any] = {"contacts": [], "toe_offs": [], "stride_time": [], "missed": 0, "strides": []}
    for (kind, side), truth in events.items():
        own = np.asarray(getattr(found, kind)[side])
        near = [float(own[np.abs(own - t).argmin()]) if len(own) else np.inf for t in truth]
        hit = [n if abs(n - t) <= FAR else None for n, t in zip(near, truth)]
        rows["missed"] += sum(n is None for n in hit)
        rows[kind] += [n - float(t) for n, t in zip(hit, truth) if n is not None]
        if kind == "contacts":
            for a, b, first, last in zip(hit, hit[1:], truth, truth[1:]):
                rows["strides"].append(float(last - first))
                if a is not None and b is not None:
                    rows["stride_time"].append((b - a) - float(last - first))
    return rows


def spread(values: list[float]) -> dict[str, Any]:
    known = 1000 * np.array(values)
    return {
        "n": len(known),
        "mean_ms": round(float(known.mean()), 1),
        "median_absolute_ms": round(float(np.median(np.abs(known))), 1),
        "largest_ms": round(float(np.abs(known).max()), 1),
    }


def ankle_contacts(poses: PoseTrack) -> np.ndarray:
    """Seconds at which the ankles are furthest apart along the ground, which is near a contact of either foot;
    hips, heels and the direction of walking play no part.
    """
    joints = filled(poses.joints)
    apart = np.subtract(*(joints[:, poses.topology.index(f"ankle_{side}")] for side in SIDES))
    up = int(np.abs(body_frame(poses).up[0]).argmax())
    way = gaussian_filter1d(np.linalg.norm(np.delete(apart, up, axis=1), axis=1), 0.05 * poses.fps)
    found = find_peaks(way, prominence=0.3 * np.subtract(*np.percentile(way, [95, 5])))[0]
    return poses.times[found]


def against_ankles(found: Gait) -> tuple[int, int, list[float]]:
    """Contacts found, maxima of the ankle distance, and seconds from each stride's time to theirs."""
    truth, own = ankle_contacts(found.poses), np.concatenate([found.contacts[side] for side in SIDES])
    off = []
    for stride in found.strides:
        near = [
            float(truth[np.abs(truth - t).argmin()]) if len(truth) else np.inf
            for t in (stride.start, stride.stop)
        ]
        if max(abs(near[0] - stride.start), abs(near[1] - stride.stop)) <= FAR:
            off.append(stride.stride_time - (near[1] - near[0]))
    return len(own), len(truth), off


def count_clips(folder: Path) -> dict[str, Any]:
    """Clips of walking and of other actions that have strides, in four Kinect sets (`NAME.npz`), and in those
    of walking the contacts beside maxima of the ankle distance; frame rates of three sets are not stated and assumed.
    """
    result: dict[str, Any] = {}
    for name, fps, every in (
        ("utkinect", 15.0, 1),
        ("utd-mhad", 30.0, 4),
        ("nw-ucla", 12.0, 2),
        ("msr-action3d", 15.0, 4),
    ):
        data = np.load(folder / f"{name}.npz")
        topology = topology_for([str(joint) for joint in data["joint_names"]], 3)
        clips = np.split(data["joints"][:, 0].astype(float), data["offsets"][1:-1])
        walks: list[tuple[int, int, list[float]]] = []
        counts = {"walking": 0, "other": 0, "other with strides": 0}
        for clip, label in list(zip(clips, data["labels"]))[::every]:
            action = str(data["class_names"][label])
            if len(clip) < 8 or action in ("carry", "jog", "jogging"):
                continue
            clip[(clip == 0).all(axis=2)] = np.nan
            found = find_gait(PoseTrack(name, 0, clip, topology, fps))
            kind = "walking" if action.startswith("walk") else "other"
            counts[kind] += 1
            if found.strides and kind == "walking":
                walks.append(against_ankles(found))
            elif found.strides:
                counts["other with strides"] += 1
        result[name] = {**counts, "walking with strides": len(walks)}
        if walks:
            away = np.array([own - truth for own, truth, _ in walks])
            times = [value for *_, values in walks for value in values]
            result[name] |= {
                "contacts less maxima": round(float(away.mean()), 2),
                "within one contact": round(float((np.abs(away) <= 1).mean()), 3),
                "stride_time": spread(times),
            }
        print(name, result[name])
    return result


def main() -> None:
    """Compare and print a row per file."""
    warnings.simplefilter("ignore")
    if sys.argv[1] == "--clips":
        return _write({"clips": count_clips(Path(sys.argv[2]))})
    folder, results, known = Path(sys.argv[1]), {}, set()
    for path in sorted(folder.rglob("*.[cC]3[dD]")):
        try:
            events = file_events(path)
            identity = str({side: events.get(("contacts", side), np.zeros(0)).tolist() for side in SIDES})
            if sum(map(len, events.values())) < 4 or identity in known:
                continue
            known.add(identity)
            (poses,) = read_poses(path)
            if not np.isfinite(poses.joints).any():  # damaged on purpose: no point was ever seen
                continue
            results[path.name] = compare(find_gait(poses), events)
        except (InputError, IndexError, ValueError, KeyError) as error:
            print(f"{path.name}: {str(error).splitlines()[0]}")
    for name, row in results.items():
        print(
            f"{name:34} events {sum(len(row[k]) for k in KINDS.values())} + {row['missed']} missed;"
            f" contacts {spread(row['contacts']) if row['contacts'] else '–'};"
            f" strides {np.round(row['strides'], 2).tolist()}, off by"
            f" {np.round(1000 * np.array(row['stride_time'])).tolist()} ms"
        )
    whole = {
        kind: spread([v for row in results.values() for v in row[kind]])
        for kind in ("contacts", "toe_offs", "stride_time")
    }
    whole["missed"] = sum(row["missed"] for row in results.values())
    print(whole)
    _write({"sides": SIDES, "all": whole, "files": results})


def _write(measured: dict[str, Any]) -> None:
    path = RESULTS / "gait.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(
        json.dumps({**kept, **measured, "versions": versions()}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
