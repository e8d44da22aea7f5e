"""Evaluation: features, protocols and results.

`protocols/` one file per protocol · `protocol.py` their registry · `context.py` what a protocol gets and gives ·
`evaluate_encoder.py` one encoder by one protocol · `evaluate_run.py` a run beside its baselines · `overlap.py` test clips that
were trained on · `features.py` and `feature_cache.py` · `results.py` and `result_store.py`.
"""

import halp.evaluation.protocols  # noqa: F401  (fills the registry)
from halp.evaluation.context import Predictions, ProtocolContext
from halp.evaluation.evaluate_encoder import evaluate
from halp.evaluation.features import RawCoordinates, embed
from halp.evaluation.protocol import list_protocols, register_protocol
from halp.evaluation.results import Result

__all__ = [
    "Predictions",
    "ProtocolContext",
    "RawCoordinates",
    "Result",
    "embed",
    "evaluate",
    "list_protocols",
    "register_protocol",
]
