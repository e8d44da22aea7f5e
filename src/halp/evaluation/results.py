"""Results: figures with their provenance, saved as JSON."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp._version import __version__
from halp.errors import InputError
from halp.files import read_json, write_json

FORMAT = 1


@dataclass(frozen=True)
class Result:
    """What a protocol found, and everything needed to find it again."""

    protocol: str
    settings: dict[str, Any]
    split: str
    split_hash: str
    seed: int
    stream: str
    accuracy: float  # top-1, in per cent
    per_class: dict[str, float]
    confusion: list[list[int]]  # rows: true class, columns: predicted class
    classes: list[str]
    clips: dict[str, int]  # how many for training and for testing
    encoder: dict[str, Any]  # run, recipe, step, whether it was trained
    data: dict[str, str]
    backbone: dict[str, str]  # fingerprint before and after
    versions: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result whole or not at all."""
        return write_json(path, asdict(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        data = read_json(path)
        fields = set(cls.__dataclass_fields__)
        if not isinstance(data, dict) or data.get("format") != FORMAT or set(data) != fields:
            raise InputError(f"'{path}' is no result of this version of halp")
        return cls(**data)


def score(
    true: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], class_names: list[str]
) -> tuple[float, dict[str, float], list[list[int]]]:
    """Accuracy in per cent, the same for each class that occurs, and the confusion matrix."""
    count = len(class_names)
    confusion = np.zeros((count, count), dtype=np.int64)
    np.add.at(confusion, (true, predicted), 1)
    total = confusion.sum(1)
    per_class = {class_names[c]: round(100 * float(confusion[c, c] / total[c]), 4) for c in range(count) if total[c]}
    return 100 * float((true == predicted).mean()), per_class, confusion.tolist()


def versions() -> dict[str, str]:
    """Versions of what a figure depends on."""
    return {"halp": __version__, **{name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")}}
