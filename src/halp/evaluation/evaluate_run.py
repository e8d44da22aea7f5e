"""Evaluating runs: a run's encoder beside the baselines it has to beat, results saved in the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.markup import escape

from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation.encoder_group import EncoderGroup
from halp.evaluation.evaluate_encoder import evaluate
from halp.evaluation.feature_cache import FeatureCache
from halp.evaluation.features import RawCoordinates
from halp.evaluation.overlap import overlap_warning
from halp.evaluation.protocol import get_protocol
from halp.evaluation.protocol_settings import protocol_settings
from halp.evaluation.result_store import locked_result, result_path
from halp.evaluation.results import Result
from halp.progress import console
from halp.training.run import Run

ProtocolSettings = Mapping[str, Mapping[str, Any]]  # by protocol


@dataclass(frozen=True)
class EncoderResults:
    """One encoder by name and its results, a row of a table."""

    name: str
    results: Sequence[Result]


def settings_for(encoder: Any, protocol: str, settings: ProtocolSettings) -> dict[str, Any] | None:
    """Settings of a protocol for this encoder; None where it has nothing that the protocol could train or fuse."""
    chosen, known = dict(settings.get(protocol, {})), get_protocol(protocol)
    if not isinstance(encoder, RawCoordinates):
        return chosen
    if known.fuses_encoders or known.trains_backbone(protocol_settings(protocol, chosen)):
        return None
    return {**chosen, **known.baseline_settings}


def evaluate_protocols(
    name: str,
    encoder: PackagedEncoder | EncoderGroup,
    store: Store,
    *,
    protocols: Sequence[str] = ("knn", "linear"),
    splits: Sequence[str] = ("xsub",),
    seed: int = 0,
    seeds: Sequence[int] = (),
    settings: ProtocolSettings | None = None,
    run: Run | None = None,
    progress: bool = True,
) -> EncoderResults:
    """Evaluate one encoder by several protocols on features that are computed once; results are saved in the run."""
    # raw coordinates are wide and cheap: not worth the disk
    cache = FeatureCache(None if run is None or isinstance(encoder, RawCoordinates) else run.features)
    results = []
    for split in splits:
        for protocol in protocols:
            chosen = settings_for(encoder, protocol, settings or {})
            if chosen is None:
                continue
            asked = (encoder, store, protocol, split)
            measure = partial(evaluate, *asked, seed=seed, seeds=seeds, cache=cache, progress=progress, **chosen)
            if run is None:
                results.append(measure())
                continue
            home = run.info["data"]["hash"]
            path = result_path(run, *asked, seeds=list(seeds) or [seed], settings=chosen, home_hash=home)
            with locked_result(path):
                results.append(measure())
                _save(path, results[-1])
    return EncoderResults(name, results)


def _save(path: Path, result: Result) -> None:
    """Save a result in its run; where the folder cannot be written, as somebody else's, the result is still given."""
    try:
        result.save(path)
    except InputError as error:
        console.print(f"[yellow]warning:[/] {escape(str(error))}; it is printed only", soft_wrap=True)


def evaluate_run(
    run: Run,
    store: Store,
    *,
    protocols: Sequence[str] = ("knn", "linear"),
    splits: Sequence[str] = ("xsub",),
    stream: str = "joint",
    seed: int = 0,
    seeds: Sequence[int] = (),
    settings: ProtocolSettings | None = None,
    baselines: bool = True,
    others: Sequence[Run] = (),
    allow_overlap: bool = False,
) -> list[EncoderResults]:
    """Results of a run's encoder and, with `baselines`, of the raw coordinates and of the encoder before training.

    Protocols that fuse encoders, such as `ensemble`, get all streams of the run and of the `others`. A split whose test
    clips were pre-trained on is refused unless `allow_overlap` (see `overlap.py`).
    """
    single = [protocol for protocol in protocols if not get_protocol(protocol).fuses_encoders]
    fusing = [protocol for protocol in protocols if protocol not in single]
    encoder = run.encoder(stream)
    group = ensemble_of([run, *others]) if fusing else None
    for split in splits:
        for origin in [encoder.origin, *(member.origin for _, member in (group.items() if group else []))]:
            if warning := overlap_warning(origin, store, split, allowed=allow_overlap):
                console.print(f"[yellow]warning:[/] {warning}")
                break
    encoders: dict[str, PackagedEncoder | EncoderGroup] = {}
    if baselines:
        encoders["raw coordinates"] = RawCoordinates(store.topology, stream=stream, persons=store.persons)
        encoders["untrained"] = run.encoder(stream, trained=False)
    encoders[run.path.name] = encoder
    shared: dict[str, Any] = {"splits": splits, "seed": seed, "seeds": seeds, "settings": settings, "run": run}
    rows = [
        evaluate_protocols(name, one, store, protocols=single, **shared) for name, one in encoders.items() if single
    ]
    if group is not None:
        rows.append(evaluate_protocols(f"ensemble {group.stream}", group, store, protocols=fusing, **shared))
    return rows


def ensemble_of(runs: Sequence[Run]) -> EncoderGroup:
    """All streams of these runs; a stream that occurs twice is numbered."""
    members: dict[str, PackagedEncoder] = {}
    for run in runs:
        for stream in run.recipe.streams:
            name, number = stream, 2
            while name in members:
                name, number = f"{stream}-{number}", number + 1
            members[name] = run.encoder(stream)
    return EncoderGroup(members)
