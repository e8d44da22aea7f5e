"""The trials of `benchmarks/view_gain.py`: equal but for the method, and read by the vector that is better on the whole."""

from __future__ import annotations

from benchmarks.view_gain import MEASURES, TRIAL_EPOCHS, better, trial_settings
from halp.training.recipe import recipe_from_dict


def test_recipes_of_the_trials_are_valid_and_share_views_encoder_epochs_and_batch() -> None:
    recipes = [recipe_from_dict(settings) for settings in trial_settings(3).values()]
    assert (
        len({repr((one.views, one.encoder, one.epochs, one.batch_size, one.split, one.seed)) for one in recipes}) == 1
    )
    assert [one.method for one in recipes] == ["moco", "moco", "moco", "vicreg"]


def test_halp_begins_where_the_first_checkpoint_of_moco_ends_the_warm_up() -> None:
    recipes = trial_settings(0)
    assert recipes["MoCo"]["saving"]["checkpoint_epochs"] == TRIAL_EPOCHS // 2
    assert recipes["HaLP"]["halp"] == {"start_epoch": TRIAL_EPOCHS // 2, "negatives": False}
    assert recipes["HaLP, balanced"]["halp"] == {"start_epoch": TRIAL_EPOCHS // 2, "negatives": True}


def test_a_measure_counts_by_the_vector_with_the_better_mean_of_the_angles_not_the_better_first_one() -> None:
    vectors = {
        "all": {probe: {0: 80.0, 90: 20.0} for probe in MEASURES},
        "compact": {probe: {0: 70.0, 90: 40.0} for probe in MEASURES},
    }
    vectors["compact"]["ridge"] = {0: 60.0, 90: 30.0}
    found = better(vectors)
    assert found["knn"] == {"vector": "compact", "accuracy": {0: 70.0, 90: 40.0}}
    assert found["ridge"]["vector"] == "all"
