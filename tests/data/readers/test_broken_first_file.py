"""A folder whose first file is broken is read without it: every format, recognised or named."""

from __future__ import annotations

import sys
from pathlib import Path

import forked as subprocess
import numpy as np
import pytest
from reader_samples import OPTIONS, SAMPLES, files_of

import halp
from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.ingest.pipeline import plan_reading

ONE_FILE = {"interchange", "h36m"}  # a source is one file
DAMAGES = {
    "empty": lambda content: b"",
    "text": lambda content: b"hello\n",
    "binary": lambda content: np.random.default_rng(0).bytes(3000),
    "cut": lambda content: content[: len(content) // 3],
}


def folder_of(sample: str, place: Path, damage: str) -> Path:
    """The sample under three names of folders and people, the first of them damaged."""
    for name in ("a", "b", "c"):
        (place / name).mkdir()
        SAMPLES[sample][1](place / name)
        for path in place.glob(f"{name}/*.csv") if sample == "csv" else ():  # clips are named inside
            path.write_text(path.read_text().replace("anna", f"anna {name}").replace("ben", f"ben {name}"))
    for path in files_of(place / "a"):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    return place


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("sample", sorted(SAMPLES.keys() - ONE_FILE))
def test_a_broken_first_file_does_not_hide_the_others(sample: str, damage: str, tmp_path: Path) -> None:
    source, reader = folder_of(sample, tmp_path, damage), SAMPLES[sample][0]
    # half a file may look like one of another format
    for file_format in (reader,) if damage == "cut" else (reader, "auto"):
        pipeline, items = plan_reading(source, file_format, options=OPTIONS.get(reader))
        assert pipeline.reader.name == reader
        clips = [one for one in pipeline.work(items) if isinstance(one, Clip)]
        assert {clip.source.split("/")[0] for clip in clips} >= {"b", "c"}


@pytest.mark.parametrize("sample", ["bvh", "csv", "openpose", "trc"])
def test_a_folder_with_nothing_readable_names_its_first_file(sample: str, tmp_path: Path) -> None:
    source = folder_of(sample, tmp_path, "cut")
    for path in files_of(source):
        path.write_bytes(b"hello\n")
    with pytest.raises(InputError, match=f"'{source}/a/"):
        plan_reading(source, SAMPLES[sample][0])


def test_a_broken_first_file_is_named_with_every_answer(tmp_path: Path) -> None:
    source = folder_of("bvh", tmp_path, "text")
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"1 recording was left out: 'step\.bvh'; .*'hello' instead of"):
            assert len(halp.open_source(source).rows) == 2


def test_a_store_is_made_of_the_others_with_exit_code_0(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = folder_of("bvh", tmp_path / "in", "text")
    command = [sys.executable, "-m", "halp", "prepare", "auto", str(source), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "2 clips, 4 frames; 1 dropped" in done.stderr) == (0, True), done.stderr
