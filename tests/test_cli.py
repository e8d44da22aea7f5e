"""The command line as a person meets it: real processes, exit codes, one sentence for a mistake, never a
traceback.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import forked as subprocess
import numpy as np
import pytest

from halp.cli.app import print_json
from halp.cli.demo import _clear
from halp.core.packages import list_encoders
from halp.data.store import Store
from halp.data.synthetic import make_synthetic_store

pytestmark = pytest.mark.slow  # real processes


def halp(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from halp.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "400", "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


@pytest.fixture(scope="module")
def trained(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from conftest import TINY

    run = tmp_path_factory.mktemp("runs") / "tiny"
    done = halp("pretrain", "small", "--data", store.path, "--run", run, "--set", *TINY)
    assert done.returncode == 0, done.stderr
    return run


def refused(answer: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2 and one sentence that holds these words."""
    assert answer.returncode == 2, answer.stderr
    assert "Traceback" not in answer.stderr
    lines = [
        line
        for line in answer.stderr.splitlines()
        if line.strip() and not line.startswith(("warning:", "note:"))
    ]
    assert len(lines) == 1, answer.stderr
    for word in words:
        assert word in lines[0], lines[0]


def test_help_of_every_command_can_be_read() -> None:
    top = halp("--help")
    assert top.returncode == 0
    for command in (
        "demo",
        "prepare",
        "formats",
        "inspect",
        "merge",
        "pretrain",
        "evaluate",
        "report",
        "recipes",
    ):
        assert command in top.stdout
        answer = halp(command, "--help")
        assert answer.returncode == 0, command
        assert "Args:" not in answer.stdout


def test_version_is_printed() -> None:
    assert halp("--version").stdout.startswith("halp ")


def test_pretrain_evaluate_and_report_run_end_to_end(trained: Path, store: Store, tmp_path: Path) -> None:
    answer = halp(
        "evaluate", trained, "--protocol", "knn", "--split", "xsub", "xview", "--allow-overlap", "--json"
    )
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(answer.stdout)
    assert list(rows) == ["raw coordinates", "untrained", "halp-base", "tiny"]
    assert {(result["protocol"], result["split"]) for result in rows["tiny"]} == {
        ("knn", "xsub"),
        ("knn", "xview"),
    }
    page = tmp_path / "report.html"
    answer = halp("report", trained, "--out", page)
    assert answer.returncode == 0, answer.stderr
    assert "<svg" in page.read_text(encoding="utf-8")


def test_a_shipped_encoder_is_judged_as_any_other(store: Store) -> None:
    answer = halp("evaluate", "halp-base", "--data", store.path, "--protocol", "knn", "--split", "xsub")
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.splitlines()[-1].startswith("keep ")


def test_recipes_are_listed_and_printed_as_toml() -> None:
    assert "ntu60-halp" in json.loads(halp("recipes", "--json").stdout)
    few, every = (halp("recipes", *more).stdout for more in ((), ("--all",)))
    assert len(every.splitlines()) > 95 > 20 > len(few.splitlines())
    assert json.loads(halp("encoders", "--json").stdout) == list_encoders()
    shown, base = halp("encoders").stdout, list_encoders()["halp-base"]
    assert ["halp-base", base["provenance"]["release"]] in [row.split()[1:4:2] for row in shown.splitlines()]
    assert 'name = "small"' in halp("recipes", "small").stdout


def test_formats_are_listed() -> None:
    assert {"ntu", "synthetic"} <= set(json.loads(halp("formats", "--json").stdout))


def test_prepare_and_inspect_synthetic_clips(tmp_path: Path) -> None:
    assert halp("prepare", "synthetic", 48, tmp_path / "people").returncode == 0
    answer = halp("inspect", tmp_path / "people", "--json", "--html", tmp_path / "people.html")
    assert json.loads(answer.stdout)["clips"] == 48
    assert "canvas" in (tmp_path / "people.html").read_text(encoding="utf-8")
    refused(halp("prepare", "synthetic", 48, tmp_path / "people"), "exists already")
    refused(halp("prepare", "synthetic", "many", tmp_path / "more"), "number of clips")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("halp.hardnes=1", "did you mean 'halp.hardness'"),
        ("halp.count=many", "must be a whole number"),
        ("halp.prototypes=500", "more than recent"),
        ("halp.count=0", "at least one positive"),
        ("halp.hardness=7", "out of range"),
        ("split=nowhere", "has no split 'nowhere'"),
    ],
)
def test_wrong_recipes_are_refused(store: Store, tmp_path: Path, setting: str, words: str) -> None:
    refused(
        halp("pretrain", "small", "--data", store.path, "--run", tmp_path / "run", "--set", setting), words
    )
    assert not (tmp_path / "run").exists()


