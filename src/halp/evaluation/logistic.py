"""Multinomial logistic regression with an L2 penalty, for a series of penalties."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]


class LogisticPath:
    """Regression on rows `(N, F)` over `unit`; `balanced` weights all classes equally.

    The optimum lies in the span of the rows, so it is found in as many coordinates as there are rows if these
    are fewer. Each fit starts from the optimum of the one before.
    """

    def __init__(
        self,
        rows: npt.NDArray[Any],
        labels: npt.NDArray[Any],
        classes: int,
        *,
        iterations: int,
        tolerance: float = 1e-4,
        unit: float = 1.0,
        balanced: bool = False,
    ) -> None:
        from sklearn.linear_model import LogisticRegression

        self.labels, self.shape, self.unit = labels, (classes, rows.shape[1]), unit
        self.there = np.unique(labels)
        self.inputs, self.back = _in_row_span(rows.astype(np.float64))
        self.inputs = self.inputs / unit
        self.model = LogisticRegression(
            warm_start=True, max_iter=iterations, tol=tolerance, class_weight="balanced" if balanced else None
        )

    def fit(self, strength: float) -> tuple[Singles, Singles]:
        """Weights `(C, F)` and biases `(C,)`, where C of scikit-learn is the strength."""
        weight, bias = np.zeros(self.shape, np.float32), np.full(self.shape[0], -50.0, np.float32)
        if len(self.there) < 2:
            bias[self.there] = 0
            return weight, bias
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few rows of many classes; slow convergence
            fitted = self.model.set_params(C=strength).fit(self.inputs, self.labels)
        coefficients = (fitted.coef_ if self.back is None else fitted.coef_ @ self.back) / self.unit
        # of two classes there is one vector of coefficients: half of it for the one, half against the other
        sign = np.array([[-0.5], [0.5]]) if len(self.there) == 2 else 1.0
        weight[self.there], bias[self.there] = sign * coefficients, np.ravel(sign) * fitted.intercept_
        return weight, bias


def _in_row_span(rows: Doubles) -> tuple[Doubles, Doubles | None]:
    """Rows in at most as many coordinates as there are rows, and the matrix that maps weights back, if any."""
    if rows.shape[1] <= len(rows):
        return rows, None
    squares, directions = np.linalg.eigh(rows @ rows.T)
    known = squares > 1e-10 * max(float(squares[-1]), 1e-300)
    sizes, directions = np.sqrt(squares[known]), directions[:, known]
    return directions * sizes, (directions / sizes).T @ rows
