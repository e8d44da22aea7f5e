"""The examples of CONTRIBUTING.md, taken out of the page and used: each registers its component, and halp
runs it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import halp
from halp.augment.base import AUGMENTATIONS
from halp.core.registry import load_plugin
from halp.data.ingest.prepare import prepare
from halp.data.store import Store
from halp.encoders import ENCODERS
from halp.evaluation.protocol import PROTOCOLS
from halp.methods import METHODS, TERMS
from halp.training import load_recipe, pretrain

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = {
    block[0]: block[1] for block in re.findall(r"### An? (.*?)\n.*?```python\n(.*?)```", PAGE, flags=re.S)
}


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    for seam, code in EXAMPLES.items():
        file = tmp_path_factory.mktemp("page") / f"{seam.replace(' ', '_')}.py"
        file.write_text(code)
        load_plugin(str(file))


def test_the_page_has_an_example_for_each_of_the_six_seams() -> None:
    assert set(EXAMPLES) == {"encoder", "loss term", "method", "augmentation", "protocol", "reader"}
    assert all(len(code.splitlines()) <= 35 for code in EXAMPLES.values())
    registered = [
        ENCODERS["mean-pose"],
        TERMS["pull"],
        METHODS["still"],
        AUGMENTATIONS["shift"],
        PROTOCOLS["majority"],
    ]
    assert [entry.plugin for entry in registered] == [
        *("encoder.py", "loss_term.py", "method.py", "augmentation.py", "protocol.py")
    ]


@pytest.mark.parametrize("kind", ["terms", "method"])
def test_the_components_train_together_and_are_evaluated(tmp_path: Path, store: Store, kind: str) -> None:
    settings = [
        "epochs=2",
        "batch_size=16",
        "encoder.name=mean-pose",
        "encoder.width=6",
        "saving.log_every=1",
    ]
    settings += ['views.augmentations=["crop-resize", {name="shift", probability=0.5}]', "views.frames=8"]
    if kind == "terms":
        settings += [
            'terms=["infonce", "pull"]',
            "pull.weight=0.2",
            "contrast.queue=32",
            "contrast.dimension=8",
        ]
    else:
        settings += ["method=still"]
    run = pretrain(load_recipe("small", settings), store, tmp_path / "run", progress=False)
    assert ("loss_pull" in run.metrics()[-1]) == (kind == "terms")
    assert set(run.info["plugins"]) >= {"encoder.py", "augmentation.py"}
    result = halp.evaluate(run.encoder(), store, protocol="majority", split="xsub", progress=False)
    assert 0 < result.accuracy < 50


def test_the_reader_reads(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    values = np.arange(2 * 60, dtype="<f4").reshape(2, 1, 20, 3)
    (source / "one.raw20").write_bytes(values.tobytes())
    prepare("auto", source, tmp_path / "store", normalisation=())
    np.testing.assert_array_equal(halp.open_store(tmp_path / "store").clip(0), values)
