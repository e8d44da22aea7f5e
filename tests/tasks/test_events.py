"""Events: what they refuse, how bouts are merged, how recordings are matched, and every format there and
back.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pympi
import pytest

from halp.cli.verbs import finish
from halp.core.errors import InputError
from halp.data.spans import COLUMNS, NOBODY, Event, Events
from halp.tasks.events.formats import FORMATS, read_events, write_events
from halp.tasks.segments import Predictions, predicted

SAMPLE = Events(
    [
        Event("one", 0, 1.5, "walk", "Ann", "human"),
        Event("one", 1.5, 2.25, 'say "hi"', "Ann", "human"),
        Event("one", 0.5, 2, "walk", "Bob", "human"),
        Event("one", 3, 4, NOBODY),
        Event("two", 0.25, 1, "=SUM(A1)", "", "model", 0.75),
    ]
)


def _columns(events: Events, *names: str) -> list[tuple[object, ...]]:
    return sorted(tuple(getattr(event, name) for name in names) for event in events)


@pytest.mark.parametrize("name", list(FORMATS))
def test_events_come_back_from_every_format(name: str, tmp_path: Path) -> None:
    if name == "sleap":
        pytest.importorskip("sleap_io", reason="events of SLEAP are written by the extra halp-motion[sleap]")
    kind = FORMATS[name]
    out = tmp_path / ("folder" if kind.single else f"events{kind.ending}")
    sample = SAMPLE if name != "audacity" else SAMPLE.with_events(e for e in SAMPLE if e.subject != "Bob")
    write_events(sample, out, name, fps=100)
    events, notes = read_events(out, name)
    assert notes == []
    columns = ["recording", "start", "stop", "label"]
    columns += [] if name == "audacity" else ["subject"]
    columns += ["source"] if name in ("csv", "parquet", "excel", "elan", "textgrid", "sleap") else []
    assert _columns(events, *columns) == _columns(sample, *columns)
    if name in ("csv", "parquet", "excel"):
        assert list(events) == list(sample)


def test_other_programs_read_what_is_written(tmp_path: Path) -> None:
    write_events(SAMPLE, tmp_path / "elan", "elan")
    document = pympi.Elan.Eaf(str(tmp_path / "elan" / "one.eaf"))
    assert sorted(document.get_tier_names()) == ["Ann", "Bob", "events"]
    assert [row[:3] for row in document.get_annotation_data_for_tier("Ann")] == [
        (0, 1500, "walk"),
        (1500, 2250, 'say "hi"'),
    ]
    write_events(SAMPLE, tmp_path / "books", "boris-xlsx")
    book = openpyxl.load_workbook(tmp_path / "books" / "one.xlsx")
    rows = list(book.active.values)
    assert rows[0] == ("time", "subject", "code", "modifier", "comment")
    assert rows[1][:3] == (0, "Ann", "walk")
    assert len(rows) == 1 + 2 * 4
    write_events(SAMPLE, tmp_path / "project.boris", media="avi")
    project = json.loads((tmp_path / "project.boris").read_text())
    assert project["project_format_version"] == "7.0"
    assert project["observations"]["one"]["file"]["1"] == ["one.avi"]
    assert project["observations"]["two"]["events"][0] == [0.25, "", "=SUM(A1)", "", "model 0.750", "NA"]
    assert {b["code"] for b in project["behaviors_conf"].values()} == {"walk", 'say "hi"', NOBODY, "=SUM(A1)"}


def test_spreadsheets_do_not_take_labels_for_formulas(tmp_path: Path) -> None:
    write_events(SAMPLE, tmp_path / "events.csv")
    assert "'=SUM(A1)" in (tmp_path / "events.csv").read_text()
    write_events(SAMPLE, tmp_path / "events.xlsx")
    cells = [cell for row in openpyxl.load_workbook(tmp_path / "events.xlsx").active.rows for cell in row]
    assert {cell.data_type for cell in cells if cell.value == "=SUM(A1)"} == {"s"}


def test_a_workbook_with_a_document_type_is_not_opened(tmp_path: Path) -> None:
    write_events(SAMPLE, tmp_path / "events.xlsx")
    with zipfile.ZipFile(tmp_path / "events.xlsx", "a") as archive:
        archive.writestr("xl/more.xml", '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>')
    with pytest.raises(InputError, match="declares a document type"):
        read_events(tmp_path / "events.xlsx")


def test_both_tables_of_boris_are_read(tmp_path: Path) -> None:
    tabular = tmp_path / "tabular.csv"
    tabular.write_text(
        "Observation id,visit 1\n\nMedia file(s)\n\n"
        "Time,Media file path,Total length,FPS,Subject,Behavior,Behavioral category,Comment,Status\n"
        "1.5,C:\\films\\visit 1.mp4,60.0,25,No focal subject,walk,,,START\n"
        "2.0,C:\\films\\visit 1.mp4,60.0,25,No focal subject,cough,,,POINT\n"
        "4.0,C:\\films\\visit 1.mp4,60.0,25,No focal subject,walk,,,STOP\n"
    )
    events, notes = read_events(tabular)
    assert list(events) == [Event("visit 1", 1.5, 4.0, "walk")]
    assert events.lengths == {"visit 1": 60.0}
    assert "1 point event, which has no duration, was" in notes[0]
    aggregated = tmp_path / "aggregated.csv"
    aggregated.write_text(
        "Observation id;Media duration (s);Subject;Behavior;Behavior type;Start (s);Stop (s);Media file"
        " name\nobs;30;Ann;sit;STATE;0.5;2.5;films/v2.avi\nobs;30;Ann;cough;POINT;1;1;films/v2.avi\n"
    )
    events, _ = read_events(aggregated)
    assert list(events) == [Event("v2", 0.5, 2.5, "sit", "Ann")]


def test_segments_of_earlier_versions_are_events_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(
        "name,start,end,label,probability\nwalk_01,0.0,2.0,walk,0.9\nwalk_01,2.0,3.0,,0.5\n"
    )
    events, _ = read_events(tmp_path / "s.csv")
    assert list(events) == [
        Event("walk_01", 0, 2, "walk", "", "model", 0.9),
        Event("walk_01", 2, 3, "", "", "model", 0.5),
    ]


def test_answers_are_events_directly_and_by_way_of_their_table(tmp_path: Path) -> None:
    answers = [
        predicted("r", 0, 2, "walk", 0.9),
        predicted("r", 2, 3, "walk", 0.4, rejected=True),
        predicted("r", 3, 4, None, None),
    ]
    finish(Predictions(answers), out=tmp_path / "answers.csv")
    read, _ = read_events(tmp_path / "answers.csv")
    events = Predictions(answers).events()
    assert [e.label for e in events] == ["walk", "", NOBODY]
    assert _columns(read, *COLUMNS[:-1]) == _columns(events, *COLUMNS[:-1])
    assert [e.score for e in read] == [0.9, 0.4, None]
    with open(tmp_path / "answers.csv") as file:
        header = file.readline().strip().split(",")
    assert tuple(header[:7]) == COLUMNS
    assert header[7:] == ["best", "rejected"]


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (Event("a", -1, 2, "x"), "starts at -1 s; times count from the start of the recording"),
        (Event("a", 2, 2, "x"), "stop must come after start"),
        (Event("a", 1.7e9, 1.7e9 + 2, "x"), "another clock"),
        (Event("long", 0, 4000, "x"), "beyond the 60 s of its recording: another clock"),
        (Event("", 0, 1, "x"), "names no recording"),
        (Event("a", 0, float("nan"), "x"), "not finite"),
        (Event("a", 0, 1, "x", "", "robot"), "write human or model"),
    ],
)
def test_impossible_events_are_refused_in_a_sentence(event: Event, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Events([event], {"long": 60.0})


def test_overlapping_events_and_unknown_labels_are_refused() -> None:
    two = [Event("a", 0, 2, "walk"), Event("a", 1, 3, "talk")]
    with pytest.raises(InputError, match=r"'walk' .* and 'talk' .* overlap in recording 'a'"):
        Events(two).check()
    assert len(Events(two).check(concurrent=True)) == 2
    with pytest.raises(InputError, match="overlap"):
        Events([*two, Event("a", 1.5, 2.5, "walk")]).check(concurrent=True)
    assert Events([two[0], Event("a", 1, 3, "talk", "Bob")]).check()  # other people may do other things
    with pytest.raises(InputError, match=r"unknown label .* 'talk': did you mean 'walk'"):
        Events(two).check(labels=["walk", "tall"], concurrent=True)


def test_bouts_join_over_short_gaps_but_not_over_other_labels() -> None:
    events = Events(
        [
            Event("a", 0, 1, "walk"),
            Event("a", 1, 1.3, ""),
            Event("a", 1.3, 2, "walk"),
            Event("a", 2, 2.1, "sit"),
            Event("a", 2.1, 3, "walk"),
        ]
    )
    assert [(e.label, e.start, e.stop) for e in events.merged(gap=0.5)] == [
        ("walk", 0, 2),
        ("sit", 2, 2.1),
        ("walk", 2.1, 3),
    ]
    assert [e.label for e in events.merged(gap=0.5, shortest=0.2)] == ["walk", "walk"]
    assert len(events.merged()) == 5


def test_recordings_are_matched_by_stem_and_the_rest_is_named() -> None:
    events = Events(
        [Event("Visit1.MP4", 0, 1, "x"), Event("gone.mp4", 0, 1, "x"), Event("b/c.eaf", 0, 1, "x")]
    )
    matched, missed, without = events.matched(["poses/visit1.bvh", "c", "d"])
    assert sorted(e.recording for e in matched) == ["c", "poses/visit1.bvh"]
    assert (missed, without) == (["gone.mp4"], ["d"])


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "x.csv",
            "recording,start,stop,label\na,0,1:30,walk\n",
            "line 2, column stop: '1:30' is a time of day",
        ),
        ("x.csv", "recording,start,stop,label\na,0,soon,walk\n", "'soon' is not a number"),
        ("x.csv", "who,when\na,0\n", "neither of events nor of BORIS"),
        ("x.csv", "Time,Subject,Behavior,Status\n1,,walk,STOP\n", "'walk' stops without a start"),
        ("x.csv", "Time,Subject,Behavior,Status\n1,,walk,START\n", "'walk' starts and never stops"),
        ("x.csv", "recording,start,stop,label\na,0,1_0,walk\n", "'1_0' is not a number"),
        (
            "x.csv",
            "recording,start,stop,label,label\na,0,1,walk,run\n",
            "line 1: column 'label' is there twice",
        ),
        ("x.csv", "recording,start,stop,label\na,0,1,wa\0lk\n", "NUL"),
        ("x.csv", "recording,start,stop,label\na,0,1,walk\na,1,5,2,sit\n", "line 3: 5 cells below 4 names"),
        ("x.csv", 'recording,start,stop,label\na,0,1,"walk\na,1,2,sit\n', r"not CSV \(unexpected end"),
        ("x.TextGrid", 'File type = "ooTextFile"\n"TextGrid"\n0\n1\n1e999\n', "not a TextGrid"),
        ("x.eaf", '<?xml version="1.0" encoding="UTF-7"?><a/>', "save it as UTF-8|not XML"),
        ("x.eaf", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "document type or entities"),
        ("x.eaf", "<ANNOTATION_DOCUMENT>", "not XML"),
        ("x.eaf", "<a/>", "not an ELAN file"),
        ("x.TextGrid", "nothing", "not a TextGrid"),
        ("x.txt", "1 2\n", "not an Audacity label"),
        ("x.boris", '{"a": 1}', "not a BORIS project"),
        ("x.xlsx", "PK", "cannot be read as a workbook"),
        ("x.docx", "", "is not that of an event format"),
    ],
)
def test_damaged_files_are_refused_in_a_sentence(name: str, text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_events(tmp_path / name)


@pytest.mark.parametrize("code", ["utf-16", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("name", ["textgrid", "csv"])
def test_text_in_utf_16_is_read_by_its_byte_order_mark(name: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / f"one{FORMATS[name].ending}"
    FORMATS[name].write(path, Events([Event("one", 0, 1, "ging über")]))
    text = path.read_text(encoding="utf-8")
    path.write_bytes(("\ufeff" + text).encode(code) if code == "utf-16-be" else text.encode(code))
    assert [event.label for event in read_events(path, name)[0]] == ["ging über"]


def _slp(path: Path, **changes: object) -> Path:
    """A file as SLEAP lays events out: two films, two tracks, three events with inclusive frames."""
    import h5py

    columns = {
        "video": [0, 0, 1],
        "start_frame": [0, 50, 5],
        "end_frame": [49, 50, 9],
        "type": [1, 0, 1],
        "subject_kind": [1, 0, 1],
        "subject_idx": [1, -1, 0],
        "is_predicted": [False, False, True],
        "score": [np.nan, np.nan, 0.75],
    } | changes
    films = [{"filename": "films/one.mp4", "backend": {"filename": "films/one.mp4", "fps": 25.0}}]
    films += [{"filename": "C:\\films\\two.avi", "backend": {"filename": "C:\\films\\two.avi", "fps": 10.0}}]
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            if column is not None:
                file[f"events/{name}"] = np.array(column)
        file["event_types/name"] = ["sit", "walk"]
        file["videos_json"] = [json.dumps(film) for film in films]
        file["tracks_json"] = [json.dumps([0, "Ann"]), json.dumps([0, "Bob"])]
    return path


def test_frames_of_sleap_become_seconds_of_its_films(tmp_path: Path) -> None:
    events, notes = read_events(_slp(tmp_path / "labels.slp"))
    assert notes == []
    assert _columns(events, "recording", "start", "stop", "label", "subject", "source") == [
        ("one", 0.0, 2.0, "walk", "Bob", "human"),
        ("one", 2.0, 2.04, "sit", "", "human"),
        ("two", 0.5, 1.0, "walk", "Ann", "model"),
    ]
    assert [event.score for event in events] == [None, None, 0.75]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": [1, 7, 1]}, "event 2"),
        ({"video": [0, 0]}, "do not match"),
        ({"start_frame": None}, "do not match"),
    ],
)
def test_events_of_sleap_that_cannot_be_are_refused(
    changes: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        read_events(_slp(tmp_path / "labels.slp", **changes))


@pytest.mark.parametrize("part", ["tracks_json", "videos_json"])
def test_descriptions_of_sleap_that_are_no_json_are_refused(part: str, tmp_path: Path) -> None:
    import h5py

    path = _slp(tmp_path / "labels.slp")
    with h5py.File(path, "r+") as file:
        del file[part]
        file[part] = ["{broken"]
    with pytest.raises(InputError, match=part):
        read_events(path)


def test_tables_with_tabs_and_tables_of_boris_by_name(tmp_path: Path) -> None:
    events = Events([Event("a", 0.5, 2, "walk", "ann"), Event("a", 2, 3, "sit", "ann")])
    (path,) = write_events(events, tmp_path / "events.tsv")
    assert path.read_text().splitlines()[0].split("\t")[:4] == ["recording", "start", "stop", "label"]
    assert list(read_events(path)[0]) == list(events)
    table = tmp_path / "boris.csv"
    table.write_text("Observation id,Subject,Behavior,Start (s),Stop (s)\no1,No focal subject,walk,1.0,2.5\n")
    assert (
        list(read_events(table, "boris")[0]) == list(read_events(table)[0]) == [Event("o1", 1.0, 2.5, "walk")]
    )


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas_are_read_where_commas_do_not_separate(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "german.csv"
    rows = [
        ["recording", "start", "stop", "label", "score", "dose"],
        ["a", "0,25", "1,5", "1,2", "0,75", "2,5"],
    ]
    path.write_text("\n".join(separator.join(row) for row in rows) + "\n")
    (event,) = read_events(path)[0]
    assert (event.start, event.stop, event.score) == (0.25, 1.5, 0.75)
    assert (event.label, event.more["dose"]) == ("1,2", "2,5")  # texts stay as they are
    path.write_text('recording,start,stop,label\na,"0,25",2,x\n')
    with pytest.raises(InputError, match="'0,25' is not a number"):
        read_events(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_textgrids_in_utf_16_are_read(tmp_path: Path, encoding: str) -> None:
    events = Events([Event("a", 0.5, 2, "stehen – groß", "Änne")])
    (plain,) = write_events(events, tmp_path / "a.TextGrid")
    content = plain.read_text(encoding="utf-8").encode(encoding)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "a.TextGrid"
    other.write_bytes(content if encoding == "utf-16" else b"\xfe\xff" + content)
    assert list(read_events(other)[0]) == list(read_events(plain)[0]) == list(events)


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    events = Events([Event("a", 0.5, 2, "walk")])
    with pytest.raises(InputError, match=r"'/proc/x\.csv' cannot be written") as caught:
        write_events(events, Path("/proc/x.csv"))
    assert "partial" not in str(caught.value)
