"""`halp reproduce` and the protocols of `halp evaluate` as a person meets them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forked as subprocess
import pytest

from halp.data.store import Store
from halp.training import load_recipe, pretrain

pytestmark = pytest.mark.slow  # real processes


def halp(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from halp.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_tables_are_listed_and_unknown_ones_refused(tmp_path: Path) -> None:
    assert {"linear", "hardness"} <= set(json.loads(halp("reproduce", "--json").stdout))
    answer = halp("reproduce", "lineer", "--out", tmp_path)
    assert answer.returncode == 2
    assert "did you mean 'linear'" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_every_row_of_the_paper_is_listed_with_what_runs_it() -> None:
    answer = halp("reproduce", "--list", "--json")
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(answer.stdout)
    assert {"source", "table", "row", "paper", "how", "note"} == set(rows[0])


@pytest.mark.parametrize("name", ["semi", "semi-network-others"])
def test_rows_of_one_table_of_the_paper_are_listed_with_what_runs_them(name: str) -> None:
    rows = json.loads(halp("reproduce", name, "--list", "--json").stdout)
    assert {row["source"] for row in rows} == {"Supplement, Table 7"}
    assert {row["row"]: row["how"] for row in rows}["ASSL"] == "halp reproduce semi-network-others"


def test_graphs_are_listed_without_data_and_unknown_tables_are_not() -> None:
    rows = json.loads(halp("reproduce", "graphs", "--list", "--json").stdout)
    assert [row["row"] for row in rows] == ["GraphCL", "GraphCL + HaLP"]
    answer = halp("reproduce", "lineer", "--list")
    assert (answer.returncode, "did you mean 'linear'" in answer.stderr) == (2, True)


def test_a_dry_run_prints_the_plan_of_the_papers_scale(tmp_path: Path) -> None:
    answer = halp("reproduce", "linear", "--scale", "paper", "--dry-run", "--json", "--out", tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    cost = json.loads(answer.stdout)
    assert (cost["runs"], cost["scale"]) == (15, "paper")
    assert cost["steps left"] > 1_000_000
    assert not (tmp_path / "out").exists()


def test_a_table_is_reproduced_from_the_command_line(store: Store, tmp_path: Path) -> None:
    answer = halp(
        "reproduce", "knn", "--data", store.path, "--out", tmp_path, "--set", "epochs=5", "halp.start_epoch=3"
    )
    assert answer.returncode == 0, answer.stderr
    text = (tmp_path / "tables" / "tiny" / "knn.md").read_text(encoding="utf-8")
    assert "| HaLP |" in text


def test_all_protocols_are_evaluated_from_the_command_line(
    store: Store, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    runs = {
        stream: pretrain(
            load_recipe("small", (*tiny, "epochs=1", f'streams=["{stream}"]')),
            store,
            tmp_path / stream,
            progress=False,
        )
        for stream in ("joint", "bone")
    }
    protocols = ("knn", "linear", "semi", "finetune", "retrieval", "ensemble")
    settings = (
        "knn.k=3",
        "linear.epochs=2",
        "semi.epochs=2",
        "semi.share=0.3",
        "finetune.epochs=1",
        "ensemble.base=knn",
    )
    answer = halp(
        *("evaluate", runs["joint"].path, "--protocol", *protocols, "--seeds", 2, "--json"),
        *("--ensemble-with", runs["bone"].path, "--set", *settings),
    )
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(answer.stdout)
    assert list(rows) == ["raw coordinates", "untrained", "halp-base", "joint", "ensemble joint+bone"]
    assert [result["protocol"] for result in rows["joint"]] == list(protocols[:-1])
    assert all(rows.values())
    assert all(result["seeds"] == [0, 1] for results in rows.values() for result in results)
    wrong = halp("evaluate", runs["joint"].path, "--protocol", "knn", "--set", "knn.kk=3")
    assert wrong.returncode == 2
    assert "did you mean 'knn.k'" in wrong.stderr
