"""Every choice of GraphCL and of HaLP on top of it, with the public code's reading as the default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from halp.config import build_settings, parse_assignment
from halp.errors import InputError, choose
from halp.graphs.data import SELF_LOOPS
from halp.hallucinate import HallucinatedPositives

AUGMENTATION_SETS = {
    "nodes": ("nodes",),
    "subgraph": ("subgraph",),
    "edges": ("edges",),
    "attributes": ("attributes",),
    "random2": ("nodes", "subgraph"),
    "random3": ("nodes", "subgraph", "edges"),
    "random4": ("nodes", "subgraph", "edges", "attributes"),
}
READINGS = ("public", "intended")
ISOLATED = ("leave", "stay")
FIRST_VIEWS = ("clean", "augmented")
ORDERS = ("once", "epoch")
QUERIES = ("clean", "augmented", "both")
SVMS = ("plain", "scaled")


@dataclass(frozen=True)
class AugmentSettings:
    """How a graph is augmented: one augmentation per graph and step, drawn uniformly from the set."""

    set: str = "random2"
    reading: str = "public"  # of subgraph and edges: what the public code does, or what GraphCL's paper describes
    self_loops: str = "public"  # of all graphs, before anything else
    view_self_loops: bool = False  # whether the augmented view keeps them
    isolated: str = "leave"  # what nodes do that have no edge left in the augmented view; self-loops count as edges

    def __post_init__(self) -> None:
        choose("augmentation set", self.set, AUGMENTATION_SETS)
        choose("reading", self.reading, READINGS)
        choose("self-loop rule", self.self_loops, SELF_LOOPS)
        choose("rule for isolated nodes", self.isolated, ISOLATED)


@dataclass(frozen=True)
class HalpGraphSettings:
    """Hallucinated positives without a momentum queue. The paper names no settings for graphs; these are ours."""

    weight: float = 1.0  # μ
    start_epoch: int = 8  # of 20, as 200 of 450 in the paper; μ is 0 before
    source: str = "batch"  # prototypes: cluster the batch's keys, take the keys themselves, or a `queue` of past keys
    prototypes: int = 10
    recent: int = 256  # length of that queue
    refresh: int = 5  # steps between two clusterings of the queue
    count: int = 100  # positives per key
    hardness: float = 0.8  # λ
    temperature: float = 0.2
    query: str = "clean"  # which view is pulled towards positives of the other one
    step: str = "paper"
    filter: str = "rank"

    def __post_init__(self) -> None:
        choose("query", self.query, QUERIES)
        if self.weight < 0 or self.start_epoch < 0:
            raise InputError(f"halp: weight = {self.weight} and start_epoch = {self.start_epoch} cannot be negative")
        self.term()

    def term(self) -> HallucinatedPositives:
        """The loss term; building it checks the settings."""
        names = ("prototypes", "count", "hardness", "refresh", "recent", "temperature", "step", "filter", "source")
        try:
            return HallucinatedPositives(**{name: getattr(self, name) for name in names})
        except InputError as error:
            raise InputError(f"halp: {error}") from None


@dataclass(frozen=True)
class GraphSettings:
    """GraphCL's unsupervised training and evaluation on TU sets."""

    width: int = 32
    layers: int = 3
    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 0.01
    temperature: float = 0.2
    include_positive: bool = False  # in the denominator of the loss
    first_view: str = "clean"  # the paper of GraphCL augments both views
    order: str = "once"  # graphs are shuffled once, or anew in every epoch
    svm: str = "plain"  # `scaled` standardises features, which the published protocol does not
    folds: int = 10
    inner_folds: int = 5
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    halp: HalpGraphSettings = field(default_factory=HalpGraphSettings)

    def __post_init__(self) -> None:
        choose("first view", self.first_view, FIRST_VIEWS)
        choose("order", self.order, ORDERS)
        choose("svm", self.svm, SVMS)
        for name in ("width", "layers", "epochs", "learning_rate", "temperature"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} = {getattr(self, name)} has to be positive")
        for name in ("batch_size", "folds", "inner_folds"):
            if getattr(self, name) < 2:
                raise InputError(f"{name} = {getattr(self, name)} has to be at least 2")

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values."""
        return asdict(self)


def override(settings: GraphSettings, texts: Sequence[str]) -> GraphSettings:
    """Settings with some replaced, each as `key=value` or `section.key=value`.

    >>> override(GraphSettings(), ["epochs=3", "halp.source=keys"]).halp.source
    'keys'
    """
    values: dict[str, Any] = settings.as_dict()
    for text in texts:
        key, value = parse_assignment(text, "halp.start_epoch=0")
        *sections, name = key.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise InputError(f"--set {key}: '{section}' is not a section")
        place[name] = value
    return build_settings(GraphSettings, values)
