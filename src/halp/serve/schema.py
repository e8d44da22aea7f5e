"""Requests and answers of the service as types, which validate requests and generate the OpenAPI document."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from halp._version import __version__
from halp.core.errors import InputError
from halp.serve.points import MOST_FRAMES
from halp.skeleton import Topology, get_topology, joint_recipes, list_topologies
from halp.tasks.live import LARGEST_COORDINATE, MOST_PERSONS

Points = list[Any]  # nested lists of numbers


@dataclass(frozen=True)
class PredictRequest:
    """A clip to classify."""

    points: Points
    """Key points (frames, joints, coordinates) or (frames, persons, joints, coordinates); null for a
    coordinate, joint, person or frame that is missing. The number of persons may vary.
    """
    topology: str | None = None
    """Joint layout by name, such as kinect-v2 (default: that of the encoder)."""
    model: str | None = None
    """Name of a model of this service (default: the first one)."""


@dataclass(frozen=True)
class PredictAnswer:
    """The class of a clip."""

    label: str | None
    """The class; null if it is rejected or nobody is seen."""
    probability: float | None
    """Of the most probable class."""
    best: str | None
    """The most probable class; null if nobody is seen."""
    rejected: bool | None
    """Whether the clip is unlike everything labelled; null if the model cannot tell or nobody is seen."""


@dataclass(frozen=True)
class EmbedRequest(PredictRequest):
    """A clip to turn into a vector."""

    compact: bool = True
    """The few numbers that search uses, if the encoder has them."""


@dataclass(frozen=True)
class EmbedAnswer:
    """The vector of a clip; all zeros if nobody is seen."""

    vector: list[float]
    encoder: str
    """Name of the encoder."""
    sha256: str
    """Of its weights: vectors of different encoders do not mix."""


@dataclass(frozen=True)
class SearchRequest(PredictRequest):
    """A clip to find similar ones for."""

    k: int = field(default=10, metadata={"minimum": 1, "maximum": 1000})
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
    """The state of the service and its models."""

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
    for one in fields(kind):
        if one.name not in data:
            if one.default is MISSING:
                raise InputError(f"the field '{one.name}' is missing")
            continue
        value = data[one.name]
        if hints[one.name] is int and isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON knows one kind of number
        if not _fits(value, hints[one.name]):
            raise InputError(f"the field '{one.name}' is not {_said(hints[one.name])}")
        values[one.name] = value
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
    for one in fields(kind):
        schema = {**json_schema(hints[one.name]), **one.metadata}
        if one.default is not MISSING:
            schema = {**schema, "default": one.default}
        properties[one.name] = schema
    required = [one.name for one in fields(kind) if one.default is MISSING]
    text = (kind.__doc__ or "").strip()
    whole = {"type": "object", "description": text, "properties": properties, "required": required}
    return {**whole, "additionalProperties": False}


def request_component(kind: type[Any], models: Mapping[str, Topology]) -> dict[str, Any]:
    """Schema of requests: layouts by model and number of joints, and points of that size.

    A model or layout that is not given is the first model, and the layout of its encoder.
    """
    plain = _component(kind)
    variants = []
    for place, (model, own) in enumerate(models.items()):
        for size, names in layouts(own).items():
            required = ["points", *(["model"] if place else []), *([] if None in names else ["topology"])]
            chosen = {"enum": [model] if place else [model, None]}
            properties = {"points": {"$ref": f"#/components/schemas/{_points_name(size)}"}, "model": chosen}
            properties = {**plain["properties"], **properties, "topology": {"enum": names}}
            variants.append({**plain, "properties": properties, "required": required})
    return {"description": plain["description"], "anyOf": variants}


def layouts(own: Topology) -> dict[tuple[int, int], list[str | None]]:
    """Joints and coordinates → layouts that a model of this one accepts; None is its own."""
    sizes: dict[tuple[int, int], list[str | None]] = {(len(own), own.dimensions): [None]}
    for name in list_topologies():
        layout = get_topology(name)
        if layout.dimensions == own.dimensions and _maps(layout, own):
            sizes.setdefault((len(layout), layout.dimensions), []).append(name)
    return sizes


def _maps(source: Topology, target: Topology) -> bool:
    try:
        joint_recipes(source, target)
    except InputError:
        return False
    return True


def _points_name(size: tuple[int, int]) -> str:
    return "Points{}x{}".format(*size)


def _points_component(size: tuple[int, int]) -> dict[str, Any]:
    """The schema of frames: nested lists of a number of joints and coordinates, null where missing."""

    def several(items: Any, least: int, most: int) -> dict[str, Any]:
        return {"type": "array", "items": items, "minItems": least, "maxItems": most}

    def optional(schema: dict[str, Any]) -> dict[str, Any]:
        return {"anyOf": [schema, {"type": "null"}]}

    number = {"type": ["number", "null"], "minimum": -LARGEST_COORDINATE, "maximum": LARGEST_COORDINATE}
    person = several(optional(several(number, size[1], size[1])), size[0], size[0])
    frame = {"anyOf": [person, several(optional(person), 0, MOST_PERSONS), {"type": "null"}]}
    return several(frame, 1, MOST_FRAMES)


#: Path → what it takes, what it gives and what it does.
OPERATIONS: dict[str, tuple[type[Any] | None, type[Any], str]] = {
    "/predict": (PredictRequest, PredictAnswer, "The class of a clip"),
    "/embed": (EmbedRequest, EmbedAnswer, "The vector of a clip"),
    "/search": (SearchRequest, SearchAnswer, "Similar clips of the collection"),
    "/health": (None, Health, "Whether the service is up"),
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


def openapi(keys: bool, models: Mapping[str, Topology], searches: bool) -> dict[str, Any]:
    """The OpenAPI document of a service.

    Parameters
    ----------
    keys : bool
        Whether requests need an API key.
    models : mapping of str to Topology
        Joint layout of every model's encoder; the first one answers requests that name none.
    searches : bool
        Whether there is a collection to search.
    """
    described = {path: facts for path, facts in OPERATIONS.items() if searches or path != "/search"}
    kinds = {kind for takes, gives, _ in described.values() for kind in (takes, gives) if kind}
    kinds |= {ModelFacts, Problem} | ({Hit} if searches else set())
    first = dict(list(models.items())[:1])  # the collection is searched with the vectors of the first model
    schemas: dict[str, Any] = {}
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        asked = issubclass(kind, PredictRequest)
        served = first if kind is SearchRequest else models
        schemas[kind.__name__] = request_component(kind, served) if asked else _component(kind)
    sizes = sorted({size for own in models.values() for size in layouts(own)})
    schemas |= {_points_name(size): _points_component(size) for size in sizes}
    info = {
        "title": "halp",
        "version": __version__,
        "description": "Classes, vectors and search of movements.",
    }
    document: dict[str, Any] = {"openapi": "3.1.0", "info": info, "components": {"schemas": schemas}}
    document["paths"] = {path: _operation(path, *facts) for path, facts in described.items()}
    if keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _operation(path: str, takes: type[Any] | None, gives: type[Any], text: str) -> dict[str, Any]:
    refused = {str(code): _response(why, Problem) for code, why in REFUSALS.items() if takes or code == 503}
    operation: dict[str, Any] = {"summary": text, "operationId": path[1:]}
    operation["responses"] = {"200": _response(text, gives), **refused}
    if takes is None:
        return {"get": {**operation, "security": []}}
    body = {"application/json": {"schema": json_schema(takes)}}
    return {"post": {**operation, "requestBody": {"required": True, "content": body}}}


def _response(text: str, kind: type[Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": json_schema(kind)}}}
