"""Several encoders evaluated together, such as those of three streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError


class EncoderGroup(nn.Module):
    """Several encoders under one roof, such as those of the joint, motion and bone streams."""

    def __init__(self, members: Mapping[str, PackagedEncoder]) -> None:
        super().__init__()
        if not members:
            raise InputError("an ensemble needs at least one encoder")
        self.members = nn.ModuleDict(dict(members))

    @property
    def stream(self) -> str:
        return "+".join(self.members)

    @property
    def origin(self) -> dict[str, Any]:
        origins: dict[str, Any] = {name: dict(self._member(name).origin) for name in self.members}
        return {"members": origins, "trained": all(one.get("trained", True) for one in origins.values())}

    def _member(self, name: str) -> Any:
        return self.members[name]

    def items(self) -> list[tuple[str, PackagedEncoder]]:
        """Names and encoders in order."""
        return [(name, self._member(name)) for name in self.members]
