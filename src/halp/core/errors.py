"""Exceptions that become one sentence and an exit code; `InputError` is a user's mistake."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence

from halp._version import DISTRIBUTION


class InputError(ValueError):
    """A file, setting or argument is wrong. The message says what, where and the remedy.

    >>> issubclass(InputError, ValueError)
    True
    """

    exit_code = 2


def missing_extra(need: str, extra: str) -> InputError:
    """The error for a package that is not installed.

    >>> str(missing_extra("videos need PyAV", "video"))
    "videos need PyAV; install it with `pip install 'halp-motion[video]'`"
    """
    return InputError(f"{need}; install it with `pip install '{DISTRIBUTION}[{extra}]'`")


class Interrupted(Exception):
    """Stopped by a signal; everything is saved."""

    exit_code = 3


class Diverged(Exception):
    """The loss is no longer finite."""

    exit_code = 1


class LostProcess(Exception):
    """Another process of the job was lost; the last save is complete."""

    exit_code = 1


def check_seconds(**values: float | None) -> None:
    """Raise unless every value is a finite number from zero on; None is as if it were not given.

    >>> check_seconds(gap=0.5, stop=None)
    >>> check_seconds(gap=float("nan"))
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: gap = nan s cannot be used; give 0 or more seconds
    """
    for name, value in values.items():
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"{name} = {value:g} s cannot be used; give 0 or more seconds")


def check_choice(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is one of `known`; otherwise raise with the nearest spelling and the whole list.

    >>> check_choice("filter", "rank", ["rank", "none"])
    'rank'
    >>> check_choice("filter", "rnk", ["rank", "none"])
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: unknown filter 'rnk': did you mean 'rank'? Known: none, rank.
    """
    names = sorted(known)
    if name in names:
        return name
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f": did you mean '{near[0]}'? " if near else ". "
    raise InputError(f"unknown {kind} '{name}'{hint}Known: {', '.join(names)}.")


def names_of(known: Sequence[str], most: int = 12) -> str:
    """A short list of names for messages."""
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")
