"""Splits: named rules that say which clips are for training and which for testing. A store carries its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.errors import InputError

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Clips whose `column` (subject, camera, name, …) is in `train` are for training, those in `test` for testing.

    An empty `test` means "all the others". Clips in neither are left out.
    """

    name: str
    column: str
    train: tuple[int | str, ...]
    test: tuple[int | str, ...] = ()

    def indices(self, columns: Mapping[str, npt.NDArray[Any]]) -> tuple[Indices, Indices]:
        """Indices of the training and of the test clips.

        >>> rule = Split("xsub", "subject", train=(1, 3))
        >>> [part.tolist() for part in rule.indices({"subject": np.array([1, 2, 3, 4])})]
        [[0, 2], [1, 3]]
        """
        if self.column not in columns:
            raise InputError(
                f"split '{self.name}' goes by '{self.column}', which this store does not have; "
                f"it has: {', '.join(columns)}"
            )
        values = columns[self.column]
        in_train = np.isin(values, np.array(self.train))
        in_test = np.isin(values, np.array(self.test)) if self.test else ~in_train
        if (in_train & in_test).any():
            clip = int(np.argmax(in_train & in_test))
            raise InputError(f"split '{self.name}': clip {clip} is in the training and in the test part")
        for part, chosen in (("training", in_train), ("test", in_test)):
            if not chosen.any():
                raise InputError(f"split '{self.name}' leaves no {part} clip in this store; choose another split")
        return np.flatnonzero(in_train), np.flatnonzero(in_test)

    @property
    def hash(self) -> str:
        """Short fingerprint of the rule, recorded with every result."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {"column": self.column, "train": list(self.train), "test": list(self.test)}

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> Split:
        return cls(name, data["column"], tuple(data["train"]), tuple(data.get("test", ())))
