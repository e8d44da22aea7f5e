"""Methods: what is trained. A recipe names one; momentum contrast is composed of streams and loss terms by name."""

from halp.methods.base import METHODS, BuildContext, Method, StepContext, StepOutput, list_methods, register_method
from halp.methods.masked import MaskedSettings
from halp.methods.moco import ContrastSettings, MocoMethod
from halp.methods.terms import TERMS, StreamBatch, check_terms, list_terms, register_term
from halp.methods.terms.cmd import CmdSettings
from halp.methods.terms.crossclr import MiningSettings
from halp.methods.terms.halp import HalpSettings

__all__ = [
    "METHODS",
    "TERMS",
    "BuildContext",
    "CmdSettings",
    "ContrastSettings",
    "HalpSettings",
    "MaskedSettings",
    "Method",
    "MiningSettings",
    "MocoMethod",
    "StepContext",
    "StepOutput",
    "StreamBatch",
    "check_terms",
    "list_methods",
    "list_terms",
    "register_method",
    "register_term",
]
