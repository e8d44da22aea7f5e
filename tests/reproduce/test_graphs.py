"""The table on graphs: sets from files, and a sweep that resumes, in one process or several."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import forked as subprocess
import numpy as np
import pytest
import torch
from graph_samples import random_graphs

from halp.cli import main
from halp.core.errors import InputError
from halp.reproduce.graph_sets import assemble, read_graphs
from halp.reproduce.graphs import TITLES


def test_edges_are_read_in_both_directions_once_and_without_loops() -> None:
    edges = np.array([[0, 0, 1, 2, 1], [1, 1, 0, 2, 2]])
    graphs = assemble("one", "one", edges, np.zeros(3, np.int64), np.array([0, 3]), np.array([7]))
    assert list(zip(graphs.sources.tolist(), graphs.targets.tolist())) == [(1, 0), (0, 1), (2, 1), (1, 2)]
    assert graphs.labels.tolist() == [0]


def save_npz(folder: Path, **changes: object) -> None:
    arrays: dict[str, object] = {
        "edge_index": np.array([[0, 1, 2, 3], [1, 0, 3, 2]]),
        "node_labels": np.array([0, 1, 0, 2]),
        "graph_ptr": np.array([0, 2, 4]),
        "labels": np.array([0, 1]),
    }
    arrays |= changes
    np.savez(folder / "TOY.npz", **{key: value for key, value in arrays.items() if value is not None})  # type: ignore[arg-type]


def save_text(folder: Path, **changes: str | None) -> None:
    texts: dict[str, str | None] = {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n",
        "graph_indicator": "1\n1\n2\n2\n",
        "graph_labels": "-1\n1\n",
        "node_labels": "3\n4\n3\n5\n",
    }
    for key, text in (texts | changes).items():
        if text is not None:
            (folder / f"TOY_{key}.txt").write_text(text)


def test_text_and_npz_give_the_same_graphs(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "TOY").mkdir(parents=True)
    save_npz(tmp_path / "a")
    save_text(tmp_path / "b" / "TOY")
    one, other = read_graphs(tmp_path / "a", "TOY"), read_graphs(tmp_path / "b", "TOY")
    for name in ("sources", "targets", "starts", "labels", "node_labels"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_a_text_set_without_node_labels_has_one_label(tmp_path: Path) -> None:
    save_text(tmp_path, node_labels=None)
    assert read_graphs(tmp_path, "TOY").feature_size == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": None}, "no array labels"),
        ({"edge_index": np.array([[0.5], [1.0]])}, "integers"),
        ({"edge_index": np.array([[0, 1, 2]])}, r"\(2, E\)"),
        ({"edge_index": np.array([[0], [4]])}, "names node 4"),
        ({"edge_index": np.array([[0], [-1]])}, "names node -1"),
        ({"edge_index": np.array([[0], [2]])}, "two different graphs"),
        ({"graph_ptr": np.array([0, 2, 5])}, "graph_ptr"),
        ({"graph_ptr": np.array([0, 0, 4])}, "graph_ptr"),
        ({"graph_ptr": np.zeros(0, np.int64), "labels": np.zeros(0, np.int64)}, "graph_ptr"),
        ({"node_labels": np.array([0, 1, -1, 2])}, "node labels"),
        ({"labels": np.array(["a", "b"], dtype=object)}, "Python objects"),
    ],
)
def test_a_bad_npz_is_refused_in_one_sentence(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    save_npz(tmp_path, **changes)
    with pytest.raises(InputError, match=words) as caught:
        read_graphs(tmp_path, "TOY")
    assert "TOY.npz" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"A": "1, 2\n2; 1\n"}, "TOY_A.txt', line 2"),
        ({"A": "1, 2\n2, x\n"}, "TOY_A.txt', line 2"),
        ({"A": "1, 9\n"}, "names node 8"),
        ({"A": "0, 1\n"}, "names node -1"),
        ({"A": f"1, {10**30}\n"}, "TOY_A.txt', line 1"),
        ({"graph_indicator": "1\n2\n1\n2\n"}, "must rise"),
        ({"graph_indicator": "0\n1\n1\n2\n"}, "must rise"),
        ({"graph_indicator": "1\n1\n1\n1\n"}, "must rise"),
        ({"graph_indicator": ""}, "must rise|has 4 lines"),
        ({"graph_labels": None}, "no file"),
        ({"node_labels": "1\n2\n"}, "2 lines for the 4 nodes"),
    ],
)
def test_bad_text_files_are_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, str | None], words: str
) -> None:
    save_text(tmp_path, **changes)
    with pytest.raises(InputError, match=words):
        read_graphs(tmp_path, "TOY")


def test_a_folder_without_the_set_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no graph sets at all"):
        read_graphs(tmp_path, "MUTAG")
    save_npz(tmp_path)
    with pytest.raises(InputError, match="it has TOY"):
        read_graphs(tmp_path, "MUTAG")
    with pytest.raises(InputError, match="is not a folder"):
        read_graphs(tmp_path / "TOY.npz", "TOY")
    (tmp_path / "TOY.npz").write_bytes((tmp_path / "TOY.npz").read_bytes()[:100])
    with pytest.raises(InputError, match="not a whole"):
        read_graphs(tmp_path, "TOY")


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "width"), [("MUTAG", 188, 3371, 7), ("PROTEINS", 1113, 43471, 3)]
)
def test_the_published_sets_have_their_published_sizes(
    shared: Path, name: str, graphs: int, nodes: int, width: int
) -> None:
    known = read_graphs(shared / "data" / "graphs", name)
    assert (len(known), len(known.node_labels), known.feature_size) == (graphs, nodes, width)


TINY = (
    "epochs=2",
    "width=4",
    "layers=2",
    "folds=3",
    "inner_folds=2",
    "halp.start_epoch=1",
    "halp.prototypes=4",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seed in (("ONE", 0), ("TWO", 1)):
        graphs = random_graphs(40, seed=seed)
        edges = np.stack([graphs.sources.numpy(), graphs.targets.numpy()])
        parts = {"node_labels": graphs.node_labels, "graph_ptr": graphs.starts, "labels": graphs.labels}
        (tmp_path / "data").mkdir(exist_ok=True)
        np.savez(
            tmp_path / "data" / f"{name}.npz",
            edge_index=edges,
            **{key: value.numpy() for key, value in parts.items()},
        )
    return tmp_path


def arguments(
    folder: Path, out: str, *more: str, sets: tuple[str, ...] = ("ONE", "TWO"), seeds: int = 2
) -> list[str]:
    where = ["--data", str(folder / "data"), "--out", str(folder / out)]
    return ["reproduce", "graphs", *where, "--datasets", *sets, "--seeds", str(seeds), *more, "--set", *TINY]


def results(folder: Path, out: str) -> tuple[bytes, object]:
    """What is determined by data, settings and seeds."""
    home = folder / out / "graphs"
    cells = [json.loads(path.read_text()) for path in sorted((home / "cells").glob("*.json"))]
    return (home / "graphs.csv").read_bytes(), cells


@pytest.mark.slow  # real processes
def test_a_sweep_in_parts_equals_one_in_one_go(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments(folder, "whole"))
    shown = capsys.readouterr()
    assert "HaLP" in shown.out
    assert len(list((folder / "whole" / "graphs" / "cells").iterdir())) == 2 * 2 * len(TITLES)
    main(arguments(folder, "parts", sets=("ONE",), seeds=1))
    left = folder / "parts" / "graphs" / "cells"
    next(left.glob("*-graphcl-*")).unlink()
    kept = {path: path.stat().st_mtime_ns for path in left.iterdir()}
    main(arguments(folder, "parts"))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "a finished cell was computed again"
    assert results(folder, "parts") == results(folder, "whole")


@pytest.mark.slow  # real processes
def test_cells_of_other_settings_lie_side_by_side(folder: Path) -> None:
    main(arguments(folder, "out", sets=("ONE",), seeds=1))
    before = set((folder / "out" / "graphs" / "cells").iterdir())
    main([*arguments(folder, "out", sets=("ONE",), seeds=1), "halp.source=keys"])
    new = set((folder / "out" / "graphs" / "cells").iterdir()) - before
    assert [path.name.split("-")[2] for path in new] == ["halp"], "only HaLP depends on HaLP's settings"


@pytest.mark.slow  # real processes
def test_json_is_one_document_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*arguments(folder, "out", "--json", sets=("ONE",))])
    document = json.loads(capsys.readouterr().out)
    assert [result["set"] for result in document["results"]] == ["ONE"]
    accuracies = document["results"][0]["accuracies"]
    gaps = np.subtract(accuracies["halp"], accuracies["graphcl"])
    assert document["results"][0]["gain_halp"]["mean"] == pytest.approx(gaps.mean())


@pytest.mark.slow  # real processes
def test_a_dry_run_counts_what_is_left_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments(folder, "out", "--dry-run"))
    plan = json.loads(capsys.readouterr().out)
    assert (plan["cells"], plan["cells left"]) == (12, 12)
    assert not (folder / "out").exists()
    main(arguments(folder, "out", sets=("ONE",), seeds=1))
    capsys.readouterr()
    main(arguments(folder, "out", "--dry-run"))
    assert json.loads(capsys.readouterr().out)["cells left"] == 9


@pytest.mark.slow  # real processes
def test_a_sweep_of_two_processes_that_is_stopped_keeps_its_cells_and_equals_one_in_one_go(
    folder: Path,
) -> None:
    command = [sys.executable, "-c", "import sys; from halp.cli import main; main(sys.argv[1:])"]
    given = arguments(folder, "stopped", "--workers", "2", sets=("ONE",), seeds=80)
    job = subprocess.Popen(
        [*command, *given],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "300"},
    )
    cells = folder / "stopped" / "graphs" / "cells"
    deadline = time.monotonic() + 300
    while not (cells.is_dir() and len(list(cells.glob("*.json"))) > 1) and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    said = job.communicate(timeout=300)[1].decode()
    assert job.returncode == 3, said
    assert "same command" in said
    assert "Traceback" not in said
    assert 0 < len(list(cells.glob("*.json"))) < 240
    for path in cells.glob("*.json"):
        json.loads(path.read_text())
    main(arguments(folder, "stopped", "--workers", "2", sets=("ONE",)))
    main(arguments(folder, "whole", "--workers", "1", sets=("ONE",)))
    assert (folder / "stopped" / "graphs" / "graphs.csv").read_bytes() == (
        folder / "whole" / "graphs" / "graphs.csv"
    ).read_bytes()


@pytest.mark.slow  # real processes
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--datasets", "THREE"], "neither THREE.npz nor THREE_A.txt"),
        (["--seeds", "0"], "at least one seed"),
        (["--workers", "0"], "at least 1"),
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
