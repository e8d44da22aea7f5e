"""Results: metrics with their provenance, saved as JSON that fits `result.schema.json`."""

from __future__ import annotations

import importlib.resources
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp._version import __version__, revision
from halp.core.errors import InputError
from halp.core.files import read_json, write_json

FORMAT = 3


@dataclass(frozen=True)
class Result:
    """Result of a protocol for one or several seeds, with its full provenance.

    Attributes
    ----------
    accuracy, accuracies, std : float, list of float, float or None
        Top-1 in per cent: the mean, every seed's, and their standard deviation if there are several.
    metrics : dict of str to float
        What a protocol finds beside it, such as mAP; means over the seeds.
    per_class, confusion, classes : dict, list of lists, list of str
        Accuracies by class; counts, a row per true class, summed over the seeds; names.
    protocol, settings, split, split_hash, seed, seeds, stream
        How it was measured.
    clips, test_clips_trained_on : dict of str to int, int or None
        How many for training and testing, and how many of the latter the pre-training saw (None: not known).
    encoder, data, backbone, versions, format
        What was measured: origin, store, fingerprint before and after, versions of software and of the file.
    """

    protocol: str
    settings: dict[str, Any]
    split: str
    split_hash: str
    seed: int  # the first of the seeds
    seeds: list[int]
    stream: str
    accuracy: float  # top-1 in per cent, mean over the seeds
    accuracies: list[float]  # one per seed
    std: float | None  # over the seeds; None if there is one
    metrics: dict[str, float]  # what a protocol finds beside top-1, such as mAP; means over the seeds
    per_class: dict[str, float]
    confusion: list[list[int]]  # rows: true class, columns: predicted class; summed over the seeds
    classes: list[str]
    clips: dict[str, int]  # how many for training and for testing
    test_clips_trained_on: int | None  # by the pre-training; None if it is not known
    encoder: dict[str, Any]  # run, recipe, step, whether it was trained
    data: dict[str, str]
    backbone: dict[str, str]  # fingerprint before and after
    versions: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result atomically; an invalid one is not written."""
        data = json.loads(json.dumps(asdict(self)))
        if violation := schema_violation(data):
            raise ValueError(f"the result does not fit its schema ({violation}) and is not saved")
        try:
            return write_json(path, data)
        except OSError as error:
            raise InputError(
                f"the result '{path}' cannot be written ({error}); free disk space or choose another path"
            ) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read a result; an invalid file is refused with the violation."""
        data = read_json(path)
        if violation := schema_violation(data):
            raise InputError(f"'{path}' is not a result of this version of halp: {violation}; evaluate again")
        return cls(**data)


@cache
def _validator() -> Any:
    import jsonschema  # slow to import

    file = importlib.resources.files("halp.evaluation") / "result.schema.json"
    return jsonschema.Draft202012Validator(json.loads(file.read_text(encoding="utf-8")))


def schema_violation(data: Any) -> str | None:
    """The most specific violation of the schema by a saved result, in words; None if valid."""
    from jsonschema.exceptions import best_match

    error = best_match(_validator().iter_errors(data))
    if error is not None:
        return f"{error.json_path.removeprefix('$.')}: {error.message}"
    # JSON has no NaN, but Python's reader takes it, and no bound of a schema excludes it
    return None if _all_finite(data) else "a number is NaN or infinite"


def _all_finite(data: Any) -> bool:
    if isinstance(data, dict):
        return all(map(_all_finite, data.values()))
    if isinstance(data, list):
        return all(map(_all_finite, data))
    return not isinstance(data, float) or math.isfinite(data)


def score(
    true: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], class_names: list[str]
) -> tuple[float, dict[str, float], list[list[int]]]:
    """Accuracy in per cent, that of each class that occurs, and the confusion matrix."""
    count = len(class_names)
    confusion = np.zeros((count, count), dtype=np.int64)
    np.add.at(confusion, (true, predicted), 1)
    return 100 * float((true == predicted).mean()), by_class(confusion, class_names), confusion.tolist()


def by_class(confusion: npt.NDArray[np.int64], class_names: Sequence[str]) -> dict[str, float]:
    """Per cent right of each class that occurs, from a confusion matrix `(C, C)`."""
    total = confusion.sum(1)
    return {
        name: round(100 * float(confusion[c, c] / total[c]), 4)
        for c, name in enumerate(class_names)
        if total[c]
    }


def pool_folds(results: Sequence[Result]) -> list[Result]:
    """One result for the folds of a split (`NAME-1`, `NAME-2`, …) instead of theirs: all test clips together.

    Accuracy, classes and confusion are of the clips of all folds; `accuracies` and `std` are over the folds.
    """
    families: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        family, dash, number = result.split.rpartition("-")
        split = family if dash and number.isdigit() else result.split
        families.setdefault((split, result.protocol, result.stream, json.dumps(result.settings)), []).append(
            result
        )
    pooled = []
    for (split, *_), folds in families.items():
        if len(folds) == 1:
            pooled += folds
            continue
        confusion = np.sum([fold.confusion for fold in folds], axis=0)
        accuracies = [fold.accuracy for fold in folds]
        seen = [fold.test_clips_trained_on for fold in folds]
        pooled.append(
            replace(
                folds[0],
                split=f"{split}, {len(folds)} folds",
                accuracy=round(100 * float(np.trace(confusion) / confusion.sum()), 4),
                accuracies=accuracies,
                std=mean_and_std(accuracies)[1],
                metrics={
                    key: mean_and_std([fold.metrics[key] for fold in folds])[0] for key in folds[0].metrics
                },
                per_class=by_class(confusion, folds[0].classes),
                confusion=confusion.tolist(),
                clips={"train": folds[0].clips["train"], "test": sum(fold.clips["test"] for fold in folds)},
                test_clips_trained_on=None if None in seen else sum(count or 0 for count in seen),
            )
        )
    return pooled


def with_folds(results: Sequence[Result]) -> list[Result]:
    """The results, followed by those of folds taken together."""
    return [*results, *(result for result in pool_folds(results) if result not in results)]


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and the standard deviation of a sample if there is more than one value.

    >>> mean_and_std([1.0, 3.0])
    (2.0, 1.4142)
    """
    std = round(float(np.std(values, ddof=1)), 4) if len(values) > 1 else None
    return round(float(np.mean(values)), 4), std


@cache
def versions() -> dict[str, str]:
    """Versions of all dependencies of a result, and the commit of halp in a checkout."""
    commit = revision()
    halp = {"halp": __version__, **({"commit": commit} if commit else {})}
    return {**halp, **{name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")}}
