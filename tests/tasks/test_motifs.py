"""Motifs: known states are found with their durations, kept in a file and applied to new recordings; chance
is measured.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from halp.core.errors import InputError
from halp.features.content import ROW
from halp.features.table import FeatureTable
from halp.tasks import find_motifs
from halp.tasks.motifs import fit_motifs, load_motifs, stability

CENTRES = np.random.default_rng(0).normal(size=(3, 20)) * 3


def sequences(count: int, seed: int = 0, noise: float = 1.5) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Vectors of windows that stay in one of three states for 6 to 15 windows, and the states."""
    rng = np.random.default_rng(seed)
    vectors, states = [], []
    for _ in range(count):
        order = rng.permutation(np.repeat(np.arange(3), 3))
        state = np.concatenate([np.full(rng.integers(6, 15), one) for one in order])
        vectors.append((CENTRES[state] + noise * rng.normal(size=(len(state), 20))).astype(np.float32))
        states.append(state)
    return vectors, states


@pytest.mark.heavy
def test_motifs_are_the_states_that_made_the_vectors_and_their_number_is_found() -> None:
    vectors, states = sequences(4)
    model = fit_motifs(vectors)
    assert len(model) == 3
    assert adjusted_rand_score(np.concatenate(states), np.concatenate(model.motifs(vectors))) > 0.95
    sizes = np.bincount(np.concatenate(model.motifs(vectors)))
    assert (np.diff(sizes) <= 0).all()  # the longest first


def test_sticky_motifs_change_as_often_as_the_states_where_noise_is_large() -> None:
    vectors, states = sequences(4, noise=5.0)
    changes = [
        sum((np.diff(rows) != 0).sum() for rows in fit_motifs(vectors, 3, sticky=s).motifs(vectors))
        for s in (0.0, 50.0)
    ]
    truth = sum((np.diff(rows) != 0).sum() for rows in states)
    assert changes[1] <= changes[0]
    assert changes[1] < 2 * truth


def test_saved_motifs_are_the_same_on_new_recordings(tmp_path: Path) -> None:
    vectors, _ = sequences(3)
    new, states = sequences(2, seed=9)
    model = fit_motifs(vectors, 3)
    again = load_motifs(model.save(tmp_path / "motifs.npz"))
    for one, other in zip(model.probabilities(new), again.probabilities(new), strict=True):
        np.testing.assert_array_equal(one, other)
    assert adjusted_rand_score(np.concatenate(states), np.concatenate(again.motifs(new))) > 0.95
    with pytest.raises(InputError, match="do not fit motifs of 20 features"):
        again.motifs([np.zeros((3, 7))])
    (tmp_path / "bad.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match="not a complete file of motifs"):
        load_motifs(tmp_path / "bad.npz")


def test_the_merge_tree_joins_the_nearest_motifs_first() -> None:
    rng = np.random.default_rng(1)
    centres = np.zeros((3, 8))
    centres[1, 0], centres[2, 1] = 4, 40
    state = np.repeat([0, 1, 2, 0, 1, 2], 12)
    model = fit_motifs([centres[state] + 0.5 * rng.normal(size=(len(state), 8))], 3)
    joined = {int(v) for v in model.tree()[0, :2]}
    far = int(np.argmax(np.linalg.norm(model.means - np.median(model.means, axis=0), axis=1)))
    assert far not in joined


def test_stability_is_high_for_states_and_low_for_noise() -> None:
    clear = stability(sequences(4)[0], 3)
    assert clear["seeds"] is not None
    assert clear["halves"] is not None
    assert min(clear["seeds"], clear["halves"]) > 0.9
    rng = np.random.default_rng(2)
    noise = stability([rng.normal(size=(60, 20)) for _ in range(4)], 4)
    assert noise["halves"] is not None
    assert noise["halves"] < 0.5


def test_too_few_windows_are_refused() -> None:
    with pytest.raises(InputError, match="3 windows cannot make any motifs"):
        fit_motifs([np.zeros((3, 4))])
    with pytest.raises(InputError, match="sticky"):
        fit_motifs([np.zeros((30, 4))], sticky=-1)


class CountedTable(FeatureTable):
    """Counts how often the whole column of recordings is looked at."""

    looks = 0

    @property
    def recording(self) -> np.ndarray:
        CountedTable.looks += 1
        return self.rows["recording"]


def looks_at_columns(recordings: int) -> int:
    rows = np.zeros(4 * recordings, dtype=ROW)
    rows["recording"] = np.repeat(np.arange(recordings), 4)
    rows["start"] = np.tile(np.arange(4.0), recordings)
    rows["stop"], rows["seen"], rows["fps"] = rows["start"] + 1, 1, 30
    vectors = np.random.default_rng(0).normal(size=(len(rows), 3)).astype(np.float32)
    names = [f"r{number}" for number in range(recordings)]
    table = CountedTable(vectors, rows, names, (), [(number, 0.0, 0.5) for number in range(recordings)])
    parts = find_motifs.sequences(table)
    assert np.array_equal(np.concatenate(parts), np.arange(len(rows)))
    model = fit_motifs([vectors], 2)
    CountedTable.looks = 0
    find_motifs.sequences(table)
    answers, _ = find_motifs.motif_answers(model, table)
    assert {answer.recording for answer in answers} == set(names)
    return CountedTable.looks


def test_work_on_recordings_grows_with_their_number_and_not_with_its_square() -> None:
    assert looks_at_columns(5) == looks_at_columns(50) < 10
