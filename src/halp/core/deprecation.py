"""Keywords that were renamed: the former name still works, with a warning that says what to write instead."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def renamed_keywords(**names: str) -> Callable[[Function], Function]:
    """Let a function take keywords by their former names: `@renamed_keywords(former="present")`.

    >>> @renamed_keywords(format="file_format")
    ... def read(path, file_format="auto"):
    ...     return file_format
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     read("a.csv", format="csv"), str(caught[0].message)
    ('csv', "read: the keyword 'format' is called 'file_format' now; the old name will go")
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            for former, present in names.items():
                if former not in keywords:
                    continue
                if present in keywords:
                    raise TypeError(
                        f"{function.__qualname__}: '{former}' is the old name of '{present}'; give one of them"
                    )
                name = function.__qualname__.removesuffix(".__init__")
                note = f"{name}: the keyword '{former}' is called '{present}' now; the old name will go"
                warnings.warn(note, FutureWarning, stacklevel=2)
                keywords[present] = keywords.pop(former)
            return function(*args, **keywords)

        return call  # type: ignore[return-value]

    return decorate
