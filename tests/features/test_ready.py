"""The same recordings give the same vectors from files, stores and arrays, whatever a store was normalised
by; or a refusal.
"""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import halp
from halp.cli import main
from halp.core.packages import list_encoders
from halp.data.cleaning import fill_gaps
from halp.data.store import Store
from halp.encoders import EncoderSettings
from halp.encoders.pretrained import PretrainedEncoder, build_architecture
from halp.features.encode import ready_clips
from halp.features.opening import open_source
from halp.skeleton import get_topology, map_joints

BODY = get_topology("body-16")
STEPS = list_encoders()["halp-base"]["normalisation"]
LAYOUT = {"options": {"topology": "kinect-v2"}}


@pytest.fixture(scope="module")
def encoder() -> PretrainedEncoder:
    """An encoder that reads what halp-base reads."""
    architecture = EncoderSettings("gru", hidden=8, layers=1).to_plain()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inner = build_architecture(architecture, BODY, 2)
    return PretrainedEncoder(
        inner, BODY, persons=2, frames=16, normalisation=STEPS, architecture=architecture, origin={"run": "r"}
    ).eval()


@pytest.fixture(scope="module")
def recordings(store: Store) -> list[np.ndarray]:
    """Raw recordings `(T, 25, 3)`: people of any size who face and walk anywhere, with empty frames and
    missing joints.
    """
    draw = np.random.default_rng(0)
    clips = []
    for number in range(6):
        frames = np.array(store.clip(number)[:, 0])
        frames = frames[(frames != 0).any((1, 2))]
        turn = np.linalg.qr(draw.normal(size=(3, 3)))[0]
        frames = frames @ (turn * np.sign(np.linalg.det(turn))).T * draw.uniform(0.5, 2)
        frames += np.cumsum(draw.normal(size=(len(frames), 1, 3)) * 0.02, axis=0) + draw.normal(size=3)
        frames[draw.random(len(frames)) < 0.1 * (number % 2)] = 0
        frames[draw.random(len(frames)) < 0.2, store.topology.index("elbow_left")] = 0
        clips.append(frames.astype(np.float32))
    return clips


