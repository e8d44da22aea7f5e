"""Recipes: the published settings, overrides, and one sentence for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from halp.core.errors import InputError
from halp.training.recipe import Recipe, list_recipes, load_recipe, recipe_from_dict


@pytest.mark.parametrize(
    ("name", "epochs", "milestone", "prototypes", "weight"),
    [("ntu60", 450, 350, 20, 1.0), ("ntu120", 450, 350, 40, 2.0), ("pku2", 1000, 800, 20, 1.0)],
)
def test_published_recipes_have_the_papers_settings(
    name: str, epochs: int, milestone: int, prototypes: int, weight: float
) -> None:
    halp, moco = load_recipe(f"{name}-halp"), load_recipe(f"{name}-moco")
    for recipe in (halp, moco):
        assert (recipe.epochs, recipe.batch_size, recipe.streams) == (epochs, 64, ("joint",))
        assert (recipe.encoder.hidden, recipe.encoder.layers, recipe.views.frames) == (1024, 3, 64)
        assert (recipe.contrast.queue, recipe.contrast.dimension) == (16384, 128)
        assert (recipe.contrast.momentum, recipe.contrast.temperature) == (0.999, 0.07)
        optimiser = recipe.optimiser
        assert (optimiser.learning_rate, optimiser.momentum, optimiser.weight_decay) == (0.01, 0.9, 1e-4)
        assert optimiser.rate(milestone - 1) == 0.01
        assert optimiser.rate(milestone) == pytest.approx(0.001)
        views = recipe.views
        assert (views.crop_min, views.crop_frames, views.shear, views.corrupt_joints) == (0.1, 64, 1.0, 0.6)
    assert moco.terms == ("infonce",)
    assert halp.terms == ("infonce", "halp")
    term = halp.halp
    assert (term.weight, term.start_epoch, term.prototypes, term.count) == (weight, 200, prototypes, 100)
    assert (term.hardness, term.refresh, term.recent, term.step, term.filter) == (
        0.8,
        5,
        256,
        "paper",
        "rank",
    )


@pytest.mark.heavy
def test_every_recipe_that_comes_along_loads_and_survives_writing(tmp_path: Path) -> None:
    assert {"small", "demo-moco", "demo-halp"} <= set(list_recipes())
    for name in list_recipes():
        recipe = load_recipe(name)
        assert recipe.name == name
        copy = tmp_path / f"{name}.toml"
        copy.write_text(recipe.to_toml(), encoding="utf-8")
        assert load_recipe(copy) == recipe


def test_overrides_reach_their_settings() -> None:
    recipe = load_recipe(
        "ntu60-halp",
        [
            "seed=3",
            "halp.hardness=0.5",
            "halp.filter=variant-1",
            'streams=["joint", "bone"]',
            "contrast.momentum=0",
        ],
    )
    assert (recipe.seed, recipe.halp.hardness, recipe.halp.filter) == (3, 0.5, "variant-1")
    assert recipe.streams == ("joint", "bone")
    assert recipe.contrast.momentum == 0


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("halp.hardnes=0.5", "unknown setting 'halp.hardnes': did you mean 'halp.hardness'"),
        ("hardness=0.5", "unknown setting 'hardness'"),
        ("halp.hardness=1.5", "hardness = 1.5 is out of range"),
        ("halp.hardness=0", "out of range"),
        ("halp.hardness=hard", "halp.hardness = 'hard' must be a number"),
        ("halp.count=0", "at least one positive"),
        ("halp.count=2.5", "halp.count = 2.5 must be a whole number"),
        ("halp.prototypes=300", "more than recent = 256"),
        ("halp.prototypes=1", "at least two"),
        ("halp.filter=ranks", "unknown filter 'ranks': did you mean 'rank'"),
        ("halp.weight=-1", "cannot be negative"),
        ("halp=3", "'halp' is a section"),
        ("epochs=true", "epochs = True must be a whole number"),
        ("epochs=0", "must be at least 1"),
        ("contrast.queue=100", "halp.recent = 256 is more than contrast.queue = 100"),
        ("contrast.temperature=0", "temperature"),
        ("streams=joint", "must be a list"),
        ("streams=[]", "name at least one"),
        ('streams=["joints"]', "unknown stream 'joints'"),
        ("encoder.name=lsmt", "unknown encoder 'lsmt'"),
        ("optimiser.learning_rate=-1", "learning_rate"),
        ("views.crop_min=2", "crop_min"),
        ("method.name=masked", "must be a text in quotes"),
        ("method=maskd", "did you mean 'masked'"),
        ("optimiser.schedule=[1]", "must be a text in quotes"),
        ("optimizer.lr=0.1", "did you mean 'optimiser.learning_rate'"),
        ("cmd.weight=1", "section [cmd] would be ignored"),
        ("encoder.pooling=tirds", "did you mean 'thirds'"),
        ("encoder.hidden=-3", "encoder.hidden = -3 must be at least 1"),
        ("encoder.direction=sideways", "unknown encoder.direction"),
        ("terms.x=1", "is not a section"),
        ("views.extreme.augmentations=[]", "must be a list of augmentations"),
        ("nonsense", "--set takes key=value"),
        ("seed.x=1", "must be a whole number"),
        ("a.b.c=1", "unknown setting"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("ntu60-halp", [override])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_broken_files_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no recipe file"):
        load_recipe(tmp_path / "none.toml")
    with pytest.raises(InputError, match="unknown recipe 'smal': did you mean 'small'"):
        load_recipe("smal")
    broken = tmp_path / "broken.toml"
    broken.write_text("epochs = = 3")
    with pytest.raises(InputError, match="not valid TOML"):
        load_recipe(broken)
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        load_recipe(broken)
    with pytest.raises(InputError, match="cannot be read"):
        load_recipe(tmp_path)


def test_defaults_are_the_papers() -> None:
    assert recipe_from_dict({}) == Recipe()
    assert Recipe().halp == load_recipe("ntu60-halp").halp
    assert Recipe().views == load_recipe("ntu60-halp").views


def test_a_recipe_inherits_and_later_layers_take_away_what_no_longer_counts(tmp_path: Path) -> None:
    child = tmp_path / "child.toml"
    child.write_text('extends = "small"\nname = "child"\nterms = ["infonce"]\n[optimizer]\nname = "adam"\n')
    made, parent = load_recipe(child), load_recipe("small")
    assert made.views == parent.views
    assert "halp" not in made.sections
    assert (made.optimiser.name, made.optimiser.milestones) == ("adam", (120,))
    assert load_recipe(child, ["encoder.name=stgcn"]).encoder.output == 256
    (tmp_path / "grand.toml").write_text('extends = "child"\nname = "grand"\nseed = 4\n')
    assert (load_recipe(tmp_path / "grand.toml").seed, load_recipe(tmp_path / "grand.toml").terms) == (
        4,
        ("infonce",),
    )
    child.write_text('extends = "grand"\n')
    with pytest.raises(InputError, match="extends itself"):
        load_recipe(child)
    child.write_text('extends = "smal"\n')
    with pytest.raises(InputError, match="did you mean 'small'"):
        load_recipe(child)


def test_a_queue_is_cut_to_the_number_of_clips_where_the_recipe_says_so() -> None:
    small = load_recipe("small")
    assert small.fitted_to(5000) == small
    few = small.fitted_to(27)
    assert (few.contrast.queue, few.halp.recent, few.halp.prototypes) == (27, 27, 6)
    assert load_recipe("small", ["fit_queue=false"]).fitted_to(27).contrast.queue == 512
    assert few.fitted_to(27) == few, "a run is resumed with what it began with"


def test_a_fused_update_of_sgd_is_the_same_up_to_rounding() -> None:
    made = []
    for fused in (False, True):
        torch.manual_seed(0)
        layer = torch.nn.Linear(5, 7)
        optimiser = load_recipe("small", [f"optimiser.fused={str(fused).lower()}"]).optimiser.build(layer)
        for _ in range(3):
            optimiser.zero_grad()
            layer(torch.ones(2, 5)).square().sum().backward()
            optimiser.step()
        made.append(layer.weight.detach())
    torch.testing.assert_close(made[0], made[1])
