"""Whatever stands in the JSON of a package or a model: it loads as it was, or it is refused in one
sentence.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.encoders.pretrained import PretrainedEncoder, load_package
from halp.tasks.classifier import fit_classifier
from halp.tasks.model_folder import Model, load_model, save_model

STRANGE = (
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    1e308,
    float("nan"),
    "",
    "x",
    "../../etc",
    [],
    [[]],
    {},
    {"x": 1},
    ["x", 1],
)


def paths(data: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of all values in nested data; of a long list the first two."""
    entries = (
        list(data.items())
        if isinstance(data, dict)
        else list(enumerate(data))[:2]
        if isinstance(data, list)
        else []
    )
    for key, value in entries:
        yield (*here, key)
        yield from paths(value, (*here, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    data = copy.deepcopy(data)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


def refused_or_loaded(folder: Path, load: Any, keep: int) -> int:
    """Put every strange value in every place of config.json; the number of refusals."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    cases = [(path, value) for path in paths(config) for value in STRANGE]
    refusals = 0
    for path, value in cases[:: max(1, len(cases) // keep)]:
        file.write_text(json.dumps(changed(config, path, value)))
        try:
            load(folder)
        except InputError:
            refusals += 1
    for text in ("", "{", "[]", "null", "3", '"x"', "{}", "\x00", "{" * 5000):
        file.write_text(text)
        with pytest.raises(InputError):
            load(folder)
    return refusals


@pytest.mark.heavy
def test_packages_with_strange_values_are_refused(package: Path, tmp_path: Path) -> None:
    assert refused_or_loaded(shutil.copytree(package, tmp_path / "package"), load_package, 200) > 60


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("encoder", "layers"), 20_000),
        (("encoder", "layers"), 10**7),
        (("frames",), 10_000),
        (("persons",), 1_000),
    ],
)
def test_packages_of_impossible_size_are_refused_before_anything_is_built(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], value: int
) -> None:
    folder = shutil.copytree(package, tmp_path / "package")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(changed(config, path, value)))
    monkeypatch.setattr("halp.encoders.pretrained.build_architecture", lambda *_: pytest.fail("it was built"))
    with pytest.raises(InputError, match=f"{path[-1]} = {value}"):
        load_package(folder)


@pytest.mark.heavy
def test_models_with_strange_values_are_refused(encoder: PretrainedEncoder, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(12, encoder.output_size)).astype(np.float32)
    model = Model(encoder, fit_classifier(vectors, np.arange(12) % 3, list("abc")), labelled={"a": 4})
    assert refused_or_loaded(save_model(model, tmp_path / "model"), load_model, 60) > 50


def test_cut_off_weights_are_refused(package: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(package, tmp_path / "package")
    data = (folder / "model.safetensors").read_bytes()
    for size in (0, 7, 8, 100, len(data) - 1):
        (folder / "model.safetensors").write_bytes(data[:size])
        with pytest.raises(InputError, match=r"damaged|cannot be read"):
            load_package(folder)
