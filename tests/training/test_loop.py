"""Training end to end: exact resume, forks, interruption by real signals, damage to what was saved."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import forked as subprocess
import numpy as np
import pytest
import torch

import halp
from halp.core.errors import InputError
from halp.data.store import Store
from halp.data.synthetic import make_synthetic_store
from halp.training import Recipe, load_recipe, loop, open_run, pretrain
from halp.training.checkpoint import list_checkpoints, load_checkpoint, newest_checkpoint


def recipe(tiny: tuple[str, ...], *more: str) -> Recipe:
    return load_recipe("small", (*tiny, *more))


def steps_an_epoch(store: Store) -> int:
    return len(store.split("xsub")[0]) // 16


def final_files(run: Path) -> dict[str, bytes]:
    """What must be equal to the bit: newest checkpoint and metrics."""
    newest = list_checkpoints(run / "checkpoints")[-1]
    files = {
        name: (newest / name).read_bytes()
        for name in ("model.safetensors", "optimiser.safetensors", "state.json")
    }
    return {**files, "metrics": (run / "metrics.jsonl").read_bytes()}


def test_run_folder_explains_itself(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    chosen = recipe(tiny)
    run = pretrain(chosen, store, tmp_path / "run", progress=False)
    assert open_run(run.path).recipe == chosen
    assert run.info["data"]["hash"] == store.hash
    assert run.info["finished"]["step"] == 3 * steps_an_epoch(store)
    lines = run.metrics()
    assert [line["step"] for line in lines] == list(range(1, 3 * steps_an_epoch(store) + 1))
    assert all(np.isfinite(list(line.values())).all() for line in lines)
    assert "joint/kept" in lines[-1]
    assert "joint/kept" not in lines[0]
    assert len(run.metrics("timing.jsonl")) == 3
    encoder = halp.load_encoder(run.path)
    assert not encoder.training
    assert (encoder.topology, encoder.stream, encoder.frames) == (store.topology, "joint", 12)
    assert encoder(torch.randn(2, 12, 1, 25, 3)).shape == (2, 3 * 16)


@pytest.mark.parametrize(
    "more", [(), ('streams=["joint", "motion", "bone"]',), ("contrast.queue=0", "halp.source=batch")]
)
@pytest.mark.slow
def test_resumed_run_equals_uninterrupted_run(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], more: tuple[str, ...]
) -> None:
    chosen = recipe(tiny, *more)
    whole = pretrain(chosen, store, tmp_path / "whole", progress=False)
    for until in (1, 2):
        pretrain(chosen, store, tmp_path / "parts", until=until, resume=until > 1, progress=False)
    parts = pretrain(chosen, store, tmp_path / "parts", resume=True, progress=False)
    assert final_files(whole.path) == final_files(parts.path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 3), (signal.SIGINT, 3), (signal.SIGKILL, -9)])
@pytest.mark.slow
def test_run_that_a_signal_ends_in_the_middle_of_an_epoch_resumes_exactly(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    whole = pretrain(recipe(tiny), store, tmp_path / "whole", progress=False)
    run, step = tmp_path / "signalled", steps_an_epoch(store) + 3
    # the process signals itself, so that the signal arrives at the same step on any machine
    program = (
        "import os\nfrom halp.augment import ViewMaker\nviews, left = ViewMaker.make, [STEP]\n"
        "def signalled(*given):\n    left[0] -= 1\n"
        "    if not left[0]:\n        os.kill(os.getpid(), NUMBER)\n    return views(*given)\n"
        "ViewMaker.make = signalled\nfrom halp.cli import main; main()"
    )
    program = program.replace("STEP", str(step)).replace("NUMBER", str(int(number)))
    arguments = ["pretrain", "small", "--data", str(store.path), "--run", str(run), "--set", *tiny]
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended.stderr
    if number != signal.SIGKILL:
        assert "--resume" in ended.stderr
        assert newest_checkpoint(run / "checkpoints").state["step"] == step
    plain = "from halp.cli import main; main()"
    subprocess.run([sys.executable, "-c", plain, *arguments, "--resume"], check=True, capture_output=True)
    assert final_files(whole.path) == final_files(run)


def test_a_signal_during_the_last_save_is_not_lost(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that lost a worker tells the others to end, and waits for them."""
    save = loop.Trainer.save

    def signalled(trainer: loop.Trainer) -> None:
        save(trainer)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop.Trainer, "save", signalled)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by jobs in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe(tiny, "epochs=1"), store, tmp_path / "run", progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert newest_checkpoint(tmp_path / "run" / "checkpoints").state["step"] == steps_an_epoch(store)


