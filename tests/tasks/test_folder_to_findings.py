"""A folder of recordings becomes segments, statistics and files of other programs; labelled spans train a
classifier.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import openpyxl
import pympi
import pytest
from interchange_samples import write_interchange
from use_samples import fresh_encoder

from benchmarks.exercises import synthetic_exercise
from halp.cli import main
from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.spans import NOBODY, Event, Events
from halp.data.store import Store
from halp.data.windows import WindowSettings, span_columns
from halp.features.opening import open_source
from halp.skeleton import KINECT_V2
from halp.tasks.events.formats import write_events
from halp.tasks.export import export
from halp.tasks.windows import label_windows, usual_cutting
from tests.tasks.test_errors_stated import unstated


@pytest.fixture(scope="module")
def package(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(fresh_encoder(store), tmp_path_factory.mktemp("packages") / "small")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with six recordings: squats, then nobody for two seconds, then kicks."""
    folder, clips = tmp_path_factory.mktemp("recordings"), []
    for number in range(6):
        parts = [
            synthetic_exercise(name, 2, 30 + number, pauses=False, partial=False).frames
            for name in ("squat", "kick")
        ]
        frames = np.concatenate([parts[0], np.zeros((60, *parts[0].shape[1:]), dtype=np.float32), parts[1]])
        clip = Clip(frames, f"visit-{number}", subject=number + 1, fps=30.0)
        clips.append(replace(clip, extra=span_columns(clip)))
    write_interchange(clips, folder / "visits.npz", topology=KINECT_V2)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))


@pytest.mark.heavy
def test_segments_become_a_page_of_statistics_and_files_of_boris_and_elan(
    package: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segments, page = tmp_path / "segments.csv", tmp_path / "stats.html"
    main(
        [
            "segment",
            str(package),
            str(folder),
            "--groups",
            "2",
            "--window",
            "1",
            "--stride",
            "0.5",
            "--out",
            str(segments),
        ]
    )
    capsys.readouterr()
    main(["stats", str(segments), "--recordings", str(folder), "--bins", "5", "--html", str(page), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert {row["recording"] for row in answer["recordings"]} == {f"visit-{n}" for n in range(6)}
    assert [row["recording"] for row in answer["observed"]] == [f"visit-{n}" for n in range(6)]
    assert all(1.0 < row["nobody"] < 3.0 for row in answer["observed"])
    for row in answer["observed"]:  # groups cover the time in which somebody is there
        shares = [r["share"] for r in answer["recordings"] if r["recording"] == row["recording"]]
        assert sum(shares) == pytest.approx(1, abs=0.02)
    assert "Ethogram" in page.read_text()
    main(["events", str(segments), str(tmp_path / "project.boris")])
    main(["events", str(segments), str(tmp_path / "elan"), "--to", "elan"])
    main(["events", str(segments), str(tmp_path / "books"), "--to", "boris-xlsx"])
    project = json.loads((tmp_path / "project.boris").read_text())
    assert len(project["observations"]) == 6
    marks = project["observations"]["visit-0"]["events"]
    assert len(marks) % 2 == 0
    document = pympi.Elan.Eaf(str(tmp_path / "elan" / "visit-0.eaf"))
    annotations = [
        row for tier in document.get_tier_names() for row in document.get_annotation_data_for_tier(tier)
    ]
    assert len(annotations) == len(marks) // 2
    assert NOBODY in {row[2] for row in annotations}
    assert openpyxl.load_workbook(tmp_path / "books" / "visit-0.xlsx").active.max_row == 1 + len(marks)


def spans(folder: Path) -> Events:
    """What a person would code: squats until nobody is there, kicks afterwards."""
    events = []
    opened = open_source(folder)
    for clip, _ in opened.read():
        seen = clip.restored().present
        away = np.flatnonzero(~seen)
        first, last = away.min() / 30, (away.max() + 1) / 30
        events += [
            Event(clip.name + ".mp4", 0, first, "squat"),
            Event(clip.name + ".mp4", last, len(seen) / 30, "kick"),
        ]
    return Events(events)


@pytest.mark.heavy
def test_labelled_spans_of_another_program_train_a_classifier(
    package: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_events(spans(folder), tmp_path / "coded.boris")
    model = tmp_path / "model"
    options = f"--events {tmp_path / 'coded.boris'} --window 1 --kind knn"
    main(["classify", "fit", str(package), str(folder), str(model), *options.split(), "--json"])
    assert "have a label of" in capsys.readouterr().err
    main(["classify", "predict", str(model), str(folder), "--reject", "none", "--json"])
    answers = [answer for answer in json.loads(capsys.readouterr().out) if "state" not in answer]
    assert {answer["label"] for answer in answers} == {"squat", "kick"}
    truth = {
        event.recording.removesuffix(".mp4"): event.stop for event in spans(folder) if event.label == "squat"
    }
    right = [(a["label"] == "squat") == (a["end"] <= truth[a["name"]] + 0.5) for a in answers]
    assert np.mean(right) > 0.9  # of the windows it was fitted on


def test_windows_take_the_label_of_the_event_they_lie_in(folder: Path) -> None:
    events = spans(folder)
    cutting = usual_cutting(events, WindowSettings(1.0, 0.5))
    source = open_source(folder, window=1.0, stride=0.5)
    labelled, notes = label_windows(source, events)
    assert labelled.class_names == ("kick", "squat")
    assert (cutting.window, cutting.stride) == (1.0, 0.5)
    assert notes == []
    first = labelled.rows[labelled.rows["recording"] == 0]
    until = next(e.stop for e in events if e.label == "squat" and e.recording == "visit-0.mp4")
    assert {labelled.class_names[row["label"]] for row in first} == {"squat", "kick"}
    for row in first:
        middle = (row["start"] + row["stop"]) / 2
        assert labelled.class_names[row["label"]] == ("squat" if middle < until else "kick")
    _, notes = label_windows(source, Events([*events, Event("gone", 0, 2, "squat")]))
    assert notes == ["no recording is called 'gone', its events are left out"]
    with pytest.raises(InputError, match="no labelled event of the events names a recording"):
        label_windows(source, Events([Event("gone", 0, 2, "squat")]))


def test_motifs_and_deviation_commands_answer(
    package: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, page = tmp_path / "motifs.npz", tmp_path / "page.html"
    options = ["--motifs", "2", "--no-stability", "--save", str(saved), "--html", str(page), "--json"]
    main(["motifs", str(package), str(folder), *options])
    found = json.loads(capsys.readouterr().out)
    assert [row["motif"] for row in found["motifs"]] == ["motif 1", "motif 2"]
    assert not set(unstated(found))
    assert {event["label"] for event in found["events"]} == {"motif 1", "motif 2", NOBODY}
    assert "Examples" in page.read_text()
    main(["motifs", str(package), str(folder), "--model", str(saved), "--json"])
    assert json.loads(capsys.readouterr().out)["events"] == found["events"]
    main(["deviation", str(package), str(folder), str(folder), "--html", str(page), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["people"] for row in rows] == [5] * 6
    assert all(row["other_windows"][0]["window"] == 1.0 for row in rows)
    assert all(
        set(row["reference"]) == {"lowest", "median", "highest"} and row["unlike"] in (True, False)
        for row in rows
    )
    assert "not a diagnosis" in page.read_text()
