"""The sweep behind `halp reproduce graphs`: resumed, in several processes, stopped, and on bad input."""

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
from graph_samples import random_graphs

from halp.cli import main
from halp.graphs.cells import METHODS
from halp.graphs.table import paired_difference

pytestmark = pytest.mark.slow  # real processes

TINY = ("epochs=2", "width=4", "layers=2", "folds=3", "inner_folds=2", "halp.start_epoch=1", "halp.prototypes=4")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seed in (("ONE", 0), ("TWO", 1)):
        graphs = random_graphs(40, seed=seed)
        edges = np.stack([graphs.sources.numpy(), graphs.targets.numpy()])
        parts = {"node_labels": graphs.node_labels, "graph_ptr": graphs.starts, "labels": graphs.labels}
        (tmp_path / "data").mkdir(exist_ok=True)
        np.savez(
            tmp_path / "data" / f"{name}.npz", edge_index=edges, **{key: value.numpy() for key, value in parts.items()}
        )
    return tmp_path


def arguments(folder: Path, out: str, *more: str, sets: tuple[str, ...] = ("ONE", "TWO"), seeds: int = 2) -> list[str]:
    where = ["--data", str(folder / "data"), "--out", str(folder / out)]
    return ["reproduce", "graphs", *where, "--sets", *sets, "--seeds", str(seeds), *more, "--set", *TINY]


def results(folder: Path, out: str) -> tuple[bytes, object]:
    """What is determined by data, settings and seeds."""
    home = folder / out / "graphs"
    cells = [json.loads(path.read_text()) for path in sorted((home / "cells").glob("*.json"))]
    for cell in cells:
        del cell["seconds"]
    return (home / "graphs.csv").read_bytes(), cells


def test_a_sweep_in_parts_or_in_two_processes_equals_one_in_one_go(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments(folder, "whole"))
    shown = capsys.readouterr()
    assert "HaLP" in shown.out
    assert len(list((folder / "whole" / "graphs" / "cells").iterdir())) == 2 * 2 * len(METHODS)
    main(arguments(folder, "parts", sets=("ONE",), seeds=1))
    left = folder / "parts" / "graphs" / "cells"
    next(left.glob("*-graphcl-*")).unlink()
    kept = {path: path.stat().st_mtime_ns for path in left.iterdir()}
    main(arguments(folder, "parts", "--jobs", "2"))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "a finished cell was computed again"
    assert results(folder, "parts") == results(folder, "whole")


def test_cells_of_other_settings_lie_side_by_side(folder: Path) -> None:
    main(arguments(folder, "out", sets=("ONE",), seeds=1))
    before = set((folder / "out" / "graphs" / "cells").iterdir())
    main([*arguments(folder, "out", sets=("ONE",), seeds=1), "halp.source=keys"])
    new = set((folder / "out" / "graphs" / "cells").iterdir()) - before
    assert [path.name.split("-")[2] for path in new] == ["halp"], "only HaLP depends on HaLP's settings"


def test_json_is_one_document_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*arguments(folder, "out", "--json", sets=("ONE",))])
    document = json.loads(capsys.readouterr().out)
    assert [result["set"] for result in document["results"]] == ["ONE"]
    accuracies = document["results"][0]["accuracies"]
    gaps = np.subtract(accuracies["halp"], accuracies["graphcl"])
    assert document["results"][0]["gain_halp"]["mean"] == pytest.approx(gaps.mean())


def test_a_dry_run_counts_what_is_left_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments(folder, "out", "--dry-run"))
    plan = json.loads(capsys.readouterr().out)
    assert (plan["cells"], plan["cells left"]) == (12, 12)
    assert not (folder / "out").exists()
    main(arguments(folder, "out", sets=("ONE",), seeds=1))
    capsys.readouterr()
    main(arguments(folder, "out", "--dry-run"))
    assert json.loads(capsys.readouterr().out)["cells left"] == 9


@pytest.mark.parametrize("jobs", ["2"])
def test_a_stopped_sweep_keeps_its_cells_and_resumes(folder: Path, jobs: str) -> None:
    more = ("--jobs", jobs)
    command = [sys.executable, "-c", "import sys; from halp.cli import main; main(sys.argv[1:])"]
    given = arguments(folder, "stopped", *more, sets=("ONE",), seeds=80)
    job = subprocess.Popen(
        [*command, *given], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "300"}
    )
    cells = folder / "stopped" / "graphs" / "cells"
    deadline = time.monotonic() + 120
    while not (cells.is_dir() and len(list(cells.glob("*.json"))) > 1) and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    said = job.communicate(timeout=60)[1].decode()
    assert job.returncode == 3, said
    assert "same command" in said
    assert "Traceback" not in said
    assert 0 < len(list(cells.glob("*.json"))) < 240
    for path in cells.glob("*.json"):
        json.loads(path.read_text())
    main(arguments(folder, "stopped", sets=("ONE",)))
    main(arguments(folder, "whole", sets=("ONE",)))
    assert (folder / "stopped" / "graphs" / "graphs.csv").read_bytes() == (
        folder / "whole" / "graphs" / "graphs.csv"
    ).read_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--sets", "THREE"], "neither THREE.npz nor THREE_A.txt"),
        (["--seeds", "0"], "at least one seed"),
        (["--jobs", "0"], "at least one process"),
        (["--svm", "scald"], "did you mean 'scaled'"),
        (["--data"], "give the folder"),
        (["--set", "folds=30"], "30 stratified folds"),
    ],
)
def test_bad_arguments_give_one_sentence_and_exit_code_2(
    folder: Path, change: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments(folder, "out"), *change])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words in " ".join(said.split())
    assert not (folder / "out").exists()


def test_paired_difference_equals_the_formula() -> None:
    ours, other = [80.0, 82.0, 81.0, 85.0], [79.0, 82.5, 80.0, 82.0]
    gaps = np.subtract(ours, other)
    found = paired_difference(ours, other)
    assert found.mean == pytest.approx(gaps.mean())
    assert found.half_width == pytest.approx(3.182446 * gaps.std(ddof=1) / 2, rel=1e-6)
    assert paired_difference([1.0], [0.5]).half_width is None
