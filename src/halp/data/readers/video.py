"""Films: people are found picture by picture (`halp.video`) and followed; in space (metres) or in the picture (pixels)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from halp.core.config import limited
from halp.core.errors import InputError, check_choice
from halp.data.clip import Frames
from halp.data.readers import Info, register_reader
from halp.data.readers.mediapipe import MEDIAPIPE_33, MEDIAPIPE_33_2D
from halp.data.readers.shared import PERSONS, PeopleFileReader, Poses
from halp.data.source_files import first_file
from halp.data.text_files import mask_low_scores, problem
from halp.data.tracking import Detection, follow
from halp.skeleton import Topology
from halp.video.film import SUFFIXES
from halp.video.landmarks import FilmLandmarks, film_landmarks
from halp.video.overlay import Span, write_overlay
from halp.video.pose_model import describe_pose_model, find_pose_model

_POSES = (".json", ".jsonl", ".csv", ".npy", ".npz", ".h5", ".nc", ".bvh", ".c3d", ".trc", ".mvnx", ".txt", ".pkl")
REPRESENTATIONS = ("world", "image")


@dataclass
class VideoReader(PeopleFileReader):
    """Films of any kind that PyAV reads, one clip per film, with the frames per second of the film.

    `landmarks = world` gives places in metres from the hips, y up, as MediaPipe guesses them; `image` pixels of the
    picture. Both come from one look at the film, which is kept in the cache. People are followed in the picture.
    """

    persons: int = limited(1, **PERSONS)
    min_score: float = limited(0.3, least=0)
    landmarks: str = "world"
    pose_model: str = ""
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    def for_dimensions(self, dimensions: int) -> VideoReader:
        """The reader of places in space for encoders of 3D poses, of pixels for those of 2D."""
        return replace(self, landmarks="world" if dimensions == 3 else "image")

    def looks_right(self, path: Path) -> bool:
        return True

    def sniff(self, path: Path) -> bool:
        # where poses lie beside films, as many tools leave them, the poses are meant
        return super().sniff(path) and first_file(path, *_POSES) is None

    def first(self, files: Sequence[Path]) -> tuple[Topology, int]:
        check_choice("landmarks", self.landmarks, REPRESENTATIONS)
        find_pose_model(self.pose_model)
        return MEDIAPIPE_33 if self.landmarks == "world" else MEDIAPIPE_33_2D, self.persons

    def info(self, path: Path) -> Info:
        model = describe_pose_model(find_pose_model(self.pose_model))
        return replace(super().info(path), slow=True, origin={"landmarks": self.landmarks, **model})

    def load(self, path: Path) -> Poses:
        film = film_landmarks(path, find_pose_model(self.pose_model), self.persons)
        if not film.people.any():
            raise problem(path, "", "nobody is seen in any picture of the film", "leave it out")
        frames, repairs = self._followed(film)
        rows = even_times(film.times, film.fps)
        if len(rows) != len(frames) or (rows != np.arange(len(frames))).any():
            repairs += (f"{len(frames)} pictures at uneven times brought to {film.fps:.2f} per second",)
        topology, _ = self.first([path])
        return Poses(topology.joints, frames[rows], fps=film.fps, topology=topology, repairs=repairs)

    def _followed(self, film: FilmLandmarks) -> tuple[Frames, tuple[str, ...]]:
        """Persons `(T, P, 33, C)`: followed in the picture, whatever is read of them."""
        places = [
            [Detection(body[:, :2], float(body[:, 3].mean())) for body in film.image[rows]] for rows in film.frames()
        ]
        tracked, repairs = follow(places, self.persons, film.image.shape[1], 2)
        world = self.landmarks == "world"
        frames = np.zeros((*tracked.shape[:3], 3 if world else 2), dtype=np.float32)
        turned = np.array([-1, -1, 1], dtype=np.float32)
        for time, rows in enumerate(film.frames()):
            for image, body in zip(film.image[rows], film.world[rows]):
                place = np.flatnonzero((tracked[time] == image[:, :2]).all(axis=(1, 2)))
                if len(place):
                    joints = body[:, :3] * turned if world else image[:, :2]
                    frames[time, place[0]] = mask_low_scores(joints, image[:, 3], self.min_score)[0]
        return frames, repairs


def overlay_film(film: Path, spans: Sequence[Span], out: Path) -> Path:
    """The film with skeletons and the labels of spans of time; its landmarks are in the cache once it was read."""
    if film.suffix.lower() not in SUFFIXES or not film.is_file():
        raise InputError(
            f"--video draws into a film, and '{film}' is none; give one {', '.join(SUFFIXES)} file as source"
        )
    reader = VideoReader("video", "")
    return write_overlay(film, film_landmarks(film, find_pose_model(reader.pose_model), reader.persons), spans, out)


def even_times(times: npt.NDArray[np.float64], fps: float) -> npt.NDArray[np.int64]:
    """For every moment k / fps of a film the picture that is nearest in time.

    >>> even_times(np.array([0.0, 0.1, 0.2, 0.5]), 10.0).tolist()
    [0, 1, 2, 2, 3, 3]
    """
    if fps <= 0:
        return np.arange(len(times))
    moments = np.arange(round(times[-1] * fps) + 1) / fps
    middle = (times[1:] + times[:-1]) / 2
    return np.searchsorted(middle, moments + 1e-9)


register_reader(
    VideoReader("video", "films (mp4, mov, avi, mkv, webm): poses by MediaPipe, in space or in the picture")
)
