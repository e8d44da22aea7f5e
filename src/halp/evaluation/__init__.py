"""Evaluation: features, protocols and results.

`protocols/` · `protocol.py` their registry, what a protocol gets and gives ·
`evaluate_encoder.py` one encoder by one protocol, and test clips that were trained on · `evaluate_run.py` a
run beside its baselines, and results on disk · `results.py`. Features come from `halp.features`.
"""

import halp.evaluation.protocols  # noqa: F401  (fills the registry)
from halp.encoders.pretrained import RawCoordinates
from halp.evaluation.evaluate_encoder import evaluate
from halp.evaluation.protocol import Predictions, ProtocolContext, list_protocols, register_protocol
from halp.evaluation.results import Result
from halp.features.embed import embed

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
