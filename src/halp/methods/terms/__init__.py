"""Loss terms of momentum contrast, one file per system."""

from halp.methods.terms import cmd, crossclr, halp, infonce, isc  # noqa: F401  (they register their terms)
from halp.methods.terms.base import TERMS, StreamBatch, Term, check_terms, list_terms, register_term

__all__ = ["TERMS", "StreamBatch", "Term", "check_terms", "list_terms", "register_term"]
