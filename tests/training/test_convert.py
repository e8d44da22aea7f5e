"""Checkpoints of the authors become runs and runs become such checkpoints; hostile and damaged files get one
sentence.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.data.store import Store
from halp.training import convert, load_recipe, open_run, pretrain
from halp.training.checkpoint import newest_checkpoint


def authors_state(streams: tuple[str, ...] = ("",), hidden: int = 6, queue: int = 10) -> dict[str, Tensor]:
    """A checkpoint of that layout, written down from the names in the authors' files."""
    g = torch.Generator().manual_seed(0)
    state: dict[str, Tensor] = {}
    for suffix in streams:
        state[f"queue{suffix}"] = torch.nn.functional.normalize(torch.randn(8, queue, generator=g), dim=0)
        state[f"queue_ptr{suffix}"] = torch.tensor([4])
    for suffix in streams:
        for side in "qk":
            gru = torch.nn.GRU(150, hidden, 2, batch_first=True, bidirectional=True)
            prefix = f"encoder_{side}{suffix}."
            state |= {f"{prefix}encoder.gru.{name}": value.detach() for name, value in gru.named_parameters()}
            for layer, (rows, columns) in {"fc.0": (2 * hidden, 2 * hidden), "fc.2": (8, 2 * hidden)}.items():
                state[f"{prefix}{layer}.weight"] = torch.randn(rows, columns, generator=g)
                state[f"{prefix}{layer}.bias"] = torch.randn(rows, generator=g)
            norm = torch.nn.BatchNorm1d(150)
            state |= {
                f"{prefix}input_norm.{name}": value.detach().clone()
                for name, value in norm.state_dict().items()
            }
    return state


def save(path: Path, state: dict[str, Any], **more: Any) -> Path:
    torch.save({"epoch": 7, "state_dict": state, **more}, path)
    return path


def test_features_and_projections_of_the_authors_fixture_come_out(shared: Path, tmp_path: Path) -> None:
    out = convert(shared / "fixtures" / "official_single.pth.tar", tmp_path / "run")
    reference = np.load(shared / "fixtures" / "official_single.npz")
    clips = torch.from_numpy(reference["x"]).permute(0, 2, 4, 3, 1)
    encoder = halp.load_encoder(out, stream="joint")
    branch: Any = open_run(out).model().eval().pairs["joint"]
    with torch.no_grad():
        features = encoder(clips)
        np.testing.assert_allclose(features, reference["feature"], atol=1e-5)
        np.testing.assert_allclose(branch.query.projector(features), reference["projection"], atol=1e-5)
    assert newest_checkpoint(out / "checkpoints").state["epoch"] == 201
    assert halp.embed(encoder, [np.asarray(clip) for clip in clips]).shape == (5, 48)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_three_modalities_come_out_and_go_back_unchanged(tmp_path: Path, prefix: str) -> None:
    state = authors_state(("", "_motion", "_bone"))
    buffers = {0: {"momentum_buffer": torch.randn_like(state["encoder_q.encoder.gru.weight_ih_l0"])}}
    count = sum(
        not name.startswith("queue") and "running" not in name and "tracked" not in name for name in state
    )
    optimiser = {"state": buffers, "param_groups": [{"lr": 0.01, "params": list(range(count))}]}
    file = save(
        tmp_path / "cmd.pth.tar", {prefix + name: value for name, value in state.items()}, optimizer=optimiser
    )
    out = convert(file, tmp_path / "run")
    assert open_run(out).recipe.streams == ("joint", "motion", "bone")
    for stream in ("joint", "motion", "bone"):
        assert halp.load_encoder(out, stream=stream)(torch.randn(2, 9, 2, 25, 3)).shape == (2, 12)
    with pytest.raises(InputError, match="did you mean 'motion'"):
        halp.load_encoder(out, stream="motions")
    checkpoint = newest_checkpoint(out / "checkpoints")
    assert torch.equal(checkpoint.model["queue.keys_bone"], state["queue_bone"].T)
    assert int(checkpoint.model["queue.pointer"]) == 4
    assert list(checkpoint.optimiser) == ["pairs.joint.query.encoder.layers.0.0.weight_ih_l0/momentum_buffer"]
    back = torch.load(convert(out, tmp_path / "back.pth.tar"), weights_only=True)
    assert back["epoch"] == 7
    assert set(back["state_dict"]) == set(state)
    assert all(torch.equal(value, state[name]) for name, value in back["state_dict"].items())
    (entry,) = back["optimizer"]["state"].values()
    assert torch.equal(entry["momentum_buffer"], buffers[0]["momentum_buffer"])


