"""Labels survive crashes, hands and second thoughts."""

from __future__ import annotations

from pathlib import Path

import pytest

from halp.core.errors import InputError
from halp.data.spans import COLUMNS
from halp.explorer.labels import LabelBook

SPAN = ("walk_01", 0.0, 2.5, "3")


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_label_is_in_the_table_when_the_call_returns(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        assert book.label([SPAN], "walk") == 1
        assert read(book.path) == [",".join(COLUMNS), "walk_01,0.0,2.5,walk,3,human,"]


def test_labelling_again_replaces_and_undo_brings_back(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        book.label([SPAN], "walk")
        book.label([SPAN], "run")
        assert [event.label for event in book.events] == ["run"]
        assert book.undo()
        assert [event.label for event in book.events] == ["walk"]
        assert book.undo()
        assert book.events == []
        assert book.undo() == 0


def test_undo_reaches_behind_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        book.label([SPAN], "walk")
        book.rename("walk", "gait")
    with LabelBook(path) as book:
        assert [event.label for event in book.events] == ["gait"]
        book.undo()
        assert read(path)[1].split(",")[3] == "walk"


def test_a_crash_between_journal_and_table_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        book.label([SPAN], "walk")
        before = path.read_bytes()
        book.label([("jump", 1.0, 2.0, "")], "jump")
    path.write_bytes(before)  # as if the process had died before the table was replaced
    with open(path.with_name("labels.csv.journal"), "ab") as file:
        file.write(b'{"add": [["half')  # and in the middle of a line
    with LabelBook(path) as book:
        assert {event.label for event in book.events} == {"walk", "jump"}
        assert len(read(path)) == 3
        book.label([("jump", 2.0, 3.0, "")], "jump")
    with LabelBook(path) as book:
        assert len(book.events) == 3


def test_a_table_edited_by_hand_is_taken_over_and_can_be_undone(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path) as book:
        book.label([SPAN], "walk")
    path.write_text(path.read_text().replace(",walk,", ",limp,"))
    with LabelBook(path) as book:
        assert [event.label for event in book.events] == ["limp"]
        book.undo()
        assert [event.label for event in book.events] == ["walk"]


def test_a_table_is_held_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelBook(path), pytest.raises(InputError, match="the labels"):
        LabelBook(path).__enter__()
    with LabelBook(path):
        assert not path.exists()  # nothing is written before the first label


@pytest.mark.parametrize("label", ["", "   ", "x" * 300])
def test_a_label_that_is_no_name_is_refused(tmp_path: Path, label: str) -> None:
    with LabelBook(tmp_path / "labels.csv") as book, pytest.raises(InputError, match="characters"):
        book.label([SPAN], label)


def test_edges_can_be_moved_but_not_turned_round(tmp_path: Path) -> None:
    with LabelBook(tmp_path / "labels.csv") as book:
        book.label([SPAN], "walk")
        book.move(SPAN[:3], 0.5, 2.0)
        assert (book.events[0].recording, book.events[0].start, book.events[0].stop) == ("walk_01", 0.5, 2.0)
        with pytest.raises(InputError, match="end after"):
            book.move(("walk_01", 0.5, 2.0), 3.0, 2.0)
