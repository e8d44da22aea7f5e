"""Labels of a source for a classifier: rows, classes, and units of cross-validation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.features.source import Source
from halp.tasks.classifier import Labels


@dataclass(frozen=True)
class Labelling:
    """Classes of labelled rows, 0 … C − 1; rows of one unit (person or recording) are dependent."""

    labels: Labels
    classes: tuple[str, ...]
    recordings: npt.NDArray[np.int64]
    units: npt.NDArray[np.int64]
    grouped_by: str

    @property
    def counts(self) -> dict[str, int]:
        """How many rows a class has."""
        return {name: int((self.labels == number).sum()) for number, name in enumerate(self.classes)}


def labelled_rows(source: Source) -> Source:
    """The clips of a source that have a label."""
    known = source.labels >= 0
    if not known.any():
        raise InputError(
            "no labelled recording was found; put recordings into a folder for each class, or name the"
            " classes in a table: --labels labels.csv with the columns name and label"
        )
    return source.select(known)


def check_classes(source: Source) -> None:
    """Refuse labels of a single class before anything is computed: its model would call everything by that
    name.
    """
    classes = np.unique(source.labels)
    if len(classes) < 2:
        name = f"'{source.class_names[classes[0]]}'" if len(source.class_names) > classes[0] else "one class"
        raise InputError(
            f"all labels are {name}, and a classifier needs two classes; label some other"
            " movements as well, with a name such as 'other', or find more of this one with `halp search`"
        )


def labelling(source: Source) -> Labelling:
    """Classes and units of labelled rows; classes without a row are left out."""
    names = source.class_names
    there, position = np.unique(source.labels, return_inverse=True)
    if names and there.max() >= len(names):
        raise InputError(f"a recording has class {there.max()}, but there are {len(names)} class names")
    classes = tuple(names[label] if names else str(label) for label in there)
    labels, recordings = position.astype(np.int64), source.rows["recording"]
    return Labelling(
        labels, classes, recordings, *validation_units(labels, source.subjects.tolist(), recordings)
    )


def validation_units(
    labels: Labels, subjects: list[int], recordings: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], str]:
    """Persons where everybody is known and no class has one person only; recordings otherwise."""
    people = np.unique(subjects, return_inverse=True)[1].astype(np.int64)
    known = min(subjects) >= 0 and all(
        len(np.unique(people[labels == label])) > 1 for label in np.unique(labels)
    )
    if known:
        return people, "person"
    return recordings, "recording"
