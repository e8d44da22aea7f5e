"""Settings of protocols as people type them: `protocol.key=value`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from halp.errors import InputError, choose
from halp.evaluation.task import list_protocols, protocol_settings


def parse_options(texts: Iterable[str], protocols: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Settings by protocol; what is unknown is refused before anything is computed.

    >>> import halp.evaluation
    >>> parse_options(["knn.k=5", "linear.head=mlp"])
    {'knn': {'k': 5}, 'linear': {'head': 'mlp'}}
    """
    for protocol in protocols:
        choose("protocol", protocol, list_protocols())
    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        protocol, dot, name = key.strip().partition(".")
        if not equals or not dot:
            raise InputError(f"--set takes protocol.key=value, for example knn.k=5, not '{text}'")
        options.setdefault(choose("protocol", protocol, list_protocols()), {})[name] = parse_value(value)
    for protocol, settings in options.items():
        protocol_settings(protocol, settings)
    return options


def parse_value(text: str) -> Any:
    """A number, truth value, list or text as TOML writes it; a bare word is a text."""
    try:
        return tomlkit.parse(f"x = {text}").unwrap()["x"]
    except TOMLKitError:
        return text.strip()
