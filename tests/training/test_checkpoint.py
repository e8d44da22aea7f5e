"""Checkpoints by themselves, without a training: what is written, what is read back, what is refused and by
which words.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric.plugins import MixedPrecision, Precision
from torch import Tensor, nn

from halp.core import files
from halp.core.errors import InputError
from halp.core.files import read_json, sha256
from halp.methods.base import Method, StepOutput
from halp.training import checkpoint
from halp.training.checkpoint import Checkpoint, Identity, check_manifest, load_checkpoint, save_checkpoint

DATA = "d" * 64


class Tiny(Method):
    """One layer and, where asked for, a head that forks may lack."""

    fork_optional = ("head",)

    def __init__(self, width: int = 3, head: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(2, width)
        if head:
            self.head = nn.Linear(width, 1)

    def training_step(self, views: Mapping[str, Tensor], context: object) -> StepOutput:
        return StepOutput(self.layer(views["clip"]).square().sum())

    def encoders(self) -> Mapping[str, nn.Module]:
        return {"joint": self.layer}


def trained(method: Tiny, steps: int = 2) -> torch.optim.Adam:
    optimiser = torch.optim.Adam(method.parameters())
    for step in range(steps):
        optimiser.zero_grad()
        method.training_step({"clip": torch.full((1, 2), step + 1.0)}, None).loss.backward()
        optimiser.step()
    return optimiser


def saved(run: Path, step: int = 7, keep: int = 2, **state: Any) -> Path:
    """A checkpoint in the folder of a run that has an identity."""
    run.mkdir(exist_ok=True)
    (run / "run.json").write_text(json.dumps({"id": "number one", "data": {"hash": DATA}}))
    (run / "recipe.toml").write_text("epochs = 3\n")
    method = Tiny()
    parts = method.state_dict(), checkpoint.optimiser_tensors(method, trained(method))
    return save_checkpoint(
        run / "checkpoints", Checkpoint(*parts, {"step": step, "epoch": 1, "data": DATA, **state}), keep
    )


def rewrite(path: Path, **changes: Any) -> None:
    """Change the manifest and have it vouch for itself; None takes an entry out."""
    manifest = {**read_json(path / "manifest.json"), **changes}
    manifest["manifest"] = checkpoint._own_hash(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def restate(path: Path, **changes: Any) -> None:
    """Change the state and have the manifest vouch for it; None takes an entry out."""
    state = {**read_json(path / "state.json"), **changes}
    (path / "state.json").write_text(
        json.dumps({name: value for name, value in state.items() if value is not None})
    )
    rewrite(
        path, files={**read_json(path / "manifest.json")["files"], "state.json": sha256(path / "state.json")}
    )


def test_checkpoint_comes_back_with_every_tensor_and_says_whose_it_is(tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    assert path == tmp_path / "run" / "checkpoints" / "step-000000007"
    manifest = read_json(path / "manifest.json")
    assert {name: manifest[name] for name in ("format", "folder", "step", "run", "data")} == {
        "format": 2, "folder": "step-000000007", "step": 7, "run": "number one", "data": DATA,
    }  # fmt: skip
    assert manifest["recipe"] == sha256(tmp_path / "run" / "recipe.toml")
    assert manifest["files"] == {part: sha256(path / part) for part in sorted(manifest["files"])}
    assert sorted(manifest["files"]) == ["model.safetensors", "optimiser.safetensors", "state.json"]
    back = load_checkpoint(path)
    assert back.state == {"step": 7, "epoch": 1, "data": DATA, "format": 2}
    assert sorted(back.model) == ["layer.bias", "layer.weight"]
    assert sorted(back.optimiser) == [
        f"layer.{name}/{entry}" for name in ("bias", "weight") for entry in ("exp_avg", "exp_avg_sq", "step")
    ]


def test_identity_is_none_if_unknown(tmp_path: Path) -> None:
    assert checkpoint.identity_of(tmp_path) == Identity(None, None, None)
    (tmp_path / "recipe.toml").write_text("epochs = 3\n")
    assert checkpoint.identity_of(tmp_path) == Identity()  # without run.json it is not a run
    for content in ("[]", '{"id": 3, "data": []}', '{"data": {"hash": null}}'):
        (tmp_path / "run.json").write_text(content)
        assert checkpoint.identity_of(tmp_path) == Identity(None, sha256(tmp_path / "recipe.toml"), None)
    (tmp_path / "recipe.toml").unlink()
    (tmp_path / "run.json").write_text('{"id": "a", "data": {"hash": "b"}}')
    assert checkpoint.identity_of(tmp_path) == Identity("a", None, "b")


def test_checkpoint_of_an_unknown_run_is_read_and_one_of_another_run_is_not(tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    assert check_manifest(path, Identity())["step"] == 7
    for name in ("run", "recipe", "data"):
        with pytest.raises(InputError, match=f"belongs to another {name} "):
            check_manifest(path, Identity(**{name: "e" * 64}))
    rewrite(path, run=None, recipe=None, data=None)
    assert check_manifest(path, Identity("e", "e", "e"))["step"] == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: (path / "manifest.json").write_text("[]"), "manifest.json has a format other than 2"),
        (lambda path: rewrite(path, format=1), "manifest.json has a format other than 2"),
        (
            lambda path: (path / "manifest.json").write_text('{"format": 2}'),
            "manifest.json was changed after it was written",
        ),
        (lambda path: rewrite(path, folder="step-000000008"), "it was written as 'step-000000008'"),
        (lambda path: rewrite(path, files=[]), "the list of its parts"),
        (lambda path: rewrite(path, files={}), "the list of its parts"),
        (lambda path: rewrite(path, files=dict.fromkeys(checkpoint.PARTS)), "has no fingerprint"),
        (lambda path: rewrite(path, files=dict.fromkeys(checkpoint.PARTS, "a" * 63)), "has no fingerprint"),
        (
            lambda path: rewrite(path, files=dict.fromkeys(checkpoint.PARTS, "a" * 64)),
            "model.safetensors was changed after it was written",
        ),
        (lambda path: (path / "model.safetensors").unlink(), "model.safetensors cannot be read"),
        (lambda path: rewrite(path, step=8), "differ in step or data"),
        (lambda path: rewrite(path, data="e" * 64), "differ in step or data"),
        (lambda path: restate(path, format=1), "state.json has a format other than 2"),
        (lambda path: restate(path, step=8), "its state is that of step 8"),
        (lambda path: restate(path, step=-1), "'step' is not a number"),
        (lambda path: restate(path, step=2**53), "'step' is not a number"),
        (lambda path: restate(path, step=True), "'step' is not a number"),
        (lambda path: restate(path, epoch=7.0), "'epoch' is not a number"),
        (lambda path: restate(path, epoch=None), "'epoch' is not a number"),
        (lambda path: restate(path, data=3), "'data' or 'scaler' is damaged"),
        (lambda path: restate(path, scaler=[]), "'data' or 'scaler' is damaged"),
        (lambda path: (path / "manifest.json").unlink(), r"manifest\.json"),
    ],
)
def test_every_entry_that_does_not_fit_is_named(
    change: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    path = saved(tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()  # so that nothing is refused for the sake of its run
    assert load_checkpoint(path).state["step"] == 7
    change(path)
    with pytest.raises(InputError, match=message):
        load_checkpoint(path)


def test_numbers_of_steps_and_epochs_may_be_nought_and_large(tmp_path: Path) -> None:
    assert load_checkpoint(saved(tmp_path / "a", step=0)).state["step"] == 0
    assert (
        load_checkpoint(saved(tmp_path / "b", epoch=2**53 - 1, scaler={"scale": 2.0})).state["epoch"]
        == 2**53 - 1
    )


def test_checkpoint_under_a_name_of_its_own_may_be_of_any_step(tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    other = path.with_name("best")
    shutil.copytree(path, other)
    rewrite(other, folder="best")
    assert load_checkpoint(other).state["step"] == 7


def test_parts_that_are_no_tensors_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    (path / "optimiser.safetensors").write_bytes(b"nothing")
    rewrite(path, files={part: sha256(path / part) for part in checkpoint.PARTS})
    with pytest.raises(InputError, match=r"is damaged: optimiser\.safetensors cannot be read"):
        load_checkpoint(path)


def test_newest_are_kept_and_leftovers_of_killed_processes_go(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    (folder / ".step-000000003.partial").mkdir(parents=True)
    (folder / "step-000000001").write_text("a file is not a checkpoint")
    for step in (4, 10, 9):
        saved(tmp_path / "run", step, keep=2)
    assert [path.name for path in checkpoint.list_checkpoints(folder)] == ["step-000000009", "step-000000010"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "step-000000001",
        "step-000000009",
        "step-000000010",
    ]
    saved(tmp_path / "run", 10, keep=2, epoch=5)  # written again in the place of the old one
    assert checkpoint.newest_checkpoint(folder).state["epoch"] == 5


def test_newest_that_is_whole_is_taken_and_a_damaged_one_mentioned(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    for step in (1, 2):
        path = saved(tmp_path / "run", step)
    (path / "state.json").unlink()
    with pytest.warns(UserWarning, match="trying the one before"):
        assert checkpoint.newest_checkpoint(folder).state["step"] == 1
    shutil.rmtree(folder / "step-000000001")
    with pytest.raises(InputError, match="there is no whole checkpoint"):
        checkpoint.newest_checkpoint(folder)


def test_all_parts_and_both_folders_have_reached_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(checkpoint, "sync_folder", lambda path: synced.append(path.name))
    saved(tmp_path / "run")
    assert synced == [".step-000000007.partial", "checkpoints"]


def test_full_disk_leaves_the_earlier_ones_and_no_partial_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run" / "checkpoints"
    saved(tmp_path / "run", 1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match=r"step-000000002.*No space left.*earlier ones are untouched"):
        saved(tmp_path / "run", 2)
    monkeypatch.undo()
    assert [path.name for path in folder.iterdir()] == ["step-000000001"]
    assert load_checkpoint(folder / "step-000000001").state["step"] == 1


def test_optimiser_comes_back_by_name_and_without_what_is_not_a_tensor(tmp_path: Path) -> None:
    first, second = Tiny(), Tiny()
    before, after = trained(first), torch.optim.Adam(second.parameters())
    before.state[first.layer.weight]["note"] = "not a tensor"
    tensors = checkpoint.optimiser_tensors(first, before)
    assert not any(name.endswith("note") for name in tensors)
    checkpoint.restore_optimiser(second, after, {**tensors, "gone/exp_avg": torch.ones(1)})
    assert set(after.state) == set(second.parameters())
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert after.state[theirs].keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(
            torch.equal(value, before.state[mine][name]) for name, value in after.state[theirs].items()
        )


def test_state_of_the_optimiser_follows_its_parameters_but_for_the_count_of_steps() -> None:
    method = Tiny().to("meta")
    optimiser = torch.optim.Adam(method.parameters())
    checkpoint.restore_optimiser(
        method, optimiser, {"layer.bias/exp_avg": torch.ones(3), "layer.bias/step": torch.ones(())}
    )
    state = optimiser.state[method.layer.bias]
    assert (state["exp_avg"].device.type, state["step"].device.type) == ("meta", "cpu")


def test_scale_of_half_precision_is_kept_only_where_there_is_one() -> None:
    scaler = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=8.0))
    assert checkpoint.scaler_state(Precision()) == {}
    assert checkpoint.scaler_state(scaler)["scaler"]["scale"] == 8.0


def test_restoring_puts_weights_optimiser_and_scaler_back(tmp_path: Path) -> None:
    scaler = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=8.0))
    method, other = Tiny(), Tiny()
    tensors = checkpoint.optimiser_tensors(method, trained(method))
    kept = Checkpoint(method.state_dict(), tensors, {"step": 5, **checkpoint.scaler_state(scaler)})
    fresh, optimiser = (
        MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu")),
        torch.optim.Adam(other.parameters()),
    )
    assert checkpoint.restore(kept, other, optimiser, fresh, strict=True) == 5
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in method.state_dict().items())
    assert torch.equal(optimiser.state[other.layer.weight]["exp_avg"], tensors["layer.weight/exp_avg"])
    assert fresh.state_dict()["scale"] == 8.0
    without = Checkpoint(kept.model, kept.optimiser, {"step": 6})
    assert checkpoint.restore(without, other, optimiser, Precision(), strict=True) == 6


@pytest.mark.parametrize(("had", "has"), [(True, False), (False, True)])
def test_fork_may_lack_or_add_what_is_optional_and_a_resumed_run_may_not(had: bool, has: bool) -> None:
    kept, method = Checkpoint(Tiny(head=had).state_dict(), {}, {"step": 5}), Tiny(head=has)
    optimiser = torch.optim.Adam(method.parameters())
    assert checkpoint.restore(kept, method, optimiser, Precision(), strict=False) == 5
    with pytest.raises(InputError, match=r"does not fit the recipe: head\.weight, head\.bias"):
        checkpoint.restore(kept, method, optimiser, Precision(), strict=True)
    method.fork_optional = ()
    with pytest.raises(InputError, match=r"does not fit the recipe: head\.weight, head\.bias"):
        checkpoint.restore(kept, method, optimiser, Precision(), strict=False)


def test_weights_of_another_shape_and_missing_layers_are_refused() -> None:
    method = Tiny()
    optimiser = torch.optim.Adam(method.parameters())
    with pytest.raises(InputError, match="does not fit the recipe: size mismatch"):
        checkpoint.restore(
            Checkpoint(Tiny(width=4).state_dict(), {}, {"step": 5}),
            method,
            optimiser,
            Precision(),
            strict=False,
        )
    with pytest.raises(InputError, match=r"does not fit the recipe: layer\.weight, layer\.bias"):
        checkpoint.restore(Checkpoint({}, {}, {"step": 5}), method, optimiser, Precision(), strict=False)


def test_order_of_the_entries_of_a_manifest_does_not_matter(tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    manifest = read_json(path / "manifest.json")
    (path / "manifest.json").write_text(json.dumps(dict(reversed(manifest.items()))))
    assert load_checkpoint(path).state["step"] == 7
