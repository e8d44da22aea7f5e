"""Queries on a collection: similar clips, timelines, comparison of two clips, and hallucinated positives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.sampling import generator
from halp.data.spans import UNSEEN
from halp.explorer.collection import Collection, Floats
from halp.explorer.groups import Grouping
from halp.features.encode import embed_frames, ready_clips
from halp.features.ready import prepare_source
from halp.hallucinate import plan_positives
from halp.reports.player import describe_body, pack_joints, upward
from halp.sphere import kmeans
from halp.tasks.classifier import Prediction, fit_classifier
from halp.tasks.cluster import directions
from halp.tasks.compare import compare_clips
from halp.tasks.heads import unit
from halp.tasks.index import search_exactly
from halp.tasks.segments import merge_windows

if TYPE_CHECKING:
    from halp.evaluation.analysis.prototypes import KeySpace

QUANTILES = (0.99, 0.95, 0.9, 0.75, 0.5)
SAMPLED = 4_000  # rows that quantiles and suggestions are computed with
SAMPLED_KEYS = 1_000  # rows that hallucinated positives are compared with
PROTOTYPES, POSITIVES, HARDNESS = 20, 100, 0.8
NONE = "none of these"

Arrays = dict[str, npt.NDArray[Any]]


def sample(collection: Collection, seed: int = 0, most: int = SAMPLED) -> npt.NDArray[np.int64]:
    """A fixed random sample of rows."""
    if len(collection) <= most:
        return np.arange(len(collection))
    return np.sort(np.random.default_rng(seed).permutation(len(collection))[:most])


def span_vector(collection: Collection, recording: int, start: float, stop: float) -> npt.NDArray[np.float32]:
    """The vector `(1, F)` of a span of a recording."""
    encoder, source = collection.encoder, collection.source
    whole = source.recording(int(collection.rows_of(recording)[0]))
    rate = whole.fps if whole.fps > 0 else 1.0
    first, last = (round((time - whole.start) * rate) for time in (start, stop))
    first = max(0, min(first, len(whole.frames) - 1))
    ready = prepare_source(encoder, source)
    frames = ready.recording(whole.frames, whole.fps)[first : max(first + 1, last)]
    return embed_frames(encoder, [ready.window(frames, whole.fps)])


def search(
    collection: Collection,
    rows: Sequence[int],
    *,
    spans: Sequence[tuple[int, float, float]] = (),
    against: Sequence[int] = (),
    k: int = 24,
    passing: npt.NDArray[np.bool_] | None = None,
) -> dict[str, Any]:
    """Rows most like any of the examples, nearest first, and rows at quantiles of the similarity.

    `passing` says of every row whether it may be found.
    With examples `against`, a classifier of the two kinds decides which rows are left to choose from.
    """
    vectors = [np.asarray(collection.table.vectors[row])[None] for row in rows]
    vectors += [span_vector(collection, *span) for span in spans]
    if not vectors:
        raise InputError("a search needs an example; choose a clip or draw a span")
    queries = unit(np.concatenate(vectors))
    examples = {*rows, *against}
    wanted = min(len(collection), (k + len(examples)) * (4 if against else 1) * collection.overlapping)
    if passing is None:
        found, similarity = (
            part.ravel() for part in search_exactly(collection.table.vectors, queries, wanted)
        )
    else:
        rows_left = np.flatnonzero(passing)
        wanted = min(wanted, len(rows_left))
        near, similarity = search_exactly(np.asarray(collection.table.vectors[rows_left]), queries, wanted)
        found, similarity = rows_left[near].ravel(), similarity.ravel()
    order = np.argsort(-similarity, kind="stable")
    kept = [place for place in order if found[place] not in examples]
    first = {int(found[place]): float(similarity[place]) for place in reversed(kept)}
    hits = sorted(first.items(), key=lambda hit: -hit[1])
    if against:
        yes = np.concatenate([*vectors, collection.table.vectors[list(against)]])
        labels = np.repeat([0, 1], [len(vectors), len(against)])
        fitted = fit_classifier(yes, labels, ("yes", "no"))
        chosen = fitted.predict(collection.table.vectors[[row for row, _ in hits]], reject="none").best == 0
        hits = [hit for hit, good in zip(hits, chosen) if good]
    known = [*((int(collection.recording[row]), *collection.span(row)[1:]) for row in rows), *spans]
    hits = apart(collection, hits, known)
    some = sample(collection)
    values = (unit(np.asarray(collection.table.vectors[some])) @ queries.T).max(1)
    ranked = np.argsort(values, kind="stable")
    places = [ranked[min(len(ranked) - 1, round(quantile * (len(ranked) - 1)))] for quantile in QUANTILES]
    return {
        "hits": [{**collection.describe(row), "similarity": round(value, 4)} for row, value in hits[:k]],
        "quantiles": [
            {
                **collection.describe(int(some[place])),
                "quantile": quantile,
                "similarity": round(float(values[place]), 4),
            }
            for quantile, place in zip(QUANTILES, places)
        ],
    }


def apart(
    collection: Collection, hits: Sequence[tuple[int, float]], known: Sequence[tuple[int, float, float]]
) -> list[tuple[int, float]]:
    """Hits that overlap neither a known span nor an earlier hit: overlapping windows look most similar."""
    taken: dict[int, list[tuple[float, float]]] = {}
    for recording, start, stop in known:
        taken.setdefault(recording, []).append((start, stop))
    kept = []
    for row, value in hits:
        _, start, stop = collection.span(row)
        spans = taken.setdefault(int(collection.recording[row]), [])
        if all(stop <= low or high <= start for low, high in spans):
            spans.append((start, stop))
            kept.append((row, value))
    return kept


def timeline(
    collection: Collection,
    recording: int,
    prediction: Prediction | None,
    classes: Sequence[str],
    grouping: Grouping | None,
) -> tuple[dict[str, Any], Arrays]:
    """Tiers of a recording: segments of the model and of groups, absences, and probabilities over time."""
    rows, facts = collection.rows_of(recording), collection.extent(recording)
    name, table = facts["name"], collection.table
    tiers: dict[str, list[dict[str, Any]]] = {}
    arrays: Arrays = {"rows": rows.astype(np.int32), "starts": table.starts[rows], "stops": table.stops[rows]}
    shortest = (collection.source.cutting.window or 0) / 2

    absent = collection.nobody(recording)

    def merged(
        beliefs: Floats, labels: Sequence[str], rejected: npt.NDArray[np.bool_] | None = None
    ) -> list[Any]:
        parts = merge_windows(
            name,
            table.starts[rows],
            table.stops[rows],
            beliefs,
            labels,
            rejected=rejected,
            absent=absent,
            shortest=shortest,
        )
        return [
            {
                "start": round(part.start, 3),
                "stop": round(part.stop, 3),
                "label": part.label or NONE,
                "score": None if part.score is None else round(part.score, 3),
            }
            for part in parts
            if part.label not in UNSEEN
        ]

    if prediction is not None:
        tiers["model"] = merged(prediction.probabilities[rows], classes, prediction.rejected[rows])
        arrays["probabilities"] = prediction.probabilities[rows].astype(np.float32)
    if grouping is not None:
        tiers["group"] = merged(np.eye(len(grouping.names))[grouping.clusters.group[rows]], grouping.names)
    return {**facts, "tiers": tiers, "nobody": absent, "classes": list(classes)}, arrays


def compare(collection: Collection, first: int, second: int) -> tuple[dict[str, Any], Arrays]:
    """Two aligned rows: frames of both, the alignment, and the distance of every joint along it."""
    clips = ready_clips(collection.encoder, collection.source, (first, second))
    made = compare_clips(collection.encoder, clips[0], clips[1])
    arrays: Arrays = {
        "pairs": made.pairs.astype(np.int32),
        "joints": np.nan_to_num(made.joints).astype(np.float32),
    }
    facts: dict[str, Any] = {
        "clips": [],
        "distance": round(float(made.distance.mean()), 4),
        "stretches": made.to_json()["stretches"],
        "worst": made.to_json()["joints"][:8],
        "body": describe_body(collection.encoder.topology),
    }
    for number, (row, clip) in enumerate(zip((first, second), clips)):
        joints, about = pack_joints(clip.frames[:, :1], upward([clip.frames], collection.encoder.topology))
        arrays[f"clip{number}"] = joints
        facts["clips"].append({**collection.describe(row), **about})
    return facts, arrays


def understand(
    collection: Collection, row: int, space: KeySpace | None = None, *, seed: int = 0
) -> tuple[dict[str, Any], Arrays]:
    """HaLP on the sphere: prototypes, a row's hallucinated positives, which are kept, and positions.

    The sphere is that of the keys of the encoder's own training, where its `space` is known, else that of the
    encoder's vectors. Positives and prototypes have no place on a map of their own: each is given with the
    real rows nearest to it.
    """
    import torch

    from halp.evaluation.analysis.prototypes import similarity_curves
    from halp.reports.run_report import prototype_chart

    rows = sample(collection, most=SAMPLED_KEYS)
    rows = rows if row in rows else np.append(rows, row)
    if space is None:
        points = torch.from_numpy(directions(np.asarray(collection.table.vectors[rows])))
        count = min(PROTOTYPES, max(2, len(rows) // 4))
        prototypes = kmeans(points, count, generator=generator(seed, "prototypes", count))
        settings: dict[str, Any] = {"count": POSITIVES, "hardness": HARDNESS}
    else:
        points, prototypes, settings = (
            torch.from_numpy(collection.keys(space, rows)),
            space.centres,
            space.settings,
        )
    key = points[int(np.flatnonzero(rows == row)[0])][None]
    plan = plan_positives(key, prototypes, query=key, generator=generator(seed, "positives", row), **settings)
    near = (plan.positives()[0].to(points) @ points.T).topk(min(4, len(rows)), dim=1)
    typical = (prototypes @ points.T).topk(min(4, len(rows)), dim=1)
    cosine = (key @ prototypes.T)[0].clamp(-1, 1)
    chart, caption = prototype_chart(similarity_curves(key, plan, prototypes))
    return {
        "row": row,
        "closest": int(cosine.argmax()),
        "kept": round(float(plan.kept[0].float().mean()), 4),
        "hardness": settings["hardness"],
        "count": settings["count"],
        "trained": space is not None,
        "chart": {"kind": "figure", "markup": chart, "caption": caption},
    }, {
        "angle": torch.rad2deg(plan.theta[0]).float().numpy(),
        "target": plan.target[0].to(torch.int32).numpy(),
        "keep": plan.kept[0].to(torch.uint8).numpy(),
        "reach": torch.rad2deg(torch.acos(cosine)).float().numpy(),
        "near": rows[near.indices.numpy()].astype(np.int32),
        "nearness": near.values.float().numpy(),
        "typical": rows[typical.indices.numpy()].astype(np.int32),
        "typicality": typical.values.float().numpy(),
    }
