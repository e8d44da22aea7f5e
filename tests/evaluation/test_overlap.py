"""Test clips that were pre-trained on are counted, refused unless allowed, and never called "not trained
on".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.data.store import Store
from halp.evaluation import RawCoordinates
from halp.evaluation.evaluate_encoder import count_overlap, pretraining_clips
from halp.evaluation.evaluate_run import evaluate_run, saved_results, verdict
from halp.reports.run_report import report_runs
from halp.reports.tables import accuracy_table, overlap_note
from halp.training import Run, load_recipe, pretrain

KNN = {"protocols": ("knn",)}
CLAIM = "that were not trained on"


@pytest.fixture(scope="module")
def by_split(store: Store, tmp_path_factory: pytest.TempPathFactory, tiny: tuple[str, ...]) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("overlap")
    return {
        split: pretrain(
            load_recipe("small", (*tiny, "epochs=1", f'split="{split}"')),
            store,
            folder / split,
            progress=False,
        )
        for split in ("xsub", "all")
    }


def test_the_count_equals_that_of_the_two_sets(store: Store, by_split: dict[str, Run]) -> None:
    origin, test = by_split["xsub"].encoder().origin, store.split("xview")[1]
    assert count_overlap(origin, store, test) == len(set(store.split("xsub")[0]) & set(test)) > 0
    assert count_overlap(origin, store, store.split("xsub")[1]) == 0
    assert count_overlap(by_split["all"].encoder().origin, store, test) == len(test)


def test_untrained_encoders_and_raw_coordinates_were_trained_on_nothing(
    store: Store, by_split: dict[str, Run]
) -> None:
    raw = RawCoordinates(store.topology, persons=store.persons)
    for origin in (raw.origin, by_split["all"].encoder(trained=False).origin):
        assert count_overlap(origin, store, np.arange(len(store))) == 0


def test_what_is_not_recorded_is_not_known(store: Store, by_split: dict[str, Run]) -> None:
    origin = by_split["xsub"].encoder().origin
    assert pretraining_clips({}, store) is None
    assert pretraining_clips({**origin, "data": "another"}, store) is None
    assert pretraining_clips({"members": {"a": origin, "b": {}}}, store) is None
    both = pretraining_clips({"members": {"a": origin, "b": by_split["all"].encoder().origin}}, store)
    assert both is not None
    assert len(both) == len(store)


def test_a_split_that_shares_clips_is_refused_with_their_number(
    store: Store, by_split: dict[str, Run]
) -> None:
    test = store.split("xview")[1]
    shared = len(set(store.split("xsub")[0]) & set(test))
    with pytest.raises(
        InputError, match=rf"{shared} of the {len(test)} test clips of split 'xview'.*--allow-overlap"
    ):
        evaluate_run(by_split["xsub"], store, splits=("xview",), **KNN)
    assert not saved_results(by_split["xsub"]), "nothing is computed before it is refused"
    rows = evaluate_run(by_split["xsub"], store, splits=("xview",), allow_overlap=True, **KNN)
    assert [row.results[0].test_clips_trained_on for row in rows] == [0, 0, None, shared]
    assert accuracy_table(rows)[0] == ["encoder", "knn xview *"]
    assert (
        overlap_note(rows) == f"* {shared} of the {len(test)} test clips of xview were in the pre-training."
    )
    page = report_runs({"run": by_split["xsub"]}, None).html()
    assert CLAIM not in page
    assert f"{shared} of the {len(test)} test clips" in page


def test_an_overlap_of_several_splits_is_reported_once(store: Store, by_split: dict[str, Run]) -> None:
    with pytest.warns(UserWarning, match="in the pre-training") as told:
        evaluate_run(by_split["all"], store, splits=("xsub", "xview"), baselines=False, **KNN)
    tested = sum(len(store.split(split)[1]) for split in ("xsub", "xview"))
    said = [str(warning.message) for warning in told if "pre-training" in str(warning.message)]
    assert len(said) == 1
    assert said[0].startswith(f"{tested} of the {tested} test clips of 2 splits")


def test_a_run_on_all_clips_is_evaluated_with_a_warning_and_a_mark(
    store: Store, by_split: dict[str, Run]
) -> None:
    with pytest.warns(UserWarning, match="were in the pre-training"):
        rows = evaluate_run(by_split["all"], store, splits=("xsub",), baselines=False, **KNN)
    assert rows[0].results[0].test_clips_trained_on == rows[0].results[0].clips["test"]
    page = report_runs({"run": by_split["all"]}, store).html()
    assert CLAIM not in page
    for title in ("What the encoder sees", "Confusion matrix", "Nearest neighbours"):
        assert title in page, "the split of the evaluation is shown where the run has none"


def test_an_evaluation_on_the_runs_own_split_may_say_not_trained_on(
    store: Store, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    run = pretrain(load_recipe("small", (*tiny, "epochs=1")), store, tmp_path / "run", progress=False)
    sentence = verdict(evaluate_run(run, store, name="run", **KNN))
    page = report_runs({"run": run}, None).html()
    assert CLAIM in page
    assert sentence
    assert f"{sentence}." in page
    for row in ("raw coordinates", "halp-base"):
        assert row in page, "the row that the evaluation printed is in the report"
