"""What the service takes and gives, as types; requests are checked by them, and the OpenAPI document is made
from them.
"""

from __future__ import annotations

import types
from dataclasses import MISSING, dataclass, fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from halp._version import __version__
from halp.core.errors import InputError

Points = list[Any]  # nested lists of numbers


@dataclass(frozen=True)
class PredictRequest:
    """A clip to classify."""

    points: Points
    """Key points (frames, joints, coordinates) or (frames, persons, joints, coordinates); null where
    missing.
    """
    topology: str | None = None
    """Joint layout by name, such as kinect-v2 (default: that of the encoder)."""
    model: str | None = None
    """Name of a model of this service (default: the first one)."""


@dataclass(frozen=True)
class PredictAnswer:
    """The class of a clip."""

    label: str | None
    """The class; null where it is rejected, and where nobody is seen."""
    probability: float | None
    """Of the most probable class."""
    best: str | None
    """The most probable class; null where nobody is seen."""
    rejected: bool | None
    """Whether the clip is unlike everything labelled; null where the model cannot tell."""


@dataclass(frozen=True)
class EmbedRequest(PredictRequest):
    """A clip to turn into a vector."""

    compact: bool = True
    """The few numbers that search uses, where the encoder has them."""


@dataclass(frozen=True)
class EmbedAnswer:
    """The vector of a clip; all zeros where nobody is seen."""

    vector: list[float]
    encoder: str
    """Name of the encoder."""
    sha256: str
    """Of its weights: vectors of different encoders do not mix."""


@dataclass(frozen=True)
class SearchRequest(PredictRequest):
    """A clip to find similar ones for."""

    k: int = 10
    """How many."""


@dataclass(frozen=True)
class Hit:
    """A clip or window of the collection."""

    name: str
    similarity: float
    start: float
    end: float


@dataclass(frozen=True)
class SearchAnswer:
    """The nearest clips or windows of the collection, nearest first."""

    hits: list[Hit]


@dataclass(frozen=True)
class ModelFacts:
    """A model of the service."""

    name: str
    classes: list[str]
    encoder: str
    sha256: str
    topology: str
    can_reject: bool


@dataclass(frozen=True)
class Health:
    """That the service is there, and what it serves."""

    status: str
    halp: str
    models: list[ModelFacts]


@dataclass(frozen=True)
class Problem:
    """Why a request was refused."""

    error: str


def parse(kind: type[Any], data: Any) -> Any:
    """A request of a type from JSON; an error names the field."""
    if not isinstance(data, dict):
        raise InputError("the body must be a JSON object")
    hints = get_type_hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise InputError(f"unknown field '{unknown[0][:80]}'; there are {', '.join(hints)}")
    values = {}
    for field in fields(kind):
        if field.name not in data:
            if field.default is MISSING:
                raise InputError(f"the field '{field.name}' is missing")
            continue
        value = data[field.name]
        if not _fits(value, hints[field.name]):
            raise InputError(f"the field '{field.name}' is not {_said(hints[field.name])}")
        values[field.name] = value
    return kind(**values)


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    for option in _options(hint):
        plain = get_origin(option) or option
        if plain is float:
            plain = (int, float)
        if isinstance(value, plain) and not (isinstance(value, bool) and option is not bool):
            return True
    return False


_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", type(None): "null"}


def _said(hint: Any) -> str:
    return " or ".join(_NAMES.get(get_origin(option) or option, "object") for option in _options(hint))


def json_schema(hint: Any) -> dict[str, Any]:
    """The JSON schema of a type."""
    options = _options(hint)
    if len(options) > 1:
        return {"anyOf": [json_schema(option) for option in options]}
    if hasattr(hint, "__dataclass_fields__"):
        return {"$ref": f"#/components/schemas/{hint.__name__}"}
    if get_origin(hint) is list:
        (inner,) = get_args(hint)
        return {"type": "array", "items": {} if inner is Any else json_schema(inner)}
    return {"type": _NAMES[hint]}


def _component(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties = {}
    for field in fields(kind):
        schema = json_schema(hints[field.name])
        if field.default is not MISSING:
            schema = {**schema, "default": field.default}
        properties[field.name] = schema
    required = [field.name for field in fields(kind) if field.default is MISSING]
    text = (kind.__doc__ or "").strip()
    whole = {"type": "object", "description": text, "properties": properties, "required": required}
    return {**whole, "additionalProperties": False}


#: Path → what it takes, what it gives and what it does.
OPERATIONS: dict[str, tuple[type[Any] | None, type[Any], str]] = {
    "/predict": (PredictRequest, PredictAnswer, "The class of a clip"),
    "/embed": (EmbedRequest, EmbedAnswer, "The vector of a clip"),
    "/search": (SearchRequest, SearchAnswer, "Similar clips of the collection"),
    "/health": (None, Health, "Whether the service is there"),
}
REFUSALS = {
    400: "The request is not valid",
    401: "An API key is missing or wrong",
    408: "The client took too long to send its request",
    413: "The request is too large",
    415: "The body is not application/json",
    503: "The service is busy or shutting down; try again later",
    504: "The answer took too long",
}


def openapi(keys: bool) -> dict[str, Any]:
    """The OpenAPI document; `keys` says whether requests need an API key."""
    paths: dict[str, Any] = {}
    for path, (takes, gives, text) in OPERATIONS.items():
        refused = {
            str(code): _response(why, Problem) for code, why in REFUSALS.items() if takes or code in (503,)
        }
        operation: dict[str, Any] = {"summary": text, "operationId": path[1:]}
        operation["responses"] = {"200": _response(text, gives), **refused}
        if takes is not None:
            body = {"application/json": {"schema": json_schema(takes)}}
            operation["requestBody"] = {"required": True, "content": body}
        else:
            operation["security"] = []
        paths[path] = {"get" if takes is None else "post": operation}
    kinds = {kind for takes, gives, _ in OPERATIONS.values() for kind in (takes, gives) if kind} | {
        Hit,
        ModelFacts,
        Problem,
    }
    schemas = {kind.__name__: _component(kind) for kind in sorted(kinds, key=lambda kind: kind.__name__)}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "halp",
            "version": __version__,
            "description": "Classes, vectors and search of human movements.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _response(text: str, kind: type[Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": json_schema(kind)}}}
