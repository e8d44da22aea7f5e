"""Evaluate runs: a run's encoder and its baselines, with results saved in the run folder."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from halp.core.errors import InputError
from halp.core.locks import locked_where_possible
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder, RawCoordinates, build_architecture
from halp.evaluation.evaluate_encoder import evaluate, overlap_warning
from halp.evaluation.protocol import EncoderEnsemble, get_protocol, protocol_settings
from halp.evaluation.results import Result, mean_and_std
from halp.features.cache import FeatureCache, module_fingerprint
from halp.features.loading import choose_shipped, load_encoder
from halp.features.opening import open_source
from halp.training.run import Run, seeded
from halp.training.run_folder import RunFolder


def saved_results(folder: RunFolder) -> list[Result]:
    """All results saved in a run folder, by file name; unfinished files of a killed process are skipped."""
    paths = sorted(folder.results.glob("*.json"))
    return [Result.load(path) for path in paths if not path.name.startswith(".")]


def result_path(
    folder: RunFolder,
    encoder: PretrainedEncoder | EncoderEnsemble,
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
    return folder.results / result_name(
        protocol, split, encoder.stream, seeds, settings, encoder.origin, other
    )


def locked_result(path: Path) -> AbstractContextManager[None]:
    """Lock a result while it is computed and saved; a second process gets an error that names the owner."""
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
    """The file name of a result, with settings that are not the protocol's and data that is not the run's."""
    chosen = protocol_settings(protocol, dict(settings))
    parts = [
        protocol,
        split,
        stream,
        f"seed{seeds[0]}" if len(seeds) == 1 else f"seeds{'-'.join(map(str, seeds))}",
    ]
    if chosen != protocol_settings(protocol, {}):
        text = json.dumps([protocol, asdict(chosen)], sort_keys=True)
        parts.append(hashlib.sha256(text.encode()).hexdigest()[:8])
    parts += [f"on-{other_data[:8]}"] if other_data else []
    parts += ["raw"] if origin.get("raw") else []
    parts += [] if origin.get("trained", True) else ["untrained"]
    parts += [origin["shipped"]] if "shipped" in origin else []
    return f"{'-'.join(parts)}.json"


def evaluate_cached(
    folder: RunFolder,
    encoder: PretrainedEncoder,
    store: Store,
    protocol: str,
    split: str,
    *,
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    progress: bool = True,
) -> Result:
    """A result from its file under `folder`, if encoder and data match; else evaluated and saved."""
    # data is always named here: a sweep evaluates one encoder on several stores
    path = result_path(folder, encoder, store, protocol, split, seeds=list(seeds), settings=settings)
    with locked_result(path):
        if path.exists():
            kept = Result.load(path)
            if kept.backbone["before"] == module_fingerprint(encoder) and kept.data["hash"] == store.hash:
                return kept
        cache = FeatureCache(folder.features)
        result = evaluate(
            encoder, store, protocol, split, seeds=seeds, cache=cache, progress=progress, **dict(settings)
        )
        result.save(path)
    return result


ProtocolSettings = Mapping[str, Mapping[str, Any]]  # by protocol


@dataclass(frozen=True)
class EncoderResults:
    """One encoder by name and its results, a row of a table."""

    name: str
    results: Sequence[Result]


def settings_for(encoder: Any, protocol: str, settings: ProtocolSettings) -> dict[str, Any] | None:
    """Settings of a protocol for this encoder; None if it has nothing to train or fuse."""
    chosen, known = dict(settings.get(protocol, {})), get_protocol(protocol)
    raw = isinstance(encoder, RawCoordinates)
    if not raw and "shipped" not in encoder.origin:
        return chosen
    if known.fuses_encoders or known.trains_backbone(protocol_settings(protocol, chosen)):
        return None
    return {**chosen, **(known.baseline_settings if raw else {})}


def evaluate_protocols(
    name: str,
    encoder: PretrainedEncoder | EncoderEnsemble,
    store: Store,
    *,
    protocols: Sequence[str] = ("knn", "linear"),
    splits: Sequence[str] = ("xsub",),
    seeds: Sequence[int] = (0,),
    settings: ProtocolSettings | None = None,
    run: Run | None = None,
    progress: bool = True,
) -> EncoderResults:
    """Evaluate an encoder by several protocols on features computed once; results are saved in the run."""
    # raw coordinates are wide and cheap: not worth the disk
    cache = FeatureCache(None if run is None or isinstance(encoder, RawCoordinates) else run.features)
    results = []
    for split in splits:
        for protocol in protocols:
            chosen = settings_for(encoder, protocol, settings or {})
            if chosen is None:
                continue
            asked = (encoder, store, protocol, split)
            measure = partial(evaluate, *asked, seeds=seeds, cache=cache, progress=progress, **chosen)
            if run is None:
                results.append(measure())
                continue
            home = run.info["data"]["hash"]
            path = result_path(run, *asked, seeds=list(seeds), settings=chosen, home_hash=home)
            with locked_result(path):
                results.append(measure())
                _save(path, results[-1])
    return EncoderResults(name, results)


def _save(path: Path, result: Result) -> None:
    """Save a result in its run; a read-only folder causes only a note."""
    try:
        result.save(path)
    except InputError as error:
        warnings.warn(f"{error}; it is printed only", stacklevel=2)


def evaluate_run(
    run: Run | PretrainedEncoder,
    store: Store,
    *,
    name: str = "encoder",
    protocols: Sequence[str] = ("knn", "linear"),
    splits: Sequence[str] = ("xsub",),
    stream: str = "joint",
    seeds: Sequence[int] = (0,),
    settings: ProtocolSettings | None = None,
    baselines: bool = True,
    others: Sequence[Run] = (),
    allow_overlap: bool = False,
) -> list[EncoderResults]:
    """Results of a run's encoder and, with `baselines`, raw coordinates, untrained and shipped encoders.

    The shipped encoder is the one that reads the store's joints, if there is one. An encoder without a run (a
    package, called `name`) leaves nothing behind; its baselines are the same coordinates as it reads them,
    and its architecture with fresh weights. Protocols that fuse encoders, such as `ensemble`, get all streams
    of the run and of the `others`. A split whose test clips were pre-trained on is refused unless
    `allow_overlap` (see `overlap_warning`).
    """
    single = [protocol for protocol in protocols if not get_protocol(protocol).fuses_encoders]
    fusing = [protocol for protocol in protocols if protocol not in single]
    home = run if isinstance(run, Run) else None
    encoder = run if isinstance(run, PretrainedEncoder) else run.encoder(stream)
    if fusing and home is None:
        raise InputError(
            f"protocol '{fusing[0]}' fuses the streams of runs; give a run folder instead of '{name}'"
        )
    group = ensemble_of([home, *others]) if fusing and home is not None else None
    origins = [encoder.origin, *(member.origin for _, member in (group.items() if group else []))]
    if warning := overlap_warning(origins, store, splits, allowed=allow_overlap):
        warnings.warn(warning, stacklevel=2)
    encoders: dict[str, PretrainedEncoder | EncoderEnsemble] = {}
    if baselines and home is not None:
        encoders["raw coordinates"] = RawCoordinates(store.topology, stream=stream, persons=store.persons)
        encoders["untrained"] = home.encoder(stream, trained=False)
    elif baselines:
        layout, steps = encoder.topology, encoder.normalisation
        encoders["raw coordinates"] = RawCoordinates(
            layout, stream=encoder.stream, persons=encoder.persons, normalisation=steps
        )
        encoders["untrained"] = fresh_weights(encoder)
    if baselines and (shipped := fitting_shipped(store, encoder)) is not None:
        encoders[shipped.origin["shipped"]] = shipped
    encoders[name if home is None else home.path.name] = encoder
    shared: dict[str, Any] = {"splits": splits, "seeds": seeds, "settings": settings, "run": home}
    rows = [
        evaluate_protocols(name, one, store, protocols=single, **shared)
        for name, one in encoders.items()
        if single
    ]
    if group is not None:
        rows.append(evaluate_protocols(f"ensemble {group.stream}", group, store, protocols=fusing, **shared))
    return rows


def fitting_shipped(store: Store, beside: PretrainedEncoder | None = None) -> PretrainedEncoder | None:
    """The shipped encoder for the joints of a store; None if there is none or it is `beside` itself."""
    try:
        name = choose_shipped(open_source(store))
    except InputError:
        return None
    encoder = load_encoder(name)
    if beside is not None and module_fingerprint(encoder) == module_fingerprint(beside):
        return None
    encoder.origin = {**encoder.origin, "shipped": name}
    return encoder


def verdict(rows: Sequence[EncoderResults]) -> str:
    """Which encoder to keep, in a sentence: the last of these or the best of the others, if any.

    Accuracies are means over the protocols and splits that both have. Differences below twice the standard
    error of two shares of the test clips are no gain.
    """
    *others, last = rows
    ours = {_place(result): result for result in last.results}
    found: list[tuple[float, float, str]] = []
    for row in others:
        theirs = {_place(result): result for result in row.results}
        places = [place for place in ours if place in theirs]
        if places:
            means = [mean_and_std([of[place].accuracy for place in places])[0] for of in (theirs, ours)]
            found.append((means[0], means[1], row.name))
    if not found:
        return ""
    best, own, name = max(found)
    clips = sum({result.split: result.clips["test"] for result in last.results}.values())
    noise = 200 * (max(own * (100 - own), best * (100 - best), 100) / 1e4 * 2 / clips) ** 0.5
    if abs(best - own) <= noise:
        size = f"{own:.1f} against {best:.1f}"
        return f"keep {name}: {clips} test clips show no certain gain of {last.name} over it ({size})"
    if best > own:
        return f"keep {name}: {best - own:.1f} points above {last.name}"
    return f"keep {last.name}: {own - best:.1f} points above {name}, the best of the others"


def _place(result: Result) -> tuple[str, str]:
    return result.protocol, result.split


def fresh_weights(encoder: PretrainedEncoder) -> PretrainedEncoder:
    """The architecture of an encoder with its initial weights."""
    with seeded(0):
        inner = build_architecture(encoder.architecture, encoder.topology, encoder.persons)
    return encoder.around(inner, {"trained": False})


def ensemble_of(runs: Sequence[Run]) -> EncoderEnsemble:
    """All streams of these runs; repeated streams are numbered."""
    members: dict[str, PretrainedEncoder] = {}
    for run in runs:
        for stream in run.recipe.streams:
            name, number = stream, 2
            while name in members:
                name, number = f"{stream}-{number}", number + 1
            members[name] = run.encoder(stream)
    return EncoderEnsemble(members)
