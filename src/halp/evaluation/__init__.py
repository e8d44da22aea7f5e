"""Evaluation: features, protocols and results."""

from halp.evaluation.features import RawCoordinates, embed
from halp.evaluation.protocols import evaluate, list_protocols
from halp.evaluation.results import Result

__all__ = ["RawCoordinates", "Result", "embed", "evaluate", "list_protocols"]
