"""Checkpoints that were changed, mixed up or taken from elsewhere: named, passed over, and the run ends in
the same bits.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked as subprocess
import numpy as np
import pytest
import torch
from jobs import final_files

from halp.core.errors import InputError
from halp.core.locks import InUse
from halp.data.store import Store
from halp.training import load_recipe, pretrain
from halp.training.checkpoint import MANIFEST, list_checkpoints, load_checkpoint, newest_checkpoint
from halp.training.convert import convert

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """A run that was stopped after two epochs, one that never stopped, and one of another seed."""
    folder = tmp_path_factory.mktemp("attacked")
    for name, seed, until in (("stopped", 0, 2), ("whole", 0, 3), ("foreign", 1, 2)):
        pretrain(recipe(seed), store, folder / name, until=until, progress=False, accelerator="cpu")
    return folder


def recipe(seed: int = 0) -> Any:
    from conftest import TINY

    return load_recipe("small", (*TINY, f"seed={seed}"))


def edit(name: str, **changes: Any) -> Change:
    def change(newest: Path) -> None:
        data = json.loads((newest / name).read_text())
        (newest / name).write_text(json.dumps({**data, **changes}))

    return change


def drop(name: str, key: str) -> Change:
    def change(newest: Path) -> None:
        data = json.loads((newest / name).read_text())
        del data[key]
        (newest / name).write_text(json.dumps(data))

    return change


def foreign(newest: Path) -> None:
    other = list_checkpoints(newest.parents[2] / "foreign" / "checkpoints")[-1]
    shutil.rmtree(newest)
    shutil.copytree(other, newest)


def renamed(newest: Path) -> None:
    earlier = list_checkpoints(newest.parent)[0]
    shutil.rmtree(newest)
    shutil.copytree(earlier, newest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit("state.json", step=16), r"state\.json was changed after it was written"),
        (edit("state.json", step=-5), r"state\.json was changed after it was written"),
        (edit("state.json", step="abc"), r"state\.json was changed after it was written"),
        (edit("state.json", data="0" * 64), r"state\.json was changed after it was written"),
        (
            lambda newest: (newest / "state.json").write_text("{}"),
            r"state\.json was changed after it was written",
        ),
        (edit(MANIFEST, step=16), r"manifest\.json was changed after it was written"),
        (edit(MANIFEST, files={}), r"manifest\.json was changed after it was written"),
        (drop(MANIFEST, "files"), r"manifest\.json was changed after it was written"),
        (drop(MANIFEST, "manifest"), r"manifest\.json was changed after it was written"),
        (lambda newest: (newest / MANIFEST).unlink(), r"manifest\.json is missing"),
        (lambda newest: (newest / MANIFEST).write_text("[]"), "a format other than"),
        (foreign, "belongs to another run"),
        (renamed, "it was written as 'step-"),
    ],
)
def test_changed_checkpoint_is_named_and_the_one_before_taken(
    change: Change, message: str, runs: Path, store: Store, tmp_path: Path
) -> None:
    for name in ("stopped", "foreign"):
        shutil.copytree(runs / name, tmp_path / name)
    newest = list_checkpoints(tmp_path / "stopped" / "checkpoints")[-1]
    change(newest)
    with pytest.raises(InputError, match=message):
        load_checkpoint(newest)
    with pytest.warns(UserWarning, match="trying the one before"):
        pretrain(recipe(), store, tmp_path / "stopped", resume=True, progress=False, accelerator="cpu")
    assert final_files(tmp_path / "stopped") == final_files(runs / "whole")


@pytest.mark.slow
def test_every_flipped_bit_of_state_and_manifest_is_noticed(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "stopped", tmp_path / "run")
    newest = list_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    whole = load_checkpoint(newest).state
    for name in ("state.json", MANIFEST):
        original = (newest / name).read_bytes()
        bits = range(8 * len(original))
        for bit in bits if name == "state.json" else random.Random(0).sample(bits, 800):
            damaged = bytearray(original)
            damaged[bit // 8] ^= 1 << bit % 8
            (newest / name).write_bytes(damaged)
            try:
                assert load_checkpoint(newest).state == whole
                unchanged = json.loads(damaged) == json.loads(original)
            except InputError:
                continue
            assert unchanged, (name, bit)
        (newest / name).write_bytes(original)


@pytest.mark.parametrize(
    "change", [{"files": None}, {"step": "abc"}, {"step": -5}, {"step": 16}, {"files": {}}]
)
def test_damaged_state_of_the_format_before_is_one_sentence(change: dict, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "stopped", tmp_path / "run")
    newest = list_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    files = json.loads((newest / MANIFEST).read_text())["files"]
    del files["state.json"]
    (newest / MANIFEST).unlink()
    state = json.loads((newest / "state.json").read_text())
    (newest / "state.json").write_text(json.dumps({**state, "format": 1, "files": files, **change}))
    with pytest.raises(InputError, match="damaged"):
        load_checkpoint(newest)
    assert newest_checkpoint(newest.parent).state["step"] < state["step"]


HOLD = """
import sys, time
from pathlib import Path
from halp.training.run import locked_run
with locked_run(Path(sys.argv[1]), True):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_second_process_on_a_run_is_refused_and_changes_nothing(
    runs: Path, store: Store, tmp_path: Path
) -> None:
    shutil.copytree(runs / "stopped", tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InUse, match=rf"run '.*run' is in use by process {holder.pid} "):
            pretrain(recipe(), store, tmp_path / "run", resume=True, progress=False, accelerator="cpu")
        assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    finally:
        holder.kill()
        holder.communicate()
    pretrain(recipe(), store, tmp_path / "run", resume=True, progress=False, accelerator="cpu")
    assert final_files(tmp_path / "run") == final_files(runs / "whole")
    assert not (tmp_path / ".run.lock").exists()


