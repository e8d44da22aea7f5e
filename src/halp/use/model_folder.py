"""The MODEL of `halp classify`: a folder with the classifier and the package of its encoder, so that it needs nothing else.

`config.json` says what it is, `model.safetensors` holds the classifier, `encoder/` is an encoder package.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from halp._version import __version__
from halp.clips.windows import WindowSettings
from halp.encoders.pretrained import PretrainedEncoder, load_package, write_package
from halp.encoders.sides import one_sided, sides_of, with_sides
from halp.errors import InputError
from halp.files import building, read_json, save_arrays, sha256, write_json, write_text
from halp.packages import CARD, CONFIG, WEIGHTS, find_package
from halp.reports.drawing import render
from halp.use.classifier import REJECTION_RATE, Classifier, check_rejection
from halp.use.export import model_card
from halp.use.heads import Candidate, Head

FORMAT = "halp-classifier"
VERSION = 2
OLD = 1  # without a hash of config.json, with a threshold in place of the rejection rate
_PARTS = ("mean", "scale", "bank", "labels", "weight", "bias")
_SHRUNK = ("axes", "left")  # of a classifier that was adapted to clips without labels


@dataclass(frozen=True)
class Model:
    """An encoder with a classifier on it; made by `classify_fit`, `finetune` or `load_model`.

    Attributes
    ----------
    encoder : PretrainedEncoder
        What gives the vectors.
    classifier : Classifier
        What gives classes, probabilities and rejections.
    cutting : WindowSettings
        How recordings are cut into windows for it.
    assessment : dict
        Cross-validated accuracies with intervals, beside those of the raw coordinates.
    labelled : dict of str to int
        How many clips of every class it was fitted on.
    """

    encoder: PretrainedEncoder
    classifier: Classifier
    cutting: WindowSettings = field(default_factory=WindowSettings)
    assessment: dict[str, Any] = field(default_factory=dict)
    labelled: dict[str, int] = field(default_factory=dict)

    @property
    def package(self) -> PretrainedEncoder:
        """The encoder as it is handed on: it reads a clip once, whatever the model makes of its mirror image."""
        if sides_of(self.encoder) == "matter":
            return self.encoder
        whole = self.encoder.around(one_sided(self.encoder), self.encoder.origin)
        whole.architecture = self.encoder.architecture
        return whole


def save_model(model: Model, path: str | os.PathLike[str]) -> Path:
    """Write a model folder, whole or not at all.

    Parameters
    ----------
    model : Model
        What to write.
    path : path
        The folder to make; whatever exists there is refused.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile, numpy as np, halp
    >>> draw = np.random.default_rng(0)
    >>> clips = [draw.normal(size=(40, 25, 3)) for _ in range(4)]
    >>> source = halp.open_source(clips, topology="kinect-v2").labelled(np.array([0, 0, 1, 1]), ["sit", "wave"])
    >>> model = halp.classify_fit("halp-base", source, kind="prototypes", progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     halp.load_model(halp.save_model(model, f"{folder}/model")).labelled
    {'sit': 2, 'wave': 2}
    """
    path = Path(path)
    check_free(path)
    head, classifier = model.classifier.head, model.classifier
    parts = (*_PARTS, *_SHRUNK) if len(head.left) else _PARTS
    tensors = {name: getattr(head, name) for name in parts} | {"similarities": classifier.similarities}
    try:
        with building(path) as partial:
            (partial / "encoder").mkdir()
            card = model_card(model.package, f"{path.name}/encoder")
            write_package(model.package, partial / "encoder", card=card)
            save_arrays(tensors, partial / WEIGHTS)
            config = json.loads(json.dumps(_describe(model, sha256(partial / WEIGHTS))))
            write_json(partial / CONFIG, {**config, "sha256": fingerprint(config)})
            facts = {"head": str(head.candidate), "score": model.assessment.get("encoder"), "labelled": model.labelled}
            write_text(partial / CARD, render("classifier_card.md", name=path.name, **facts))
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
        "rejection_rate": classifier.rejection_rate,
        "sides": sides_of(model.encoder),
        "windows": asdict(model.cutting),
        "labelled": model.labelled,
        "assessment": model.assessment,
        "halp": __version__,
        "weights": {"file": WEIGHTS, "sha256": weights},
    }


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model folder.

    Parameters
    ----------
    path : path
        What `save_model`, `halp classify fit` or `halp finetune` wrote.

    Returns
    -------
    Model
        Ready to predict.

    Raises
    ------
    InputError
        Where a field, a hash or a shape is not what the folder says.

    Examples
    --------
    >>> import halp
    >>> halp.load_model("nowhere")
    Traceback (most recent call last):
    ...
    halp.errors.InputError: 'nowhere' is not a model folder; make a model with `halp classify fit ENCODER LABELLED MODEL`
    """
    path = Path(path)
    config = read_json(path / CONFIG) if (path / CONFIG).is_file() else None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        encodes = find_package(path) is not None or (path / "run.json").is_file()
        wrong = "an encoder, not a model" if encodes else "not a model folder"
        raise InputError(f"'{path}' is {wrong}; make a model with `halp classify fit ENCODER LABELLED MODEL`")
    if config.get("version") not in (OLD, VERSION):
        raise InputError(f"model '{path}' has version {config.get('version')!r}, this version of halp reads {VERSION}")
    encoder = load_package(path / "encoder")
    try:
        encoder = with_sides(encoder, config.get("sides", "matter"))
        stated = config.pop("sha256", None)
        if config["version"] == VERSION and stated != fingerprint(config):
            raise InputError(f"{CONFIG} does not have the hash that it states")
        if sha256(path / WEIGHTS) != config["weights"]["sha256"]:
            raise InputError(f"{WEIGHTS} does not have the hash that {CONFIG} states")
        tensors = load_file(path / WEIGHTS)
        head = _head(config, tensors, encoder.output_size)
        facts = [config["assessment"], config["labelled"]]
        if not all(isinstance(fact, dict) for fact in facts):
            raise InputError("assessment or labelled is not what it should be")
        old_rate = REJECTION_RATE if facts[0].get("grouped_by") == "person" else None
        rate = config["rejection_rate"] if config["version"] == VERSION else old_rate
        classifier = Classifier(
            head,
            tuple(str(name) for name in config["classes"]),
            float(config["temperature"]),
            tensors["similarities"].astype(np.float64),
            None if rate is None else float(rate),
        )
        check_rejection(rate)
        cutting = WindowSettings(**config["windows"])
    except (InputError, OSError, SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        fault = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"model '{path}' is damaged ({fault}); fit it again") from error
    return Model(encoder, classifier, cutting, *facts)


def fingerprint(facts: dict[str, Any]) -> str:
    """A hash of everything else in config.json, however it is laid out."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


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
    if any(name in tensors for name in _SHRUNK):
        shapes |= {"axes": (width, len(tensors["left"])), "left": (len(tensors["left"]),)}
    for name, shape in shapes.items():
        if tensors[name].shape != shape or not np.isfinite(tensors[name]).all():
            raise InputError(f"'{name}' has shape {tensors[name].shape} in place of {shape}, or is not finite")
    labels = tensors["labels"].astype(np.int64)
    if not isinstance(config["classes"], list) or not rows or labels.min() < 0 or labels.max() >= classes:
        raise InputError("labels and classes do not fit each other")
    if not 1e-3 < config["temperature"] < 1e3:
        raise InputError(f"temperature {config['temperature']} is not possible")
    parts = {name: tensors[name].astype(np.float32) for name in shapes if name != "labels"}
    return Head(Candidate(str(config["kind"]), float(config["setting"])), classes, labels=labels, **parts)