@pytest.fixture(scope="module")
def folder(recordings: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings")
    for number, frames in enumerate(recordings):
        np.save(path / f"{number}.npy", frames)
    return path


@pytest.fixture(scope="module")
def vectors(encoder: PretrainedEncoder, recordings: list[np.ndarray]) -> np.ndarray:
    return halp.embed(encoder, recordings, topology="kinect-v2", progress=False)


def test_files_and_arrays_give_the_same_vectors(
    encoder: PretrainedEncoder, folder: Path, recordings: list[np.ndarray], vectors: np.ndarray
) -> None:
    np.testing.assert_array_equal(halp.embed(encoder, folder, **LAYOUT, progress=False), vectors)
    persons = [frames[:, None] for frames in recordings]
    np.testing.assert_array_equal(halp.embed(encoder, persons, topology="kinect-v2", progress=False), vectors)
    mapped = [map_joints(frames, get_topology("kinect-v2"), BODY) for frames in recordings]
    np.testing.assert_allclose(halp.embed(encoder, mapped, progress=False), vectors, atol=1e-6)


@pytest.mark.parametrize(
    "steps",
    [
        (),
        ("centre",),
        ("drop-empty", "centre"),
        ("scale",),
        tuple(STEPS),
        ("centre", "rotate-first"),
        ("centre-persons",),
    ],
    ids=" ".join,
)
def test_a_store_gives_the_vectors_of_its_recordings(
    encoder: PretrainedEncoder, folder: Path, vectors: np.ndarray, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    halp.prepare("arrays", folder, tmp_path / "store", normalisation=steps, progress=False, **LAYOUT)
    np.testing.assert_allclose(halp.embed(encoder, tmp_path / "store", progress=False), vectors, atol=1e-5)


def test_windows_of_a_store_that_left_out_empty_frames_are_those_of_the_recordings(
    encoder: PretrainedEncoder, folder: Path, tmp_path: Path
) -> None:
    options = {"window": 1.0, "stride": 0.5, "cache": False, "progress": False}
    one = halp.embed_table(encoder, folder, fps=30.0, **LAYOUT, **options)
    steps = ("drop-empty", "centre")
    halp.prepare(
        "arrays", folder, tmp_path / "store", normalisation=steps, fps=30.0, progress=False, **LAYOUT
    )
    other = halp.embed_table(encoder, tmp_path / "store", **options)
    assert one.names == other.names
    for column in ("starts", "stops", "seen"):
        np.testing.assert_allclose(getattr(one, column), getattr(other, column))
    np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-5)
    assert one.absent(1)
    np.testing.assert_allclose(one.absent(1), other.absent(1))


def test_the_centre_joint_of_a_store_is_not_missing_for_an_encoder_with_another(
    encoder: PretrainedEncoder, folder: Path, tmp_path: Path
) -> None:
    halp.prepare("arrays", folder, tmp_path / "store", normalisation=("centre",), progress=False, **LAYOUT)
    assert get_topology("kinect-v2").centre == "spine"
    (clip,) = ready_clips(encoder, open_source(tmp_path / "store"), [0])
    assert (clip.frames[:, 0, BODY.index("spine")] != 0).any(1).all()
    assert not clip.frames[:, 0, BODY.index(BODY.centre)].any()


def test_a_store_that_cannot_be_made_ready_is_refused_with_a_command_that_works(
    encoder: PretrainedEncoder,
    folder: Path,
    vectors: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder.parent)
    halp.prepare(
        "arrays", folder, tmp_path / "turned", normalisation=("yaw-frames",), progress=False, **LAYOUT
    )
    with pytest.raises(
        halp.InputError, match="cannot undo yaw-frames; prepare the recordings for it: `halp"
    ) as refused:
        halp.embed(encoder, tmp_path / "turned", progress=False)
    command = shlex.split(str(refused.value).split("`")[1])
    main(command[1:])
    np.testing.assert_allclose(halp.embed(encoder, Path(command[4]), progress=False), vectors, atol=1e-5)


def test_repairs_of_a_store_that_the_encoder_does_not_do_are_reported(
    encoder: PretrainedEncoder, folder: Path, tmp_path: Path
) -> None:
    halp.prepare(
        "arrays", folder, tmp_path / "store", normalisation=("smooth", "centre"), progress=False, **LAYOUT
    )
    with pytest.warns(UserWarning, match="repaired by smooth"):
        halp.embed(encoder, tmp_path / "store", progress=False)


def test_nobody_has_a_vector_of_zeros_and_empty_frames_around_a_clip_are_left_out(
    encoder: PretrainedEncoder, recordings: list[np.ndarray]
) -> None:
    clip = recordings[0]
    empty = np.zeros_like(clip[:5])
    gap = np.concatenate([empty, clip, empty])
    lost = np.where((gap == 0).all((1, 2), keepdims=True), np.nan, gap)
    found = halp.embed(encoder, [clip, gap, lost, np.zeros_like(clip)], topology="kinect-v2", progress=False)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    assert found[0].any()
    assert not found[3].any()


@pytest.mark.parametrize("name", ["halp-base", "halp-view"])
def test_shipped_encoders_give_zeros_where_nobody_is_seen(name: str) -> None:
    encoder = halp.load_encoder(name)
    clip = np.zeros((20, 1, len(encoder.topology), encoder.topology.dimensions), dtype=np.float32)
    assert not halp.embed(encoder, clip, progress=False).any()


@pytest.fixture(scope="module")
def whole(store: Store) -> list[np.ndarray]:
    """Recordings `(T, 25, 3)` of one person without gaps."""
    clips = [np.array(store.clip(number)[:, 0]) for number in range(8)]
    return [clip[(clip != 0).any((1, 2))] + np.float32(3) for clip in clips]


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


@pytest.mark.parametrize("lost", ["joints", "frames", "both"])
def test_joints_that_a_detector_missed_are_filled_and_reported(whole: list[np.ndarray], lost: str) -> None:
    draw, damaged = np.random.default_rng(0), []
    for clip in whole:
        gone = np.zeros(clip.shape[:2], dtype=bool)
        if lost != "frames":
            gone |= draw.random(gone.shape) < 0.3
        if lost != "joints":
            gone |= draw.random((len(gone), 1)) < 0.2
        damaged.append(np.where(gone[..., None], np.float32(0), clip))
    wanted = halp.embed("halp-base", whole, topology="kinect-v2", progress=False)
    with pytest.warns(UserWarning, match=r"joint positions \([0-9.]+%\) were missing and were interpolated"):
        table = halp.embed_table("halp-base", damaged, topology="kinect-v2", cache=False, progress=False)
    assert cosines(table.vectors, wanted).min() > 0.8
    assert "interpolated" in table.warnings[-1]


def test_the_filled_share_is_reported_again_when_vectors_come_from_the_cache(
    encoder: PretrainedEncoder, recordings: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path))
    for _ in range(2):
        with pytest.warns(UserWarning, match="interpolated"):
            assert halp.embed_table(encoder, recordings, topology="kinect-v2", progress=False).warnings


