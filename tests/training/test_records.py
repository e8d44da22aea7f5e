"""What a run writes down: gradient norm, alarms, dumps that reproduce, loggers, online accuracy, the
profile.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from replay import replay_step

from halp.cli import main
from halp.core.errors import Diverged, InputError
from halp.core.sampling import generator
from halp.data.store import Store
from halp.methods import MocoMethod, StepContext, StepOutput, StreamBatch
from halp.training import Run, load_recipe, open_run, pretrain
from halp.training.checkpoint import newest_checkpoint
from halp.training.records import RunRecords
from halp.training.run import build_method


def test_metrics_hold_gradient_norm_and_timing_holds_throughput_and_memory(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    run = pretrain(load_recipe("small", tiny), store, tmp_path / "run", progress=False)
    lines = run.metrics()
    assert all(line["gradient_norm"] > 0 for line in lines)
    watched = {"similarity_key_query", "similarity_key_queue", "embedding_std", "contrast_accuracy"}
    hallucinated = {"kept", "prototypes_used", "similarity_positive_query", "similarity_positive_queue"}
    assert {f"joint/{name}" for name in watched | hallucinated} <= set(lines[-1])
    timed = run.metrics("timing.jsonl")
    assert timed
    for line in timed:
        assert line["clips_per_second"] > 0
        assert line["peak_memory"] > 1 << 20


def test_a_clipped_gradient_moves_the_weights_by_its_length_and_the_metric_is_the_whole_length(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    settings = (*tiny, "epochs=1", "batch_size=1000", "optimiser.learning_rate=0.5", "optimiser.momentum=0")
    recipe = load_recipe("small", (*settings, "optimiser.weight_decay=0", "optimiser.clip=0.01"))
    before = dict(build_method(recipe, store.topology, store.persons).named_parameters())
    run = pretrain(recipe, store, tmp_path / "run", progress=False)
    (line,) = run.metrics()
    assert line["gradient_norm"] > 0.1
    trained = [name for name, parameter in before.items() if parameter.requires_grad]
    after = dict(run.model().named_parameters())
    moved = torch.cat([(after[name] - before[name]).flatten() for name in trained])
    assert moved.norm().item() == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_loss_that_is_no_number_stops_with_names_and_a_dump_that_reproduces_it(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = MocoMethod.loss

    def broken(self: MocoMethod, batches: dict[str, StreamBatch], moment: StepContext) -> object:
        loss, metrics = forward(self, batches, moment)
        # what makes it break is in the weights, as it would be after a step that was too long
        return loss / (0.0 if "joint/kept" in metrics else 1.0), metrics

    with monkeypatch.context() as patch:
        patch.setattr(MocoMethod, "loss", broken)
        with pytest.raises(Diverged, match=r"is not finite at step \d+ \(clips"):
            pretrain(load_recipe("small", tiny), store, tmp_path / "run", progress=False)
    facts = json.loads((tmp_path / "run" / "diverged" / "step.json").read_text())
    assert len(facts["clips"]) == 16
    assert set(facts["clips"]) <= set(store.names.tolist())
    loss = replay_step(tmp_path / "run")
    # the same step without the defect gives the loss that it would have had
    healthy = pretrain(load_recipe("small", tiny), store, tmp_path / "healthy", progress=False)
    steps = len(store.split("xsub")[0]) // 16
    line = healthy.metrics()[facts["epoch"] * steps + facts["index"]]
    assert float(loss) == pytest.approx(line["loss"], abs=2e-6)
    assert newest_checkpoint(tmp_path / "run" / "checkpoints").state["step"] <= line["step"]


def test_diverging_training_ends_with_exit_code_one(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "pretrain",
        "small",
        "--data",
        str(store.path),
        "--run",
        str(tmp_path / "run"),
        "--set",
        *tiny,
    ]
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "optimiser.learning_rate=1e38", 'terms=["infonce"]'])
    assert stopped.value.code == 1
    assert "holds what reproduces it" in " ".join(capsys.readouterr().err.split())
    assert not bool(torch.isfinite(replay_step(tmp_path / "run")))


def test_collapse_raises_an_alarm_once(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], recwarn: pytest.WarningsRecorder
) -> None:
    run = pretrain(load_recipe("small", tiny), store, tmp_path / "run", until=1, progress=False)
    assert "alarm" not in run.info
    with RunRecords(run) as watch:
        for step in (100, 101):
            nearly_equal = torch.ones(64, 16) + 0.004 * torch.randn(64, 16, generator=generator(0, "noise"))
            watch.step(
                step,
                9,
                0.1,
                StepOutput(torch.tensor(1.0), {"loss": torch.tensor(1.0)}, {"joint": nearly_equal}),
            )
    assert "joint/embedding_std is 0.4 %" in open_run(run.path).info["alarm"]
    assert sum("the embeddings collapse" in str(warning.message) for warning in recwarn) == 1


def test_online_figures_go_to_a_file_of_their_own_and_change_nothing(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    chosen = load_recipe("small", tiny)
    plain = pretrain(chosen, store, tmp_path / "plain", progress=False)
    modes = []

    def look(run: Run, epoch: int, model: MocoMethod) -> dict[str, float]:
        encoder = run.package(model, "joint", {})
        modes.append(encoder.training)
        encoder(torch.zeros(2, 12, 2, 25, 3))
        return {"joint/knn": 10.0 * epoch}

    seen = pretrain(chosen, store, tmp_path / "seen", on_epoch=look, progress=False)
    assert [line["joint/knn"] for line in seen.metrics("online.jsonl")] == [10.0, 20.0, 30.0]
    assert not any(modes)
    first, second = (newest_checkpoint(run.checkpoints).model for run in (plain, seen))
    assert len(first) == len(second) > 0
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_command_looks_at_nearest_neighbours_in_between(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    arguments = [
        "pretrain",
        "small",
        "--data",
        str(store.path),
        "--run",
        str(tmp_path / "run"),
        "--knn-every",
        "2",
    ]
    main([*arguments, "--set", *tiny])
    (line,) = open_run(tmp_path / "run").metrics("online.jsonl")
    assert line["epoch"] == 2
    assert 0 <= line["joint/knn"] <= 100


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_holds_the_metrics(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = pretrain(
        load_recipe("small", tiny), store, tmp_path / "run", loggers=["tensorboard"], progress=False
    )
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    seen, lines = events.Scalars("loss"), run.metrics()
    assert [event.step for event in seen] == [line["step"] for line in lines]
    assert [event.value for event in seen] == pytest.approx([line["loss"] for line in lines], rel=1e-6)


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
@pytest.mark.slow
def test_weights_and_biases_work_offline(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = pretrain(
        load_recipe("small", tiny), store, tmp_path / "run", loggers=["wandb"], until=1, progress=False
    )
    (offline,) = (run.path / "wandb").glob("offline-run-*")
    assert list(offline.glob("*.wandb"))


def test_unknown_and_missing_loggers_are_refused(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="did you mean 'wandb'"):
        pretrain(load_recipe("small", tiny), store, tmp_path / "a", loggers=["wandbb"], progress=False)
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    with pytest.raises(InputError, match=r"halp-motion\[loggers\]"):
        pretrain(load_recipe("small", tiny), store, tmp_path / "b", loggers=["tensorboard"], progress=False)


@pytest.mark.slow
def test_profile_says_where_the_step_goes_and_leaves_no_run(
    tmp_path: Path,
    store: Store,
    tiny: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    late = (
        "epochs=9",
        "halp.start_epoch=6",
        "contrast.queue=96",
    )  # neither the epoch nor a full queue is waited for
    main(["pretrain", "small", "--data", str(store.path), "--profile", "--json", "--set", *tiny, *late])
    said = capfd.readouterr()
    assert "USDT" not in said.err
    parts = json.loads(said.out)
    assert parts["halp loss"] > 0.2 * parts["infonce loss"]
    expected = {
        "views",
        "query and key forward",
        "momentum",
        "infonce loss",
        "halp loss",
        "backward",
        "optimiser",
    }
    assert expected <= set(parts)
    assert not list(tmp_path.iterdir())


def test_accumulating_gives_the_gradient_of_the_whole_batch(store: Store, tiny: tuple[str, ...]) -> None:
    settings = (*tiny, "encoder.input_norm=false")  # BatchNorm sees one piece at a time, all else is the same
    gradients = []
    for pieces in (1, 3):
        model = build_method(
            load_recipe("small", (*settings, f"optimiser.encode_chunks={pieces}")), store.topology, 2
        )
        g = torch.Generator().manual_seed(0)
        loss, *_ = model(
            dict(zip(("query", "key"), torch.randn(2, 16, 12, 2, 25, 3, generator=g))),
            StepContext(0, generator(0, "terms", 0, 0)),
        )
        loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-6, rtol=1e-4)


def test_accumulating_updates_running_statistics_once_a_piece(store: Store, tiny: tuple[str, ...]) -> None:
    model = build_method(load_recipe("small", (*tiny, "optimiser.encode_chunks=4")), store.topology, 2)
    loss, *_ = model(
        dict(zip(("query", "key"), torch.randn(2, 16, 12, 2, 25, 3))),
        StepContext(0, generator(0, "terms", 0, 0)),
    )
    counted = "pairs.joint.query.encoder.input_norm.num_batches_tracked"
    before = int(model.state_dict()[counted])
    loss.backward()
    assert before == int(model.state_dict()[counted]) == 4


def test_half_precision_keeps_the_sphere_in_full(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    chosen = load_recipe("small", (*tiny, "contrast.dimension=32"))
    types: dict[str, set[torch.dtype]] = {"batch": set(), "input": set()}
    forward, loss = MocoMethod.forward, MocoMethod.loss

    def seen(self: MocoMethod, batches: dict[str, StreamBatch], moment: StepContext) -> object:
        types["batch"] |= {tensor.dtype for batch in batches.values() for tensor in (batch.query, batch.key)}
        assert not torch.is_autocast_enabled("cpu")
        return loss(self, batches, moment)

    def entered(self: MocoMethod, views: dict[str, torch.Tensor], context: StepContext) -> object:
        types["input"] |= {view.dtype for view in views.values()}
        assert torch.is_autocast_enabled("cpu")
        return forward(self, views, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MocoMethod, "loss", seen)
        patch.setattr(MocoMethod, "forward", entered)
        run = pretrain(
            chosen, store, tmp_path / "half", precision="bf16-mixed", accelerator="cpu", progress=False
        )
    assert types == {"batch": {torch.float32}, "input": {torch.float32}}
    model = run.model()
    assert torch.allclose(model.queue.keys("joint").norm(dim=1), torch.ones(32), atol=1e-5)
    centres = model.get_buffer("terms.halp.streams.joint.centres")
    assert torch.allclose(centres.norm(dim=1), torch.ones(4), atol=1e-5)
    full = pretrain(chosen, store, tmp_path / "full", accelerator="cpu", progress=False)
    assert run.metrics()[0]["loss"] == pytest.approx(full.metrics()[0]["loss"], abs=0.1)