def test_resuming_with_other_threads_is_reported(runs: Path, store: Store, tmp_path: Path) -> None:
    shutil.copytree(runs / "stopped", tmp_path / "run")
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    info["hardware"]["threads"] = 17
    (tmp_path / "run" / "run.json").write_text(json.dumps(info))
    with pytest.warns(UserWarning, match="began with 17 threads per process and resumes with"):
        pretrain(recipe(), store, tmp_path / "run", resume=True, progress=False, accelerator="cpu")


@pytest.mark.parametrize("content", ["[]", "{}", '{"data": {}}', '{"data": {"hash": 1}}', "{"])
def test_damaged_run_is_one_sentence(content: str, runs: Path, store: Store, tmp_path: Path) -> None:
    shutil.copytree(runs / "stopped", tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(content)
    with pytest.raises(InputError, match=r"run\.json"):
        pretrain(recipe(), store, tmp_path / "run", resume=True, progress=False, accelerator="cpu")


def authors_file(path: Path, **changes: Any) -> Path:
    """Tensors under the names of the authors' format; not a whole checkpoint, but enough to be looked at."""
    tensors = {
        "encoder_q.encoder.gru.weight_hh_l0": torch.zeros(24, 8),
        "encoder_q.encoder.gru.weight_ih_l0": torch.zeros(24, 150),
        "encoder_q.fc.2.weight": torch.zeros(16, 8),
        "queue": torch.zeros(16, 32),
        **changes,
    }
    torch.save({"epoch": 1, "state_dict": tensors}, path)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"queue": torch.zeros(1).expand(16, 2_000_000_000)},
        {"encoder_q.fc.2.weight": torch.zeros(1).expand(2_000_000_000, 20)},
        {"encoder_q.encoder.gru.weight_hh_l0": torch.zeros(0, 10**9)},
        {"encoder_q.encoder.gru.weight_hh_l0": torch.zeros(1, 100_000)},
        {f"encoder_q.encoder.gru.weight_hh_l{layer}": torch.zeros(1, 1) for layer in range(500)},
        {f"x{number}": torch.zeros(1) for number in range(10_100)},
        {"\x1b[31mred\n": torch.full((3,), np.nan)},
        {"queue": torch.zeros(16, 32).to_sparse()},
    ],
)
@pytest.mark.heavy
def test_convert_refuses_tensors_that_declare_more_than_they_hold(changes: dict, tmp_path: Path) -> None:
    path = authors_file(tmp_path / "a.pth.tar", **changes)
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        convert(path, tmp_path / "out")
    message = str(caught.value)
    assert "\x1b" not in message
    assert "\n" not in message
    assert time.process_time() - began < 20
    assert not (tmp_path / "out").exists()


def test_what_torch_says_is_one_line_without_colours(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return (print, ("x",))

    torch.save({"state_dict": {"a": Evil()}}, tmp_path / "a.pth.tar")
    with pytest.raises(InputError) as caught:
        convert(tmp_path / "a.pth.tar", tmp_path / "out")
    message = str(caught.value)
    assert "\x1b" not in message
    assert "\n" not in message
    assert "contains code" in message
