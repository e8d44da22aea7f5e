"""Every sample is recognised by its own reader and by no other, as a file and as a folder."""

from pathlib import Path

import pytest
from reader_samples import SAMPLES

from halp.core.errors import InputError
from halp.data.readers import get_reader, list_readers, sniff_reader


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("as_folder", [False, True], ids=["file", "folder"])
def test_a_sample_is_recognised_by_its_own_reader_only(sample: str, as_folder: bool, tmp_path: Path) -> None:
    own, write = SAMPLES[sample]
    source = write(tmp_path)
    source = tmp_path if as_folder else source
    assert [name for name in list_readers() if get_reader(name).sniff(source)] == [own]
    assert sniff_reader(source).name == own


@pytest.mark.parametrize("content", [b"", b"\0" * 300, b"{", b"hello", b"PK\x03\x04", b"\xff\xfe\xfa"])
@pytest.mark.parametrize("suffix", [".json", ".csv", ".npz", ".mat", ".bvh", ".txt", ".pkl", ".skeleton", ""])
def test_rubbish_is_recognised_by_nobody_of_ours_and_never_raises(
    content: bytes, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"rubbish{suffix}"
    path.write_bytes(content)
    ours = {reader for reader, _ in SAMPLES.values()}
    assert not [name for name in ours if get_reader(name).sniff(path)]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "is empty; put recordings into it"),
        (["a.wmv", "b.MPG"], "2 files .* are video, not poses; run a pose estimator first"),
        (["a/1.jpg"], "is a picture, not poses"),
        (["a.fbx"], "export the animation as BVH"),
        (["a.slp", "notes.md"], "analysis file"),
        (["readme.md"], "1 file \\(1 .md\\).*`halp formats` lists"),
    ],
)
def test_a_source_that_nobody_reads_says_what_was_found_and_what_to_do(
    files, message: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match=message):
        sniff_reader(tmp_path)


def test_films_are_recognised_beside_files_that_hold_no_poses(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")
    assert sniff_reader(tmp_path).name == sniff_reader(tmp_path / "a.mp4").name == "video"
    (tmp_path / "a.json").write_text("{}")
    assert sniff_reader(tmp_path).name == "video"


def test_a_missing_path_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is nothing at"):
        sniff_reader(tmp_path / "nowhere")


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "take.bvh").touch()
    with pytest.raises(InputError, match=r"take\.bvh' is empty; fetch or export the recordings again"):
        sniff_reader(tmp_path)
