"""`python -m tools.encoders.corpus RAW STORE`: windows of the CMU motion capture database as one store, by
one command.

RAW is a checkout of github.com/una-dinosauria/cmu-mocap (BVH files and the index text). Every recording is
resampled to 30 frames per second, mapped by joint name onto `body-16`, converted to metres and cut into
windows; each window is centred on the hips, turned by its mean axes and divided by the size of the body, so
that neither unit nor up-axis matters. Subjects come from the file names, classes from words of the index
text; recordings whose description names none or several classes have no label. Every fifth subject is held
out. Counts, time and MB/s go to `results/corpus.json`.
`--kinect` adds the training parts of NW-UCLA, UTD-MHAD, MSR-Action3D and UTKinect (that of the first of its
ten half
splits: only the test clips of that one are unseen then) as whole clips without labels; its counts are
    printed, not recorded.
`--unturned` leaves every window as it stands on the floor: what virtual cameras (`cmu-view` recipes) need;
printed only, too.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from experiments.files import DATA, RESULTS
from experiments.transfer import SETS, parts_of
from halp.core.errors import InputError
from halp.core.progress import Bar
from halp.data.clip import Clip, Frames
from halp.data.ingest.prepare import prepare
from halp.data.normalise import normalise
from halp.data.readers import Item
from halp.data.readers.bvh import BvhReader
from halp.data.source_files import find_files
from halp.data.splits import Split
from halp.data.store import open_store
from halp.data.store_writer import StoreWriter
from halp.evaluation.results import versions
from halp.skeleton import get_topology, map_joints, topology_for

UNIT = 0.0564  # metres: the length unit of the database
FPS = 30.0
NORMALISATION = ("drop-empty", "centre", "rotate-mean", "scale")
UNTURNED = ("drop-empty", "centre", "scale")  # as the floor lies, for virtual cameras
TOPOLOGY = "body-16"
READ = tuple(
    "hip_center spine head shoulder_left elbow_left wrist_left shoulder_right elbow_right wrist_right "
    "hip_left knee_left ankle_left hip_right knee_right ankle_right".split()
)
HELD_OUT = 5  # every fifth subject
KINECT_SUBJECTS = 1000  # subjects of the k-th Kinect set are numbered from so many times k on
# A class and the words that name it in a description; one that names two classes has no label.
CLASSES: dict[str, str] = {
    "walk": r"walk",
    "run": r"\b(run|jog)",
    "jump": r"jump|hop\b|leap",
    "dance": r"danc|salsa|pirouette|jete|arabesque|charleston|lindy",
    "climb": r"climb|ladder",
    "box": r"box|punch",
    "basketball": r"basketball|dribbl",
    "soccer": r"soccer",
    "golf": r"golf|putt",
    "cartwheel": r"cartwheel|somersault|backflip|handspring|acrobat",
    "wash": r"wash|mop|sweep|clean|wip",
    "sit": r"\bsit|stand up|stool|chair",
    "wave": r"\bwav(e|ing)",
    "swim": r"swim",
    "stretch": r"stretch|yoga|tai chi",
    "lift": r"lift|pick up|carry|pick(ing)? ",
    "drink": r"drink|eat(ing)?\b|soda",
    "throw": r"throw|toss|pitch",
    "kick": r"kick",
    "animal": (
        r"animal|monkey|bear|chicken|dragon|elephant|mummy|penguin|cat\b|dog\b|insect|snake|prairie|t-rex"
    ),
}


def descriptions(index: Path) -> dict[str, str]:
    """What the index text says of every recording, by its name (`02_01` → `walk`)."""
    try:
        text = index.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(
            f"the index '{index}' cannot be read ({error.strerror}); check out the whole repository"
        ) from None
    return {name: words.strip() for name, words in re.findall(r"^(\d+_\d+)[ \t]+(.*)$", text, re.MULTILINE)}


def label_of(description: str) -> int:
    """The one class that a description names, else -1.

    >>> list(CLASSES)[label_of("jog, slow")], label_of("walk, then jump"), label_of("Unknown")
    ('run', -1, -1)
    """
    found = [number for number, words in enumerate(CLASSES.values()) if re.search(words, description.lower())]
    return found[0] if len(found) == 1 else -1


def windows(frames: Frames, seconds: float, stride: float) -> Iterator[tuple[int, Frames]]:
    """Windows of a recording at 30 frames per second with their first frame; a shorter recording is one
    window.
    """
    width, step = round(seconds * FPS), max(1, round(stride * FPS))
    for start in range(0, max(1, len(frames) - width + 1), step):
        yield start, frames[start : start + width]


def kinect_clips(folder: Path) -> Iterator[Clip]:
    """Training clips of the four Kinect sets in the corpus's topology, without labels, with subjects of their
    own.
    """
    for number, name in enumerate(SETS, start=1):
        path = folder / name
        prepare(
            "interchange",
            DATA / f"{name}.npz",
            path,
            topology=TOPOLOGY,
            normalisation=NORMALISATION,
            progress=False,
        )
        store = open_store(path)
        train, _ = next(parts_of(name, store))
        for index in train.tolist():
            subject = KINECT_SUBJECTS * number + int(store.subjects[index])
            yield Clip(np.array(store.clip(index))[:, :1], f"{name}/{store.names[index]}", -1, subject)


def build(
    raw: Path,
    store: Path,
    *,
    seconds: float,
    stride: float,
    kinect: Sequence[Clip] = (),
    steps: Sequence[str] = NORMALISATION,
    progress: bool = True,
) -> dict[str, Any]:
    """Make the store and return what there is to say about it; `kinect` clips are added to the training
    part.
    """
    described = descriptions(raw / "cmu-mocap-index-text.txt")
    files = find_files(raw, ".bvh")
    topology = get_topology(TOPOLOGY)
    source = topology_for(READ, 3)
    reader = BvhReader(scale=UNIT, fps=FPS, joints=READ)
    subjects = sorted({_subject(path) for path in files})
    held_out = tuple(subjects[::HELD_OUT])
    trained = set(subjects) - set(held_out) | {clip.subject for clip in kinect}
    split = Split("xsub", "subject", tuple(sorted(trained)), held_out)
    began, processor = time.monotonic(), time.process_time()
    counts: Counter[str] = Counter()
    problems: list[str] = []
    writer = StoreWriter(
        store,
        topology,
        persons=1,
        class_names=tuple(CLASSES),
        splits=(split,),
        normalisation=steps,
        origin={"source": "CMU motion capture database", "window": seconds, "stride": stride, "fps": FPS},
        overwrite=True,
    )
    with writer, Bar("corpus", len(files), shown=progress) as bar:
        for path in files:
            counts["bytes"] += path.stat().st_size
            label = label_of(described.get(path.stem, ""))
            try:
                (recording,) = reader.read(Item(path))
            except InputError as error:
                problems.append(str(error))
                continue
            if not isinstance(recording, Clip):
                problems.append(f"{recording.name}: {recording.reason}")
                continue
            frames = map_joints(recording.frames, source, topology)
            counts.update(recordings=1, frames=len(frames), labelled=label >= 0)
            for start, window in windows(frames, seconds, stride):
                if len(window) < FPS / 2:
                    counts["too short"] += 1
                    continue
                ready = normalise(window, topology, steps)
                name = f"{path.stem}@{start / FPS:.2f}"
                writer.add(Clip(ready, name, label, _subject(path)))
                counts.update(windows=1, labelled_windows=label >= 0)
            bar.advance(1)
        for clip in kinect:
            writer.add(clip)
            counts.update(kinect_clips=1)
        sizes = writer.split_sizes()
    wall, cpu = time.monotonic() - began, time.process_time() - processor
    return {
        **{name.replace(" ", "_"): int(count) for name, count in counts.items()},
        "files": len(files),
        "problems": problems,
        "subjects": len(subjects),
        "hours": round(counts["frames"] / FPS / 3600, 2),
        "window_seconds": seconds,
        "stride_seconds": stride,
        "splits": sizes,
        "seconds": round(wall, 1),
        "processor_seconds": round(cpu, 1),
        "mb_per_second": round(counts["bytes"] / 1e6 / wall, 1),
        "mb_per_processor_second": round(counts["bytes"] / 1e6 / cpu, 1),
        "versions": versions(),
    }


def _subject(path: Path) -> int:
    found = re.match(r"(\d+)_", path.name)
    if not found:
        raise InputError(
            f"'{path}' is not named like '02_01.bvh', so its subject is not known; remove it from the folder"
        )
    return int(found[1])


def main(arguments: Sequence[str]) -> int:
    """Build the store, print and record the counts."""
    parser = argparse.ArgumentParser(description="The CMU motion capture database as a store of windows.")
    parser.add_argument("raw", type=Path, help="checkout of una-dinosauria/cmu-mocap")
    parser.add_argument("store", type=Path, help="where the store goes")
    parser.add_argument("--window", type=float, default=64 / FPS, help="seconds")
    parser.add_argument("--stride", type=float, help="seconds between two starts; the window unless given")
    parser.add_argument("--kinect", action="store_true", help="with the training parts of the Kinect sets")
    parser.add_argument(
        "--unturned", action="store_true", help="keep the floor level: for `cmu-view` recipes"
    )
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            more = list(kinect_clips(Path(folder))) if options.kinect else []
        lengths = {"seconds": options.window, "stride": options.stride or options.window}
        steps = UNTURNED if options.unturned else NORMALISATION
        found = build(options.raw, options.store, **lengths, kinect=more, steps=steps)
    except InputError as error:
        Console(stderr=True).print(str(error))
        return 2
    print(json.dumps({key: value for key, value in found.items() if key != "versions"}, indent=1))
    if options.kinect or options.unturned:
        return 0
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "corpus.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
