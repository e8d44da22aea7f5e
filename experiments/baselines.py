"""`python -m benchmarks.baselines [--dtw]`: what raw coordinates reach without learning, beside the published baselines.

Clips of the four public Kinect sets, root-centred in each frame, empty frames dropped, resampled linearly; 1-NN by
Euclidean distance and a standardised linear SVM on 32 frames, 1-NN by dynamic time warping on 24. A learned
representation has to beat these. Full rotation is the step `rotate-mean`; the published figures for it come from a
definition that is not written down to the last detail, and those of msr-action3d are missed by more than a point.
The folder with the data is `HALP_SHARED/data` (default `../shared/data`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from halp.core.errors import InputError
from halp.data.clip import Clip, Frames
from halp.data.normalise import normalise, rotation_between
from halp.data.readers import get_reader
from halp.skeleton import KINECT_V1

RESULTS = Path(__file__).parent / "results"

DATA = Path(os.environ.get("HALP_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"
FRAMES, DTW_FRAMES, DTW_BAND = 32, 24, 6
TOLERANCE = 1.0

Mask = npt.NDArray[np.bool_]
Features = npt.NDArray[np.float64]
Floor = tuple[float | None, float | None, float | None]


@dataclass
class Measurement:
    """One protocol: published and measured top-1 in per cent for 1-NN, linear SVM and 1-NN with time warping."""

    data: str
    protocol: str
    published: Floor
    measured: Floor = (None, None, None)

    @property
    def met(self) -> bool:
        """Whether every figure that was measured lies within a point of the published one."""
        pairs = zip(self.published, self.measured)
        return all(abs(a - b) <= TOLERANCE for a, b in pairs if a is not None and b is not None)


class Clips:
    """The clips of one set, with labels, subjects and cameras as arrays."""

    def __init__(self, name: str) -> None:
        path = DATA / f"{name}.npz"
        reader = get_reader("interchange")
        self.clips = [clip for item in reader.items(path) for clip in reader.read(item) if isinstance(clip, Clip)]
        self.labels = np.array([clip.label for clip in self.clips])
        self.subjects = np.array([clip.subject for clip in self.clips])
        self.cameras = np.array([clip.camera for clip in self.clips])
        self.arrays = np.load(path, allow_pickle=False)
        self.odd: Mask = self.subjects % 2 == 1
        self.everything: Mask = np.ones(len(self.clips), dtype=bool)

    def column(self, key: str) -> npt.NDArray[np.int64]:
        return np.array([clip.extra[key] for clip in self.clips])

    def features(self, turn: str, frames: int) -> Features:
        """`(N, frames, 60)`: centred, turned, resampled."""
        return np.stack([resample(turned(clip.frames, turn), frames) for clip in self.clips]).reshape(
            len(self.clips), frames, -1
        )


def turned(frames: Frames, turn: str) -> Frames:
    """Centred frames, turned by a normalisation step or by the shoulder line of the first frame."""
    steps = ("drop-empty", "centre")
    if turn != "yaw-first":
        return normalise(frames, KINECT_V1, (*steps, turn) if turn else steps)
    frames = normalise(frames, KINECT_V1, steps)
    left, right = (
        frames[0, 0, KINECT_V1.index(joint)].astype(np.float64) for joint in ("shoulder_left", "shoulder_right")
    )
    rotation = rotation_between((right - left) * (1, 0, 1), np.array([1.0, 0, 0]))
    return frames @ rotation.T.astype(np.float32)


def resample(frames: Frames, count: int) -> Features:
    """Linear resampling of `(T, P, V, C)` to `count` frames, first and last kept."""
    at = np.linspace(0, len(frames) - 1, count)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, len(frames) - 1)
    share = (at - low)[:, None, None, None]
    return (1 - share) * frames[low] + share * frames[high]


def nearest(train: Features, train_labels: npt.NDArray[np.int64], test: Features) -> npt.NDArray[np.int64]:
    classifier = KNeighborsClassifier(1, algorithm="brute").fit(train.reshape(len(train), -1), train_labels)
    return classifier.predict(test.reshape(len(test), -1))


def linear(train: Features, train_labels: npt.NDArray[np.int64], test: Features) -> npt.NDArray[np.int64]:
    classifier = make_pipeline(StandardScaler(), LinearSVC(C=0.001, max_iter=5000, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(train.reshape(len(train), -1), train_labels)
    return classifier.predict(test.reshape(len(test), -1))


def warped(train: Features, train_labels: npt.NDArray[np.int64], test: Features) -> npt.NDArray[np.int64]:
    """1-NN with dynamic time warping in a band: all training clips at once, one test clip after the other."""
    return np.array([train_labels[int(np.argmin(_warp(train, one)))] for one in test])


def _warp(many: Features, one: Features) -> Features:
    """Warping distances `(N,)` between `(N, T, D)` and `(T, D)`, Euclidean in each frame."""
    squares = (many**2).sum(-1)[:, :, None] + (one**2).sum(-1) - 2 * many @ one.T
    costs = np.sqrt(np.maximum(squares, 0))
    length = len(one)
    total = np.full((len(many), length + 1, length + 1), np.inf)
    total[:, 0, 0] = 0
    for i in range(length):
        for j in range(max(0, i - DTW_BAND), min(length, i + DTW_BAND + 1)):
            before = np.minimum(np.minimum(total[:, i, j], total[:, i, j + 1]), total[:, i + 1, j])
            total[:, i + 1, j + 1] = costs[:, i, j] + before
    return total[:, -1, -1]


Classifier = Callable[[Features, npt.NDArray[np.int64], Features], npt.NDArray[np.int64]]


def accuracy(clips: Clips, features: Features, parts: Sequence[tuple[Mask, Mask]], classify: Classifier) -> float:
    """Mean top-1 in per cent over pairs of training and test masks."""
    found = []
    for train, test in parts:
        guess = classify(features[train], clips.labels[train], features[test])
        found.append(100 * float((guess == clips.labels[test]).mean()))
    return round(float(np.mean(found)), 1)


def measure(row: Measurement, clips: Clips, turn: str, parts: Sequence[tuple[Mask, Mask]], dtw: bool) -> Measurement:
    """Fill in what was measured."""
    features = clips.features(turn, FRAMES)
    short = clips.features(turn, DTW_FRAMES) if dtw and row.published[2] is not None else None
    row.measured = (
        accuracy(clips, features, parts, nearest),
        accuracy(clips, features, parts, linear),
        None if short is None else accuracy(clips, short, parts, warped),
    )
    return row


def rows(dtw: bool) -> list[Measurement]:
    """All baselines of the README of the data, in its order."""
    found = []
    ucla = Clips("nw-ucla")
    view = [(ucla.cameras < 3, ucla.cameras == 3)]
    for turn, what, published in (
        ("", "no view normalisation", (53.9, 52.8, 58.0)),
        ("yaw-first", "yaw, shoulder line of frame 1", (64.4, 72.0, 67.7)),
        ("yaw", "yaw, mean shoulder line", (67.9, 75.0, 72.2)),
        ("rotate-mean", "full rotation", (79.0, 76.0, None)),
    ):
        found.append(measure(Measurement("nw-ucla", f"views 1, 2 → 3, {what}", published), ucla, turn, view, dtw))
    row = Measurement("nw-ucla", "odd → even subjects, yaw, mean shoulder line", (64.5, 68.6, None))
    found.append(measure(row, ucla, "yaw", [(ucla.odd, ~ucla.odd)], dtw))
    utd = Clips("utd-mhad")
    for turn, what, published in (("", "", (82.1, 78.8, 88.6)), ("rotate-mean", ", full rotation", (83.3, 77.7, None))):
        found.append(
            measure(
                Measurement("utd-mhad", f"odd → even subjects{what}", published), utd, turn, [(utd.odd, ~utd.odd)], dtw
            )
        )
    msr = Clips("msr-action3d")
    used = msr.column("used_cvpr12") == 1
    for turn, what, chosen, published in (
        ("", "566 sequences", msr.everything, (68.7, 63.6, 76.4)),
        ("rotate-mean", "full rotation", msr.everything, (62.5, 60.7, None)),
        ("", "the 557 list", used, (69.2, 62.3, None)),
        ("", "AS1", np.isin(msr.labels, msr.arrays["as1"]), (71.7, 70.8, 73.6)),
        ("", "AS2", np.isin(msr.labels, msr.arrays["as2"]), (70.8, 70.8, 80.5)),
        ("", "AS3", np.isin(msr.labels, msr.arrays["as3"]), (87.5, 86.6, 89.3)),
    ):
        parts = [(chosen & msr.odd, chosen & ~msr.odd)]
        found.append(
            measure(Measurement("msr-action3d", f"odd → even subjects, {what}", published), msr, turn, parts, dtw)
        )
    utk = Clips("utkinect")
    lists = zip(utk.arrays["split_train_subjects"], utk.arrays["split_test_subjects"])
    halves = [(np.isin(utk.subjects, train), np.isin(utk.subjects, test)) for train, test in lists]
    found.append(measure(Measurement("utkinect", "mean of 10 half splits", (86.3, 82.7, 88.4)), utk, "", halves, dtw))
    return found


def save_results(name: str, data: object, page: str = "") -> None:
    """Write `results/NAME.json` and, where there is a page, `results/NAME.md`."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if page:
        (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, write `results/baselines.json`; exit code 1 where a baseline is missed by more than a point."""
    parser = argparse.ArgumentParser(description="Raw-coordinate baselines of the four public Kinect sets.")
    parser.add_argument("--dtw", action="store_true", help="also 1-NN with dynamic time warping (some minutes)")
    options = parser.parse_args(arguments)
    try:
        found = rows(options.dtw)
    except InputError as error:
        Console(stderr=True).print(f"{error}; set HALP_SHARED to the folder that holds data/")
        return 2
    table = Table("data", "protocol", "1-NN", "linear", "DTW 1-NN", "within 1 point")
    for row in found:
        figures = [
            "–" if got is None else f"{got:.1f} ({wanted:.1f})" for got, wanted in zip(row.measured, row.published)
        ]
        table.add_row(row.data, row.protocol, *figures, "yes" if row.met else "NO")
    Console(width=120).print(table)
    save_results("baselines", [asdict(row) | {"within_one_point": row.met} for row in found])
    return 0 if all(row.met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
