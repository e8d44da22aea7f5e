"""Films read and written with their own times, and poses of films as clips."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.test_page import until
from reader_samples import write_bvh

from halp.cli import main
from halp.core.errors import InputError
from halp.core.files import is_sealed
from halp.data.clip import Clip
from halp.data.ingest.prepare import prepare
from halp.data.readers import get_reader, sniff_reader, with_options
from halp.data.readers.video import VideoReader, even_times
from halp.data.store import open_store
from halp.features.opening import open_source
from halp.video.landmarks import FilmLandmarks, film_landmarks, kept_landmarks, write_landmarks
from halp.video.people import find_people
from halp.video.pose_model import find_pose_model, kept_pose_model

pytest.importorskip("av", reason="PyAV is not installed (pip install halp-motion[video])")
if find_spec("mediapipe") is None:
    pytest.skip("mediapipe is not installed (pip install halp-motion[video])", allow_module_level=True)

from halp.video.film import FilmWriter, film_addresses, film_facts, film_pictures
from halp.video.overlay import write_overlay

UNEVEN = [0.0, 0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9]
PERSONS = VideoReader("video", "").persons


def write_film(path: Path, times: list[float] = UNEVEN, size: tuple[int, int] = (64, 48)) -> Path:
    with FilmWriter(path, *size, 10) as writer:
        for number, moment in enumerate(times):
            writer.write(np.full((size[1], size[0], 3), 25 * number % 256, dtype=np.uint8), moment)
    return path


@pytest.fixture
def film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A film whose landmarks are in the cache: two people who change places in the list, nobody in one
    frame.
    """
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HALP_POSE_MODEL", raising=False)
    path = write_film(tmp_path / "film.mp4")
    kept_pose_model().parent.mkdir(parents=True)
    kept_pose_model().write_bytes(b"weights")
    left, right = np.random.default_rng(0).uniform(1, 9, (2, 33, 4)).astype(np.float32)
    right[:, 0] += 40
    write_cached(path, left, right)
    return path


def write_cached(path: Path, left: Any, right: Any) -> None:
    left[:, 3], right[:, 3] = 0.9, 0.8
    left[5, 3] = 0.1
    order = [[left, right], [right, left], [], [left, right], [right], [right, left], [left, right], [right]]
    image = np.stack([body for frame in order for body in frame])
    found = FilmLandmarks(
        np.array(UNEVEN),
        np.array([len(frame) for frame in order]),
        image,
        image / 100,
        (64, 48),
        {"estimator": "test"},
    )
    write_landmarks(kept_landmarks(path, kept_pose_model(), PERSONS), found)


def test_pictures_keep_their_times(tmp_path: Path) -> None:
    path = write_film(tmp_path / "film.mp4")
    pictures = list(film_pictures(path))
    assert [round(moment, 3) for moment, _ in pictures] == UNEVEN
    assert [round(float(picture.mean()) / 25) for _, picture in pictures] == list(range(8))
    assert (film_facts(path).width, film_facts(path).height) == (64, 48)


# rows of a display matrix as QuickTime defines it: x to the right and y down become these, in units of 1 /
# 65536
TURNS = {"clockwise": (0, 1, -1, 0), "against the clock": (0, -1, 1, 0), "upside down": (-1, 0, 0, -1)}


