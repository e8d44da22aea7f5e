"""A client of the verbs, checked by `make types` in strict mode and never run: an editor completes
all of it.
"""

from __future__ import annotations

from pathlib import Path

import halp

SOURCE, OUT = Path("recordings"), Path("out")


def search_and_group() -> list[float]:
    """Hits and members are events."""
    hits = halp.search("halp-base", SOURCE / "a.bvh", SOURCE, k=5, window=2, stride=0.5)
    groups = halp.cluster("halp-base", SOURCE, groups=4, reading=halp.Reading(window=2))
    segments = halp.segment("halp-base", SOURCE, groups=3, window=2)
    compared = halp.compare("halp-base", "a", "b", source=SOURCE)
    everything = [*hits.events(), *groups.events(), *segments.events(), *compared.events()]
    everything += halp.live(OUT / "model", "film.mp4", stride=0.25)
    halp.explore(SOURCE, window=2)
    return [event.stop - event.start for event in everything]


def misspelt() -> None:
    """A misspelt keyword is found before anything runs."""
    halp.search("halp-base", "a", SOURCE, topolgy="kinect-v2")  # type: ignore[call-arg]
    halp.embed("halp-base", SOURCE, windw=2)  # type: ignore[call-arg]
    halp.stats(OUT / "events.csv", shortst=1)  # type: ignore[call-arg]
    halp.pretrain("small", OUT / "store", OUT / "run", precison="bf16-mixed")  # type: ignore[call-arg]


def classify() -> str:
    """From labels to predictions."""
    model = halp.classify_fit("halp-base", SOURCE, labels=SOURCE / "labels.csv")
    tuned = halp.finetune("halp-base", SOURCE, pattern="{label}/*.bvh")
    halp.save_model(tuned, OUT / "model")
    prediction = halp.classify_predict(model, SOURCE)[0]
    return prediction.label


def measure() -> float | None:
    """Statistics and movements."""
    events: halp.Events = halp.events(OUT / "events.csv", allowed_labels=["walk"])
    counted = halp.stats(events, by="group", people=OUT / "people.csv")
    found = halp.motifs("halp-base", SOURCE, motifs=4)
    unusual = halp.deviation("halp-base", SOURCE / "healthy", SOURCE / "visits")
    bent = halp.angles(SOURCE, fps=30)
    counts = halp.repetitions(SOURCE, fps=30)
    both = halp.agreement(events, found.events())
    halp.poses(SOURCE, OUT, to="bvh")
    walks, bend = halp.gait(SOURCE), halp.curves(SOURCE, "knee_flexion", by="side")
    seen = halp.people(SOURCE / "film.mp4", persons=3), halp.same_people(SOURCE)
    print(walks.events(), bend.to_json(), *(each.to_json() for each in seen))
    rows = [*counted.recordings, *unusual.to_json(), *bent.to_json(), *counts.to_json()]
    return len(rows) / (1.0 + len(both.to_json()))


def train() -> float:
    """From files to a table."""
    halp.prepare("auto", SOURCE, OUT / "store", window=2)
    store: halp.Store = halp.open_store(OUT / "store")
    halp.split(OUT / "store", "subject", folds=5)
    halp.merge([OUT / "store"], OUT / "pooled")
    print(
        halp.inspect(store).clips,
        list(halp.list_formats()),
        list(halp.list_recipes()),
        list(halp.list_encoders()),
    )
    run = halp.pretrain("small", store, OUT / "run")
    encoder = halp.load_encoder(run.path)
    result = halp.evaluate(encoder, store, protocol="knn", split="xsub")
    halp.report([run.path]).save(OUT / "report.html")
    halp.reproduce("hardness", scale="tiny")
    halp.export(run.path, OUT / "package")
    halp.convert(run.path, OUT / "checkpoint.pth.tar")
    varied = halp.sweep("small", OUT / "store", ["halp.hardness=0.2,0.6"], seeds=3, accelerator="cpu")
    print(varied.rows(), halp.verify(run.path).sentence)
    halp.push(OUT / "package", "me/mine")
    halp.serve([halp.pull("me/mine", OUT / "pulled")], port=8080)
    halp.join(OUT / "store")
    return result.accuracy if isinstance(result, halp.Result) else 0.0
