"""Checked fields of a request: numbers, text and lists, or an error in one sentence."""

from __future__ import annotations

from typing import Any

from halp.core.errors import InputError
from halp.explorer.ledger import NO_GROUND, Ground


def checked(value: Any, limit: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise InputError(f"there is no {what} {str(value)[:20]}; there are {limit}")
    return value


def whole(given: dict[str, Any], name: str, limit: int) -> int:
    value = given.get(name)
    return checked(
        int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value, limit, name
    )


def identity(given: dict[str, Any], name: str) -> int:
    return whole(given, name, 1 << 53)


def meant_act(given: dict[str, Any]) -> int | None:
    return identity(given, "act") if given.get("act") is not None else None


def ground_of(given: dict[str, Any]) -> Ground:
    """The revision an act is based on; nothing for scripts, which do not look first."""
    if "client" not in given:
        return NO_GROUND
    return Ground(identity(given, "based"), text(given, "client")[:40], identity(given, "number"))


def number(given: dict[str, Any], name: str) -> float:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e12:
        raise InputError(f"'{name}' must be a number")
    return float(value)


def text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise InputError(f"'{name}' must be a text")
    return value


def listed(given: dict[str, Any], name: str, most: int) -> list[Any]:
    value = given.get(name, [])
    if isinstance(value, str):  # of an address: rows=3,5,8
        parts = value.split(",") if value else []
        value = [int(part) if part.isascii() and part.isdigit() else part for part in parts[: most + 1]]
    if not isinstance(value, list) or len(value) > most:
        raise InputError(f"'{name}' must be a list of up to {most}")
    return value


def objects(given: dict[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    found = listed(given, name, most)
    if not all(isinstance(one, dict) for one in found):
        raise InputError(f"'{name}' must be a list of objects")
    return found
