"""Encoders that begin with the weights of another run, package or shipped encoder; everything else of a method is fresh."""

from __future__ import annotations

import json
import os
from shlex import quote
from typing import Any

from halp.clips.store import Store
from halp.encoders import EncoderSettings, has_setting
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.methods import Method
from halp.streams import split_stream
from halp.training.recipe import Recipe
from halp.training.run import load_encoder


def initialise_encoders(
    method: Method, recipe: Recipe, store: Store, source: str | os.PathLike[str]
) -> list[dict[str, Any]]:
    """Give every encoder of a method the weights that the source has for its stream; returns where they come from."""
    origins = []
    for stream, encoder in method.encoders().items():
        found = load_encoder(source, stream)
        _refuse_other_clips(found, store, source)
        _refuse_other_encoder(found, recipe, stream, source)
        encoder.load_state_dict(found.encoder.state_dict())
        origins.append(found.origin)
    method.encoders_replaced()
    return origins


def _refuse_other_clips(found: PackagedEncoder, store: Store, source: str | os.PathLike[str]) -> None:
    """Refuse weights that were learned from clips of another kind than those of the store."""
    facts = {
        "topology": (found.topology.name, store.topology.name),
        "joints": (list(found.topology.joints), list(store.topology.joints)),
        "persons": (found.persons, store.persons),
        "normalisation": (found.normalisation, list(store.normalisation)),
    }
    for name, (theirs, ours) in facts.items():
        if theirs != ours:
            raise InputError(
                f"the encoder of '{source}' was trained on clips of {name} {theirs}, and store '{store.path}' has {name} {ours}; "
                "prepare the clips as they were there, or start from another run"
            )


def _refuse_other_encoder(found: PackagedEncoder, recipe: Recipe, stream: str, source: str | os.PathLike[str]) -> None:
    """Refuse weights of another encoder than the recipe's, naming the settings that would make them fit."""
    ours, theirs = recipe.encoder_of(stream), EncoderSettings(**found.architecture)
    if ours == theirs:
        return
    label = split_stream(stream)[1]
    section = f"encoders.{label}" if label else "encoder"
    same_kind = ours.to_plain() if ours.name == theirs.name else {}
    wanted = {f"{section}.{key}": value for key, value in theirs.to_plain().items() if same_kind.get(key) != value}
    if has_setting(theirs.name, "frames"):
        wanted["views.frames"] = found.frames
    plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in wanted.items()}
    shown = " ".join(quote(f"{key}={value}") for key, value in plain.items())
    raise InputError(
        f"the encoder of '{source}' is another one than the recipe's of stream '{stream}'; to start from it, add --set {shown}"
    )
