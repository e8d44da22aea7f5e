"""Checking JSON data against a schema: the part of JSON Schema that the schemas of halp use, and no more."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_KNOWN = {
    *("$schema", "title", "type", "const", "required", "properties", "additionalProperties"),
    *("items", "minItems", "minLength", "minimum", "maximum"),
}


@cache
def load_schema(name: str, package: str = "halp.evaluation") -> dict[str, Any]:
    """A schema that comes with halp, such as `result`."""
    file = importlib.resources.files(package) / f"{name}.schema.json"
    return json.loads(file.read_text(encoding="utf-8"))


def violation(data: Any, schema: Mapping[str, Any], where: str = "it") -> str | None:
    """The first thing in which the data differs from the schema, in words; None where it fits.

    >>> violation({"a": "x"}, {"type": "object", "properties": {"a": {"type": "integer"}}})
    'it.a is of type str, not integer'
    >>> violation([1], {"type": "array", "items": {"minimum": 0}}) is None
    True
    """
    unknown = set(schema) - _KNOWN
    if unknown:
        raise ValueError(f"the schema uses {sorted(unknown)}, which halp does not check")
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](data) for kind in kinds):
        return f"{where} is of type {type(data).__name__}, not {' or '.join(kinds)}"
    if "const" in schema and data != schema["const"]:
        return f"{where} is {data!r}, not {schema['const']!r}"
    if isinstance(data, dict):
        return _in_object(data, schema, where)
    if isinstance(data, list):
        return _in_array(data, schema, where)
    if isinstance(data, str) and len(data) < schema.get("minLength", 0):
        return f"{where} is too short"
    if _TYPES["number"](data):
        # NaN is smaller and larger than nothing, so the bounds are asked the other way round
        if "minimum" in schema and not data >= schema["minimum"]:
            return f"{where} = {data} is below {schema['minimum']}"
        if "maximum" in schema and not data <= schema["maximum"]:
            return f"{where} = {data} is above {schema['maximum']}"
    return None


def _in_object(data: dict[str, Any], schema: Mapping[str, Any], where: str) -> str | None:
    for key in schema.get("required", ()):
        if key not in data:
            return f"{where} lacks '{key}'"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key, value in data.items():
        rule = properties.get(key, others)
        if rule is False:
            return f"{where} has '{key}', which is not known"
        if isinstance(rule, Mapping) and (found := violation(value, rule, f"{where}.{key}")):
            return found
    return None


def _in_array(data: list[Any], schema: Mapping[str, Any], where: str) -> str | None:
    if len(data) < schema.get("minItems", 0):
        return f"{where} has {len(data)} entries, fewer than {schema['minItems']}"
    if "items" in schema:
        for index, value in enumerate(data):
            if found := violation(value, schema["items"], f"{where}[{index}]"):
                return found
    return None
