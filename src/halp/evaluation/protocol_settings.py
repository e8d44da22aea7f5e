"""Settings of protocols: checked against their dataclass, and read from what people type, `protocol.key=value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from halp.config import build_settings, parse_assignment
from halp.errors import InputError, choose
from halp.evaluation.protocol import get_protocol, list_protocols


def protocol_settings(name: str, given: Mapping[str, Any]) -> Any:
    """Checked settings of a protocol; unknown names and values of the wrong kind are refused."""
    return build_settings(get_protocol(name).settings, given, f"{name}.")


def parse_protocol_settings(texts: Iterable[str], protocols: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Settings by protocol; what is unknown is refused before anything is computed.

    >>> import halp.evaluation
    >>> parse_protocol_settings(["knn.k=5", "linear.head=mlp"])
    {'knn': {'k': 5}, 'linear': {'head': 'mlp'}}
    """
    for protocol in protocols:
        choose("protocol", protocol, list_protocols())
    settings: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, value = parse_assignment(text, "knn.k=5")
        protocol, dot, name = key.partition(".")
        if not dot:
            raise InputError(f"--set takes protocol.key=value, for example knn.k=5, not '{text}'")
        settings.setdefault(choose("protocol", protocol, list_protocols()), {})[name] = value
    for protocol, chosen in settings.items():
        protocol_settings(protocol, chosen)
    return settings
