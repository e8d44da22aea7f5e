"""Labels in the database: acts that are whole, undone and redone, refused on lost ground; and the table that
follows them.
"""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import sys
from pathlib import Path

import forked as subprocess
import pytest

from halp.core.errors import InputError
from halp.core.files import plain_cell, spreadsheet_cell
from halp.data.spans import COLUMNS, Event, Events
from halp.data.tags import table_tags
from halp.explorer.labels import LabelBook
from halp.explorer.ledger import Ground
from halp.tasks.events.formats import read_events, write_csv_events

SPAN = ("walk_01", 0.0, 2.5, "3")
NAMES = ["-take1", "+take2", "=x", "@home", "'=x", "''-a", "'quoted'", "-3.5", "plain", '"', "a,b"]


def rows(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()[1:]


def labels(book: LabelBook) -> dict[tuple[str, float, float], str]:
    return {(event.recording, event.start, event.stop): event.label for _, event in book.now.events}


def class_id(book: LabelBook, name: str) -> int:
    return next(one.id for one in book.now.classes if one.name == name)


def test_a_label_is_in_the_table_when_the_call_returns(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        assert not list(tmp_path.glob("labels*"))  # nothing is written before the first label
        assert book.label([SPAN], "walk").changed == 1
        assert book.path.read_text().splitlines() == [",".join(COLUMNS), "walk_01,0.0,2.5,walk,3,human,"]
        assert book.ledger.path == tmp_path / "labels.sqlite"


def test_undo_and_redo_reach_behind_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        book.label([SPAN], "walk")
        book.label([SPAN], "run")
        book.rename(class_id(book, "run"), "dash")
    with LabelBook(path) as book:
        seen = [set(labels(book).values())]
        while book.undo().changed:
            seen.append(set(labels(book).values()))
        assert seen == [{"dash"}, {"run"}, {"walk"}, set()]
        while book.redo().changed:
            pass
        assert set(labels(book).values()) == {"dash"}
        assert rows(path)[0].split(",")[3] == "dash"
        book.undo()
        book.label([("other", 0.0, 1.0, "")], "walk")
        assert book.redo().changed == 0  # what was undone is gone with a new act


def test_classes_keep_id_key_and_colour_whatever_is_corrected(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        for name, label in (("a", "walk"), ("b", "run"), ("c", "walk")):
            book.label([(name, 0.0, 1.0, "")], label)
        before = book.now.classes
        book.label([("a", 0.0, 1.0, "")], "run")
        book.clear([("c", 0.0, 1.0)])
        assert book.now.classes == before  # also without a label
        book.undo()
        assert book.now.classes == before
        book.remove(before[0].id)
        book.label([("d", 0.0, 1.0, "")], "jump")  # the free key is given to the next class, under another id
        assert [(one.name, one.place) for one in book.now.classes] == [("jump", 0), ("run", 1)]
        assert book.now.classes[0].id != before[0].id


def test_a_class_renamed_to_its_own_name_is_no_act(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        book.label([SPAN], "walk")
        revision = book.revision
        assert book.rename(class_id(book, "walk"), "walk\x07 ").changed == 0
        assert book.revision == revision
        book.undo()
        book.redo()
        assert labels(book) == {SPAN[:3]: "walk"}


def test_classes_of_one_name_become_one_and_part_again(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        book.label([("a", 0.0, 1.0, "")], "walk")
        book.label([("b", 0.0, 1.0, "")], "gait")
        book.rename(class_id(book, "gait"), "walk")
        assert set(labels(book).values()) == {"walk"}
        book.undo()
        assert labels(book) == {("a", 0.0, 1.0): "walk", ("b", 0.0, 1.0): "gait"}


def test_an_act_whose_ground_has_gone_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        book.label([("a", 0.0, 1.0, "")], "walk")
        book.label([("b", 0.0, 1.0, "")], "run")
        run, seen = class_id(book, "run"), book.revision
        book.label([SPAN], "walk", ground=Ground(seen, "one", 1))
        with pytest.raises(InputError, match="another tab meanwhile"):
            book.label([SPAN], "run", ground=Ground(seen, "two", 1))
        book.label([SPAN], "run", ground=Ground(seen, "one", 2))  # its own acts are no surprise
        with pytest.raises(InputError, match="something was changed in another tab"):
            book.undo(seen, ground=Ground(seen, "two", 2))
        number = next(number for number, event in book.now.events if event.recording == "b")
        book.remove(run)
        for act in (lambda: book.label([("c", 0.0, 1.0, "")], run), lambda: book.rename(run, "x")):
            with pytest.raises(InputError, match="removed or merged in another tab"):
                act()
        with pytest.raises(InputError, match="removed in another tab"):
            book.move(number, 0.0, 0.5)


def test_an_act_that_is_sent_again_is_done_once(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        first = book.label([SPAN], "walk", ground=Ground(0, "tab", 1))
        undone = book.undo(first.act, ground=Ground(1, "tab", 2))
    with LabelBook(path) as book:
        assert book.label([SPAN], "walk", ground=Ground(0, "tab", 1)).act == first.act
        assert book.undo(first.act, ground=Ground(1, "tab", 2)) == undone
        assert labels(book) == {}


def test_overlapping_spans_cannot_have_contradictory_labels(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        book.label([("a", 0.0, 2.0, ""), ("a", 1.0, 3.0, "")], "walk")
        assert rows(book.path) == ["a,0.0,3.0,walk,,human,"]  # one bout, as other commands want it
        with pytest.raises(
            InputError, match="overlaps 0 – 2, which is labelled 'walk'; take that label off first"
        ):
            book.label([("a", 0.5, 2.5, "")], "run")
        done = book.label([("a", 2.5, 4.5, ""), ("b", 0.0, 1.0, "")], "run")
        assert (done.changed, done.left) == (1, 1)
        book.label([("a", 3.0, 4.0, "")], "run")
        with pytest.raises(InputError, match="overlaps"):
            book.move(next(number for number, event in book.now.events if event.start == 3), 2.0, 4.0)
        book.label([("a", 0.0, 2.0, ""), ("a", 1.0, 3.0, "")], "run")  # together they can change
        assert rows(book.path) == ["a,0.0,3.0,run,,human,", "a,3.0,4.0,run,,human,", "b,0.0,1.0,run,,human,"]
        with pytest.raises(InputError, match="its label comes from 0 – 2 of 'a'"):
            book.clear([("a", 0.0, 1.0)])
        with pytest.raises(InputError, match="there is no label"):
            book.clear([("zzz", 0.0, 1.0)])


@pytest.mark.parametrize("edit", ["change", "drop the last", "drop all", "add"])
@pytest.mark.parametrize("running", [False, True])
def test_a_table_edited_by_hand_is_imported_reported_and_undone(
    tmp_path: Path, edit: str, running: bool
) -> None:
    path = tmp_path / "labels.csv"
    book = LabelBook(path).__enter__()
    for name in "abcd":
        book.label([(name, 0.0, 1.0, "")], "walk")
    if not running:
        book.__exit__()
    header, *lines = path.read_text().splitlines()
    if edit == "change":
        lines[0] = lines[0].replace("walk", "limp")
    lines = {"drop the last": lines[:-1], "drop all": [], "add": [*lines, "e,2,3,hop,,human,"]}.get(
        edit, lines
    )
    path.write_text("\n".join([header, *lines]) + "\n")
    if running:
        book.look_at_table()
    else:
        book = LabelBook(path).__enter__()
    added, removed = {"change": (1, 1), "drop the last": (0, 1), "drop all": (0, 4), "add": (1, 0)}[edit]
    assert f"{added} labels added, {removed} removed" in book.news[1]
    assert len(book.now.events) == len(lines)
    book.undo()
    assert labels(book) == {(name, 0.0, 1.0): "walk" for name in "abcd"}
    assert len(rows(path)) == 4
    book.__exit__()


def test_a_table_that_cannot_be_read_is_left_alone_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        book.label([SPAN], "walk")
        path.write_text("recording,start,stop,label\na,5,1,run\n")
        book.label([("b", 0.0, 1.0, "")], "run")
        assert "stop must come after start" in book.trouble
        assert rows(path) == ["a,5,1,run"]
        path.write_text("recording,start,stop,label\na,1,5,run\n")
        book.look_at_table()
        assert book.trouble == ""
        assert labels(book) == {("a", 1.0, 5.0): "run"}
        path.unlink()
        path.mkdir()
        book.look_at_table()
        assert "labels are kept in 'labels.sqlite'" in book.trouble
        path.rmdir()
        book.look_at_table()
        assert (book.trouble, rows(path)) == ("", ["a,1.0,5.0,run,,human,"])
    with pytest.raises(InputError, match="choose another file with --labels"):
        LabelBook(tmp_path).__enter__()
    (tmp_path / "new.csv").write_text("recording,start,stop,label\na,5,1,run\n")
    with pytest.raises(InputError, match="stop must come after start"):
        LabelBook(tmp_path / "new.csv").__enter__()


def test_a_table_that_lags_behind_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        book.label([SPAN], "walk")
        before = path.read_bytes(), book.ledger.setting("exported")
        book.label([("b", 0.0, 1.0, "")], "run")
    path.write_bytes(before[0])  # as after a kill between the commit and the table
    base = sqlite3.connect(tmp_path / "labels.sqlite")
    base.execute("UPDATE setting SET value = ? WHERE name = 'exported'", (json.dumps(before[1]),))
    base.commit()
    base.close()
    (tmp_path / ".labels.4711.partial.csv").write_text("half")
    with LabelBook(path) as book:
        assert len(rows(path)) == len(book.now.events) == 2
        assert book.news == (0, "")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["labels.csv", "labels.sqlite"]


def test_files_that_are_removed_while_it_runs_are_written_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        book.label([SPAN], "walk")
        for file in tmp_path.glob("labels*"):
            file.unlink()
        book.label([("b", 0.0, 1.0, "")], "run")
    with LabelBook(path) as book:
        assert set(labels(book).values()) == {"walk", "run"}
        assert len(rows(path)) == 2
        book.undo()
        book.undo()
        assert labels(book) == {}


def test_names_that_look_like_formulas_survive_every_table(tmp_path: Path) -> None:
    assert [plain_cell(spreadsheet_cell(name)) for name in NAMES] == NAMES
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        for name in NAMES:
            book.label([(name, 0.0, 1.0, name)], f"{name} label")
        before = labels(book)
    with LabelBook(path) as book:
        assert book.news == (0, "")
        assert labels(book) == before
    (tmp_path / "labels.sqlite").unlink()
    with LabelBook(path) as book:  # from the table alone
        assert labels(book) == before
    events = [Event(name, 0, 1, name, name, more={"note": name}) for name in NAMES]
    for file in ("events.csv", "events.xlsx"):
        if file.endswith("xlsx"):
            pytest.importorskip("openpyxl")
            from halp.tasks.events.formats import write_excel

            write_excel(tmp_path / file, Events(events))
        else:
            write_csv_events(tmp_path / file, Events(events))
        assert set(read_events(tmp_path / file)[0]) == set(events)
    (tmp_path / "files").mkdir()
    found = table_tags(tmp_path / "events.csv", tmp_path / "files")
    assert found.events.keys() == set(NAMES)  # type: ignore[union-attr]
    assert found.values == {"label": set(NAMES), "subject": set(NAMES)}


def test_a_table_is_held_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path), pytest.raises(InputError, match="is in use by process"):
        LabelBook(path).__enter__()
    with LabelBook(path):
        assert not path.exists()


def test_a_place_that_cannot_be_written_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(
        InputError, match=r"labels\.csv' .*--labels.* cannot be locked: .* choose another path"
    ):
        LabelBook(tmp_path / "file" / "labels.csv").__enter__()


def test_a_database_that_turns_read_only_refuses_acts_and_shows_nothing_else(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        book.label([SPAN], "walk")
        book.ledger._connection.execute("PRAGMA query_only = ON")  # type: ignore[union-attr]
        with pytest.raises(InputError, match=r"nothing was changed: .* readonly database"):
            book.label([("b", 0.0, 1.0, "")], "run")
        assert set(labels(book).values()) == {"walk"}
        book.ledger._connection.execute("PRAGMA query_only = OFF")  # type: ignore[union-attr]
        assert book.label([("b", 0.0, 1.0, "")], "run").changed == 1


@pytest.mark.parametrize("label", ["", "   ", "x" * 300, "\ud83d"])
def test_a_label_that_is_no_name_is_refused_and_nothing_else(tmp_path: Path, label: str) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        with pytest.raises(InputError, match="character"):
            book.label([SPAN], label)
        assert book.label([SPAN], "walk").changed == 1


def test_a_damaged_database_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "labels.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match=r"labels\.sqlite' cannot be read as labels .* move it away"):
        LabelBook(tmp_path / "labels.csv").__enter__()


FULL = """
import resource, signal, sys
from pathlib import Path
from halp.core.errors import InputError
from halp.explorer.labels import LabelBook
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with LabelBook(Path(sys.argv[1])) as book:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    for number in range(40):
        try:
            book.label([(f"r{number}", 0.0, 1.0, "")], "walk" if number % 2 else "run")
            print("kept", number, flush=True)
        except InputError as error:
            print("refused", number, str(error).replace(chr(10), " "), flush=True)
    shown = sorted(event.recording for _, event in book.now.events)
    print("shown", *shown, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    book.label([("after", 0.0, 1.0, "")], "walk")
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on the size of files")
@pytest.mark.parametrize("room", [0, 5_000, 40_000, 90_000])
def test_a_full_disk_refuses_what_it_cannot_keep_and_shows_nothing_else(tmp_path: Path, room: int) -> None:
    path = tmp_path / "labels.csv"
    command = [sys.executable, "-c", FULL, str(path), str(room)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    kept = sorted(f"r{line[1]}" for line in lines if line[0] == "kept")
    refused = [line for line in lines if line[0] == "refused"]
    assert refused, room
    assert all("nothing was changed" in " ".join(line) for line in refused)
    assert lines[-1][1:] == kept
    with LabelBook(path) as book:
        assert sorted(event.recording for _, event in book.now.events) == sorted([*kept, "after"])
        assert len(rows(path)) == len(kept) + 1


def test_a_kill_at_any_moment_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from halp.explorer.labels import LabelBook\nwith"
        " LabelBook(Path(sys.argv[1])) as book:\n    for number in range(10**6):\n       "
        " book.label([(f'{sys.argv[2]}-{number}', 0.0, 1.0, '')], f'c{number % 5}'); print(number,"
        " flush=True)\n"
    )
    path, wanted = tmp_path / "labels.csv", set()
    for turn in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(turn)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(5 + 7 * turn):
            wanted.add(f"{turn}-{process.stdout.readline().strip()}")
        process.send_signal(signal.SIGKILL)
        wanted |= {f"{turn}-{line.strip()}" for line in process.stdout if line.endswith("\n")}
        process.wait()
        with LabelBook(path) as book:
            there = {event.recording for _, event in book.now.events}
            assert wanted <= there
            assert len(there - wanted) <= 1  # one that was under way
            wanted = there
            assert {line.split(",")[0] for line in rows(path)} == there
