"""Test clips that an encoder was pre-trained on: counted from what the encoder records about its training.

Pre-training uses no labels, but an encoder that has seen the test clips is evaluated *transductively*, which flatters it. The
rule: `halp evaluate` refuses a split whose test part shares clips with the run's pre-training part, unless
`--allow-overlap`; a run on all clips of a store (`split = "all"`) is evaluated with a warning, since nothing else is left. The
count is recorded in every result, and reports say "not trained on" only where it is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.splits import ALL
from halp.clips.store import Store
from halp.errors import InputError


def pretraining_clips(origin: Mapping[str, Any], store: Store) -> npt.NDArray[np.int64] | None:
    """Indices of the clips of this store that an encoder of this origin was pre-trained on; None where it is not known.

    It is not known for encoders that do not say, and for other data than the pre-training's: two stores may share
    recordings.
    """
    if origin.get("raw") or origin.get("trained") is False:
        return np.zeros(0, dtype=np.int64)
    origins = list(origin.get("members", {}).values())
    if "initialised" in origin:  # its encoder had learned from other clips before
        origins = [origin["initialised"], {key: value for key, value in origin.items() if key != "initialised"}]
    if origins:
        parts = [pretraining_clips(one, store) for one in origins]
        known = [part for part in parts if part is not None]
        return np.unique(np.concatenate(known)) if len(known) == len(parts) else None
    split = origin.get("split")
    if split is None or origin.get("data") != store.hash:
        return None
    if split == ALL:
        return np.arange(len(store))
    return store.split(split)[0] if split in store.splits else None


def pretraining_splits(origin: Mapping[str, Any]) -> list[str | None]:
    """The split of the pre-training, and before it those of the encoders that it started from."""
    before = pretraining_splits(origin["initialised"]) if "initialised" in origin else []
    own = origin.get("split")
    return before if own in before else [*before, own]


def count_overlap(origin: Mapping[str, Any], store: Store, test: npt.NDArray[np.int64]) -> int | None:
    """How many of these test clips an encoder was pre-trained on; None where it is not known."""
    clips = pretraining_clips(origin, store)
    return None if clips is None else int(np.isin(test, clips).sum())


def overlap_warning(origin: Mapping[str, Any], store: Store, split: str, *, allowed: bool) -> str | None:
    """What has to be said of evaluating on this split; an overlap that is neither allowed nor inevitable is refused."""
    _, test = store.split(split)
    shared = count_overlap(origin, store, test)
    if not shared:
        return None
    seen = f"{shared} of the {len(test)} test clips of split '{split}' were in the pre-training"
    splits = pretraining_splits(origin)
    if allowed or ALL in splits:
        return f"{seen}; the results are marked and do not compare with those on clips that were not trained on"
    raise InputError(
        f"{seen} on split {' and '.join(map(repr, splits))}; evaluate on that split, pre-train on '{split}', "
        "or add --allow-overlap, which marks the results"
    )
