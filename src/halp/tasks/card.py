"""Model cards: what an encoder or model reads, its preparation, origin, intended use and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halp.encoders.pretrained import PretrainedEncoder, describe
from halp.features.cache import module_fingerprint
from halp.reports.drawing import render

#: Every preparation step as one can write it in another language. x is (frames, persons, joints,
#: coordinates), 0 where missing.
FORMULAS = {
    "fill-gaps": (
        "a joint that is missing in frame t, between its neighbours a < t < b in which it is seen, goes to"
        " c(t) + (1 − s) (x(a) − c(a)) + s (x(b) − c(b)) with s = (t − a) / (b − a), where c is the joint"
        " hip_center (filled on the straight line itself); with one neighbour only, to c(t) + x(a) − c(a)."
        " Frames in which a person is not seen at all are filled where that lasts for at most a third of the"
        " clip and the person is seen before and after. A joint or person that is never seen stays 0"
    ),
    "interpolate-gaps": (
        "a joint that is missing between the person's first and last frame goes to (1 − s) x(a) + s x(b), s ="
        " (t − a) / (b − a), of the frames a and b in which it is seen last and next; with one neighbour"
        " only, to that"
    ),
    "drop-empty": "frames in which nobody is seen are removed",
    "fill": (
        "a person who is missing in the first frame has the seen frames moved to the front; frames missing at"
        " the end repeat the person's frames from the start"
    ),
    "order-persons": (
        "persons in descending order of Σ over coordinates of the standard deviation over joints and frames"
    ),
    "centre": (
        "x − c, where c(t) is the centre joint of the first person in frame t (of the last frame before in"
        " which the person is seen, else of the first); missing joints stay 0"
    ),
    "centre-persons": (
        "from every person, in every frame, its own shoulder_center is subtracted; missing joints stay 0"
    ),
    "rotate-mean": (
        "z = mean of shoulder_center − hip_center of the first person over the frames in which the person is"
        " seen, of length 1; a = mean of shoulder_right − shoulder_left, less (a · z) z, of length 1; every"
        " point p becomes (a · p, (z × a) · p, z · p)"
    ),
    "rotate-first": (
        "in the first frame of the first person: the smallest rotation that turns the line `up` onto z, then"
        " the smallest that turns the line `across` onto x, applied to all frames"
    ),
    "yaw": (
        "the smallest rotation about y that turns the first person's mean shoulder line, seen from above,"
        " onto x"
    ),
    "yaw-frames": "the same for every frame by its own shoulder line; if it is not seen, by the one before",
    "scale": (
        "divided by the mean over the bones of the first person of the median over frames of their length, of"
        " frames in which both ends are seen"
    ),
    "picture-up": (
        "y becomes −y, unless the mean of shoulder_center − hip_center of the first person has y > 0.3 times"
        " its length: pictures count y downwards"
    ),
    "picture": (
        "gaps are filled as by interpolate-gaps; from every person, in every frame, hip_center is subtracted"
        " (of the last frame in which it is seen, else of the first; shoulder_center where the hips are never"
        " seen, else the mean of all points); then the person is divided by max(2 √(mean of the squares of"
        " the coordinates that are seen), 10⁻⁶); missing joints stay 0"
    ),
}


def identity(encoder: PretrainedEncoder) -> dict[str, str]:
    """Name, release and SHA-256 of an encoder, for files of vectors, cards and answers of the service."""
    origin = encoder.origin
    name = (
        origin.get("name")
        or origin.get("run")
        or origin.get("recipe")
        or encoder.architecture.get("name", "encoder")
    )
    name = Path(str(name)).name  # a run is known by its folder
    return {"name": name, "release": str(origin.get("release", "")), "sha256": module_fingerprint(encoder)}


def model_card(
    encoder: PretrainedEncoder, name: str, onnx: dict[str, Any] | None = None, **model: Any
) -> str:
    """A README in the layout of model hubs; `onnx`: report of `write_onnx`; `model`: a classifier's facts."""
    steps = [
        (step, FORMULAS.get(step.partition("=")[0], "see docs/data.md")) for step in encoder.normalisation
    ]
    provenance = {"licence": "", "limits": "", **describe(encoder)["provenance"]}
    facts: dict[str, Any] = {
        "topology": encoder.topology,
        "provenance": provenance,
        "onnx": onnx,
        "steps": steps,
    }
    facts |= {"classes": (), "identity": identity(encoder), **model}
    return render("model_card.md", name=name, encoder=encoder, **facts)
