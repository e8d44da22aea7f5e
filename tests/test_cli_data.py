"""The data commands as a person meets them: results on standard output, mistakes in one sentence that can be
acted on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from reader_samples import BVH, write_mediapipe
from test_cli import halp, refused

from halp.cli import main
from halp.core.errors import InputError
from halp.data.store import open_store
from halp.data.synthetic import ONE_TAKE, synthetic_clips

pytestmark = pytest.mark.slow  # real processes


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "my recordings"
    folder.mkdir()
    write_mediapipe(folder)
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--option", "persons=0"], ("persons", "from 1 to 20")),
        (["--option", "persons=-1"], ("persons", "from 1 to 20")),
        (["--option", "persons=1.5"], ("whole number",)),
        (["--option", "aspect=0"], ("aspect", "above 0")),
        (["--option", "aspect=nan"], ("aspect", "finite number")),
        (["--option", "min_score=x"], ("min_score", "'x'", "a number")),
        (["--option", "persons"], ("name=value",)),
        (["--limit", "-1"], ("limit of -1",)),
        (["--limit", "0"], ("limit of 0",)),
        (["--window", "0", "--fps", "30"], ("window", "above 0")),
        (["--fps", "-3"], ("fps", "above 0")),
        (["--stride", "1"], ("a stride needs a window",)),
        (["--normalise", "wobble"], ("normalisation step 'wobble'",)),
    ],
)
def test_settings_of_prepare_that_cannot_be_are_refused(
    arguments: list[str], words: tuple, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # In this process, because starting one for every case would take longer than all of them.
    with pytest.raises(SystemExit) as stopped:
        main(["prepare", "mediapipe", str(source), str(source.parent / "store"), *arguments])
    message = capsys.readouterr().err
    assert stopped.value.code == 2
    assert len(message.splitlines()) == 1
    assert all(word in message for word in words), message
    assert not (source.parent / "store").exists()


def test_synthetic_clips_take_no_settings_of_readers(tmp_path: Path) -> None:
    refused(
        halp("prepare", "synthetic", 10, tmp_path / "store", "--normalise", "wobble"), "take no --normalise"
    )
    assert not (tmp_path / "store").exists()


def test_more_synthetic_clips_than_one_take_of_everybody_are_more_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic_clips(ONE_TAKE)
    with pytest.raises(InputError, match=f"1 to {ONE_TAKE}"):
        synthetic_clips(ONE_TAKE + 1)
    for count in (0, 999 * ONE_TAKE + 1):
        with pytest.raises(SystemExit):
            main(["prepare", "synthetic", str(count), str(tmp_path / "store")])
        assert f"a number of clips from 1 to {999 * ONE_TAKE} " in capsys.readouterr().err
    monkeypatch.setattr("halp.data.synthetic.ONE_TAKE", 12)  # the command itself, with few clips
    main(["prepare", "synthetic", "13", str(tmp_path / "store")])
    store = open_store(tmp_path / "store")
    assert (len(store), store.header["origin"]["repetitions"]) == (13, 2)


def test_tables_go_to_standard_output_and_hints_can_be_pasted(source: Path) -> None:
    assert "bvh" in halp("formats").stdout
    store = source.parent / "my store"
    answer = halp("prepare", "auto", source, store)
    assert answer.returncode == 0
    assert f"halp inspect '{store}'" in answer.stderr
    shown = halp("inspect", store)
    assert "mediapipe-33" in shown.stdout
    assert shown.stderr == ""
    refused(halp("prepare", "auto", source, store), "exists already", "--overwrite")
    refused(halp("inspect", source / "wave.json"), "is a file, not a store", "halp prepare auto")
    refused(halp("merge", store, store, "--out", source.parent / "twice"), "hold the same clips")


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["formats"], ("torch", "scipy", "sklearn", "h5py", "tomlkit", "pandas")),
        (["recipes"], ("torch", "numpy", "scipy", "sklearn", "pandas")),
        (["--help"], ("torch", "numpy", "scipy", "sklearn", "rich", "tomlkit", "jinja2")),
    ],
)
def test_lists_are_shown_without_loading_what_only_work_needs(
    arguments: list[str], heavy: tuple[str, ...]
) -> None:
    code = (
        f"import sys; from halp.cli import main; main({arguments}); print([m for m in {heavy} if m in"
        " sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_splits_are_made_by_command(tmp_path: Path) -> None:
    for person in ("anna", "ben"):
        for action in ("walk", "run"):
            (tmp_path / "own" / person / action).mkdir(parents=True)
            (tmp_path / "own" / person / action / "1.bvh").write_text(BVH)
    store = tmp_path / "store"
    assert (
        halp("prepare", "auto", tmp_path / "own", store, "--pattern", "{subject}/{label}/*.bvh").returncode
        == 0
    )
    made = halp("split", store, "--by", "subject", "--folds", 2, "--json")
    assert {name: size["test"] for name, size in json.loads(made.stdout).items()} == {
        "subject-1": 2,
        "subject-2": 2,
    }
    held = halp("split", store, "--by", "subject", "--hold-out", "ben", "--name", "xsub")
    assert "xsub" in held.stdout
    refused(halp("split", store, "--by", "label", "--folds", 9), "too few for 9 folds")


def test_a_folder_without_splits_is_learned_from_and_evaluated(tmp_path: Path) -> None:
    for label in ("walk", "run"):
        (tmp_path / "own" / label).mkdir(parents=True)
        for number in range(4):
            write_mediapipe(tmp_path / "own" / label, f"take {number}")
    store, run = tmp_path / "my store", tmp_path / "my run"
    assert halp("prepare", "auto", tmp_path / "own", store).returncode == 0
    settings = ("epochs=1", "batch_size=4", "saving.checkpoint_epochs=1")
    trained = halp("pretrain", "small", "--data", store, "--run", run, "--set", *settings)
    assert trained.returncode == 0, trained.stderr
    assert "has no splits: learning from all 8 clips" in trained.stderr.replace("\n", " ")
    assert f"halp evaluate '{run}' --data '{store}'" in trained.stderr
    answer = halp("evaluate", run, "--protocol", "knn", "--no-baselines", "--json")
    assert answer.returncode == 0, answer.stderr
    assert "4 stratified folds" in answer.stderr.replace("\n", " ")
    (results,) = json.loads(answer.stdout).values()
    assert [result["split"] for result in results] == [
        "folds-1",
        "folds-2",
        "folds-3",
        "folds-4",
        "folds, 4 folds",
    ]
    assert [result["test_clips_trained_on"] for result in results] == [
        2,
        2,
        2,
        2,
        8,
    ]  # of each fold, then of all
