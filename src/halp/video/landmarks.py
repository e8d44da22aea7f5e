"""Landmarks of all people in a video, frame by frame, cached in pieces of ten minutes."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import atomic_path, is_sealed, seal, sha256
from halp.core.progress import Bar
from halp.video.film import Picture, film_facts, film_pictures
from halp.video.finder import Marks, PeopleFinder
from halp.video.networks import LANDMARKS, open_network
from halp.video.pose_model import cache_folder, describe_pose_model, pose_topology

PART = 600.0  # seconds of video that are kept together; a kill loses no more
_VERSION = 3  # of the files in the cache
_BINS = 8  # of a colour channel in the histogram of a person's clothes
_SCENE = (9, 16)  # rows and columns that two frames are compared by
_CHANNELS = np.arange(3) * _BINS  # where the bins of each colour begin
_ALONG, _ACROSS = (  # of a band over a limb, in its lengths
    grid.reshape(-1, 1) for grid in np.meshgrid(np.linspace(0.15, 0.85, 24), np.linspace(-0.1, 0.1, 7))
)


@dataclass(frozen=True)
class FilmLandmarks:
    """Landmarks of all frames: times `(T,)` in seconds, people `(T,)`, positions `(sum people, V, 4)`.

    `image` is x and y in pixels, depth in pixels and visibility; `world` is x, y, z in metres from the hips
    and visibility, all zeros where the estimator has no depth. `look` `(sum people, L)` is a colour histogram
    of each person's clothes, all zeros if it is unknown. `scene` `(T, S)` is every frame in grey, much
    reduced.
    """

    times: npt.NDArray[np.float64]
    people: npt.NDArray[np.int64]
    image: Marks
    world: Marks
    size: tuple[int, int]
    estimator: dict[str, str]
    look: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint8))
    scene: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint8))

    @property
    def fps(self) -> float:
        """Frames per second, from the median interval between frames."""
        steps = np.diff(self.times)
        return float(1 / np.median(steps[steps > 0])) if (steps > 0).any() else -1.0

    @property
    def frame(self) -> npt.NDArray[np.int64]:
        """The frame of every row."""
        return np.repeat(np.arange(len(self.people)), self.people)

    def frames(self) -> list[slice]:
        """The rows of every frame."""
        ends = np.cumsum(self.people)
        return [slice(int(end - count), int(end)) for end, count in zip(ends, self.people)]


def film_landmarks(path: Path, model: Path, persons: int, *, progress: bool = True) -> FilmLandmarks:
    """Landmarks of a video; cached by content, weights and number of persons.

    Parts of ten minutes that were finished before an interruption are not computed again.
    """
    progress = progress and multiprocessing.parent_process() is None  # one of several processes keeps quiet
    kept = kept_landmarks(path, model, persons)
    if is_sealed(kept):
        return read_landmarks(kept)
    if kept.exists():
        warnings.warn(f"cached landmarks of '{path}' are damaged ('{kept}'); recomputing", stacklevel=2)
    folder = kept.with_suffix(".parts")
    parts: list[FilmLandmarks] = []
    while is_sealed(part := folder / f"{len(parts):05}.npz"):
        parts.append(read_landmarks(part))
    done, facts = len(parts), film_facts(path)
    with Bar(path.name, facts.frames, shown=progress) as bar:
        bar.advance(sum(len(part.times) for part in parts))
        pictures = film_pictures(path, PART * done)
        for number, group in groupby(pictures, key=lambda shown: int(shown[0] // PART)):
            found = _find_people(group, model, persons, (facts.width, facts.height), bar)
            while len(parts) < number:  # no frame in ten minutes
                parts.append(_write_part(folder, len(parts), _no_landmarks(found)))
            parts.append(found)
            if facts.seconds > PART or number:
                _write_part(folder, number, found)
    if not parts:
        raise InputError(f"no frame of video '{path}' can be decoded; convert it to mp4, or remove it")
    found = join_landmarks(parts)
    write_landmarks(kept, found)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _find_people(
    pictures: Iterator[tuple[float, Picture]], model: Path, persons: int, size: tuple[int, int], bar: Bar
) -> FilmLandmarks:
    """Landmarks of one part, independent of the parts before it."""
    clothes = _clothes(pose_topology(model).joints)
    times, people, image, world, look, scene = [], [], [], [], [], []
    with open_network(model) as network:
        finder = PeopleFinder(network, persons)
        for moment, picture in pictures:
            seen, body = finder(moment, picture)
            times.append(moment)
            people.append(len(seen))
            image += list(seen)
            world += list(body)
            look += [colours(picture, marks, clothes) for marks in seen]
            scene.append(_downscaled(picture))
            bar.advance(1)
    shape = (len(image), image[0].shape[0] if image else LANDMARKS, 4)
    return FilmLandmarks(
        np.array(times, dtype=np.float64),
        np.array(people, dtype=np.int64),
        np.asarray(image, dtype=np.float32).reshape(shape),
        np.asarray(world, dtype=np.float32).reshape(shape),
        size,
        describe_pose_model(model),
        np.asarray(look, dtype=np.uint8).reshape(len(image), len(clothes) * 3 * _BINS),
        np.asarray(scene, dtype=np.uint8).reshape(len(times), -1),
    )


def _clothes(joints: Sequence[str]) -> list[list[tuple[list[int], list[int]]]]:
    """Trunk and thighs as lines between midpoints of joints."""
    names = {
        name: [joints.index(f"{name}_{side}") for side in ("left", "right")]
        for name in ("shoulder", "hip", "knee")
    }
    thighs = [([hip], [knee]) for hip, knee in zip(names["hip"], names["knee"])]
    return [[(names["shoulder"], names["hip"])], thighs]


def _downscaled(picture: Picture) -> npt.NDArray[np.uint8]:
    """A frame as a few grey pixels; averaging all pixels of a large one would take a tenth of the search
    time.
    """
    import cv2

    step = max(1, min(picture.shape[:2]) // 144)
    few = cv2.resize(picture[::step, ::step], _SCENE[::-1], interpolation=cv2.INTER_AREA)
    return few.mean(axis=2).astype(np.uint8).ravel()


def colours(
    picture: Picture, marks: Marks, clothes: Sequence[Sequence[tuple[list[int], list[int]]]]
) -> npt.NDArray[np.uint8]:
    """Histograms of the colours along lines between joints, 255 for all pixels; zeros outside."""
    parts, at = [], marks[:, :2].astype(np.float64)
    for lines in clothes:
        ends = np.array([[at[joints].sum(axis=0) / len(joints) for joints in line] for line in lines])
        x, y = _band(ends[:, :1], ends[:, 1:]).reshape(-1, 2).astype(int).T
        inside = (x >= 0) & (y >= 0) & (x < picture.shape[1]) & (y < picture.shape[0])
        bins = (picture[y[inside], x[inside]] >> 5) + _CHANNELS
        parts.append(np.bincount(bins.ravel(), minlength=3 * _BINS) * 255 // max(len(bins), 1))
    return np.concatenate(parts).astype(np.uint8)


def _band(start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Places `(…, N, 2)` on narrow bands along the middles of lines `(…, 1, 2)`."""
    way = end - start
    return start + _ALONG * way + _ACROSS * (way[..., ::-1] * [-1, 1])


