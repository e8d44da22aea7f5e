"""Hidden Markov model with Gaussian states: posterior probabilities and expectation maximisation.

Sequences are joined to one chain by a row between them in which only an extra state, the start, is possible:
every state leads to it, and it leads to the first state of the next sequence. So one compiled pass covers any
number of short recordings, and the probabilities are those of separate ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from halp.tasks.events.cells import needed

Floats = npt.NDArray[np.float64]
Joined = tuple[Floats, npt.NDArray[np.bool_]]
ROWS = 131_072  # in a pass, unless one sequence has more
LEAST = 1e-100  # of a probability of the chain, so that no scaling factor underflows
TURNS, GAIN = 60, 1e-3


@dataclass(frozen=True)
class HiddenMarkov:
    """Means and variances `(K, D)`, start `(K,)` and transitions `(K, K)` of `K` states."""

    means: Floats
    variances: Floats
    start: Floats
    transitions: Floats

    def passes(self, sequences: Iterable[Floats]) -> Iterator[tuple[Floats, Floats, Floats, Floats, float]]:
        """Rows of several sequences, posteriors `(N, K)`, expected starts and transitions, log-likelihood."""
        yield from self._over(_joined(sequences))

    def _over(self, parts: Iterable[Joined]) -> Iterator[tuple[Floats, Floats, Floats, Floats, float]]:
        compiled, states = needed("hmmlearn._hmmc"), len(self.means)
        moving = np.maximum(np.vstack([self.transitions, self.start]), LEAST)
        moving = np.column_stack([moving, np.append(np.ones(states), 0.0)])
        first = np.append(np.zeros(states), 1.0)
        for rows, known in parts:
            density = self._log_density(rows)
            most = density.max(axis=1)
            joined = np.zeros((len(known), states + 1))
            joined[known, :-1] = np.exp(density - most[:, None])
            joined[~known, -1] = 1
            likelihood, forward, scale = compiled.forward_scaling(first, moving, joined)
            backward = compiled.backward_scaling(first, moving, joined, scale)
            moves = compiled.compute_scaling_xi_sum(forward, moving, backward, joined)
            posterior = (forward * backward)[known, :-1]
            posterior /= posterior.sum(axis=1, keepdims=True)
            yield rows, posterior, moves[-1, :-1], moves[:-1, :-1], float(likelihood + most.sum())

    def _log_density(self, rows: Floats) -> Floats:
        constant = np.log(2 * np.pi * self.variances).sum(axis=1)
        distances = [((rows - mean) ** 2) @ (1 / spread) for mean, spread in zip(self.means, self.variances)]
        return -0.5 * (constant + np.stack(distances, axis=1))

    def log_likelihood(self, sequences: Sequence[Floats]) -> float:
        """Log-likelihood of all sequences."""
        return sum(likelihood for *_, likelihood in self.passes(sequences))

    def fitted(self, sequences: Sequence[Floats], stay: float, least: float) -> HiddenMarkov:
        """The model after expectation maximisation, until the log-likelihood gains less than 0.001.

        `stay` counts are added to those of staying in a state, `least` to the squared deviations of a state.
        """
        model, last, parts = self, -np.inf, list(_joined(sequences))
        for _ in range(TURNS):
            weight, sums, squares = (np.zeros(shape) for shape in (len(self.means), *[self.means.shape] * 2))
            starts, moves, likelihood = np.zeros(len(weight)), stay * np.eye(len(weight)), 0.0
            for rows, posterior, began, moved, likely in model._over(parts):
                weight, sums = weight + posterior.sum(axis=0), sums + posterior.T @ rows
                squares = squares + posterior.T @ rows**2
                starts, moves, likelihood = starts + began, moves + moved, likelihood + likely
            each = weight[:, None]
            means = sums / each
            spread = (least + squares - 2 * means * sums + means**2 * each) / np.maximum(each, 1e-5)
            model = HiddenMarkov(
                means, spread, starts / starts.sum(), moves / moves.sum(axis=1, keepdims=True)
            )
            if not likelihood - last >= GAIN:  # a state that ran empty has no numbers
                break
            last = likelihood
        return model

    def bic(self, sequences: Sequence[Floats]) -> float:
        """Bayesian information criterion of these sequences."""
        states, size = self.means.shape
        free = states - 1 + states * (states - 1) + 2 * states * size
        return free * float(np.log(sum(map(len, sequences)))) - 2 * self.log_likelihood(sequences)


def _joined(sequences: Iterable[Floats]) -> Iterator[Joined]:
    """Concatenated rows of whole sequences, up to `ROWS`, and the rows that do not start a sequence."""
    part: list[Floats] = []
    rows = 0
    for one in chain(sequences, [None]):
        if part and (one is None or rows + len(one) > ROWS):
            ends = np.cumsum([0, *(len(kept) + 1 for kept in part)])
            yield np.concatenate(part), ~np.isin(np.arange(ends[-1]), ends[:-1])
            part, rows = [], 0
        if one is not None and len(one):
            part.append(one)
            rows += len(one)