def test_somebody_who_is_away_for_most_of_a_clip_is_not_filled_in(whole: list[np.ndarray]) -> None:
    pair = np.stack([whole[0][:40], whole[1][:40] + 1], axis=1)
    pair[5:35, 1] = 0
    filled = fill_gaps(pair, get_topology("kinect-v2"))
    np.testing.assert_array_equal(filled, pair)


def two(clip: np.ndarray, slot: int) -> np.ndarray:
    """A person alone in one of two slots."""
    frames = np.zeros((len(clip), 2, *clip.shape[1:]), dtype=np.float32)
    frames[:, slot] = clip
    return frames


@pytest.mark.parametrize("path", ["arrays", "files", "store", "plain store", "ready", "prepared"])
def test_a_person_in_the_second_slot_has_the_vector_of_the_first(
    encoder: PretrainedEncoder, whole: list[np.ndarray], tmp_path: Path, path: str
) -> None:
    def vectors(slot: int) -> np.ndarray:
        clips, folder = [two(clip, slot) for clip in whole], tmp_path / str(slot)
        if path in ("arrays", "prepared"):
            function = halp.embed if path == "arrays" else halp.prepare_for
            return function(
                encoder, clips, topology="kinect-v2", **({"progress": False} if path == "arrays" else {})
            )
        folder.mkdir()
        for number, clip in enumerate(clips):
            np.save(folder / f"{number}.npy", clip)
        if path == "files":
            return halp.embed(encoder, folder, **LAYOUT, progress=False)
        steps = {"store": tuple(STEPS), "plain store": (), "ready": tuple(STEPS)}[path]
        target = {"topology": "body-16"} if path == "ready" else {}
        halp.prepare(
            "arrays", folder, tmp_path / f"s{slot}", normalisation=steps, progress=False, **LAYOUT, **target
        )
        return halp.embed(encoder, tmp_path / f"s{slot}", progress=False)

    np.testing.assert_allclose(vectors(1), vectors(0), atol=1e-5)


def test_a_window_after_the_first_person_left_is_that_of_the_second_alone(
    encoder: PretrainedEncoder, whole: list[np.ndarray], tmp_path: Path
) -> None:
    first, second = whole[0][:30], np.concatenate([whole[1][:30], whole[2][:30]]) + np.float32(1)
    pair = np.stack([np.concatenate([first, np.zeros_like(first)]), second], axis=1)
    options = {"window": 1.0, "fps": 30.0, "progress": False}
    both = halp.embed(encoder, pair, topology="kinect-v2", **options)
    alone = halp.embed(encoder, second, topology="kinect-v2", **options)
    np.testing.assert_allclose(both[1], alone[1], atol=1e-5)
    assert np.abs(both[0] - alone[0]).max() > 1e-3
    np.save(tmp_path / "pair.npy", pair)
    for steps in ((), ("centre",), tuple(STEPS)):
        store = tmp_path / f"store{len(steps)}"
        halp.prepare(
            "arrays", tmp_path / "pair.npy", store, normalisation=steps, fps=30, progress=False, **LAYOUT
        )
        np.testing.assert_allclose(halp.embed(encoder, store, **options)[1], alone[1], atol=1e-5)


def test_two_dimensional_recordings_are_refused_with_a_way_out(encoder: PretrainedEncoder) -> None:
    with pytest.raises(
        halp.InputError, match=r"reads 3 coordinates .*`halp encoders`.*`halp pretrain small --data"
    ):
        halp.embed(encoder, np.ones((10, 17, 2)), topology="coco-17", progress=False)


def test_arrays_that_are_centred_on_a_joint_are_warned_about(encoder: PretrainedEncoder) -> None:
    body = np.random.default_rng(0).normal(size=(4, 30, 25, 3)).astype(np.float32)
    spine = get_topology("kinect-v2").index("spine")
    centred = body.copy()
    centred[:, :, spine] = 0
    with pytest.warns(UserWarning, match="joint 'spine' is at zero in every frame"):
        halp.embed(encoder, list(centred), topology="kinect-v2", progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        halp.embed(encoder, list(centred + 7), topology="kinect-v2", progress=False)
        unseen = body + 7  # a joint that a detector never finds, far from the origin
        unseen[:, :, spine] = 0
        halp.embed(encoder, list(unseen), topology="kinect-v2", progress=False)