def test_training_continues_from_the_authors_warm_up(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    state = authors_state(queue=32)
    out = convert(save(tmp_path / "warm.pth.tar", state), tmp_path / "warm")
    chosen = load_recipe(
        "small",
        (
            *tiny,
            "epochs=8",
            "encoder.pooling=last",
            "encoder.direction=causal",
            "encoder.hidden=6",
            "encoder.layers=2",
            "contrast.dimension=8",
        ),
    )
    run = pretrain(chosen, store, tmp_path / "run", fork=out, progress=False)
    steps = len(store.split("xsub")[0]) // 16
    assert run.info["forked"]["step"] == 7 * steps
    assert run.metrics()[0]["epoch"] == 7
    assert "joint/kept" in run.metrics()[0]


class Hostile:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('the file ran code')",))


def test_hostile_and_malformed_files_get_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = authors_state()
    files = {
        "hostile": tmp_path / "hostile.pth",
        "pickle": tmp_path / "pickle.pth",
        "cut": tmp_path / "cut.pth",
        "rubbish": tmp_path / "rubbish.pth",
        "empty": tmp_path / "empty.pth",
        "list": tmp_path / "list.pth",
        "absent": tmp_path / "absent.pth",
    }
    torch.save({"state_dict": whole, "extra": Hostile()}, files["hostile"])
    files["pickle"].write_bytes(pickle.dumps(Hostile()))
    data = save(tmp_path / "whole.pth", whole).read_bytes()
    files["cut"].write_bytes(data[: len(data) // 2])
    files["rubbish"].write_bytes(b"\x80\x02" + bytes(range(200)))
    files["empty"].write_bytes(b"")
    torch.save([1, 2], files["list"])
    changes: dict[str, dict[str, Tensor | None]] = {
        "no-queue": {"queue": None},
        "no-key": {"encoder_k.fc.0.weight": None},
        "other-shape": {"encoder_q.fc.0.weight": torch.zeros(3, 3)},
        "not-finite": {"encoder_q.fc.0.bias": torch.full((12,), torch.nan)},
        "other-inputs": {"encoder_q.encoder.gru.weight_ih_l0": torch.zeros(18, 7)},
        "flat": {"encoder_q.encoder.gru.weight_hh_l0": torch.zeros(3)},
    }
    for name, change in changes.items():
        kept = {key: value for key, value in {**whole, **change}.items() if value is not None}
        files[name] = save(tmp_path / f"{name}.pth", kept)
    for name, file in files.items():
        with pytest.raises(SystemExit) as stopped:
            main(["convert", str(file), str(tmp_path / f"out-{name}")])
        said = capsys.readouterr().err
        assert stopped.value.code == 2, (name, said)
        assert "Traceback" not in said
        assert len(said.strip().splitlines()) == 1, (name, said)
        assert not (tmp_path / f"out-{name}").exists()


def test_what_the_authors_code_cannot_compute_is_not_written(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    run = pretrain(load_recipe("small", (*tiny, "epochs=1")), store, tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="causal and last only"):
        convert(run.path, tmp_path / "file.pth.tar")
    with pytest.raises(InputError, match="exists already"):
        convert(run.path, run.path)


def test_command_says_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save(tmp_path / "single.pth.tar", authors_state())
    main(["convert", str(file), str(tmp_path / "run")])
    assert "next: halp evaluate" in " ".join(capsys.readouterr().err.split())
    main(["convert", str(tmp_path / "run"), str(tmp_path / "again.pth.tar"), "--json"])
    assert '"written"' in capsys.readouterr().out
