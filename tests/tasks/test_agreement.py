"""Agreement of two accounts against values computed by hand, from the literature and by scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from halp.cli import main
from halp.core.errors import InputError
from halp.data.spans import Event, Events
from halp.tasks.agreement import compare_accounts as agreement
from halp.tasks.events.formats import write_events
from halp.tasks.reliability import icc

HUMAN = Events(
    [Event("a", 0, 4, "walk"), Event("a", 4, 6, "sit"), Event("a", 6, 10, "walk"), Event("b", 0, 5, "sit")]
)
MODEL = Events(
    [
        Event("a.csv", 0, 5, "walk", source="model"),
        Event("a.csv", 5, 6, "sit", source="model"),
        Event("a.csv", 6, 10, "walk", source="model"),
        Event("b", 0, 5, "sit", source="model"),
    ]
)


def test_two_equal_accounts_agree_completely() -> None:
    result, notes = agreement(HUMAN, HUMAN)
    assert (result["kappa"], result["agreement"], notes) == (1.0, 1.0, [])
    assert {row["label"] for row in result["labels"]} == {event.label for event in HUMAN}
    assert all(row["f1"] == 1.0 and row["start_error"] == 0.0 for row in result["labels"])


def test_a_shifted_boundary_is_measured() -> None:
    result, _ = agreement(HUMAN, MODEL, bins=1.0)
    rows = {row["label"]: row for row in result["labels"]}
    truth = ["walk"] * 4 + ["sit"] * 2 + ["walk"] * 4 + ["sit"] * 5
    guess = ["walk"] * 5 + ["sit"] * 1 + ["walk"] * 4 + ["sit"] * 5
    assert result["kappa"] == pytest.approx(cohen_kappa_score(truth, guess))
    assert result["agreement"] == pytest.approx(14 / 15)
    assert (rows["walk"]["matched"], rows["walk"]["f1"]) == (2, 1.0)
    assert rows["walk"]["stop_error"] == pytest.approx(0.5)  # one of two stops is a second late
    assert rows["walk"]["stop_bias"] == pytest.approx(0.5)
    assert rows["sit"]["start_bias"] == pytest.approx(0.5)
    assert result["confusion"]["seconds"][0][1] == pytest.approx(1.0)  # a second of sitting is called walking


def test_bouts_that_overlap_too_little_do_not_match() -> None:
    result, _ = agreement(HUMAN, MODEL, overlap=0.9)
    rows = {row["label"]: row for row in result["labels"]}
    assert (rows["walk"]["matched"], rows["walk"]["recall"]) == (1, 0.5)


def test_icc_is_that_of_shrout_and_fleiss() -> None:
    judges = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    assert icc(judges) == pytest.approx(0.29, abs=0.005)
    assert icc([[1, 1], [2, 2], [5, 5]]) == 1.0
    assert icc([[1, 1]]) is None


def test_subjects_that_only_one_account_names_are_matched_by_recording() -> None:
    named = Events([Event("a", 0, 4, "walk", "Ann"), Event("a", 4, 6, "sit", "Ann")])
    result, _ = agreement(named, HUMAN.where(recording="a"))
    assert result["recordings"][0]["agreement"] == pytest.approx(0.6)
    several = Events([Event("a", 0, 4, "walk", "Ann"), Event("a", 0, 4, "sit", "Bob")])
    with pytest.raises(InputError, match="several subjects"):
        agreement(several, HUMAN)


def test_absence_belongs_to_the_people_of_a_recording_and_adds_no_agreement() -> None:
    named = Events([Event("a", 0, 4, "walk", "Ann"), Event("a", 4, 10, "nobody")])
    other = Events([Event("a", 0, 2, "walk", "Ann"), Event("a", 2, 10, "nobody")])
    result, _ = agreement(named, other)
    assert [row["subject"] for row in result["recordings"]] == ["Ann"]
    assert result["agreement"] == pytest.approx(0.8)


def test_accounts_without_a_common_recording_are_refused() -> None:
    with pytest.raises(InputError, match="no recording in common"):
        agreement(HUMAN, Events([Event("z", 0, 1, "walk")]))


def test_agreement_command_prints_tables_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_events(HUMAN, tmp_path / "human.csv")
    write_events(MODEL, tmp_path / "model.csv")
    page = tmp_path / "page.html"
    main(
        ["agreement", str(tmp_path / "human.csv"), str(tmp_path / "model.csv"), "--html", str(page), "--json"]
    )
    answer = json.loads(capsys.readouterr().out)
    assert 0.8 < answer["kappa"] < 1
    assert {"f1", "icc", "start_error"} <= answer["labels"][0].keys()
    assert "Confusion" in page.read_text()
    assert np.sum(answer["confusion"]["seconds"]) == pytest.approx(15, abs=0.2)


def test_leaving_out_short_bouts_leaves_the_compared_time_as_it_is() -> None:
    """Both end with a short bout at 10 s: the time up to there still counts, as time without a label."""
    one = Events([Event("a", 0, 3, "x"), Event("a", 9.5, 10, "y")])
    two = Events([Event("a", 0, 6, "x"), Event("a", 9.5, 10, "y")])
    result, _ = agreement(one, two, shortest=1.0)
    assert result["agreement"] == pytest.approx(0.7)  # 3 of 10 s differ
    assert np.sum(result["confusion"]["seconds"]) == pytest.approx(10.0)


def test_somebody_with_short_bouts_only_still_counts() -> None:
    one = Events([Event("a", 0, 0.5, "x"), Event("b", 0, 4, "x")])
    two = Events([Event("a", 0, 2, "x"), Event("b", 0, 4, "x")])
    result, notes = agreement(one, two, shortest=1.0)
    assert notes == []
    assert [row["recording"] for row in result["recordings"]] == ["a", "b"]
