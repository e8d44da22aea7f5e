"""What a terminal shows: units beside numbers, rounded rates, and where something cannot be written."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from halp import Event, Events
from halp.cli import main
from halp.cli.app import MOST_ROWS, print_table, table_of
from halp.data.store import Store
from halp.tasks.bouts import MOST_LABELS, observed_bouts, transitions
from halp.tasks.stats import statistics


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = [f"r{n},{s},{s + 1},{'ab'[s % 2]},P{n},{'xy'[n % 2]}" for n in range(4) for s in range(6)]
    (tmp_path / "events.csv").write_text("\n".join(["recording,start,stop,label,subject,arm", *lines]) + "\n")
    return tmp_path / "events.csv"


def test_statistics_have_units_in_their_headings(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = table.with_name("page.html")
    main(["stats", str(table), "--by", "arm", "--measure", "total", "--resamples", "9", "--html", str(page)])
    shown, html = capsys.readouterr().out, page.read_text()
    for unit in ("total (s)", "mean (s)", "median (s)", "latency (s)", "rate (per minute)"):
        assert unit in shown
        assert f">{unit}" in html
    assert "groups compared by total (s), the first minus the second" in shown
    assert ">diversity (bits)" in html


@pytest.mark.parametrize(("rate", "unit"), [(["--fps", "30"], "s"), ([], "frames")])
def test_comparisons_have_units_in_their_headings(
    rate: list[str], unit: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = np.array(store.clip(0)[:, 0])
    np.save(tmp_path / "one.npy", frames)
    frames[20:30, 4:8] += 0.5  # one arm
    np.save(tmp_path / "two.npy", frames)
    files = [str(tmp_path / "one.npy"), str(tmp_path / "two.npy")]
    main(["compare", "halp-base", *files, "--option", "topology=kinect-v2", *rate])
    shown = capsys.readouterr().out
    for heading in (f"start ({unit})", f"end in the second ({unit})", "difference (bone lengths)"):
        assert heading in shown


def test_rates_of_files_are_shown_rounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from reader_samples import BVH

    (tmp_path / "in").mkdir()
    for name, step in (("a", "0.0333333"), ("b", "0.03333333")):
        (tmp_path / "in" / f"{name}.bvh").write_text(re.sub("(?<=Frame Time: ).*", step, BVH))
    main(["prepare", "bvh", str(tmp_path / "in"), str(tmp_path / "store")])
    capsys.readouterr()
    main(["inspect", str(tmp_path / "store"), "--json"])
    assert json.loads(capsys.readouterr().out)["columns"]["fps"] == {"30.0": 2}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can write")
@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["events", "TABLE", "/proc/x.csv"], "'/proc/x.csv' cannot be written"),
        (
            ["prepare", "synthetic", "2", "/proc/s"],
            "store '/proc/s' cannot be locked: nothing can be written in",
        ),
        (["export", "halp-base", "/proc/m"], "'/proc/m' cannot be locked: nothing can be written in '/proc'"),
    ],
)
def test_a_place_where_nothing_can_be_written_is_not_called_in_use(
    command: list[str], sentence: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(table) if word == "TABLE" else word for word in command])
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert sentence in told
    assert not re.search("in use|partial|None", told), told


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_a_workbook_for_which_there_is_no_room_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="workbooks need `pip install 'halp-motion[findings]'`")
    rows = [f"r,{start},{start + 1},label {start * 7919 % 9973}" for start in range(9000)]
    (tmp_path / "events.csv").write_text("\n".join(["recording,start,stop,label", *rows]) + "\n")
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "halp", "events", str(tmp_path / "events.csv"), str(tmp_path / "x.xlsx")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=small_files,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        check=False,
    )
    assert done.returncode == 2
    assert re.fullmatch(r"halp: '.*x\.xlsx' cannot be written \(.*\); choose another path\n", done.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.csv", "temporary"]
    assert not list((tmp_path / "temporary").iterdir())


def test_what_follows_what_is_not_compared_for_thousands_of_labels() -> None:
    labels = [f"note {number}" for number in range(MOST_LABELS + 1)]
    events = Events([Event("a", float(at), at + 1.0, label) for at, label in enumerate(labels)])
    with pytest.warns(UserWarning, match="101 labels: transitions are counted for at most 100"):
        assert transitions(observed_bouts(events), labels) == []


def test_a_narrow_table_keeps_every_letter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    sides = {f"shoulder_elevation_{side}": 0.0 for side in ("left", "right")}
    print_table(table_of([{"angle": name, **{f"column {n}": n for n in range(40)}} for name in sides]))
    shown = capsys.readouterr().out
    assert "…" not in shown


def test_a_long_table_is_cut_and_json_has_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, labels = tmp_path / "notes.csv", 2 * MOST_ROWS + 1
    rows = [f"r,{at},{at + 1},note {at}" for at in range(labels)]
    path.write_text("\n".join(["recording,start,stop,label", *rows]) + "\n")
    main(["stats", str(path), "--html", str(tmp_path / "page.html")])
    shown = capsys.readouterr().out
    assert shown.count("note ") == MOST_ROWS
    assert f"the first {MOST_ROWS:,} of {labels:,} rows; --json prints all of them" in shown
    assert "The 100 labels with the largest shares." in (tmp_path / "page.html").read_text()
    main(["stats", str(path), "--json"])
    assert len(json.loads(capsys.readouterr().out)["recordings"]) == labels


def test_time_of_statistics_grows_with_the_labels_and_not_with_their_square() -> None:
    def seconds(labels: int) -> float:
        events = Events([Event("a", float(at), at + 1.0, f"note {at}") for at in range(labels)])
        taken = []
        for _ in range(3):
            began = time.process_time()
            with pytest.warns(UserWarning, match="transitions are counted"):
                statistics(events)
            taken.append(time.process_time() - began)
        return min(taken)

    assert seconds(4000) < 6 * seconds(1000)  # 16 times where every label looks at every bout


def test_live_says_one_rate_that_counts_pose_and_recognition(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recognition = SimpleNamespace(busy=0.5, summary=lambda rate=99.0: f"keeps up with {rate:.0f} frames")

    def watched(model: object, source: str, *, on_frame: Any, **how: object) -> Iterator[Event]:
        for _ in range(10):
            on_frame(SimpleNamespace(pose=50.0), recognition)
        yield from ()

    monkeypatch.setattr("halp.tasks.watch.live", watched)
    main(["live", "model", "film.mp4", "--no-view"])
    assert re.findall(r"\S+ (?:frames|poses)", capsys.readouterr().err) == ["10 frames"]
