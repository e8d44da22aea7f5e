"""A `prepare` that was killed resumes from where it was, gives the same store, and takes nothing over that
has changed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import forked as subprocess
import pytest
from data.test_prepare import write_tree
from reader_samples import write_npz

from halp.core.errors import InputError, Interrupted
from halp.core.job_parts import PartDone
from halp.data.ingest import parts
from halp.data.ingest.pipeline import Outcome
from halp.data.ingest.prepare import prepare
from halp.data.readers.archives import memory_limit
from halp.data.readers.ntu import NtuReader
from halp.data.store import open_store

CLIPS = 210  # enough for parts

KILLED = """
import os, signal, sys
from halp.data.ingest import parts
from halp.data.ingest.prepare import prepare
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell inherits one that is ignored
load, loaded = parts._load, []
def deadly(part):
    loaded.append(part)
    if len(loaded) == 3:
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))
    return load(part)
parts._load = deadly
if __name__ == "__main__":
    prepare("ntu", sys.argv[1], sys.argv[2], workers=int(sys.argv[4]), progress=False)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = write_tree(tmp_path / "tree", CLIPS)
    (tree / "S001C001P001R002A007.skeleton").write_text("garbage")  # dropped once, not twice
    return tree


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*"))


def killed(folder: Path, tree: Path, *, by: str = "SIGKILL", workers: int = 1) -> None:
    (folder / "killed.py").write_text(KILLED)
    command = [sys.executable, str(folder / "killed.py"), str(tree), str(folder / "store"), by, str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL if by == "SIGKILL" else done.returncode, done.stderr


def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    seen: list[object] = []
    read = NtuReader.read

    def counted(reader: NtuReader, item: object) -> object:
        seen.append(item)
        return read(reader, item)  # type: ignore[arg-type]

    monkeypatch.setattr(NtuReader, "read", counted)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_command_resumes_after_a_kill(tmp_path: Path, tree: Path, workers: int) -> None:
    prepare("ntu", tree, tmp_path / "whole", workers=1, progress=False)
    killed(tmp_path, tree, workers=workers)
    assert not (tmp_path / "store").exists()
    assert kept(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        seen = reads(patch)
        manifest = prepare("ntu", tree, tmp_path / "store", workers=1, progress=False)
    assert len(seen) <= CLIPS + 1 - 96  # at least three parts of 32 items were kept
    assert (manifest.clips, len(manifest.dropped)) == (CLIPS, 1)
    whole, resumed = open_store(tmp_path / "whole"), open_store(tmp_path / "store")
    assert (whole.path / "frames.npy").read_bytes() == (resumed.path / "frames.npy").read_bytes()
    assert (whole.path / "index.parquet").read_bytes() == (resumed.path / "index.parquet").read_bytes()
    assert whole.header["hash"] == resumed.header["hash"]
    assert not [path for path in kept(tmp_path) if path.is_dir()]


@contextmanager
def keyboard() -> Iterator[None]:
    """Let an interrupt be one, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(tree: Path, store: Path, monkeypatch: pytest.MonkeyPatch, files: int = 3) -> Path:
    """The parts of a `prepare` that was stopped from the keyboard after this many files."""
    with monkeypatch.context() as patch, keyboard():
        load, loaded = parts._load, []

        def stopped(part: parts.Part) -> list[Outcome]:
            loaded.append(part)
            if len(loaded) == files:
                os.kill(os.getpid(), signal.SIGINT)
            return load(part)

        patch.setattr(parts, "_load", stopped)
        with pytest.raises(Interrupted, match="run the same command again"):
            prepare("ntu", tree, store, workers=1, progress=False)
    (folder,) = store.parent.glob(".store.read-*")
    return folder


def test_what_was_half_written_is_read_again(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tree, tmp_path / "store", monkeypatch)
    second = folder / "000001.safetensors"
    second.write_bytes(second.read_bytes()[:-1])
    seen = reads(monkeypatch)
    assert prepare("ntu", tree, tmp_path / "store", workers=1, progress=False).clips == CLIPS
    assert len(seen) == CLIPS + 1 - 64, "the first and the third part are whole"
    assert not folder.exists()


@pytest.mark.parametrize("change", ["file", "rights", "settings", "limit"])
@pytest.mark.heavy
def test_nothing_is_taken_over_from_other_files_or_settings(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder = interrupted(tree, tmp_path / "store", monkeypatch)
    if change == "file":
        first = next(path for path in sorted(tree.rglob("*.skeleton")) if path.stat().st_size > 20)
        os.utime(first, ns=(1, 1))
    if change == "rights":  # what could not be read may be readable now
        next(tree.rglob("*.skeleton")).chmod(0o600)
    seen = reads(monkeypatch)
    more = {"normalisation": ("centre",)} if change == "settings" else {}
    with memory_limit(2**30 if change == "limit" else None):
        prepare("ntu", tree, tmp_path / "store", workers=1, progress=False, **more)  # type: ignore[arg-type]
    assert len(seen) == CLIPS + 1
    assert not folder.exists()


def test_parts_leave_its_neighbours_alone(tmp_path: Path, tree: Path) -> None:
    neighbours = [
        tmp_path / ".store.read-mine",
        tmp_path / ".store.read-0123456789abcdef.read-0123456789abcdef",
    ]
    for folder in neighbours:
        folder.mkdir()
    stale = tmp_path / ".store.read-0123456789abcdef"
    stale.mkdir()
    prepare("ntu", tree, tmp_path / "store", workers=1, progress=False)
    assert all(folder.is_dir() for folder in neighbours)
    assert not stale.exists()


def test_an_error_or_a_full_disk_leaves_nothing(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="line 1"):
        prepare("ntu", tree, tmp_path / "store", workers=1, strict=True, progress=False)
    assert not [path for path in kept(tmp_path) if path.is_dir()]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parts, "save_arrays", full)
    with pytest.raises(InputError, match="No space left on device"):
        prepare("ntu", tree, tmp_path / "store", workers=1, progress=False)
    assert not [path for path in kept(tmp_path) if path.is_dir()]


DEADLY = """
import os, signal, sys
from pathlib import Path
from halp.data.readers.ntu import NtuReader
read = NtuReader.read
def deadly(reader, item):
    once = Path(sys.argv[3]) / item.path.name
    if item.path.name == sys.argv[4] or (item.path.name == sys.argv[5] and not once.exists()):
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return read(reader, item)
NtuReader.read = deadly
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills a process the POSIX way")
def test_a_killed_worker_costs_nothing_and_a_deadly_file_only_itself(tmp_path: Path, tree: Path) -> None:
    files = sorted(path.name for path in tree.rglob("*A0*.skeleton"))
    once, always = files[40], files[150]
    (tmp_path / "sitecustomize.py").write_text(DEADLY)  # every process runs it, workers too
    (tmp_path / "died").mkdir()
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom halp.data.ingest.prepare import prepare\n"
        "print(prepare('ntu', sys.argv[1], sys.argv[2], workers=2, progress=False).summary())\n"
    )
    places = [str(tree), str(tmp_path / "store"), str(tmp_path / "died"), always, once]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(script), *places]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    store = open_store(tmp_path / "store")
    assert len(store) == CLIPS - 1
    dropped = {drop["name"]: drop["reason"] for drop in store.manifest()["dropped"]}
    assert "died every time" in dropped[always]
    assert len(dropped) == 2, "the file of garbage is the other one"


def test_parts_of_a_job_array_make_the_same_store(tmp_path: Path, tree: Path) -> None:
    for number in (2, 3, 1):
        with pytest.raises(PartDone, match=f"part {number}/3 is done"):
            prepare("ntu", tree, tmp_path / "store", workers=1, shard=f"{number}/3", progress=False)
        assert not (tmp_path / "store").exists()
    with pytest.MonkeyPatch.context() as patch:
        seen = reads(patch)
        prepare("ntu", tree, tmp_path / "store", workers=1, progress=False)
    assert seen == []
    prepare("ntu", tree, tmp_path / "whole", workers=1, progress=False)
    assert open_store(tmp_path / "store").hash == open_store(tmp_path / "whole").hash


def test_what_cannot_be_read_in_parts_has_no_part_of_a_job_array(tmp_path: Path) -> None:
    file = write_npz(tmp_path)
    with pytest.raises(InputError, match="'interchange' cannot be read in parts; leave --shard out"):
        prepare("interchange", file, tmp_path / "store", shard="1/3", progress=False)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    prepare("interchange", file, tmp_path / "store", progress=False)
    assert len(open_store(tmp_path / "store")) > 0
