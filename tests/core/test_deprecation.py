"""Public signatures hide no builtin; keywords that were renamed for it still work, with a warning."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import halp
import halp.tasks
from halp.core.deprecation import renamed_keywords
from halp.hallucinate import HallucinatedPositives, hallucinate, halp_loss

PUBLIC = ["halp", "halp.extend", "halp.hallucinate", "halp.sphere", "halp.losses"]
PUBLIC += [f"halp.tasks.{module.name}" for module in pkgutil.iter_modules(halp.tasks.__path__)]
# keys of saved files and of --json
KEYS = {"Result.format", "Repetition.range", "Reading.format", "ReadingKeywords.format"}


def callables(module: Any) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]:
        exported = getattr(module, name)
        if not str(getattr(exported, "__module__", "")).startswith("halp."):
            continue
        yield name, exported
        if inspect.isclass(exported):
            own = [member for member in vars(exported) if not member.startswith("_")]
            yield from ((f"{name}.{member}", getattr(exported, member)) for member in own)


@pytest.mark.parametrize("module", PUBLIC)
def test_no_public_signature_hides_a_builtin(module: str) -> None:
    hidden = {
        f"{name}.{parameter}"
        for name, exported in callables(importlib.import_module(module))
        if callable(exported) and not (inspect.isclass(exported) and issubclass(exported, Exception))
        for parameter in inspect.signature(exported).parameters
        if hasattr(builtins, parameter)
    }
    assert hidden <= KEYS


UNIT = torch.nn.functional.normalize(torch.randn(12, 8, generator=torch.Generator().manual_seed(0)), dim=1)


def test_the_former_keyword_of_the_filter_gives_the_same_positives() -> None:
    query, key, prototypes = UNIT.split(4)
    for function, given in ((hallucinate, (key, prototypes)), (halp_loss, (query, key, prototypes))):
        seeded = torch.Generator().manual_seed
        expected = function(*given, positive_filter="none", generator=seeded(0))
        with pytest.warns(FutureWarning, match="'filter' is called 'positive_filter' now"):
            same = function(*given, filter="none", generator=seeded(0))
        torch.testing.assert_close(same, expected)
    with pytest.warns(FutureWarning, match="HallucinatedPositives: the keyword 'filter'"):
        term = HallucinatedPositives(prototypes=2, recent=4, filter="variant-2")  # type: ignore[call-arg]
    assert term.settings["positive_filter"] == "variant-2"


def former(function: Callable[..., Any], *given: Any, **keywords: Any) -> Any:
    """What a call with former keywords gives, which has to warn."""
    with pytest.warns(FutureWarning, match="now; the old name will go"):
        return function(*given, **keywords)


def test_both_names_of_a_keyword_are_refused() -> None:
    @renamed_keywords(compile="compile_model")
    def train(compile_model: bool = False) -> bool:
        return compile_model

    assert train(True) is True
    with pytest.raises(TypeError, match="'compile' is the old name of 'compile_model'"):
        train(compile=True, compile_model=True)  # type: ignore[call-arg]
