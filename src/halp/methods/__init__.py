"""Methods: which streams and which loss terms; a recipe composes them by name."""

from halp.methods.cmd import CmdSettings
from halp.methods.mining import MiningSettings
from halp.methods.model import ContrastiveModel, ContrastSettings
from halp.methods.registry import TERMS, check_terms, list_terms, register_term
from halp.methods.terms import HalpSettings

__all__ = [
    "TERMS",
    "CmdSettings",
    "ContrastSettings",
    "ContrastiveModel",
    "HalpSettings",
    "MiningSettings",
    "check_terms",
    "list_terms",
    "register_term",
]
