"""Evaluation: features, protocols and results."""

import halp.evaluation.protocols  # noqa: F401  (fills the registry)
from halp.evaluation.evaluator import evaluate
from halp.evaluation.features import RawCoordinates, embed
from halp.evaluation.results import Result
from halp.evaluation.task import list_protocols, register_protocol

__all__ = ["RawCoordinates", "Result", "embed", "evaluate", "list_protocols", "register_protocol"]
