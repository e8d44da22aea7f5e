"""Every line of the table of formats in the documentation is true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reader_samples import OPTIONS, SAMPLES, write_amass, write_bvh, write_deeplabcut

from halp.core.errors import InputError
from halp.data.readers import get_reader, list_readers, sniff_reader, with_options

DOCS = Path(__file__).parents[3] / "docs" / "formats.md"
# The samples that a line stands for.
READ = {
    "BVH motion capture": ["bvh"],
    "C3D, labelled points": ["c3d", "c3d integers"],
    "OpenSim TRC (OpenCap, Pose2Sim)": ["trc"],
    "Xsens MVNX": ["mvnx"],
    "Wide CSV, a row per frame (Rokoko, Xsens sheets, own tools)": ["csv-wide"],
    "Rokoko Studio JSON": ["rokoko"],
    "Kinect v2 `.skeleton` files under names of your own": ["skeleton"],
    "Long CSV, a row per joint": ["csv"],
    "MediaPipe JSON: lists, by frame number, by landmark name, JSON Lines, NaN": [
        "mediapipe",
        "mediapipe names",
    ],
    "MediaPipe CSV, also with a `class` column": ["mediapipe csv", "mediapipe tutorial"],
    "OpenPose folders": ["openpose"],
    "COCO-17 JSON (MMPose, Ultralytics, AlphaPose)": ["coco17"],
    "YOLO keypoint text files": ["yolo"],
    "Azure Kinect JSON": ["azure-kinect"],
    "DeepLabCut CSV": ["deeplabcut", "deeplabcut individuals"],
    "DeepLabCut H5": ["deeplabcut h5"],
    "SLEAP analysis CSV": ["sleap csv"],
    "SLEAP analysis H5": ["sleap h5"],
    "movement netCDF": ["movement"],
    "FreeMoCap recording folder": ["freemocap"],
    "Human3.6M npz (3D or 2D)": ["h36m"],
    "AMASS npz with stored joints": ["amass"],
    "Array .npy, JSON or JSON Lines": ["arrays", "arrays json lines"],
    "Interchange .npz, all clips of a set": ["interchange"],
    "NW-UCLA, UTD-MHAD, MSR-Action3D, UTKinect": ["nw-ucla", "utd-mhad", "msr-action3d", "utkinect"],
}


def two_formats(folder: Path) -> None:
    write_bvh(folder)
    write_deeplabcut(folder)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "AMASS npz without joints": (
        lambda folder: write_amass(folder, joints=False),
        "give your .npz file of SMPL",
    ),
    "Videos without `halp-motion[video]` or its weights": (
        lambda folder: (folder / "a.mp4").write_bytes(b"x"),
        r"halp pose-model|halp-motion\[video\]",
    ),
    "Images": (lambda folder: (folder / "a.jpg").write_bytes(b"x"), "run a pose estimator first"),
    "Empty folder": (lambda folder: None, "is empty"),
    "Files of several formats": (two_formats, "could be of several formats"),
    "Anything else": (lambda folder: (folder / "a.xyz").write_bytes(b"x"), r"1 file \(1 .xyz\)"),
}


def lines() -> dict[str, tuple[str, str]]:
    table = DOCS.read_text(encoding="utf-8").split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("|")
    ]
    return {source: (name, auto) for source, name, auto in rows[2:]}


def test_the_table_has_the_lines_that_are_tested() -> None:
    elsewhere = {"Videos (mp4, mov, avi, mkv, webm)"}  # in tests/video
    assert set(lines()) == READ.keys() | REFUSED.keys() | elsewhere
    assert {sample for samples in READ.values() for sample in samples} >= SAMPLES.keys() - {"utd-mhad packed"}


@pytest.mark.parametrize("line", READ)
def test_a_source_that_is_said_to_be_read_is_read(line: str, tmp_path: Path) -> None:
    said, auto = lines()[line]
    assert auto.startswith("reads")
    for sample in READ[line]:
        if sample not in SAMPLES:
            pytest.skip("h5py is not installed")
        reader, write = SAMPLES[sample]
        folder = tmp_path / sample
        folder.mkdir()
        source = write(folder)
        assert f"`{reader}`" == said or said == "by their names"
        found = sniff_reader(source)
        assert found.name == reader
        ready = with_options(found, OPTIONS.get(reader, {}))
        assert any(hasattr(clip, "frames") for item in ready.items(source) for clip in ready.read(item))


@pytest.mark.parametrize("line", REFUSED)
def test_a_source_that_is_said_to_be_refused_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path.parent / "no-weights"))
    monkeypatch.delenv("HALP_POSE_MODEL", raising=False)
    write, message = REFUSED[line]
    write(tmp_path)
    assert lines()[line][1].startswith("refuses")
    with pytest.raises(InputError, match=message):
        sniff_reader(tmp_path).info(tmp_path)


def test_every_reader_is_in_the_table_or_among_the_large_sets() -> None:
    text = DOCS.read_text(encoding="utf-8")
    by_name = {"nw-ucla", "utd-mhad", "msr-action3d", "utkinect"}
    ours = [name for name in list_readers() if type(get_reader(name)).__module__.startswith("halp.")]
    assert len(ours) > 25
    missing = [name for name in ours if f"`{name}`" not in text and name not in by_name]
    assert not missing
