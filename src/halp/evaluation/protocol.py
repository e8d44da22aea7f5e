"""The registry of protocols: what a protocol is called, takes and does, and what tables have to know about it.

A protocol is a dataclass of settings and a function `(context, settings) → predictions`:

    @register_protocol("centroid", CentroidSettings)
    def centroid(context, settings):
        train, test = context.features[context.train], context.features[context.test]
        ...
        return predicted  # the class of every test clip (N,), or Predictions with further metrics
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from halp.evaluation.context import Labels, Predictions, ProtocolContext
from halp.registry import Registry

ProtocolFunction = Callable[[ProtocolContext, Any], Predictions | Labels]


@dataclass(frozen=True)
class Protocol:
    """A registered protocol. `title` names a column of a table by the settings, and is the protocol's name by default."""

    name: str
    settings: type[Any]
    function: ProtocolFunction
    trains_backbone: Callable[[Any], bool]  # with these settings; raw coordinates have nothing to train
    fuses_encoders: bool  # takes several encoders at once
    title: Callable[[Any], str]
    baseline_settings: Mapping[str, Any] = field(default_factory=dict)  # override the settings for raw coordinates
    draws_labels: bool = False  # the seed draws which labels are used, so that one value is a mean over several

    def run(self, context: ProtocolContext, settings: Any) -> Predictions:
        """Carry the protocol out; a plain array of predicted classes is taken as predictions without metrics."""
        found = self.function(context, settings)
        return found if isinstance(found, Predictions) else Predictions(found)


PROTOCOLS: Registry[Callable[..., Any]] = Registry("protocol")


def register_protocol(
    name: str,
    settings: type[Any] | None = None,
    *,
    trains_backbone: bool | Callable[[Any], bool] = False,
    fuses_encoders: bool = False,
    title: Callable[[Any], str] | None = None,
    baseline_settings: Mapping[str, Any] | None = None,
    draws_labels: bool = False,
) -> Callable[[Any], Any]:
    """Make a protocol known by name; `settings` is a dataclass whose defaults are the published ones."""
    trains = trains_backbone if callable(trains_backbone) else lambda _: bool(trains_backbone)
    return PROTOCOLS.register(
        name,
        settings,
        trains_backbone=trains,
        fuses_encoders=fuses_encoders,
        title=title or (lambda _: name),
        baseline_settings=dict(baseline_settings or {}),
        draws_labels=draws_labels,
    )


def list_protocols() -> list[str]:
    """Names of all protocols."""
    return list(PROTOCOLS)


def get_protocol(name: str) -> Protocol:
    """A protocol by its name."""
    entry = PROTOCOLS[name]
    return Protocol(name, entry.settings, entry.build, **entry.facts)
