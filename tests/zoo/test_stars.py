"""Augmentation-free tuning: its positives, its memory, and runs that start from the encoder of another
method.
"""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import jobs
import pytest
import torch
from torch import Tensor

from halp.augment import ClipPool, ViewMaker
from halp.cli import main
from halp.core.errors import InputError
from halp.data.store import Store, open_store
from halp.data.synthetic import make_synthetic_store
from halp.encoders import EncoderSettings
from halp.evaluation.evaluate_encoder import overlap_warning, pretraining_clips
from halp.hallucinate import hallucinate
from halp.methods import BuildContext, MocoMethod, StepContext
from halp.skeleton import KINECT_V1
from halp.sphere import kmeans, unit
from halp.training import Recipe, Run, load_recipe, pretrain
from halp.training.run import build_method, initialise_encoders
from halp.zoo.stars import ClipMemory, TuneMethod, TuneSettings, positives_in_batch

GRU = ("encoder.hidden=4", "encoder.layers=1", "encoder.pooling=mean")
COMMON = (
    "epochs=2",
    "batch_size=16",
    "views.frames=12",
    "saving.checkpoint_epochs=1",
    "saving.log_every=1",
    "split=xsub",
)
TINY = (
    *COMMON,
    *GRU,
    "tune.width=8",
    "tune.memory=45",
    "tune.recent=24",
    "tune.prototypes=4",
    "tune.count=6",
)
SETTINGS = TuneSettings(width=5, memory=19, temperature=0.2, prototypes=3, count=4, refresh=2, recent=16)


def method(positives: str, streams: tuple[str, ...] = ("joint",)) -> TuneMethod:
    torch.manual_seed(0)
    encoders = dict.fromkeys(streams, EncoderSettings(hidden=4, layers=1))
    built = BuildContext(KINECT_V1, 1, 6, encoders, {}, torch.Generator().manual_seed(1))
    return TuneMethod(dataclasses.replace(SETTINGS, positives=positives), built)


def clips(step: int) -> Tensor:
    return torch.randn(8, 6, 1, 20, 3, generator=torch.Generator().manual_seed(step))


def context(step: int) -> StepContext:
    return StepContext(0, torch.Generator().manual_seed(step), clips=torch.arange(8) + 4 * step)


def projected(made: TuneMethod, x: Tensor) -> tuple[Tensor, Tensor]:
    z = made.heads["joint"](made.backbones["joint"](x))
    return unit(z), unit(made.predictors["joint"](z))


def test_positive_is_the_nearest_past_projection_of_another_clip() -> None:
    made = method("neighbour")
    past: list[tuple[int, Tensor]] = []
    for step in range(5):
        loss, metrics, _ = made({"clip": clips(step)}, context(step))
        z, p = (x.detach() for x in projected(made, clips(step)))
        positives = []
        for row, own in enumerate(context(step).clips.tolist()):  # type: ignore[union-attr]
            others = [vector for clip, vector in past[-19:] if clip != own]
            positives.append(max(others, key=lambda vector: float(vector @ z[row])) if others else z[row])
        expected = positives_in_batch(
            p, torch.stack(positives)[:, None], torch.ones(8, 1, dtype=torch.bool), 0.2
        )
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(metrics["joint/loss_neighbour"], loss.detach())
        past += list(zip(context(step).clips.tolist(), z))  # type: ignore[union-attr]
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.parameters())


def test_hallucinated_positives_lie_around_the_own_projection_once_there_are_enough_to_cluster() -> None:
    made = method("hallucinated")
    for step in range(3):
        recent = made.memories["joint"].recent("clip", 16)  # type: ignore[union-attr, operator]
        loss, metrics, _ = made({"clip": clips(step)}, context(step))
        z, p = projected(made, clips(step))
        draws = torch.Generator().manual_seed(step)
        if step < 2:
            positives, kept = z[:, None].detach(), torch.ones(8, 1, dtype=torch.bool)
        else:
            prototypes = kmeans(recent, 3, generator=draws)
            positives, kept = hallucinate(z.detach(), prototypes, count=4, generator=draws)
        torch.testing.assert_close(loss, positives_in_batch(p, positives, kept, 0.2), atol=1e-5, rtol=1e-5)
    assert 0 < float(metrics["joint/kept"]) <= 1


def test_both_is_the_mean_of_the_two() -> None:
    losses = {}
    for positives in ("neighbour", "hallucinated", "both"):
        made = method(positives, ("joint", "motion"))
        for step in range(4):
            loss, metrics, _ = made({"clip": clips(step)}, context(step))
        losses[positives] = loss.detach()
    torch.testing.assert_close(losses["both"], (losses["neighbour"] + losses["hallucinated"]) / 2)
    assert {"motion/loss_neighbour", "motion/loss_hallucinated", "motion/kept"} <= metrics.keys()


