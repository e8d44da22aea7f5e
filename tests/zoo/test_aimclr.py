"""AimCLR as a term: its identities with SkeletonCLR and HaLP, gradients, stages, and whole runs that resume
exactly.
"""

from __future__ import annotations

from pathlib import Path

import jobs
import pytest
import torch
from torch import Tensor

from benchmarks.compose import compose_moco
from halp.core.dropout import begin_step, dropouts, replace_dropout
from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders import EncoderSettings
from halp.losses.infonce import info_nce
from halp.methods import ContrastSettings, HalpSettings, MocoMethod, StepContext
from halp.skeleton import KINECT_V1
from halp.training import Recipe, load_recipe, pretrain
from halp.training.checkpoint import newest_checkpoint
from halp.zoo.aimclr import (
    AimClrSettings,
    distribution_match,
    energy_drop,
    nearest_positives_loss,
    union_of_nearest,
)

STGCN = EncoderSettings("stgcn", output=16, stages=2, dropout=0.5)
OFF = AimClrSettings(extreme=False, weight=0.0, mining=False)
TINY = (
    *(
        "epochs=2",
        "batch_size=16",
        "views.frames=12",
        "encoder.output=32",
        "encoder.stages=1",
        "encoder.dropout=0.3",
    ),
    *("contrast.queue=32", "contrast.dimension=16", "aimclr.mining_epoch=1", "split=xsub"),
    *("saving.checkpoint_epochs=1", "saving.log_every=1"),
)
HALP = ("halp.start_epoch=1", "halp.prototypes=4", "halp.count=6", "halp.recent=32")


def model(terms: tuple[str, ...] = ("aimclr",), **changes: object) -> MocoMethod:
    torch.manual_seed(0)
    settings: dict[str, object] = {
        "encoder": STGCN,
        "contrast": ContrastSettings(dimension=8, queue=16, momentum=0.9),
        "halp": HalpSettings(start_epoch=0, prototypes=3, count=5, recent=16),
        "generator": torch.Generator().manual_seed(1),
        **changes,
    }
    made = compose_moco(KINECT_V1, 2, terms=terms, **settings)  # type: ignore[arg-type]
    replace_dropout(made)
    return made.train()


