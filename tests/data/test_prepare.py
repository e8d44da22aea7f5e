"""`prepare` gives a whole store or none, names what it leaves out, and does the same with one process and
with many.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from clip_samples import NAME, bodies, skeleton_text, write_skeleton

from halp.core.errors import InputError
from halp.data.ingest.prepare import prepare
from halp.data.normalise import AUTHORS
from halp.data.readers import Info, Item, get_reader, register_reader
from halp.data.store import open_store
from halp.skeleton import KINECT_V1, KINECT_V2


def write_tree(folder: Path, clips: int = 8, frames: int = 3) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = skeleton_text(bodies(frames, 2))
    for number in range(clips):
        name = f"S001C{number % 3 + 1:03}P{number // 60 % 40 + 1:03}R001A{number % 60 + 1:03}"
        (folder / f"{name}-{number}").mkdir()
        (folder / f"{name}-{number}" / f"S{number // 2400 + 1:03}{name[4:]}.skeleton").write_text(text)
    return folder


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "partial" in path.name)


def test_a_store_knows_how_it_was_made(tmp_path: Path) -> None:
    manifest = prepare("auto", write_tree(tmp_path / "tree"), tmp_path / "store", progress=False)
    store = open_store(tmp_path / "store")
    assert (len(store), manifest.clips, manifest.frames) == (8, 8, 24)
    assert store.normalisation == list(AUTHORS)
    assert store.manifest()["counts"]["clips"] == 8
    assert store.manifest()["cameras"] == {"1": 3, "2": 3, "3": 2}
    assert store.manifest()["classes"]["drink water"] == 1
    assert store.header["origin"]["format"] == "ntu"
    assert manifest.splits["xview"] == {"train": 5, "test": 3}
    assert "8 clips" in manifest.summary()


def test_one_bad_clip_is_skipped_and_named_unless_strict(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    bad = tree / "S001C001P001R002A007.skeleton"
    bad.write_text("garbage")
    manifest = prepare("ntu", tree, tmp_path / "store", progress=False)
    assert manifest.clips == 8
    (dropped,) = open_store(tmp_path / "store").manifest()["dropped"]
    assert dropped["name"] == bad.name
    assert "line 1" in dropped["reason"]
    with pytest.raises(InputError, match="garbage"):
        prepare("ntu", tree, tmp_path / "strict", strict=True, progress=False)
    assert not (tmp_path / "strict").exists()
    assert not leftovers(tmp_path)


def test_a_second_clip_of_the_same_name_is_dropped(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "tree" / "a")
    write_skeleton(tmp_path / "tree" / "b")
    manifest = prepare("ntu", tmp_path / "tree", tmp_path / "store", progress=False)
    assert (manifest.clips, manifest.dropped[0]["name"]) == (1, NAME)


def test_an_unreadable_file_is_skipped_and_named(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "S001C001P001R002A007.skeleton").mkdir()
    locked = tree / "S001C001P001R002A008.skeleton"
    locked.write_text("1\n")
    locked.chmod(0)
    manifest = prepare("ntu", tree, tmp_path / "store", progress=False)
    assert [one["name"] for one in manifest.dropped] == [locked.name]


def test_when_nothing_is_left_the_first_reason_is_given_and_no_store_appears(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / f"{NAME}.skeleton").write_text("garbage")
    with pytest.raises(InputError, match="garbage"):
        prepare("ntu", tree, tmp_path / "store", progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tree"]


def test_wrong_use_is_reported_before_anything_is_read(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", 1)
    for settings, message in (
        ({"normalisation": ("center",)}, "did you mean 'centre'"),
        ({"topology": "kinect-v3"}, "unknown topology"),
        ({"topology": "coco-17"}, "2"),
        ({"workers": 0}, "at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            prepare("ntu", tree, tmp_path / "store", progress=False, **settings)
    with pytest.raises(InputError, match="unknown format 'nut'"):
        prepare("nut", tree, tmp_path / "store")
    with pytest.raises(InputError, match="nothing at"):
        prepare("ntu", tmp_path / "nowhere", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="is empty"):
        prepare("auto", tmp_path / "empty", tmp_path / "store")
    (tmp_path / "store").mkdir()
    with pytest.raises(InputError, match="exists already"):
        prepare("ntu", tree, tmp_path / "store", progress=False)


def test_joints_are_mapped_by_name_onto_another_topology(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "tree")
    prepare(
        "ntu", tmp_path / "tree", tmp_path / "store", topology="kinect-v1", normalisation=(), progress=False
    )
    store = open_store(tmp_path / "store")
    assert store.topology == KINECT_V1
    np.testing.assert_array_equal(
        store.clip(0)[:, :1], bodies()[:, :, [KINECT_V2.index(joint) for joint in KINECT_V1.joints]]
    )


def test_limit_takes_the_first_items(tmp_path: Path) -> None:
    assert (
        prepare("ntu", write_tree(tmp_path / "tree"), tmp_path / "store", limit=3, progress=False).clips == 3
    )


class Stumbling:
    """A reader with a bug."""

    name, description = "stumbling", "a reader with a bug"

    def sniff(self, path: Path) -> bool:
        return False

    def info(self, path: Path) -> Info:
        return Info(KINECT_V2)

    def items(self, path: Path) -> list[Item]:
        return [Item(path / "a"), Item(path / "b")]

    def read(self, item: Item) -> list:
        raise ZeroDivisionError("one over nothing")


def test_a_reader_that_stumbles_costs_its_clips_and_no_traceback(tmp_path: Path) -> None:
    register_reader(Stumbling())
    with pytest.raises(InputError, match="ZeroDivisionError: one over nothing"):
        prepare("stumbling", tmp_path, tmp_path / "store", progress=False)
    assert get_reader("stumbling").name == "stumbling"


@pytest.mark.slow
def test_many_processes_make_the_same_store_as_one(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", 260)
    (tree / "S001C001P001R002A007.skeleton").write_text("garbage")
    for workers in (1, 2):
        prepare("ntu", tree, tmp_path / f"store{workers}", workers=workers, progress=False)
    one, two = (open_store(tmp_path / f"store{workers}") for workers in (1, 2))
    assert one.hash == two.hash
    assert one.manifest()["dropped"] == two.manifest()["dropped"]


def run_in_background(tree: Path, store: Path, workers: int) -> subprocess.Popen:
    code = (
        "from halp.data.ingest.prepare import prepare\nif __name__ == '__main__': prepare('ntu',"
        f" {str(tree)!r}, {str(store)!r}, workers={workers}, progress=False)\n"
    )
    script = store.parent / "script.py"
    script.write_text(code)
    return subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.skipif(os.name != "posix", reason="kills a process the POSIX way")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_leaves_no_store_and_the_next_one_clears_up(tmp_path: Path, workers: int) -> None:
    tree = write_tree(tmp_path / "tree", 1500, frames=12)
    process = run_in_background(tree, tmp_path / "store", workers)
    deadline = time.monotonic() + 300
    while not leftovers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert leftovers(tmp_path)
    assert not (tmp_path / "store").exists()
    prepare("ntu", tree, tmp_path / "store", limit=5, progress=False)
    assert len(open_store(tmp_path / "store")) == 5
    assert not leftovers(tmp_path)


def test_the_lock_of_a_run_that_was_killed_before_its_first_file_goes(tmp_path: Path) -> None:
    (tmp_path / ".store.partial-0a1b2c3d.lock").write_text("process 1 on here")
    prepare("ntu", write_tree(tmp_path / "tree", 5), tmp_path / "store", progress=False)
    assert leftovers(tmp_path) == []


def test_what_a_running_process_writes_is_left_alone(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    prepare("ntu", tree, tmp_path / "store", progress=False)
    from halp.core.files import building

    with building(tmp_path / "store", replace=True) as others:
        prepare("ntu", tree, tmp_path / "store", overwrite=True, progress=False)
        assert others.is_dir()
    assert not leftovers(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are set the POSIX way")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", 30, frames=12)
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "from halp.data.ingest.prepare import prepare\nfrom halp.core.errors import InputError\n"
        f"try:\n    prepare('ntu', {str(tree)!r}, {str(tmp_path / 'store')!r}, progress=False)\n"
        "except InputError as error:\n    raise SystemExit('SENTENCE ' + str(error))\n"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.startswith("SENTENCE")
    assert "too large" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tree"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data_set(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    original = tmp_path / "original"
    original.write_text(skeleton_text(bodies(30, 2)))
    for number in range(2000):
        name = f"S{number // 2400 + 1:03}C001P{number // 60 % 40 + 1:03}R001A{number % 60 + 1:03}"
        os.link(original, tree / f"{name}.skeleton")
    code = (
        "import json, resource, sys\nfrom halp.data.ingest.prepare import prepare\n"
        "if __name__ == '__main__':\n"
        f"    prepare('ntu', {str(tree)!r}, sys.argv[1], limit=int(sys.argv[2]), workers=1, progress=False)\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peaks = []
    for limit in (200, 2000):
        command = [sys.executable, "-c", code, str(tmp_path / f"store{limit}"), str(limit)]
        peaks.append(
            json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1024
        )
    assert peaks[1] < peaks[0] + 20  # MiB; the frames themselves are 34 MiB more


def test_reader_options_change_what_is_missing_and_are_recorded(tmp_path: Path) -> None:
    rows = ["clip,frame,person,joint,x,y,score"]
    for frame in range(4):
        for joint, score in (("hip_center", 0.9), ("spine", 0.2)):
            rows.append(f"a,{frame},0,{joint},{frame + 1},2,{score}")
    source = tmp_path / "poses.csv"
    source.write_text("\n".join(rows) + "\n")
    missing = {}
    for name, options in (("all", {}), ("sure", {"min_score": 0.5})):
        prepare("csv", source, tmp_path / name, normalisation=(), options=options, progress=False)
        store = open_store(tmp_path / name)
        missing[name] = int((store.clip(0) == 0).all(-1).sum())
        assert store.header["origin"]["options"] == options
    assert missing == {"all": 0, "sure": 4}


@pytest.mark.parametrize(
    ("options", "words"),
    [({"min_scor": 0.5}, "did you mean 'min_score'"), ({"persons": 1.5}, "whole number")],
)
def test_wrong_reader_options_are_named(tmp_path: Path, options: dict[str, float], words: str) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(InputError, match=words):
        prepare("coco17", tmp_path / "source", tmp_path / "store", options=options, progress=False)
    with pytest.raises(InputError, match="has no options"):
        prepare(
            "nw-ucla", tmp_path / "source", tmp_path / "store", options={"min_score": 0.5}, progress=False
        )
