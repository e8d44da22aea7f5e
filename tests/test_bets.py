"""Trials train the GRU of `halp-base`, and a bet is won by the point that it was about."""

from __future__ import annotations

import torch

from benchmarks.bets import GRU, KINECT, TRIALS, gain, toml
from benchmarks.reweighting import plain_base
from halp.training.recipe import load_recipe


def test_every_trial_trains_the_gru_of_halp_base_and_only_bet_one_changes_the_views() -> None:
    recipes = {
        name: load_recipe(trial.recipe, trial.settings)
        for name, trial in TRIALS.items()
        if trial.recipe not in ("", "masked")
    }
    assert list(recipes) == ["recipe", "kinect", "neighbour", "hallucinated"]
    assert len({recipe.encoder for recipe in recipes.values()}) == 1
    assert [step.name for step in recipes["kinect"].views.augmentations] == [step["name"] for step in KINECT]
    assert recipes["recipe"].views == load_recipe("cmu-moco", []).views != recipes["kinect"].views
    assert toml([]) == "[]"


def test_the_first_columns_of_halp_base_are_those_of_its_gru() -> None:
    encoder = plain_base()
    clips = 0.1 * torch.randn(2, 64, 1, 16, 3, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before = encoder(clips)
        for module in encoder.encoder.modules():
            if isinstance(module, torch.nn.GRU):
                module.reset_parameters()
        after = encoder(clips)
    assert (before[:, :GRU] != after[:, :GRU]).float().mean() > 0.95  # the rest is saturated
    assert torch.equal(before[:, GRU:], after[:, GRU:])


def test_masked_prediction_has_to_gain_by_both_measures_and_kinect_views_in_the_mean() -> None:
    def figures(knn: float, five: float, ridge: float) -> dict[str, dict[str, dict[str, float]]]:
        return {"GRU and kernels": {"held-out CMU": {"knn": knn, "5 per class": five, "ridge": ridge}}}

    found = {name: figures(50.0, 30.0, 60.0) for name in ("untrained", "recipe")}
    found |= {"kinect": figures(53.0, 29.0, 50.0), "masked": figures(53.0, 40.0, 60.5)}
    assert gain(found, "kinect") == {"over": "recipe", "knn": 3.0, "5 per class": -1.0, "met": True}
    assert gain(found, "masked") == {"over": "untrained", "knn": 3.0, "ridge": 0.5, "met": False}
