"""Hidden Markov model: equal to hmmlearn's on sequences of all lengths, one by one or many in a pass."""

from __future__ import annotations

import numpy as np
import pytest
from hmmlearn.hmm import GaussianHMM

from halp.tasks import hmm
from halp.tasks.hmm import HiddenMarkov

STATES = 3


def start_model(rng: np.random.Generator) -> HiddenMarkov:
    change = np.full((STATES, STATES), 0.1 / STATES) + 0.9 * np.eye(STATES)
    return HiddenMarkov(
        rng.normal(size=(STATES, 2)), np.ones((STATES, 2)), np.full(STATES, 1 / STATES), change
    )


def reference(model: HiddenMarkov, stay: float = 0.0, least: float = 0.0) -> GaussianHMM:
    other = GaussianHMM(
        STATES, transmat_prior=1 + stay * np.eye(STATES), n_iter=hmm.TURNS, tol=hmm.GAIN, init_params=""
    )
    other.covars_prior, other.n_features = least, 2
    other.startprob_, other.transmat_ = model.start, model.transitions
    other.means_, other.covars_ = model.means, model.variances
    return other


@pytest.mark.parametrize("rows_at_once", [7, 100_000])
def test_probabilities_and_fit_are_those_of_hmmlearn(
    monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr(hmm, "ROWS", rows_at_once)
    rng = np.random.default_rng(0)
    lengths = [1, 30, 2, 5, 0, 60, 1]
    parts = [rng.normal(size=(n, 2)) + 3 * rng.integers(0, 3, size=(n, 1)) for n in lengths]
    rows, known = np.concatenate(parts), [n for n in lengths if n]
    model = start_model(rng)
    other = reference(model)
    posterior = np.concatenate([one for _, one, *_ in model.passes(parts)])
    np.testing.assert_allclose(posterior, other.predict_proba(rows, known), atol=1e-12)
    assert model.log_likelihood(parts) == pytest.approx(other.score(rows, known), rel=1e-12)
    assert model.bic(parts) == pytest.approx(other.bic(rows, known), rel=1e-12)
    fitted, other = model.fitted(parts, 5.0, 0.01), reference(model, 5.0, 0.01).fit(rows, known)
    np.testing.assert_allclose(fitted.means, other.means_, atol=1e-8)
    np.testing.assert_allclose(fitted.variances, np.array([np.diag(one) for one in other.covars_]), atol=1e-8)
    np.testing.assert_allclose(fitted.transitions, other.transmat_, atol=1e-8)
    np.testing.assert_allclose(fitted.start, other.startprob_, atol=1e-8)


def test_rows_that_no_state_explains_have_finite_probabilities() -> None:
    impossible = HiddenMarkov(
        np.array([[0.0], [100.0]]), np.full((2, 1), 1e-4), np.array([1.0, 0.0]), np.eye(2)
    )
    rows = np.array([[0.0], [100.0], [1e4], [0.0]])
    (_, posterior, *_, likelihood), *_ = impossible.passes([rows])
    assert np.isfinite(posterior).all()
    assert np.isfinite(likelihood)
    np.testing.assert_allclose(posterior[[0, 1, 3]].argmax(1), [0, 1, 0])
