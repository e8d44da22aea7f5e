"""MiniRocket for multivariate series (Dempster, Schmidt, Webb, 2021), written from its description: a
baseline for tables.

84 fixed kernels of length 9 (weights −1 and, at three places, 2) at several dilations, each over a random set
of channels; a feature is the share of places where the response exceeds a bias, and biases are quantiles of
responses to training series. The published package needs a compiler for NumPy code that the present NumPy
does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

Series = npt.NDArray[np.float32]  # (N, channels, frames)
LENGTH = 9
KERNELS = np.array(list(combinations(range(LENGTH), 3)))
GOLDEN = (5**0.5 + 1) / 2


@dataclass
class MiniRocket:
    """`fit` chooses dilations, channels and biases; `transform` gives features `(N, about count)`."""

    count: int = 9996
    most_dilations: int = 32
    seed: int = 0
    dilations: list[tuple[int, int]] = field(default_factory=list)  # (dilation, features per kernel)
    channels: list[list[npt.NDArray[np.int64]]] = field(default_factory=list)
    biases: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def fit(self, series: Series) -> MiniRocket:
        """Choose everything by the training series; no label is needed."""
        draw = np.random.default_rng(self.seed)
        _, width, frames = series.shape
        per_kernel = self.count // len(KERNELS)
        number = min(per_kernel, self.most_dilations)
        largest = np.log2(max(frames - 1, LENGTH - 1) / (LENGTH - 1))
        found, times = np.unique(np.logspace(0, largest, number, base=2).astype(int), return_counts=True)
        features = (times * (per_kernel / number)).astype(int)
        features[: per_kernel - features.sum()] += 1
        self.dilations = [(int(one), int(many)) for one, many in zip(found, features)]
        most = np.log2(min(width, LENGTH) + 1)
        self.channels, self.biases = [], []
        quantile = 0
        for dilation, many in self.dilations:
            sizes = (2 ** draw.uniform(0, most, len(KERNELS))).astype(int).clip(1, width)
            self.channels.append([draw.choice(width, size, replace=False) for size in sizes])
            biases = np.empty((len(KERNELS), many), dtype=np.float32)
            chosen = draw.integers(len(series), size=len(KERNELS))
            for kernel in range(len(KERNELS)):
                one = series[chosen[kernel]][None]
                response = _responses(one, dilation, kernel, self.channels[-1][kernel])
                shares = (np.arange(quantile + 1, quantile + 1 + many) * GOLDEN) % 1
                biases[kernel] = np.quantile(response, shares)
                quantile += many
            self.biases.append(biases)
        return self

    def transform(self, series: Series) -> npt.NDArray[np.float32]:
        """The share of places above each bias."""
        columns = []
        for number, (dilation, _) in enumerate(self.dilations):
            for kernel in range(len(KERNELS)):
                response = _responses(series, dilation, kernel, self.channels[number][kernel])
                if (number + kernel) % 2:
                    margin = (LENGTH - 1) // 2 * dilation
                    response = (
                        response[:, margin : response.shape[1] - margin]
                        if 2 * margin < response.shape[1]
                        else response
                    )
                columns += [
                    (response > bias).mean(1, dtype=np.float32) for bias in self.biases[number][kernel]
                ]
        return np.stack(columns, 1)


def _responses(
    series: Series, dilation: int, kernel: int, channels: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """The kernel's response at every frame `(N, frames)`, summed over the channels, with zeros outside the
    series.
    """
    x = series[:, channels].sum(1)
    frames = x.shape[1]
    margin = (LENGTH - 1) // 2 * dilation
    padded = np.pad(x, ((0, 0), (margin, margin)))
    total = np.zeros_like(x)
    for place in range(LENGTH):
        weight = 2.0 if place in KERNELS[kernel] else -1.0
        total += weight * padded[:, place * dilation : place * dilation + frames]
    return total