def step(made: MocoMethod, number: int, epoch: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """One training step, with dropout and random numbers by its number; gradients are those of its loss."""
    begin_step(list(dropouts(made)), 0, epoch, number, slice(0, 8), 8)
    g = torch.Generator().manual_seed(number)
    views = {view: torch.randn(8, 6, 2, 20, 3, generator=g) for view in ("query", "key", "extreme")}
    output = made({view: views[view] for view in made.views}, StepContext(epoch, g))
    made.zero_grad(set_to_none=True)
    output.loss.backward()
    return output.loss.detach(), dict(output.metrics)


def state(made: MocoMethod, epochs: tuple[int, ...] = (0, 0, 0, 150, 150)) -> dict[str, Tensor]:
    """Everything that a few steps of plain SGD leave behind, without the state of HaLP."""
    found: dict[str, Tensor] = {}
    optimiser = torch.optim.SGD([p for p in made.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for number, epoch in enumerate(epochs):
        found[f"loss {number}"], _ = step(made, number, epoch)
        optimiser.step()
    return found | {
        name: value for name, value in made.state_dict().items() if not name.startswith("terms.halp")
    }


@pytest.mark.heavy
def test_halp_without_weight_is_aimclr_to_the_bit() -> None:
    without = state(model())
    mute = HalpSettings(weight=0.0, start_epoch=0, prototypes=3, count=5, recent=16)
    muted, heard = state(model(("aimclr", "halp"), halp=mute)), state(model(("aimclr", "halp")))
    assert without.keys() == muted.keys()
    assert all(torch.equal(value, muted[name]) for name, value in without.items())
    assert not all(torch.equal(value, heard[name]) for name, value in without.items())


def test_without_extreme_views_matching_and_mining_it_is_skeletonclr_to_the_bit() -> None:
    plain, ours = state(model(("infonce",))), state(model(aimclr=OFF))
    assert plain.keys() == ours.keys()
    assert all(torch.equal(value, ours[name]) for name, value in plain.items())


def test_loss_is_contrast_plus_distribution_match_and_later_that_of_nearest_positives() -> None:
    made = model(encoder=EncoderSettings("stgcn", output=16, stages=2), aimclr=AimClrSettings(weight=0.5))
    for number, epoch in ((0, 0), (1, 0), (2, 149), (3, 150)):
        queue = made.queue.keys("joint").clone()
        seen: dict[str, Tensor] = {}
        g = torch.Generator().manual_seed(number)
        views = {view: torch.randn(8, 6, 2, 20, 3, generator=g) for view in ("query", "key", "extreme")}
        with torch.no_grad():
            branch = made.pairs["joint"].query
            seen["query"] = branch(views["query"])  # type: ignore[operator]
            whole = branch.encoder.sequence(views["extreme"])  # type: ignore[union-attr, operator]
            for name, x in (("extreme", whole), ("dropped", energy_drop(whole))):
                features = branch.encoder.pool(x)  # type: ignore[union-attr, operator]
                seen[name] = torch.nn.functional.normalize(branch.projector(features), dim=1)  # type: ignore[union-attr, operator]
        loss, metrics = step(made, number, epoch)
        key = made.queue.recent("joint", 8)
        d3m = distribution_match(seen["query"], [seen["extreme"], seen["dropped"]], key, queue)
        near = union_of_nearest(list(seen.values()), queue)
        expected = (
            nearest_positives_loss(seen["query"], key, queue, near)
            if epoch >= 150
            else info_nce(seen["query"], key, queue)
        )
        torch.testing.assert_close(loss, expected + 0.5 * d3m)
        torch.testing.assert_close(metrics["joint/loss_d3m"], d3m)
        assert ("joint/positives" in metrics) == (epoch >= 150)
        assert "joint/loss_contrast" in metrics
    assert 2 <= float(metrics["joint/positives"]) <= 4


def test_mining_waits_for_real_keys() -> None:
    made = model(aimclr=AimClrSettings(mining_epoch=0))
    assert ["joint/positives" in step(made, number)[1] for number in range(3)] == [False, False, True]


def test_views_of_one_branch_are_encoded_in_order_on_any_number_of_threads() -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            made = model()
            step(made, 0)
            found.append({name: value for name, value in made.state_dict().items() if "running" in name})
            assert found[-1]
            assert {".key." in module.name for module in dropouts(made)} == {True, False}
            assert all(module.calls == (1 if ".key." in module.name else 2) for module in dropouts(made))
    finally:
        torch.set_num_threads(before)
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-5, atol=1e-6)


def test_a_batch_in_parts_has_the_gradients_of_every_part() -> None:
    plain = EncoderSettings("stgcn", output=16, stages=1)
    made = model(encoder=plain, encode_chunks=2)
    loss, _ = step(made, 0)
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.pairs["joint"].query.parameters())  # type: ignore[union-attr]


@pytest.mark.heavy
def test_halp_pulls_the_queries_that_the_settings_name() -> None:
    losses = {}
    for queries in (("query",), ("extreme",), ("extreme-dropped",), ("query", "extreme", "extreme-dropped")):
        chosen = HalpSettings(start_epoch=0, prototypes=3, count=5, recent=16, queries=queries)
        made = model(("aimclr", "halp"), halp=chosen)
        for number in range(3):
            _, metrics = step(made, number)
        losses[queries] = float(metrics["joint/loss_halp"])
    single = [value for queries, value in losses.items() if len(queries) == 1]
    assert len(set(single)) == 3
    # Eq. 8 is linear in the query
    assert losses["query", "extreme", "extreme-dropped"] == pytest.approx(sum(single) / 3, rel=1e-5)


def test_a_gru_has_a_map_to_drop_from_and_an_encoder_without_one_is_refused() -> None:
    made = model(encoder=EncoderSettings("gru", hidden=4, layers=1))
    assert step(made, 0)[0].isfinite()
    with pytest.raises(
        InputError, match="the feature map before pooling, and encoder 'fusion' has no 'sequence'"
    ):
        model(encoder=EncoderSettings("fusion"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["aimclr.extreme=false"], "set aimclr.weight = 0"),
        (["aimclr.threshold=0.4"], "must be above 0.5 and at most 1"),
        (["aimclr.augmentations=papre"], "did you mean 'paper'"),
        (["aimclr.reading=max"], "unknown aimclr.reading"),
        (["aimclr.top=0"], "must be at least 1"),
        (["contrast.queue=0"], "'aimclr' needs 1 keys"),
        (['terms=["infonce", "aimclr"]'], "would count twice"),
        (['terms=["aimclr", "crossclr"]', 'streams=["joint", "bone"]'], "'crossclr' replaces InfoNCE"),
        (['terms=["aimclr", "halp"]', 'halp.queries=["extremes"]'], "give: query, extreme, extreme-dropped"),
        (['terms=["aimclr", "halp"]', 'halp.queries=["query", "query"]'], "each once"),
        (
            ['terms=["aimclr", "halp"]', 'halp.queries=["query", "extreme"]', "halp.anchor=query"],
            "depends on the query",
        ),
        (["views.extremes.augmentations=[{name='shear'}]"], "did you mean 'views.extreme'"),
    ],
)
def test_wrong_settings_get_one_sentence(overrides: list[str], words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-aimclr", overrides)
    assert words in str(caught.value)


def test_readings_of_the_extreme_view_differ_in_blur_and_time_flip_and_a_recipe_may_describe_its_own() -> (
    None
):
    public, paper = (
        model(aimclr=AimClrSettings(augmentations=reading)).views["extreme"]
        for reading in ("public", "paper")
    )
    assert public is not None
    assert paper is not None
    names = ["reflect-crop", "shear", "mirror", "rotation", "noise", "blur", "axis-mask"]
    assert [entry.name for entry in public] == names
    assert [entry.name for entry in paper] == [*names[:2], "time-flip", *names[2:]]
    assert [next(e for e in one if e.name == "blur").settings.normalise for one in (public, paper)] == [
        False,
        True,
    ]
    own = load_recipe("small-aimclr", ["views.extreme.augmentations=['shear']"])
    assert [entry.name for entry in own.views.policies(own_views(own))["extreme"] or ()] == ["shear"]


def own_views(recipe: Recipe) -> dict[str, object]:
    from halp.methods.term import term_views

    return dict(term_views(recipe.term_settings))


def test_recipes_are_as_published() -> None:
    for data in ("ntu60", "ntu120", "pku2"):
        recipe = load_recipe(f"{data}-aimclr")
        assert (recipe.epochs, recipe.batch_size, recipe.views.frames) == (300, 128, 50)
        assert (recipe.contrast.queue, recipe.optimiser.learning_rate, recipe.optimiser.milestones) == (
            32768,
            0.1,
            (250,),
        )
        assert (recipe.encoder.name, recipe.encoder.output, recipe.encoder.dropout) == ("stgcn", 256, 0.5)
        assert (recipe.aimclr.mining_epoch, recipe.aimclr.top, recipe.aimclr.threshold) == (150, 1, 0.7)
        both = load_recipe(f"{data}-aimclr-halp")
        assert (both.terms, both.halp.start_epoch) == (("aimclr", "halp"), 133)
        assert load_recipe(f"{data}-crossclr").crossclr.start_epoch == 150


@pytest.mark.slow
def test_run_may_be_forked_with_halp_and_ends_in_the_same_bits_where_halp_has_no_weight(
    tmp_path: Path, store: Store
) -> None:
    whole = pretrain(load_recipe("small-aimclr", TINY), store, tmp_path / "whole", progress=False)
    warm = pretrain(load_recipe("small-aimclr", TINY), store, tmp_path / "warm", until=1, progress=False)
    forked, muted = (
        pretrain(
            load_recipe("small-aimclr-halp", given), store, tmp_path / name, fork=warm.path, progress=False
        )
        for name, given in (("fork", (*TINY, *HALP)), ("muted", (*TINY, *HALP, "halp.weight=0.0")))
    )
    assert {"joint/kept", "joint/positives"} <= forked.metrics()[-1].keys()
    one, two = (newest_checkpoint(run.checkpoints).model for run in (whole, muted))
    assert one
    assert all(torch.equal(value, two[key]) for key, value in one.items())


@pytest.mark.slow
def test_run_ends_in_the_same_bits_after_a_kill_and_is_the_same_on_two_processes(
    tmp_path: Path, store: Store
) -> None:
    # a cell of EADM on the threshold falls to either side by rounding: small steps keep such differences
    # small
    settings = (*TINY, *HALP, "saving.checkpoint_steps=2", "optimiser.learning_rate=0.001")
    jobs.compare_whole_killed_and_two_processes(tmp_path, store, "small-aimclr-halp", settings)
    jobs.assert_whole_and_two_are_close(tmp_path, 5e-3)