@pytest.mark.parametrize("turn", TURNS)
def test_pictures_are_turned_as_the_film_says_and_keep_uneven_times(tmp_path: Path, turn: str) -> None:
    picture = np.zeros((48, 64, 3), dtype=np.uint8)
    picture[:24, :32] = 255  # top left
    a, b, c, d = (65_536 * part for part in TURNS[turn])
    with FilmWriter(tmp_path / "film.mp4", 64, 48, 10) as writer:
        writer.video.set_display_matrix([a, b, 0, c, d, 0, 0, 0, 1 << 30])
        for moment in UNEVEN:
            writer.write(picture, moment)
    facts, pictures = film_facts(tmp_path / "film.mp4"), list(film_pictures(tmp_path / "film.mp4"))
    assert (facts.width, facts.height) == ((64, 48) if turn == "upside down" else (48, 64))
    assert [round(moment, 3) for moment, _ in pictures] == UNEVEN
    shown = pictures[2][1]
    assert shown.shape == (facts.height, facts.width, 3)
    quarters = {
        "top left": shown[: facts.height // 2, : facts.width // 2],
        "top right": shown[: facts.height // 2, facts.width // 2 :],
        "bottom left": shown[facts.height // 2 :, : facts.width // 2],
        "bottom right": shown[facts.height // 2 :, facts.width // 2 :],
    }
    bright = {"clockwise": "top right", "against the clock": "bottom left", "upside down": "bottom right"}[
        turn
    ]
    assert max(quarters, key=lambda name: float(quarters[name].mean())) == bright


def test_what_is_not_a_film_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(b"no film at all" * 100)
    with pytest.raises(InputError, match="cannot be read"):
        film_facts(path)


def test_moments_without_a_picture_show_the_nearest_one() -> None:
    assert even_times(np.array(UNEVEN), 10.0).tolist() == [0, 1, 2, 2, 3, 3, 4, 5, 6, 7]
    assert even_times(np.array([0.0]), -1.0).tolist() == [0]


def test_tables_and_notes_beside_films_leave_them_films_and_poses_are_meant_instead(tmp_path: Path) -> None:
    write_film(tmp_path / "film.mp4")
    (tmp_path / "segments.csv").write_text("recording,start,stop,label\nfilm,0,1,walk\n")
    (tmp_path / "notes.txt").write_text("Tuesday, left knee\n")
    (tmp_path / "empty.bvh").touch()
    assert sniff_reader(tmp_path).name == "video"
    write_bvh(tmp_path)
    assert sniff_reader(tmp_path).name == "bvh"


@pytest.mark.filterwarnings("ignore:.*people are seen", "ignore:.*resampled", "ignore:.*uncertain joint")
def test_every_person_is_a_clip_in_either_form(film: Path) -> None:
    reader = sniff_reader(film)
    assert reader.name == "video"
    flat = with_options(reader, {"landmarks": "image"})
    info = flat.info(film)
    assert (info.topology.name, info.origin["landmarks"]) == ("mediapipe-33-2d", "image")
    right, left = flat.read(next(iter(flat.items(film))))
    assert isinstance(right, Clip)
    assert isinstance(left, Clip)
    assert [right.name, left.name] == ["film#1", "film#2"]  # who is seen longest comes first
    assert right.shape == left.shape == (10, 1, 33, 2)
    assert right.fps == pytest.approx(10)
    assert (right.frames[[0, 1, 4, 5, 6, 7, 8, 9], 0, :, 0].max(axis=1) > 40).all()
    assert (left.frames[[0, 1, 4, 5, 7, 8], 0, :, 0].max(axis=1) < 10).all()
    assert not left.frames[[6, 9]].any()  # absent: the frames keep their time
    assert not right.frames[2:4].any()
    assert not left.frames[0, 0, 5].any()  # not sure enough
    space = reader.for_dimensions(3)  # type: ignore[attr-defined]
    world = space.read(next(iter(space.items(film))))[0]
    assert world.frames.shape == (10, 1, 33, 3)
    np.testing.assert_allclose(world.frames[0, 0, 3, :2], -right.frames[0, 0, 3] / 100, rtol=1e-5)


@pytest.mark.parametrize(
    ("person", "names"),
    [
        ("all", ["film#1", "film#2"]),
        ("left", ["film#2"]),
        ("right", ["film#1"]),
        ("2", ["film#2"]),
        ("longest", ["film#1"]),
    ],
)
def test_one_of_several_people_is_chosen_and_all_are_reported(
    film: Path, person: str, names: list[str]
) -> None:
    source = open_source(film, person=person, window=0.3)
    with pytest.warns(
        UserWarning, match="2 people are seen: person 1 from 0.0 to 0.9 s .*, person 2 from 0.0 to 0.8 s"
    ):
        assert source.recordings == names


def test_people_in_one_clip_where_they_belong_together(film: Path) -> None:
    with pytest.warns(UserWarning, match="2 people are seen"):
        (clip,) = open_source(film, options={"together": True, "persons": PERSONS}).clips()
    assert (clip.name, clip.frames.shape) == ("film", (10, 2, 33, 3))


def test_a_person_who_is_not_there_is_refused_with_the_number_of_people(film: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["angles", str(film), "--person", "3"])
    assert ended.value.code == 2
    assert "there is no person 3; 2 people are seen" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*people are seen", "ignore:.*resampled", "ignore:.*uncertain joint")
def test_a_person_who_leaves_is_absent_and_never_nobody(film: Path, tmp_path: Path) -> None:
    out = tmp_path / "segments.csv"
    arguments = ["--groups", "1", "--window", "0.3", "--shortest", "0.05", "--out", str(out)]
    main(["segment", "halp-base", str(film), *arguments])
    rows = list(csv.DictReader(out.open()))
    assert {row["recording"] for row in rows} == {"film#1", "film#2"}
    assert {(row["recording"], row["person"]) for row in rows} == {("film#1", "1"), ("film#2", "2")}
    assert {row["label"] for row in rows if row["recording"] == "film#2"} == {"group 1", "absent"}
    assert "nobody" not in out.read_text()


@pytest.mark.parametrize("damage", ["noise", "truncation"])
def test_damaged_landmarks_in_the_cache_are_recomputed_with_a_warning(film: Path, damage: str) -> None:
    kept = kept_landmarks(film, kept_pose_model(), PERSONS)
    whole = kept.read_bytes()
    noise = np.random.default_rng(0).bytes(40)
    kept.write_bytes(
        whole[: len(whole) // 2] if damage == "truncation" else whole[:100] + noise + whole[140:]
    )
    with (
        pytest.warns(UserWarning, match=r"are damaged .* recomputing"),
        pytest.raises(InputError, match="not a pose model"),  # these weights are none, but they were asked
    ):
        film_landmarks(film, find_pose_model(), PERSONS)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:.*people are seen", "ignore:.*resampled", "ignore:.*uncertain joint")
def test_films_read_by_several_processes_make_the_store_that_one_makes(film: Path, tmp_path: Path) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    for number, name in enumerate(("b", "a", "c")):
        copy = folder / f"{name}.mp4"
        copy.write_bytes(film.read_bytes() + bytes(number))  # what follows the end of a film does not matter
        landmarks = film_landmarks(film, find_pose_model(), PERSONS)
        shifted = replace(landmarks, world=landmarks.world + np.float32(number))
        write_landmarks(kept_landmarks(copy, kept_pose_model(), PERSONS), shifted)
    stores = []
    for workers in (1, 2):
        prepare("auto", folder, tmp_path / f"store-{workers}", workers=workers, progress=False)
        stores.append(open_store(tmp_path / f"store-{workers}"))
    assert [list(store.names) for store in stores] == [
        [f"{name}#{person}" for name in "abc" for person in (1, 2)]
    ] * 2
    assert stores[0].hash == stores[1].hash


def test_the_page_of_segments_shows_the_film_beside_the_skeleton(film: Path, tmp_path: Path) -> None:
    page = tmp_path / "pages" / "page.html"
    page.parent.mkdir()
    main(["segment", "halp-base", str(film), "--groups", "1", "--window", "0.3", "--html", str(page)])
    assert '"film":"../film.mp4"' in page.read_text(encoding="utf-8")
    assert film_addresses(tmp_path, ["film", "other"], tmp_path / "a page.html") == {"film": "film.mp4"}


def test_the_film_of_a_page_stands_and_plays_where_the_skeleton_does(
    browser: Any, film: Path, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    main(["segment", "halp-base", str(film), "--groups", "1", "--window", "0.3", "--html", str(file)])
    page = browser.new_page()
    page.goto(file.as_uri())
    until(page, "() => document.querySelector('video.film')?.duration > 0")
    last = int(page.locator(".controls output").first.inner_text().split("/")[1]) - 1
    assert last == round(10 * UNEVEN[-1])  # frames of the film's own clock, empty ones too
    for _ in range(last):
        page.click("[aria-label^='one frame on']")
    for number in reversed(range(last + 1)):
        until(page, "n => document.querySelector('canvas.stage').dataset.frame == n", number)
        until(page, "t => Math.abs(document.querySelector('video.film').currentTime - t) < 0.03", number / 10)
        page.click("[aria-label^='one frame back']")
    page.click("button[aria-label^=play]")
    until(page, "() => !document.querySelector('video.film').paused")
    page.click("[aria-label^=pause]")
    until(page, "() => document.querySelector('video.film').paused")
    page.close()


def test_the_overlay_has_the_times_of_the_film_and_everybody_in_it(film: Path, tmp_path: Path) -> None:
    landmarks = film_landmarks(film, find_pose_model(), PERSONS)
    people = find_people(landmarks)
    spans = {1: [(0.0, 0.3, "wave"), (0.3, 0.7, "rest")], 2: [(0.0, 0.9, "walk")]}
    out = write_overlay(film, landmarks, people, spans, tmp_path / "out.mp4", progress=False)
    before, after = list(film_pictures(film)), list(film_pictures(out))
    assert [round(moment, 3) for moment, _ in after] == UNEVEN
    changed = (np.abs(after[7][1].astype(int) - before[7][1]).max(axis=2) > 60)[:24]  # above the timelines
    assert changed[:, 40:].any()  # person 1
    assert not changed[14:, :16].any()  # person 2 is absent from the last frame
    with pytest.raises(InputError, match="the input video"):
        write_overlay(film, landmarks, people, {}, film, progress=False)


def test_a_video_of_one_frame_is_left_out_of_a_folder_and_the_others_are_read(
    film: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "film.mp4").write_bytes(film.read_bytes())
    lone = write_film(folder / "lone.mp4", [0.0])
    seen = film_landmarks(film, find_pose_model(), PERSONS)
    first = replace(
        seen, times=seen.times[:1], people=seen.people[:1], image=seen.image[:2], world=seen.world[:2]
    )
    write_landmarks(kept_landmarks(lone, kept_pose_model(), PERSONS), first)
    source = open_source(folder, window=0.3)
    with pytest.warns(UserWarning, match="'lone.mp4': .* single frame and therefore no movement"):
        assert {name.partition("#")[0] for name in source.recordings} == {"film"}


def test_without_weights_one_sentence_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path))
    monkeypatch.delenv("HALP_POSE_MODEL", raising=False)
    path = write_film(tmp_path / "film.mp4")
    with pytest.raises(InputError, match="halp pose-model"):
        get_reader("video").info(path)
    with pytest.raises(InputError, match="there is no pose model"):
        with_options(get_reader("video"), {"pose_model": str(tmp_path / "none.task")}).info(path)
    assert not (tmp_path / "landmarks").exists()


def demo_film() -> Path | None:
    """The film of the package sports2d, or the one that `HALP_TEST_FILM` names."""
    spec = find_spec("Sports2D")
    places = [Path(os.environ.get("HALP_TEST_FILM", "none"))]
    places += [
        Path(folder) / "Demo" / "demo.mp4"
        for folder in (spec.submodule_search_locations or () if spec else ())
    ]
    return next((path for path in places if path.is_file()), None)


@pytest.mark.slow
@pytest.mark.skipif(not kept_pose_model().is_file(), reason="no pose model: halp pose-model")
def test_films_that_were_finished_before_a_kill_are_not_read_again(tmp_path: Path) -> None:
    films, cache = tmp_path / "films", tmp_path / "cache"
    films.mkdir()
    for name in "abc":
        write_film(films / f"{name}.mp4", [number / 10 + ord(name) / 1000 for number in range(20)])
    pose_model = str(kept_pose_model())
    command = [
        sys.executable,
        "-m",
        "halp",
        "prepare",
        "auto",
        str(films),
        str(tmp_path / "store"),
        "--workers",
        "1",
    ]
    given = {**os.environ, "HALP_CACHE": str(cache), "HALP_POSE_MODEL": pose_model}
    process = subprocess.Popen(command, env=given, stderr=subprocess.DEVNULL)

    def finished() -> dict[str, int]:
        return {
            path.name: path.stat().st_mtime_ns for path in cache.glob("landmarks/*.npz") if is_sealed(path)
        }

    while process.poll() is None and not finished():
        time.sleep(0.02)
    process.kill()
    process.wait()
    before = finished()
    assert 1 <= len(before) < 3
    again = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert "found no person" in again.stderr  # grey pictures
    assert len(finished()) == 3
    assert before.items() <= finished().items()


@pytest.mark.slow
@pytest.mark.skipif(
    demo_film() is None, reason="no film: pip install --no-deps sports2d, or set HALP_TEST_FILM"
)
@pytest.mark.skipif(not kept_pose_model().is_file(), reason="no pose model: halp pose-model")
@pytest.mark.filterwarnings("ignore:.*uncertain joint", "ignore:.*a limb seems", "ignore:.*people are seen")
def test_both_people_of_a_real_film_become_clips_in_metres_with_y_up(tmp_path: Path) -> None:
    source, short = demo_film(), tmp_path / "walk.mp4"
    assert source is not None
    facts = film_facts(source)
    with FilmWriter(
        short, facts.width // 2, facts.height // 2, facts.fps
    ) as writer:  # a man on a roof, a woman below
        for number, (moment, picture) in enumerate(film_pictures(source, 2.5)):
            if number < 45:
                writer.write(np.ascontiguousarray(picture[::2, ::2]), moment - 2.5)
    reader = VideoReader("video", "")
    clips = reader.read(next(iter(reader.items(short))))
    assert [clip.name for clip in clips] == ["walk#1", "walk#2"]
    joints = reader.info(short).topology
    for clip in clips:
        assert isinstance(clip, Clip)
        thigh = clip.frames[:, 0, joints.index("knee_left")] - clip.frames[:, 0, joints.index("hip_left")]
        lengths = np.linalg.norm(thigh[clip.present], axis=1)
        assert clip.present.mean() > 0.9
        assert 0.3 < np.median(lengths) < 0.5  # metres
        assert (thigh[clip.present][:, 1] < 0).mean() > 0.9  # y points up
