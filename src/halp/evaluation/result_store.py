"""Results on disk: found again by a name that says what was evaluated, on what, how and with which seeds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.evaluation.encoder_group import EncoderGroup
from halp.evaluation.evaluate_encoder import evaluate
from halp.evaluation.feature_cache import FeatureCache
from halp.evaluation.features import fingerprint
from halp.evaluation.protocol_settings import protocol_settings
from halp.evaluation.results import Result
from halp.locks import locked_where_possible
from halp.training.run_folder import RunFolder


def saved_results(folder: RunFolder) -> list[Result]:
    """All results that are saved in a run folder, by file name; what a killed process left unfinished is passed over."""
    found = sorted(folder.results.glob("*.json"))
    return [Result.load(path) for path in found if not path.name.startswith(".")]


def result_path(
    folder: RunFolder,
    encoder: PackagedEncoder | EncoderGroup,
    store: Store,
    protocol: str,
    split: str,
    *,
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    home_hash: str = "",
) -> Path:
    """Where a result is saved under a run folder; `home_hash` is that of the data of the run itself."""
    other = "" if home_hash == store.hash else store.hash
    return folder.results / result_name(protocol, split, encoder.stream, seeds, settings, encoder.origin, other)


def locked_result(path: Path) -> AbstractContextManager[None]:
    """Own a result while it is computed and saved: a second process that wants the same one is told who computes it."""
    return locked_where_possible(path.with_name(f".{path.stem}.lock"), f"result '{path}'")


def result_name(
    protocol: str,
    split: str,
    stream: str,
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    origin: Mapping[str, Any],
    other_data: str = "",
) -> str:
    """The file name of a result; settings other than the protocol's own and data other than the run's are in it."""
    chosen = protocol_settings(protocol, dict(settings))
    parts = [protocol, split, stream, f"seed{seeds[0]}" if len(seeds) == 1 else f"seeds{'-'.join(map(str, seeds))}"]
    if chosen != protocol_settings(protocol, {}):
        text = json.dumps([protocol, asdict(chosen)], sort_keys=True)
        parts.append(hashlib.sha256(text.encode()).hexdigest()[:8])
    parts += [f"on-{other_data[:8]}"] if other_data else []
    parts += ["raw"] if origin.get("raw") else []
    parts += [] if origin.get("trained", True) else ["untrained"]
    return f"{'-'.join(parts)}.json"


def evaluate_cached(
    folder: RunFolder,
    encoder: PackagedEncoder,
    store: Store,
    protocol: str,
    split: str,
    *,
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    progress: bool = True,
) -> Result:
    """A result from its file under `folder`, if it is of this very encoder and data; evaluated and saved otherwise."""
    # data is always named here: a sweep evaluates one encoder on several stores
    path = result_path(folder, encoder, store, protocol, split, seeds=list(seeds), settings=settings)
    with locked_result(path):
        if path.exists():
            found = Result.load(path)
            if found.backbone["before"] == fingerprint(encoder) and found.data["hash"] == store.hash:
                return found
        cache = FeatureCache(folder.features)
        result = evaluate(
            encoder, store, protocol, split, seeds=seeds, cache=cache, progress=progress, **dict(settings)
        )
        result.save(path)
    return result
