"""Methods: what is trained. Momentum contrast is composed of streams and loss terms by name."""

from halp.methods import lift, masked  # noqa: F401  (they register themselves)
from halp.methods.base import METHODS, BuildContext, Method, StepContext, StepOutput, register_method
from halp.methods.core_terms import CmdSettings, CrossClrSettings
from halp.methods.halp import HalpSettings
from halp.methods.moco import ContrastSettings, MocoMethod
from halp.methods.term import TERMS, StreamBatch, check_terms, register_term
from halp.methods.two_views import TwoViewMethod

__all__ = [
    "METHODS",
    "TERMS",
    "BuildContext",
    "CmdSettings",
    "ContrastSettings",
    "CrossClrSettings",
    "HalpSettings",
    "Method",
    "MocoMethod",
    "StepContext",
    "StepOutput",
    "StreamBatch",
    "TwoViewMethod",
    "check_terms",
    "register_method",
    "register_term",
]
