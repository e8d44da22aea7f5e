"""What `halp` exports says what it takes and gives, in NumPy style; the examples run as doctests."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import halp

# what only others make, and what needs recordings on disk or a browser
WITHOUT_EXAMPLE = (
    "Diverged Interrupted LiveRecognition LostProcess Model PretrainedEncoder Result Store StoreWriter"
    " convert deviation explore join live merge motifs open_store poses prepare pull push report reproduce"
    " serve split sweep"
).split()
NAMES = [name for name in sorted(halp.__all__) if callable(getattr(halp, name))]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_says_what_it_takes_and_gives(name: str) -> None:
    exported = getattr(halp, name)
    if inspect.ismodule(exported):  # a room of the same name, which can be called
        home = {"reproduce": "halp.reproduce.reproduce_table", "serve": "halp.serve.server"}[name]
        exported = getattr(importlib.import_module(home), name)
    text = inspect.getdoc(exported) or ""
    assert ">>>" in text or name in WITHOUT_EXAMPLE
    if inspect.isclass(exported):
        assert issubclass(exported, Exception) or re.search(
            r"^(Parameters|Attributes)\n-+$", text, re.MULTILINE
        )
        return
    signature = inspect.signature(exported)
    entries = re.search(r"^Parameters\n-+\n(.*?)(?=\n\n[A-Z]\w+\n-|\Z)", text, re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^\S.*$", entries[1], re.MULTILINE) if entries else []
    named = {word.lstrip("*") for head in heads for word in re.split(r",\s*", head.partition(" : ")[0])}
    assert named == set(signature.parameters)
    assert signature.return_annotation in (None, "None") or re.search(
        r"^(Returns|Yields)\n-+$", text, re.MULTILINE
    )