def test_same_seed_gives_the_same_run_and_another_seed_another(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    runs = [
        pretrain(recipe(tiny, f"seed={seed}"), store, tmp_path / name, progress=False)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    first, second, third = (final_files(run.path) for run in runs)
    assert first == second
    assert first["model.safetensors"] != third["model.safetensors"]


def test_fork_starts_from_the_warm_up_and_shares_its_draws(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    moco, with_halp = recipe(tiny, 'terms=["infonce"]'), recipe(tiny)
    warm = pretrain(moco, store, tmp_path / "moco", until=1, progress=False)
    before = newest_checkpoint(warm.checkpoints)
    forked = pretrain(with_halp, store, tmp_path / "halp", fork=warm.path, progress=False)
    assert forked.info["forked"]["step"] == before.state["step"] == steps_an_epoch(store)
    assert forked.metrics()[0]["step"] == steps_an_epoch(store) + 1
    # a HaLP run from the beginning passes through the same warm-up, so the fork must end in the same bits
    straight = pretrain(with_halp, store, tmp_path / "straight", progress=False)
    assert final_files(straight.path)["model.safetensors"] == final_files(forked.path)["model.safetensors"]


def test_resuming_with_another_recipe_or_other_data_is_refused(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    run = pretrain(recipe(tiny), store, tmp_path / "run", until=1, progress=False)
    with pytest.raises(InputError, match=r"halp\.hardness was 0\.8, now 0\.5"):
        pretrain(recipe(tiny, "halp.hardness=0.5"), store, run.path, resume=True, progress=False)
    other = make_synthetic_store(tmp_path / "other", count=96, subjects=6, seed=9)
    with pytest.raises(InputError, match="other data"):
        pretrain(recipe(tiny), other, run.path, resume=True, progress=False)
    with pytest.raises(InputError, match="holds a run already"):
        pretrain(recipe(tiny), store, run.path, progress=False)
    with pytest.raises(InputError, match="not a run folder"):
        pretrain(recipe(tiny), store, tmp_path / "nowhere", resume=True, progress=False)


@pytest.mark.parametrize("damage", ["truncate", "tamper", "delete", "garble"])
def test_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], damage: str
) -> None:
    chosen = recipe(tiny)
    whole = pretrain(chosen, store, tmp_path / "whole", progress=False)
    run = pretrain(chosen, store, tmp_path / "run", until=2, progress=False)
    newest = list_checkpoints(run.checkpoints)[-1]
    weights = newest / "model.safetensors"
    data = weights.read_bytes()
    if damage == "truncate":
        weights.write_bytes(data[: len(data) // 2])
    elif damage == "tamper":
        weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "delete":
        weights.unlink()
    else:
        (newest / "state.json").write_text("{")
    with pytest.raises(InputError):
        load_checkpoint(newest)
    pretrain(chosen, store, run.path, resume=True, progress=False)
    assert final_files(whole.path) == final_files(run.path)


def test_run_killed_before_it_saved_anything_starts_again(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    whole = pretrain(recipe(tiny), store, tmp_path / "whole", progress=False)
    run = pretrain(recipe(tiny), store, tmp_path / "run", until=1, progress=False)
    shutil.rmtree(run.checkpoints)
    pretrain(recipe(tiny), store, run.path, resume=True, progress=False)
    assert final_files(whole.path) == final_files(run.path)


def test_without_a_whole_checkpoint_resuming_says_so(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    run = pretrain(recipe(tiny), store, tmp_path / "run", until=1, progress=False)
    for checkpoint in list_checkpoints(run.checkpoints):
        (checkpoint / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="no whole checkpoint"):
        pretrain(recipe(tiny), store, run.path, resume=True, progress=False)


def test_what_does_not_fit_the_data_is_warned_about(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], recwarn: pytest.WarningsRecorder
) -> None:
    wanted = 'normalisation=["drop-empty", "yaw"]'
    pretrain(
        recipe(tiny, "contrast.queue=200", "fit_queue=false", "epochs=1", wanted),
        store,
        tmp_path / "run",
        progress=False,
    )
    said = " ".join(str(warning.message) for warning in recwarn)
    recwarn.clear()
    assert "larger than the data set" in said
    assert "expects a store normalised by drop-empty yaw" in said
    assert "--normalise drop-empty yaw" in said
    fitting = 'normalisation=["fill", "centre", "rotate-first"]'
    pretrain(recipe(tiny, "epochs=1", fitting), store, tmp_path / "fits", progress=False)
    assert not any("expects a store" in str(warning.message) for warning in recwarn)


def test_other_topology_than_the_fork_is_refused(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    run = pretrain(recipe(tiny), store, tmp_path / "run", until=1, progress=False)
    with pytest.raises(InputError, match="does not fit the recipe"):
        pretrain(recipe(tiny, "encoder.hidden=9"), store, tmp_path / "other", fork=run.path, progress=False)


def test_split_that_the_store_lacks_is_refused(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="it has xsub, xview: choose one"):
        pretrain(recipe(tiny, "split=xsubs"), store, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_failed_start_takes_back_its_own_files_and_nothing_else(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("precious")
    for place in ("run", "fresh"):
        with pytest.raises(InputError, match="unknown logger"):
            pretrain(recipe(tiny), store, tmp_path / place, loggers=["nosuch"], progress=False)
    assert [path.name for path in (tmp_path / "run").iterdir() if not path.name.startswith(".")] == [
        "thesis.txt"
    ]
    assert not (tmp_path / "fresh").exists()
    pretrain(recipe(tiny), store, tmp_path / "run", until=1, progress=False)
    assert (tmp_path / "run" / "thesis.txt").read_text() == "precious"


def test_names_and_paths_are_taken_for_recipe_and_store(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, tiny: tuple[str, ...]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(recipe(tiny, "epochs=1").to_toml())
    run = halp.pretrain(file, store.path, tmp_path / "run", progress=False)
    same = halp.pretrain(str(file), str(store.path), str(tmp_path / "same"), progress=False)
    assert final_files(run.path) == final_files(same.path)
    with pytest.raises(InputError, match="unknown recipe 'smal'"):
        halp.pretrain("smal", store, tmp_path / "other")


def test_a_fork_with_nothing_left_to_train_is_refused_and_leaves_no_folder(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    run = pretrain(recipe(tiny, "epochs=2"), store, tmp_path / "warm", progress=False)
    with pytest.raises(
        InputError, match=r"has trained 2 epochs already, and this run ends after 2: nothing is left"
    ):
        pretrain(recipe(tiny, "epochs=2"), store, tmp_path / "fork", fork=run.path, progress=False)
    assert not (tmp_path / "fork" / "run.json").exists()
    assert pretrain(
        recipe(tiny, "epochs=3"), store, tmp_path / "fork", fork=run.path, progress=False
    ).metrics()
