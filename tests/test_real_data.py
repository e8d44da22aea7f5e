"""The sweep on real data: settings are chosen without the test clips, differences are paired."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import real_data
from halp.data.readers import get_reader
from halp.data.splits import Split
from halp.reproduce.scales import SCALES

SETS = {
    "a": {"MoCo": {"knn": [50.0, 60.0, 70.0]}, "HaLP": {"knn": [51.0, 62.0, 73.0]}},
    "b": {"MoCo": {"knn": [10.0, 20.0, 30.0]}, "HaLP": {"knn": [10.0, 20.0, 30.0]}},
}


@pytest.mark.parametrize("name", list(real_data.SETS))
def test_validation_splits_lie_within_the_training_part(shared: Path, name: str) -> None:
    test, validation = real_data.SETS[name]
    rules = {rule.name: rule for rule in get_reader("interchange").info(shared / "data" / f"{name}.npz").splits}
    rule = rules[test]
    assert isinstance(rule, Split)
    assert validation.column == rule.column
    assert set(validation.train) | set(validation.test) <= set(rule.train)
    assert not set(validation.train) & set(validation.test)


def test_differences_are_paired_by_seed_and_averaged_over_sets() -> None:
    found = real_data.differences(SETS, "HaLP", "MoCo")
    assert found["a"]["knn"].mean == pytest.approx(2)
    assert found["b"]["knn"].half_width == 0
    assert found["all sets"]["knn"].mean == pytest.approx(1)
    assert found["all sets"]["knn"].pairs == 3
    assert real_data.averaged(SETS, "HaLP", "knn") == pytest.approx(np.array([30.5, 41, 51.5]))
    assert "| mean of the sets | 40.0 ± 10.0 | 41.0 ± 10.5 | +1.00" in real_data.markdown(SETS, [("HaLP", "MoCo")], "")


@pytest.mark.slow
def test_pooled_training_leaves_out_what_is_tested_on(shared: Path, tmp_path: Path) -> None:
    pooled = real_data.pooled_store(tmp_path)
    for number, split in enumerate(real_data.POOLED):
        train, test = (set(pooled.names[part]) for part in pooled.split(split))
        assert not train & test
        for name in real_data.SETS:
            store = real_data.prepared_store(name, tmp_path)
            parts = store.split(real_data._split(name, validation=bool(number)))
            for clips, pooled_part in zip(parts, (train, test)):
                assert {f"{name}/{store.names[clip]}" for clip in clips} <= pooled_part
        assert sum(clip.startswith("utkinect/") for clip in train) == 199
    seen, tested = pooled.split("pooled-validation")[0], pooled.split("pooled")[1]
    assert not set(seen) & set(tested)


def test_moco_and_halp_of_the_family_differ_in_the_term_alone() -> None:
    from halp.training import load_recipe

    moco, halp = (load_recipe(f"cpu-{kind}").flat() for kind in ("moco", "halp"))
    differing = {key for key in halp if not key.startswith("halp.") and halp[key] != moco[key]}
    assert differing == {"name", "description", "terms"}
    assert SCALES["small"].recipes[""] == "cpu-halp"
