"""Methods: which streams and which loss terms; a recipe composes them by name."""

from halp.methods.model import ContrastiveModel, ContrastSettings
from halp.methods.terms import TERMS, HalpSettings, list_terms

__all__ = ["TERMS", "ContrastSettings", "ContrastiveModel", "HalpSettings", "list_terms"]
