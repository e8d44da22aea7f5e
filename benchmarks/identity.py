"""Who is the same person in several videos: how often people get one name rightly and wrongly.

    HALP_TEST_FILM=demo.mp4 python -m benchmarks.identity FOLDER OUT.json

The videos are those of `benchmarks.people`: a man on a roof and a woman who walks below him, in other sizes,
light, order and number of copies. Two videos at a time, and halves and quarters in time of the plain video, are
asked who is who; who is who by eye follows from the place: the man is above. Variations that show one of them
in part (cropped) are left out, since there the place does not tell.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import halp
from benchmarks.people import UNSEEN, VARIATIONS, make_videos
from halp.skeleton import get_topology
from halp.tasks.people import People
from halp.video.identity import Appearance, body_build, same_people
from halp.video.people import Person

LEFT_OUT = ("lower half", "her upper body", "the man alone", "turned by 90 degrees")
_ABOVE = 0.45  # of the height of the picture: the man's place
Known = tuple[Appearance, str]  # and who it is


def appearance(found: People, person: Person, rows: Any, name: str) -> Appearance:
    marks = found.landmarks
    look = marks.look[rows].mean(axis=0, dtype=np.float64)
    return Appearance(name, look, body_build(marks.world[rows], get_topology("mediapipe-33").joints))


def known_people(name: str, found: People) -> list[Known]:
    height = found.landmarks.size[1]
    middle = [float(np.median(found.landmarks.image[one.rows, :, 1])) / height for one in found]
    who = ["man" if place < _ABOVE else "woman" for place in middle]
    return [(appearance(found, one, one.rows, name), own) for one, own in zip(found, who)]


def asked(people: list[Known]) -> Counter[str]:
    """Pairs of different videos: those of one person who got one name, and others."""
    numbers, _ = same_people([one for one, _ in people])
    counts: Counter[str] = Counter()
    for (a, (one, who)), (b, (other, whom)) in combinations(enumerate(people), 2):
        if one.film != other.film:
            named, same = numbers[a] == numbers[b], who == whom
            counts[
                ("one name" if named else "two names") + (", same person" if same else ", two people")
            ] += 1
        elif numbers[a] == numbers[b]:
            counts["one name in one video"] += 1
    return counts


def pieces(found: People, count: int) -> list[Known]:
    """The people of a video in pieces of equal length, half a second or more of each."""
    ends = np.linspace(0, len(found.landmarks.times), count + 1)
    rows = [
        (one, number, one.rows[(frame >= ends[number]) & (frame < ends[number + 1])])
        for one in found
        for frame in [found.landmarks.frame[one.rows]]
        for number in range(count)
    ]
    return [
        (appearance(found, one, part, f"piece {number}"), str(one.number))
        for one, number, part in rows
        if len(part) >= 15
    ]


def measure(folder: Path) -> dict[str, dict[str, int]]:
    shown = {k: v for k, v in {**VARIATIONS, **UNSEEN}.items() if v.people and k not in LEFT_OUT}
    films = make_videos(Path(os.environ["HALP_TEST_FILM"]), folder, shown)
    found = {name: halp.people(path) for name, path in films.items()}
    known = {name: known_people(name, people) for name, people in found.items()}
    results = {
        "two videos at a time": sum(
            (asked([*known[a], *known[b]]) for a, b in combinations(known, 2)), Counter()
        )
    }
    results["all videos at once"] = asked([one for people in known.values() for one in people])
    for other in ("mirrored", "two copies side by side", "dark", "pale", "halved"):
        if other in known:
            results[f"plain and {other}"] = asked([*known["plain"], *known[other]])
    for count in (2, 4):
        results[f"{count} pieces of the plain video"] = asked(pieces(found["plain"], count))
    return {name: dict(sorted(counts.items())) for name, counts in results.items()}


def main() -> None:
    warnings.simplefilter("ignore")
    results = measure(Path(sys.argv[1]))
    for name, counts in results.items():
        print(f"{name}: {counts}")
    Path(sys.argv[2]).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
