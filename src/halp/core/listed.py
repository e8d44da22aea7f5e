"""Sequences by a field: for answers that are lists and know more than their entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar, overload

Entry = TypeVar("Entry")


class Listed(Sequence[Entry]):
    """A sequence of the entries in the field `listed`."""

    listed: ClassVar[str] = "people"

    def __len__(self) -> int:
        return len(getattr(self, self.listed))

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | Sequence[Entry]:
        entries: Sequence[Entry] = getattr(self, self.listed)
        return entries[place]
