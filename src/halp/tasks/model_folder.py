"""The MODEL of `halp classify`: a self-contained folder with the classifier and its encoder.

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
from typing_extensions import Unpack

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import building, read_json, save_arrays, sha256, write_json, write_text
from halp.core.packages import CARD, CONFIG, WEIGHTS, find_package
from halp.data.reading import Reading, ReadingKeywords
from halp.data.windows import WindowSettings
from halp.encoders.pretrained import PretrainedEncoder, load_package, write_package
from halp.encoders.sides import one_sided, sides_of, with_sides
from halp.features.source import AnySource
from halp.tasks.calibration import Reject, check_rejection
from halp.tasks.card import model_card
from halp.tasks.classifier import Classifier
from halp.tasks.heads import Candidate, Head
from halp.tasks.segments import Predictions

FORMAT = "halp-classifier"
VERSION = 2
_PARTS = ("mean", "scale", "bank", "labels", "weight", "bias", "similarities")
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
    def can_reject(self) -> bool:
        """Whether the model can reject clips; otherwise `rejected` is None in its answers."""
        return self.classifier.can_reject()

    def predict(
        self,
        source: AnySource,
        *,
        reject: Reject = "auto",
        cache: bool = False,
        progress: bool = False,
        reading: Reading | None = None,
        **keywords: Unpack[ReadingKeywords],
    ) -> Predictions:
        """Classes of arrays, recordings or a store, see `halp.classify_predict`; safe in several threads."""
        from halp.tasks.classify import predict

        return predict(
            self, source, reject=reject, cache=cache, progress=progress, reading=reading, **keywords
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as a folder, atomically; see `halp.save_model`."""
        return save_model(self, path)

    @property
    def package(self) -> PretrainedEncoder:
        """The encoder as exported: it reads a clip once, without the model's mirror image."""
        if sides_of(self.encoder) == "matter":
            return self.encoder
        whole = self.encoder.around(one_sided(self.encoder), self.encoder.origin)
        whole.architecture = self.encoder.architecture
        return whole


def save_model(model: Model, path: str | os.PathLike[str]) -> Path:
    """Write a model folder atomically.

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
    >>> source = halp.open_source(clips, topology="kinect-v2").with_labels(np.array([0, 0, 1, 1]), ["sit", "wave"])
    >>> model = halp.classify_fit("halp-base", source, kind="prototypes", progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     halp.load_model(halp.save_model(model, f"{folder}/model")).labelled
    {'sit': 2, 'wave': 2}
    """
    path = Path(path)
    check_free(path)
    try:
        with building(path) as partial:
            write_model(model, partial, path.name)
    except (OSError, SafetensorError) as error:
        raise InputError(f"the model '{path}' cannot be written ({error}); choose another folder") from error
    return path


def write_model(model: Model, folder: Path, name: str, onnx: dict[str, Any] | None = None) -> None:
    """Write the files of a model into an existing folder; `onnx` holds the facts of its ONNX file."""
    head, classifier = model.classifier.head, model.classifier
    parts = (*_PARTS[:-1], *_SHRUNK) if len(head.left) else _PARTS[:-1]
    tensors = {part: getattr(head, part) for part in parts} | {"similarities": classifier.similarities}
    (folder / "encoder").mkdir()
    write_package(model.package, folder / "encoder", card=model_card(model.package, f"{name}/encoder"))
    save_arrays(tensors, folder / WEIGHTS)
    described = _describe(model, sha256(folder / WEIGHTS)) | ({} if onnx is None else {"onnx": onnx})
    config = json.loads(json.dumps(described))
    write_json(folder / CONFIG, {**config, "sha256": model_fingerprint(config)})
    write_text(folder / CARD, card_of(model, name, onnx))


def card_of(model: Model, name: str, onnx: dict[str, Any] | None = None) -> str:
    """The card of a model; `onnx` holds the facts of its ONNX file."""
    classifier = model.classifier
    width, stride = model.cutting.window, model.cutting.stride or model.cutting.window
    windows = "whole clips" if width is None else f"{width:g} s, one every {stride:g} s"
    facts = {
        "head": str(classifier.head.candidate),
        "score": model.assessment.get("encoder"),
        "labelled": model.labelled,
    }
    facts |= {"classes": classifier.classes, "can_reject": model.can_reject, "windows": windows}
    return model_card(model.package, name, onnx, **facts)


def is_model(source: Any) -> bool:
    """Whether this is a model, or the folder of one."""
    if not isinstance(source, (str, os.PathLike)):
        return isinstance(source, Model)
    config = Path(source) / CONFIG
    if not config.is_file():
        return False
    facts = read_json(config)
    return isinstance(facts, dict) and facts.get("format") == FORMAT


def check_free(path: Path) -> None:
    """Raise if a folder exists, before anything is computed."""
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
        If a field, a hash or a shape is not what the folder says.

    Examples
    --------
    >>> import halp
    >>> halp.load_model("nowhere")
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: 'nowhere' is not a model folder; make a model with `halp classify fit ENCODER
    LABELLED MODEL`
    """
    path = Path(path)
    config = read_json(path / CONFIG) if (path / CONFIG).is_file() else None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        encodes = find_package(path) is not None or (path / "run.json").is_file()
        wrong = "an encoder, not a model" if encodes else "not a model folder"
        raise InputError(f"'{path}' is {wrong}; make a model with `halp classify fit ENCODER LABELLED MODEL`")
    if config.get("version") != VERSION:
        raise InputError(f"model '{path}' has version {config.get('version')!r}; this halp reads {VERSION}")
    encoder = load_package(path / "encoder")
    try:
        encoder = with_sides(encoder, config.get("sides", "matter"))
        if config.pop("sha256", None) != model_fingerprint(config):
            raise InputError(f"{CONFIG} does not have the hash that it states")
        if sha256(path / WEIGHTS) != config["weights"]["sha256"]:
            raise InputError(f"{WEIGHTS} does not have the hash that {CONFIG} states")
        tensors = load_file(path / WEIGHTS)
        head = _head(config, tensors, encoder.output_size)
        facts = [config["assessment"], config["labelled"]]
        if not all(isinstance(fact, dict) for fact in facts):
            raise InputError("'assessment' or 'labelled' is invalid")
        rate = config["rejection_rate"]
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


def as_model(model: Model | str | os.PathLike[str]) -> Model:
    """A model, given as object or folder."""
    if isinstance(model, (str, os.PathLike)):
        return load_model(model)
    if not isinstance(model, Model):
        raise InputError(
            f"a model is needed, not {type(model).__name__}; give a folder, or what classify_fit or"
            " load_model gave"
        )
    return model


def model_fingerprint(facts: dict[str, Any]) -> str:
    """A hash of all other fields of config.json, independent of its layout."""
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
            raise InputError(f"'{name}' has shape {tensors[name].shape} instead of {shape}, or is not finite")
    labels = tensors["labels"].astype(np.int64)
    if not isinstance(config["classes"], list) or not rows or labels.min() < 0 or labels.max() >= classes:
        raise InputError("labels and classes do not match")
    if not 1e-3 < config["temperature"] < 1e3:
        raise InputError(f"temperature {config['temperature']} is not possible")
    parts = {name: tensors[name].astype(np.float32) for name in shapes if name != "labels"}
    return Head(Candidate(str(config["kind"]), float(config["setting"])), classes, labels=labels, **parts)
