"""The MODEL of `halp classify`: a folder with the classifier and the package of its encoder, so that it needs nothing else.

`config.json` says what it is, `model.safetensors` holds the classifier, `encoder/` is an encoder package.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from halp._version import __version__
from halp.clips.partial import building
from halp.clips.windows import Cutting
from halp.encoders.packaged import CARD, CONFIG, WEIGHTS, PackagedEncoder, load_package, write_package
from halp.errors import InputError
from halp.files import read_json, sha256, write_json, write_text
from halp.tensor_files import save_arrays
from halp.use.classifier import Classifier
from halp.use.export import model_card
from halp.use.heads import Candidate, Head

FORMAT = "halp-classifier"
VERSION = 1
_PARTS = ("mean", "scale", "bank", "labels", "weight", "bias", "similarities")


@dataclass(frozen=True)
class Model:
    """An encoder with a classifier on it, how recordings are cut for it, and what is known about how good it is."""

    encoder: PackagedEncoder
    classifier: Classifier
    cutting: Cutting = field(default_factory=Cutting)
    assessment: dict[str, Any] = field(default_factory=dict)
    labelled: dict[str, int] = field(default_factory=dict)


def save_model(model: Model, path: str | os.PathLike[str]) -> Path:
    """Write a model folder, whole or not at all; whatever exists at `path` is refused."""
    path = Path(path)
    check_free(path)
    head, classifier = model.classifier.head, model.classifier
    tensors = {name: getattr(head, name) for name in _PARTS[:-1]} | {"similarities": classifier.similarities}
    try:
        with building(path) as partial:
            (partial / "encoder").mkdir()
            write_package(model.encoder, partial / "encoder", card=model_card(model.encoder, f"{path.name}/encoder"))
            save_arrays(tensors, partial / WEIGHTS)
            write_json(partial / CONFIG, _describe(model, sha256(partial / WEIGHTS)))
            write_text(partial / CARD, _card(model, path.name))
    except (OSError, SafetensorError) as error:
        raise InputError(f"the model '{path}' cannot be written ({error}); choose another folder") from error
    return path


def check_free(path: Path) -> None:
    """Refuse a folder that exists, before anything is computed."""
    if path.exists():
        raise InputError(f"'{path}' exists already; remove it or choose another folder for the model")


def _describe(model: Model, weights: str) -> dict[str, Any]:
    classifier = model.classifier
    return {
        "format": FORMAT,
        "version": VERSION,
        "classes": list(classifier.classes),
        "kind": classifier.head.candidate.kind,
        "setting": classifier.head.candidate.setting,
        "temperature": classifier.temperature,
        "threshold": classifier.threshold,
        "windows": asdict(model.cutting),
        "labelled": model.labelled,
        "assessment": model.assessment,
        "halp": __version__,
        "weights": {"file": WEIGHTS, "sha256": weights},
    }


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model folder; it is refused where a field, a hash or a shape is not what it says."""
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise InputError(f"'{path}' is not a model folder (it has no config.json); make one with `halp classify fit`")
    config = read_json(path / CONFIG)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(f"'{path}' is not a classifier (format {FORMAT}); make one with `halp classify fit`")
    if config.get("version") != VERSION:
        raise InputError(f"model '{path}' has version {config.get('version')!r}, this version of halp reads {VERSION}")
    encoder = load_package(path / "encoder")
    try:
        if sha256(path / WEIGHTS) != config["weights"]["sha256"]:
            raise InputError(f"{WEIGHTS} does not have the hash that {CONFIG} states")
        tensors = load_file(path / WEIGHTS)
        head = _head(config, tensors, encoder.output_size)
        classifier = Classifier(
            head,
            tuple(str(name) for name in config["classes"]),
            float(config["temperature"]),
            float(config["threshold"]),
            tensors["similarities"].astype(np.float64),
        )
        cutting = Cutting(**config["windows"])
        facts = [config["assessment"], config["labelled"]]
        if not all(isinstance(fact, dict) for fact in facts) or not math.isfinite(classifier.threshold):
            raise InputError("assessment, labelled or threshold is not what it should be")
    except (InputError, OSError, SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        what = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"model '{path}' is damaged ({what}); fit it again") from error
    return Model(encoder, classifier, cutting, *facts)


def _head(config: dict[str, Any], tensors: dict[str, Any], width: int) -> Head:
    classes, rows = len(config["classes"]), len(tensors["labels"])
    shapes = {
        "mean": (width,),
        "scale": (width,),
        "bank": (rows, width),
        "labels": (rows,),
        "weight": (classes, width),
        "bias": (classes,),
    }
    for name, shape in shapes.items():
        if tensors[name].shape != shape or not np.isfinite(tensors[name]).all():
            raise InputError(f"'{name}' has shape {tensors[name].shape} in place of {shape}, or is not finite")
    labels = tensors["labels"].astype(np.int64)
    if not rows or not classes or labels.min() < 0 or labels.max() >= classes or not config["temperature"] > 0:
        raise InputError("labels and classes do not fit each other")
    parts = {name: tensors[name].astype(np.float32) for name in shapes if name != "labels"}
    return Head(Candidate(str(config["kind"]), float(config["setting"])), classes, labels=labels, **parts)


def _card(model: Model, name: str) -> str:
    counts = "\n".join(f"| {label} | {count} |" for label, count in model.labelled.items())
    score = model.assessment.get("encoder")
    accuracy = (
        f"Accuracy {score['accuracy']:.1%} (95 % interval {score['low']:.1%} to {score['high']:.1%}, "
        f"{score['recordings']} held-out recordings)."
        if score
        else "Its accuracy is not known: a class has one recording only, so that none could be held out."
    )
    return f"""# {name}

A classifier of movements, {model.classifier.head.candidate}. {accuracy}

    halp classify predict {name} RECORDINGS

| class | labelled |
| --- | ---: |
{counts}
"""
