"""Multinomial logistic regression with an L2 penalty, for a series of penalties."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]


class LogisticPath:
    """Regression on rows `(N, F)` over `unit`; `balanced` weights all classes equally.

    The optimum lies in the span of the rows, so it is found in as many coordinates as there are rows if these
    are fewer. Each fit starts from the optimum of the one before. L-BFGS runs in coordinates in which the
    curvature at equal probabilities is one along each axis, which takes half the steps.
    """

    def __init__(
        self,
        rows: npt.NDArray[Any],
        labels: npt.NDArray[Any],
        classes: int,
        *,
        iterations: int,
        tolerance: float = 2e-4,
        unit: float = 1.0,
        balanced: bool = False,
    ) -> None:
        self.shape, self.unit = (classes, rows.shape[1]), unit
        self.there, self.labels = np.unique(labels, return_inverse=True)
        inputs, self.back = _in_row_span(rows.astype(np.float64))
        self.inputs = np.hstack([inputs / unit, np.ones((len(inputs), 1))])
        share = 1 / np.bincount(self.labels)[self.labels] if balanced else np.ones(len(inputs))
        self.share = share / share.sum()
        self.curvature = self.share @ self.inputs**2 / len(self.there)
        self.found = np.zeros((len(self.there), self.inputs.shape[1]))
        self.options = {"maxiter": iterations, "gtol": tolerance, "ftol": 64 * np.finfo(float).eps}

    def fit(self, strength: float) -> tuple[Singles, Singles]:
        """Weights `(C, F)` and biases `(C,)`, where C of scikit-learn is the strength."""
        from scipy.optimize import minimize

        weight, bias = np.zeros(self.shape, np.float32), np.full(self.shape[0], -50.0, np.float32)
        if len(self.there) < 2:
            bias[self.there] = 0
            return weight, bias
        # of two classes scikit-learn counts one vector of weights, twice as long as each of ours
        penalty = np.full(
            self.inputs.shape[1], (2 if len(self.there) == 2 else 1) / (strength * len(self.inputs))
        )
        penalty[-1] = 0
        scale = np.sqrt(self.curvature + penalty)
        loss = _Loss(self.inputs / scale, self.labels, self.share, penalty / scale**2)
        result = minimize(
            loss, (self.found * scale).ravel(), jac=True, method="L-BFGS-B", options=self.options
        )
        self.found = result.x.reshape(self.found.shape) / scale
        coefficients = self.found[:, :-1]
        weight[self.there] = (coefficients if self.back is None else coefficients @ self.back) / self.unit
        bias[self.there] = self.found[:, -1]
        return weight, bias


class _Loss:
    """Cross entropy and ½ Σ penalty · weights², with the gradient, of weights `(C · F,)` on inputs `(N, F)`."""

    def __init__(
        self, inputs: Doubles, labels: npt.NDArray[np.intp], share: Doubles, penalty: Doubles
    ) -> None:
        self.inputs, self.share, self.penalty = inputs, share, penalty
        self.own = labels * len(inputs) + np.arange(len(inputs))  # of logits (C, N), flat

    def __call__(self, flat: Doubles) -> tuple[float, Doubles]:
        weights = flat.reshape(-1, self.inputs.shape[1])
        logits = weights @ self.inputs.T
        own, most = logits.ravel()[self.own], logits.max(0)
        grown = np.exp(logits - most)
        sums = grown.sum(0)
        loss = self.share @ (np.log(sums) + most - own)
        grown *= self.share / sums
        grown.ravel()[self.own] -= self.share
        pulled = self.penalty * weights
        gradient = grown @ self.inputs + pulled
        return float(loss + (pulled * weights).sum() / 2), gradient.ravel()


def _in_row_span(rows: Doubles) -> tuple[Doubles, Doubles | None]:
    """Rows in at most as many coordinates as there are rows, and the matrix that maps weights back, if any."""
    if rows.shape[1] <= len(rows):
        return rows, None
    squares, directions = np.linalg.eigh(rows @ rows.T)
    known = squares > 1e-10 * max(float(squares[-1]), 1e-300)
    sizes, directions = np.sqrt(squares[known]), directions[:, known]
    return directions * sizes, (directions / sizes).T @ rows
