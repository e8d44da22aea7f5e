"""Videos: people are detected and tracked (`halp.video`), one clip per person, in metres or pixels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from halp.core.config import limited
from halp.core.errors import InputError, check_choice
from halp.data.clip import Clip, Dropped, Frames
from halp.data.readers import Info, Item, register_reader, with_options
from halp.data.readers.shared import PERSONS, PeopleFileReader, Poses, key_of
from halp.data.reading import Reading
from halp.data.spans import person_recording
from halp.data.text_files import drop_if_empty, problem
from halp.skeleton import Topology
from halp.video.film import SUFFIXES
from halp.video.landmarks import FilmLandmarks, film_landmarks
from halp.video.overlay import Span, write_overlay
from halp.video.people import Person, choose_people, describe_people, find_people
from halp.video.pose_model import describe_pose_model, find_pose_model, pose_topology
from halp.video.quality import FASTEST, unsure_joints

REPRESENTATIONS = ("auto", "world", "image")
LONGEST_HOLD = (
    0.5  # seconds that a pose stands for moments without a frame of their own; beyond, the moment is missing
)
MOST_FRAMES = 3_000_000  # of a clip: 27 hours at 30 per second


@dataclass
class VideoReader(PeopleFileReader):
    """Videos of any kind that PyAV reads: a clip per person, with the frame rate of the video.

    Everybody is followed through the whole video. Where several people are seen, each is a recording of his
    or her own, called `NAME#1`, `NAME#2`, …, longest seen first; `person` chooses (all, longest, largest,
    left, right, or a number), and
    `together` puts them into one clip. At most `persons` are followed at a time.

    `landmarks = world` gives places in metres from the hips, y up, as the estimator guesses them; `image`
    pixels of the frame; `auto` what the encoder reads, else `world`. Joints less visible than `min_score`,
    and joints that jump away and back within three frames, are missing.
    """

    persons: int = limited(6, **PERSONS)
    person: str = "all"
    together: bool = False
    min_score: float = limited(0.3, least=0)
    landmarks: str = "auto"
    pose_model: str = ""
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    fallback: ClassVar[bool] = (
        True  # where poses lie beside films, as many tools leave them, the poses are meant
    )

    def for_dimensions(self, dimensions: int) -> VideoReader:
        """The reader with 3D positions for 3D encoders, with pixels for 2D ones."""
        return (
            self
            if self.landmarks != "auto"
            else replace(self, landmarks="world" if dimensions == 3 else "image")
        )

    def looks_right(self, path: Path) -> bool:
        return True

    def first(self, files: Sequence[Path]) -> tuple[Topology, int]:
        check_choice("landmarks", self.landmarks, REPRESENTATIONS)
        model = find_pose_model(self.pose_model)
        return pose_topology(model, 2 if self._flat(model) else 3), self.persons if self.together else 1

    def _flat(self, model: Path) -> bool:
        """Whether image coordinates are read; an ONNX file gives no others."""
        return self.landmarks == "image" or (self.landmarks == "auto" and model.suffix == ".onnx")

    def info(self, path: Path) -> Info:
        found = find_pose_model(self.pose_model)
        model = describe_pose_model(found)
        kind = "image" if self._flat(found) else "world"
        return replace(super().info(path), slow=True, origin={"landmarks": kind, **model})

    def load(self, path: Path) -> Poses:
        """The reported people of a video side by side; `read` makes one clip of each."""
        return self._load(path)[0]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        name = key_of(item).name
        poses, people, reported = self._load(item.path)
        clip = Clip(np.asarray(poses.frames, dtype=np.float32), name, repairs=poses.repairs, fps=poses.fps)
        if self.together:
            return [drop_if_empty(clip)]
        clips = [
            replace(clip, frames=clip.frames[:, [place]], extra={"height_px": round(one.pixels, 1)})
            for place, one in enumerate(reported)
        ]
        if len(people) > 1:
            names = [person_recording(name, one.number) for one in reported]
            clips = [replace(one, name=own, recording=own) for one, own in zip(clips, names)]
        return [drop_if_empty(one) for one in clips]

    def _load(self, path: Path) -> tuple[Poses, list[Person], list[Person]]:
        """Joints of the reported people, everybody who is seen, and who is reported."""
        people, film = self.people(path)
        reported = choose_people(people, self.person)
        topology, most = self.first([path])
        rows = even_times(film.times, film.fps)
        frames, repairs = self._frames(film, reported[:most] if self.together else reported, topology)
        if len(rows) != len(film.times) or (rows != np.arange(len(film.times))).any():
            repairs += (f"{len(film.times)} frames at uneven times resampled to {film.fps:.2f} per second",)
        if len(people) > 1:
            repairs += (describe_people(people, reported),)
        if limit := self.at_limit(film):
            repairs += (limit,)
        for sentence in repairs:
            warnings.warn(f"'{path.name}': {sentence}", stacklevel=2)
        even = np.where((rows >= 0)[:, None, None, None], frames[rows], np.float32(0))
        return (
            Poses(topology.joints, even, fps=film.fps, topology=topology, repairs=repairs),
            people,
            reported,
        )

    def people(self, path: Path) -> tuple[list[Person], FilmLandmarks]:
        """Everybody who is seen in a video, and the landmarks of all frames."""
        film = film_landmarks(path, find_pose_model(self.pose_model), self.persons)
        if len(film.times) < 2:
            raise problem(
                path, "", "it has a single frame and therefore no movement", "remove it from the source"
            )
        if not film.people.any():
            width, height = film.size
            fault = (
                f"the pose estimator found no person in any of its {len(film.times)} frames of {width} ×"
                f" {height} pixels"
            )
            raise problem(path, "", fault, "crop it to the people, or film them closer or in better light")
        return find_people(film), film

    def at_limit(self, film: FilmLandmarks) -> str:
        """What follows if as many people are seen at a time as are followed; empty if there are fewer."""
        if film.people.max(initial=0) < self.persons:
            return ""
        most = "1 person is" if self.persons == 1 else f"{self.persons} people are"
        return (
            f"{most} followed at a time (--persons {self.persons}), and as many are seen: others may be in view,"
            " and one recording may show two of them in turn; give a larger --persons"
        )

    def _frames(
        self, film: FilmLandmarks, people: Sequence[Person], topology: Topology
    ) -> tuple[Frames, tuple[str, ...]]:
        """Joints `(T, P, V, C)` of people, zeros where missing or unsure, and what is unsure in words."""
        world = topology.dimensions == 3
        turned = np.array([-1, -1, 1], dtype=np.float32)
        frames = np.zeros(
            (len(film.times), len(people), len(topology), topology.dimensions), dtype=np.float32
        )
        for place, one in enumerate(people):
            joints = film.world[one.rows, :, :3] * turned if world else film.image[one.rows, :, :2]
            sure = film.image[one.rows, :, 3:] >= self.min_score
            frames[film.frame[one.rows], place] = joints * sure
        hidden = (frames == 0).all(axis=3)
        jumps, fast, worst = unsure_joints(frames, topology, film.fps)
        kept = np.where((jumps | fast)[..., None], np.float32(0), frames)
        positions = max(sum(len(one.rows) for one in people) * len(topology), 1)
        unseen = int(hidden.sum()) - (hidden.size - positions)
        shares = {
            "hardly visible": unseen,
            "jump away and back": int((jumps & ~hidden).sum()),
            "turn too fast": int((fast & ~jumps).sum()),
        }
        told = [f"{count / positions:.1%} {why}" for why, count in shares.items() if count]
        repairs: tuple[str, ...] = (
            (f"uncertain joint positions count as missing: {', '.join(told)}",) if told else ()
        )
        if worst is not None:
            moment, who = film.times[worst.frame], people[worst.person].number
            repairs += (
                (
                    f"a limb of person {who} seems to turn by {worst.speed:,.0f} degrees per second"
                    f" ({worst.joint} at {moment:.2f} s): beyond {FASTEST:,.0f} it counts as a tracking error"
                ),
            )
        return kept, repairs


def video_reader(reading: Reading) -> VideoReader:
    """The reader of videos with the settings of a reading."""
    reader = with_options(VideoReader("video", ""), reading.settings)
    if not isinstance(reader, VideoReader):
        raise TypeError(f"{type(reader).__name__} is not a reader of videos")
    return reader


def overlay_film(
    film: Path, spans: Mapping[str, Sequence[Span]], out: Path, reading: Reading | None = None
) -> Path:
    """The video with everybody's skeleton, name and labels; landmarks come from the cache if kept there."""
    if film.suffix.lower() not in SUFFIXES or not film.is_file():
        raise InputError(
            f"--video draws into a video, and '{film}' is not one; give one {', '.join(SUFFIXES)} file as"
            " source"
        )
    people, landmarks = video_reader(reading or Reading()).people(film)
    named = {one.number: spans.get(person_recording(film.stem, one.number), ()) for one in people}
    if len(people) == 1:
        named = {1: spans.get(film.stem, ())}
    return write_overlay(film, landmarks, people, named, out)


def even_times(times: npt.NDArray[np.float64], fps: float) -> npt.NDArray[np.int64]:
    """The frame nearest to every moment k / fps; -1 if it is more than half a second away.

    >>> even_times(np.array([0.0, 0.1, 0.2, 0.5]), 10.0).tolist()
    [0, 1, 2, 2, 3, 3]
    >>> even_times(np.array([0.0, 0.5, 1.0, 4.0]), 2.0).tolist()
    [0, 1, 2, 2, -1, -1, -1, 3, 3]
    """
    if fps <= 0:
        return np.arange(len(times))
    count = round(times[-1] * fps) + 1
    if count > MOST_FRAMES:
        raise InputError(f"{times[-1]:.0f} s at {fps:.2f} fps are more than {MOST_FRAMES:,} frames; cut it")
    moments = np.arange(count) / fps
    middle = (times[1:] + times[:-1]) / 2
    nearest = np.searchsorted(middle, moments + 1e-9)
    return np.where(np.abs(times[nearest] - moments) > LONGEST_HOLD + 1e-9, -1, nearest)


register_reader(
    VideoReader("video", "videos (mp4, mov, avi, mkv, webm): poses by MediaPipe, in 3D or in the image")
)
