"""The loss terms by name: how each is built, the section of a recipe with its settings, and what it needs to work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from halp.errors import InputError, choose
from halp.methods.cmd import CmdSettings, CmdTerm
from halp.methods.cross import CrossTerm
from halp.methods.mining import MiningSettings, MiningTerm
from halp.methods.terms import HalpSettings, HalpTerm, InfoNCETerm


class Kind(NamedTuple):
    """A kind of term: `build(settings, streams, temperature)` makes it, `check(settings, streams, queue)` may refuse.

    `settings` is the dataclass of its section in a recipe, which has the term's name; None for a term without any.
    """

    build: Callable[[Any, Sequence[str], float], nn.Module]
    settings: type | None = None
    check: Callable[[Any, Sequence[str], int], None] | None = None


TERMS: dict[str, Kind] = {}


def register_term(name: str, kind: Kind) -> None:
    """Make a term known by name; a recipe names it in `terms` and may set it up in the section of that name."""
    TERMS[name] = kind


def list_terms() -> list[str]:
    """Names of the loss terms a recipe can combine.

    >>> list_terms()
    ['cmd', 'cross', 'halp', 'infonce', 'mining']
    """
    return sorted(TERMS)


def check_terms(terms: Sequence[str], sections: Mapping[str, Any], streams: Sequence[str], queue: int) -> None:
    """Refuse terms that cannot work with these streams and this size of the queue, in one sentence."""
    for name in terms:
        kind = TERMS[choose("term", name, TERMS)]
        if kind.check is not None:
            kind.check(settings_of(name, sections), streams, queue)
    if {"infonce", "mining"} <= set(terms):
        raise InputError(
            "terms: 'mining' begins as InfoNCE and then takes its place; leave 'infonce' out, or it would count twice"
        )


def build_terms(
    terms: Sequence[str], sections: Mapping[str, Any], streams: Sequence[str], queue: int, temperature: float
) -> dict[str, nn.Module]:
    """The terms of a method; `sections` holds the settings of some, the others take their defaults."""
    check_terms(terms, sections, streams, queue)
    return {name: TERMS[name].build(settings_of(name, sections), streams, temperature) for name in terms}


def settings_of(name: str, sections: Mapping[str, Any]) -> Any:
    """The settings of a term: those given, else its defaults, else None."""
    given = sections.get(name)
    kind = TERMS[name].settings
    return kind() if given is None and kind is not None else given


def _several(name: str, streams: Sequence[str], why: str) -> None:
    if len(streams) < 2:
        raise InputError(
            f"terms: '{name}' {why}, and streams = {list(streams)} is one alone; name at least two, for example "
            'streams = ["joint", "motion", "bone"]'
        )


def _remembered(name: str, needed: int, setting: str, queue: int) -> None:
    if queue < needed:
        raise InputError(
            f"terms: '{name}' needs {needed} keys ({setting}) and contrast.queue = {queue} holds fewer; raise contrast.queue"
        )


def _check_halp(settings: HalpSettings, streams: Sequence[str], queue: int) -> None:
    if settings.source == "queue" and settings.recent > queue:
        raise InputError(
            f"halp.recent = {settings.recent} is more than contrast.queue = {queue}: prototypes come from "
            "the newest keys of the queue; lower recent, raise queue, or set halp.source to 'batch' or 'keys'"
        )
    if settings.guide == "cross":
        _several("halp", streams, "with guide = 'cross' takes the clusters of another stream")


def _check_cmd(settings: CmdSettings, streams: Sequence[str], queue: int) -> None:
    _several("cmd", streams, "distils between streams")
    _remembered("cmd", 2, "a distribution over past clips", queue)


def _check_mining(settings: MiningSettings, streams: Sequence[str], queue: int) -> None:
    _several("mining", streams, "takes positives from another stream")
    _remembered("mining", settings.top, f"mining.top = {settings.top}", queue)


def _check_cross(settings: None, streams: Sequence[str], queue: int) -> None:
    if len(streams) < 2:
        raise InputError(
            f"terms: 'cross' contrasts representations, and streams = {list(streams)} is one alone; name at least two, "
            'for example streams = ["joint", "joint@stgcn"]'
        )


register_term("infonce", Kind(lambda settings, streams, temperature: InfoNCETerm(temperature)))
register_term("halp", Kind(HalpTerm, HalpSettings, _check_halp))
register_term("cmd", Kind(lambda settings, streams, temperature: CmdTerm(settings, streams), CmdSettings, _check_cmd))
register_term("mining", Kind(MiningTerm, MiningSettings, _check_mining))
register_term("cross", Kind(lambda settings, streams, temperature: CrossTerm(temperature), None, _check_cross))