def _no_landmarks(like: FilmLandmarks) -> FilmLandmarks:
    """An empty recording of landmarks by the same estimator."""
    names = ("times", "people", "image", "world", "look", "scene")
    return replace(like, **{name: getattr(like, name)[:0] for name in names})


def join_landmarks(parts: Sequence[FilmLandmarks]) -> FilmLandmarks:
    """Parts of one video in their order as one."""
    if len(parts) == 1:
        return parts[0]
    names = ("times", "people", "image", "world", "look", "scene")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return FilmLandmarks(size=parts[0].size, estimator=parts[0].estimator, **joined)


def kept_landmarks(path: Path, model: Path, persons: int) -> Path:
    """The cache of a video's landmarks for these weights and this maximum of persons."""
    facts = json.dumps([_VERSION, sha256(path), describe_pose_model(model), persons])
    return cache_folder() / "landmarks" / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.npz"


def _write_part(folder: Path, number: int, found: FilmLandmarks) -> FilmLandmarks:
    write_landmarks(folder / f"{number:05}.npz", found)
    return found


def write_landmarks(path: Path, found: FilmLandmarks) -> None:
    """Write landmarks of a video as an `.npz` file."""
    facts = json.dumps({"size": found.size, "estimator": found.estimator})
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as part, part.open("wb") as file:
        np.savez_compressed(
            file,
            times=found.times,
            people=found.people,
            image=found.image,
            world=found.world,
            look=found.look,
            scene=found.scene,
            facts=np.frombuffer(facts.encode(), dtype=np.uint8),
        )
    seal(path)


def read_landmarks(path: Path) -> FilmLandmarks:
    """Landmarks that `write_landmarks` wrote."""
    with np.load(path, allow_pickle=False) as data:
        facts = json.loads(data["facts"].tobytes())
        width, height = facts["size"]
        arrays = {name: data[name] for name in ("times", "people", "image", "world", "look", "scene")}
        return FilmLandmarks(size=(width, height), estimator=facts["estimator"], **arrays)
