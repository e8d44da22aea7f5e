"""Settings of protocols: checked against their dataclass, and read from what people type, `protocol.key=value`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from halp.errors import InputError, choose
from halp.evaluation.protocol import get_protocol, list_protocols


def protocol_settings(name: str, given: dict[str, Any]) -> Any:
    """Checked settings of a protocol; unknown names and values of the wrong kind are refused."""
    kind = get_protocol(name).settings
    defaults = {entry.name: getattr(kind(), entry.name) for entry in fields(kind)}
    checked = {}
    for key, value in given.items():
        default = defaults[choose(f"setting of protocol '{name}'", key, defaults)]
        if isinstance(value, list):
            value = tuple(value)
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if default is not None and value is not None and type(value) is not type(default):
            raise InputError(f"protocol '{name}': {key} = {value!r} has to be like its default, {default!r}")
        checked[key] = value
    return kind(**checked)


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
        key, equals, value = text.partition("=")
        protocol, dot, name = key.strip().partition(".")
        if not equals or not dot:
            raise InputError(f"--set takes protocol.key=value, for example knn.k=5, not '{text}'")
        settings.setdefault(choose("protocol", protocol, list_protocols()), {})[name] = parse_value(value)
    for protocol, chosen in settings.items():
        protocol_settings(protocol, chosen)
    return settings


def parse_value(text: str) -> Any:
    """A number, truth value, list or text as TOML writes it; a bare word is a text."""
    try:
        return tomlkit.parse(f"x = {text}").unwrap()["x"]
    except TOMLKitError:
        return text.strip()