def test_missing_and_damaged_stores_are_refused(store: Store, tmp_path: Path) -> None:
    refused(halp("pretrain", "small", "--data", tmp_path / "none"), "there is no store", "halp prepare")
    refused(halp("inspect", tmp_path), "not a store", "store.json")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("store.json", "index.parquet", "frames.npy"):
        (copy / name).write_bytes((store.path / name).read_bytes())
    (copy / "index.parquet").write_text("[1, 2")
    refused(halp("inspect", copy), "index.parquet")
    (copy / "frames.npy").write_bytes((store.path / "frames.npy").read_bytes()[:-1000])
    refused(halp("inspect", copy), "damaged", "frames.npy")
    header = json.loads((store.path / "store.json").read_text())
    (copy / "store.json").write_text(json.dumps({**header, "format": 99}))
    refused(halp("inspect", copy), "format 99")


def test_wrong_topology_is_refused(trained: Path, tmp_path: Path) -> None:
    from halp.data.clip import Clip
    from halp.data.splits import Split
    from halp.data.store_writer import StoreWriter
    from halp.skeleton import get_topology

    topology = get_topology("coco-17")
    with StoreWriter(
        tmp_path / "flat",
        topology,
        persons=1,
        class_names=["a", "b"],
        splits=[Split("xsub", "subject", (1,))],
    ) as writer:
        for number in range(6):
            frames = np.random.default_rng(number).normal(size=(5, 1, 17, topology.dimensions))
            writer.add(Clip(frames.astype(np.float32), f"clip{number}", label=number % 2, subject=number % 3))
    refused(
        halp("evaluate", trained, "--data", tmp_path / "flat", "--protocol", "knn", "--no-baselines"),
        "coco-17",
        "halp encoders",
    )


def test_runs_are_not_overwritten_and_strangers_are_no_runs(
    trained: Path, store: Store, tmp_path: Path
) -> None:
    refused(
        halp("pretrain", "small", "--data", store.path, "--run", trained), "holds a run already", "--resume"
    )
    refused(halp("evaluate", tmp_path), "neither a run folder nor a package")
    refused(halp("report", tmp_path), "is not a run folder")
    refused(halp("evaluate", trained, "--protocol", "knnn", "--no-baselines"), "did you mean 'knn'")


def test_a_split_that_shares_clips_with_the_training_is_refused(trained: Path) -> None:
    refused(
        halp("evaluate", trained, "--protocol", "knn", "--split", "xview"), "test clips", "--allow-overlap"
    )


def test_a_run_folder_that_cannot_be_written_is_still_evaluated(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("results", "features"))
    for name in ("results", "features"):
        (run / name).write_text("in the way")  # also for root, whom no permission stops
    answer = halp("evaluate", run, "--protocol", "knn", "--no-baselines")
    assert answer.returncode == 0, answer.stderr
    assert "knn xsub" in answer.stdout
    said = " ".join(answer.stderr.split())
    assert "cannot be written" in said
    assert "it is printed only" in said
    assert "Traceback" not in said


def test_the_former_name_of_the_baselines_is_still_understood(trained: Path) -> None:
    answer = halp("evaluate", trained, "--protocol", "knn", "--no-baselines", "--json")
    assert answer.returncode == 0, answer.stderr
    assert list(json.loads(answer.stdout)) == ["tiny"]


def test_a_report_asks_for_a_store_that_is_there(trained: Path, tmp_path: Path) -> None:
    refused(halp("report", trained, "--data", tmp_path / "nothere", "--out", tmp_path / "r.html"), "nothere")
    assert not (tmp_path / "r.html").exists()


def test_missing_arguments_exit_with_two() -> None:
    for arguments in ((), ("pretrain",), ("pretrain", "small"), ("nonsense",), ("evaluate",)):
        answer = halp(*arguments)
        assert answer.returncode == 2, arguments
        assert "Traceback" not in answer.stderr


def test_demo_replaces_an_earlier_one_and_writes_a_table_and_a_report(tmp_path: Path) -> None:
    small = (
        "epochs=4",
        "halp.start_epoch=2",
        "encoder.hidden=16",
        "contrast.queue=64",
        "halp.recent=64",
        "saving.checkpoint_epochs=2",
        "saving.log_every=1",
    )
    _clear(tmp_path / "demo")  # an earlier demonstration is replaced
    make_synthetic_store(tmp_path / "demo" / "store", count=24)
    answer = halp("demo", "--out", tmp_path / "demo", "--clips", 144, "--json", "--set", *small)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(answer.stdout)
    assert list(rows) == ["raw coordinates", "untrained", "halp-base", "MoCo", "HaLP"]
    assert all(set(row) == {"knn", "linear"} for row in rows.values())
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    for title in (
        "Contrastive loss",
        "Positives kept",
        "Similarity to the query",
        "Similarity to every prototype",
    ):
        assert title in page
    for title in ("What the encoder sees", "Confusion matrix", "Nearest neighbours"):
        assert title in page


def test_json_of_commands_never_holds_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), 1.5, float("-inf")], "b": (2, {"c": float("inf")})})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5, None], "b": [2, {"c": None}]}