def test_memory_keeps_owners_aligned_through_wrap_around_and_excludes_the_own_clip() -> None:
    memory, axes = ClipMemory(5, 8), torch.eye(8)
    query = axes[:1]
    assert torch.equal(memory.nearest(query, torch.tensor([0])), query), "nothing is remembered yet"
    memory.remember(axes[:1], torch.tensor([0]))
    assert torch.equal(memory.nearest(query, torch.tensor([0])), query), "nothing but the clip itself"
    assert torch.equal(memory.nearest(axes[1:2], torch.tensor([9])), axes[:1]), (
        "never a row that was not written"
    )
    memory.remember(axes[1:4], torch.tensor([1, 2, 3]))
    memory.remember(axes[4:8], torch.tensor([4, 5, 6, 7]))
    for row in range(3, 8):
        place = int(memory.keys("clip").argmax(1).eq(row).nonzero())
        assert int(memory.owners[place]) == row
    towards = unit(axes[7] + 0.5 * axes[6])[None]
    assert torch.equal(memory.nearest(towards, torch.tensor([7])), axes[6:7])
    assert torch.equal(memory.nearest(towards, torch.tensor([-1])), axes[7:]), (
        "a clip that is not known excludes none"
    )


def test_view_is_the_whole_clip_as_it_is(store: Store) -> None:
    pool = ClipPool.from_store(store)
    chosen = torch.arange(4)
    made = ViewMaker(load_recipe("small-tune", TINY).views, TuneMethod.views, store.topology, pool, 0)
    whole = pool.cut(chosen, torch.zeros(4, dtype=torch.long), pool.lengths[chosen], 12)
    for epoch in range(2):
        assert torch.equal(made.make(chosen, epoch, 0)["clip"], whole)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["tune.positives=neighbor"], "unknown tune.positives 'neighbor': did you mean 'neighbour'"),
        (["tune.width=0"], "width = 0 must be at least 1"),
        (["tune.positives=both", "tune.recent=4096"], "recent = 4096 projections are clustered"),
        (["tune.hardness=2"], "tune: hardness = 2.0 is out of range"),
        (["tune.temperature=0"], "tune: temperature = 0.0 must be positive"),
        (["views.crop_min=0.5"], "sees whole clips without augmentation"),
        (["optimiser.encode_chunks=2"], "method 'tune' encodes a batch at once"),
        (["encoder.name=transformer", "encoder.frames=16"], "views.frames = 32 and encoder.frames = 16"),
        (['terms=["halp"]'], "method 'tune' is not composed of terms"),
    ],
)
def test_wrong_settings_get_one_sentence(overrides: list[str], words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-tune", overrides)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


SOURCES = {
    "small": (*GRU, "contrast.queue=32", "contrast.dimension=8", 'terms=["infonce"]'),
    "small-skeletonbt": (*GRU, "barlow.width=8"),
    "small-masked": (
        *("encoder.frames=12", "encoder.layers=1", "encoder.heads=2", "encoder.patch=4", "encoder.width=8"),
        "masked.decoder_heads=2",
    ),
}


def source(name: str, store: Store, folder: Path, *more: str) -> Run:
    chosen = load_recipe(name, (*COMMON, *SOURCES[name], "epochs=1", *more))
    return pretrain(chosen, store, folder / name, progress=False)


def fitted(run: Run, store: Store, *more: str) -> Recipe:
    """The recipe with the settings that the refusal of another encoder names."""
    probe = load_recipe("small-tune", (*TINY, "encoder.hidden=7", *more))
    with pytest.raises(InputError, match="differs from the recipe's") as caught:
        pretrain(probe, store, run.path / "refused", init=run.path, progress=False)
    assert not (run.path / "refused" / "run.json").exists()
    return load_recipe("small-tune", (*TINY, *shlex.split(str(caught.value).partition("--set ")[2]), *more))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("positives", ["neighbour", "both"])
def test_run_starts_from_the_encoder_of_any_method_and_resumes_exactly(
    name: str, positives: str, tmp_path: Path, store: Store
) -> None:
    run = source(name, store, tmp_path)
    chosen = fitted(run, store, f"tune.positives={positives}")
    whole = pretrain(chosen, store, tmp_path / "whole", init=run.path, progress=False)
    pretrain(chosen, store, tmp_path / "parts", init=run.path, until=1, progress=False)
    parts = pretrain(chosen, store, tmp_path / "parts", resume=True, progress=False)
    assert jobs.final_files(whole.path) == jobs.final_files(parts.path)
    scratch = pretrain(chosen, store, tmp_path / "scratch", progress=False)
    assert (
        jobs.final_files(whole.path)["model.safetensors"]
        != jobs.final_files(scratch.path)["model.safetensors"]
    )
    assert whole.info["initialised"]["from"] == str(run.path)
    assert ("joint/kept" in whole.metrics()[-1]) == (positives == "both")


def test_start_has_the_weights_of_the_source_and_a_key_encoder_follows(tmp_path: Path, store: Store) -> None:
    run = source("small", store, tmp_path)
    weights = run.encoder().encoder.state_dict()
    for chosen in (
        load_recipe("small-tune", TINY),
        load_recipe("small", (*COMMON, *SOURCES["small"], "seed=1")),
    ):
        made = build_method(chosen, store.topology, store.persons)
        initialise_encoders(made, chosen, store, run.path)
        encoders = [made.encoders()["joint"]]
        if isinstance(made, MocoMethod):
            encoders.append(made.pairs["joint"].key.encoder)  # type: ignore[union-attr, arg-type]
        for encoder in encoders:
            assert all(torch.equal(value, weights[name]) for name, value in encoder.state_dict().items())


def test_other_clips_and_two_starts_are_refused(tmp_path: Path, store: Store) -> None:
    run = source("small", store, tmp_path)
    chosen = load_recipe("small-tune", TINY)
    with pytest.raises(InputError, match="give one of the two"):
        pretrain(chosen, store, tmp_path / "run", init=run.path, fork=run.path, progress=False)
    with pytest.raises(InputError, match="there is no encoder"):
        pretrain(chosen, store, tmp_path / "run", init=tmp_path / "nothing", progress=False)
    plain = make_synthetic_store(tmp_path / "plain", count=24, subjects=6, normalisation=("centre",))
    with pytest.raises(
        InputError, match=r"was trained on clips of normalisation .* has normalisation \['centre'\]"
    ):
        pretrain(chosen, plain, tmp_path / "run", init=run.path, progress=False)
    other = open_store(store.path)
    object.__setattr__(other, "topology", KINECT_V1)
    with pytest.raises(InputError, match=r"topology kinect-v2.* topology kinect-v1"):
        pretrain(chosen, other, tmp_path / "run", init=run.path, progress=False)
    assert not (tmp_path / "run").exists()


def test_clips_of_the_source_count_as_pretraining(tmp_path: Path, store: Store) -> None:
    every = source("small", store, tmp_path, "split=all")
    tuned = pretrain(
        load_recipe("small-tune", TINY), store, tmp_path / "tuned", init=every.path, progress=False
    )
    seen = pretraining_clips(tuned.encoder().origin, store)
    assert seen is not None
    assert len(seen) == len(store)
    assert len(pretraining_clips(tuned.encoder(trained=False).origin, store)) == 0  # type: ignore[arg-type]
    warning = overlap_warning([tuned.encoder().origin], store, ["xsub"], allowed=False)
    assert warning is not None, "nothing else is left of a store that was seen whole"
    assert "cannot be compared" in warning
    other = {**tuned.encoder().origin, "initialised": {**every.encoder().origin, "split": "xview"}}
    with pytest.raises(InputError, match="on split 'xview' and 'xsub'"):
        overlap_warning([other], store, ["xsub"], allowed=False)


def test_command_takes_a_run_and_notes_a_missing_one(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = source("small", store, tmp_path)
    command = [
        "pretrain",
        "small-tune",
        "--data",
        str(store.path),
        "--accelerator",
        "cpu",
        "--set",
        *TINY,
        "epochs=1",
    ]
    main([*command, "--run", str(tmp_path / "tuned"), "--init", str(run.path)])
    assert "untrained encoder" not in "".join(capsys.readouterr())
    main([*command, "--run", str(tmp_path / "scratch")])
    assert "an untrained encoder is tuned" in "".join(capsys.readouterr())


def test_the_hint_for_another_encoder_can_be_typed_where_settings_are_lists(
    store: Store, tmp_path: Path
) -> None:
    fused = ("encoder.name=fusion", "encoder.hidden=4", "encoder.layers=1", "encoder.gains=[0.5,1,1]")
    settings = ("epochs=1", "batch_size=16", "views.frames=12", "contrast.queue=32", 'terms=["infonce"]')
    source = pretrain(load_recipe("small", (*settings, *fused)), store, tmp_path / "source", progress=False)
    with pytest.raises(InputError) as caught:
        pretrain(load_recipe("small-tune", TINY), store, tmp_path / "tuned", init=source.path, progress=False)
    typed = shlex.split(str(caught.value).partition("--set ")[2])
    assert "encoder.gains=[0.5, 1.0, 1.0]" in typed
