"""`python -m benchmarks.repetitions [--recordings N]`: how well repetitions are counted where their number is
known.

Made recordings: eleven actions of `benchmarks.exercises`, two to eight repetitions, with pauses, unequal
tempo, partial first and last ones, sway and sensor noise. Real poses: trials of one person and action of
UTD-MHAD and MSR-Action3D, each one repetition, joined with a short transition; actions that go one way or
repeat within a trial are left out. Thresholds were chosen on other seeds of the made recordings and on
UTD-MHAD; MSR-Action3D took no part in that. Jogging and walking of UTD-MHAD, which repeat within a trial, are
compared with another count: how often the difference of ankle heights changes its sign, by two. Mean absolute
error, share that is wrong by more than one, and share that is exact. The type-I error of the group test on
people without a difference is measured as well. Data is looked for in `HALP_SHARED/data`; written to
`results/repetitions.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.exercises import EXERCISES, synthetic_exercise
from benchmarks.harness import DATA, RESULTS
from halp.data.clip import present
from halp.evaluation.results import versions
from halp.skeleton import KINECT_V2, topology_for
from halp.tasks.group_tests import TESTS, compare_groups
from halp.tasks.pose_tracks import Floats, PoseTrack
from halp.tasks.repetitions import find_repetitions

# within a trial these go one way only, or repeat an unknown number of times
NOT_ONCE = (
    "wave clap knock boxing jog jogging walk sit-to-stand stand-to-sit high-arm-wave horizontal-arm-wave"
    " two-hand-wave hand-clap side-boxing hammer"
).split()


def made(count: int) -> Iterator[tuple[str, int, PoseTrack]]:
    """Recordings of every exercise with a known number of repetitions."""
    for action in EXERCISES:
        for seed in range(1000, 1000 + count):
            clip = synthetic_exercise(action, 2 + seed % 7, seed)
            joints = np.where(present(clip.frames)[:, 0, None, None], clip.frames[:, 0], np.nan).astype(float)
            yield action, 2 + seed % 7, PoseTrack(clip.name, 0, joints, KINECT_V2, clip.fps)


def trials(name: str, fps: float) -> Iterator[tuple[str, int, list[PoseTrack]]]:
    """Trials of every class and person."""
    data = np.load(DATA / f"{name}.npz", allow_pickle=False)
    topology = topology_for([str(joint) for joint in data["joint_names"]], 3)
    for label, class_name in enumerate(map(str, data["class_names"])):
        for subject in np.unique(data["subjects"]):
            rows = np.flatnonzero((data["labels"] == label) & (data["subjects"] == subject))
            clips = [
                data["joints"][data["offsets"][r] : data["offsets"][r + 1], 0].astype(float) for r in rows
            ]
            clips = [clip[(clip != 0).any((1, 2))] for clip in clips]
            clips = [
                np.where((clip == 0).all(2, keepdims=True), np.nan, clip) for clip in clips if len(clip) >= 15
            ]
            if clips:
                poses = [
                    PoseTrack(f"{class_name} {subject} {n}", 0, c, topology, fps) for n, c in enumerate(clips)
                ]
                yield class_name, int(subject), poses


def joined(poses: list[PoseTrack], count: int, seed: int) -> PoseTrack:
    """One recording of `count` trials in turn, about their hips, with smooth transitions of 0.2 to 1
    second.
    """
    rng = np.random.default_rng(seed)
    hips = poses[0].topology.index("hip_center")
    parts: list[Floats] = []
    for number in range(count):
        clip = poses[number % len(poses)].joints
        clip = clip - clip[0, hips]
        if parts:
            way = np.linspace(0, 1, int(rng.uniform(0.2, 1.0) * poses[0].fps) + 2)[1:-1, None, None]
            way = way * way * (3 - 2 * way)
            parts.append(parts[-1][-1] * (1 - way) + clip[0] * way)
        parts.append(clip)
    return PoseTrack(poses[0].recording, 0, np.concatenate(parts), poses[0].topology, poses[0].fps)


def steps(poses: PoseTrack) -> int:
    """Cycles of a gait on the spot: sign changes of the difference of ankle heights, beyond a fifth of its
    size, by two.
    """
    topology = poses.topology
    difference = (
        poses.joints[:, topology.index("ankle_left"), 1] - poses.joints[:, topology.index("ankle_right"), 1]
    )
    difference = difference - np.nanmedian(difference)
    sign = np.sign(difference[np.abs(difference) > 0.2 * np.nanpercentile(np.abs(difference), 95)])
    return round(float((np.diff(sign) != 0).sum() / 2))


def measures(differences: list[int]) -> dict[str, float]:
    """Mean absolute error and shares in per cent."""
    errors = np.abs(differences)
    return {
        "recordings": len(errors),
        "mean absolute error": float(errors.mean()),
        "off by more than one": 100 * float((errors > 1).mean()),
        "exact": 100 * float((errors == 0).mean()),
    }


def type_one(experiments: int = 2000) -> dict[str, float]:
    """Share of experiments without a difference whose p is at most 0.05, in per cent: 8 skewed persons a
    group.
    """
    rng = np.random.default_rng(1)
    wrong = dict.fromkeys(TESTS, 0)
    for seed in range(experiments):
        people = {f"p{i}": float(value) for i, value in enumerate(rng.gamma(1.0, 1.0, 16))}
        groups = {person: "ab"[i % 2] for i, person in enumerate(people)}
        for test in TESTS:
            found = compare_groups({"x": people}, groups, test=test, resamples=499, seed=seed)
            wrong[test] += found["labels"][0]["p"] <= 0.05
    return {test: 100 * count / experiments for test, count in wrong.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=int, default=10, help="of every made exercise")
    arguments = parser.parse_args()
    differences: dict[str, dict[str, list[int]]] = {}
    for action, count, poses in made(arguments.recordings):
        found = find_repetitions(poses).count
        differences.setdefault("made", {}).setdefault(action, []).append(found - count)
    for name, fps in (("utd-mhad", 30.0), ("msr-action3d", 15.0)):
        if not (DATA / f"{name}.npz").is_file():
            continue
        for action, subject, clips in trials(name, fps):
            if action.replace(" ", "-") not in NOT_ONCE:
                count = 3 + subject % 4
                found = find_repetitions(joined(clips, count, subject)).count
                differences.setdefault(f"{name}, joined", {}).setdefault(action, []).append(found - count)
            elif action in ("jog", "walk"):
                row = differences.setdefault(f"{name}, gait", {}).setdefault(action, [])
                row += [find_repetitions(clip).count - steps(clip) for clip in clips]
    table = Table("recordings", "action", "n", "mean absolute error", "off by more than one, %", "exact, %")
    results = {}
    for name, actions in differences.items():
        whole = measures([value for values in actions.values() for value in values])
        results[name] = {"all": whole, **{action: measures(values) for action, values in actions.items()}}
        for action, shown in results[name].items():
            table.add_row(
                name,
                action,
                *(f"{value:.2f}" if isinstance(value, float) else str(value) for value in shown.values()),
            )
    errors = type_one()
    console = Console(width=140)
    console.print(table)
    console.print(f"type-I error at 5 %, per cent of experiments: {errors}")
    out = {"repetitions": results, "type_one_error": errors, "versions": versions()}
    (RESULTS / "repetitions.json").write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
