"""One ONNX file gives the library's answers in onnxruntime for Python, Node and the browser's WebAssembly,
for five layouts.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import forked as subprocess
import numpy as np
import pytest
from clip_samples import moving_clips

import halp
from halp.skeleton import get_topology
from halp.tasks.model_folder import Model

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytestmark = pytest.mark.slow
CLASSES = ("a", "b", "c")
LAYOUTS = {
    "body-16": "halp-base",
    "kinect-v2": "halp-base",
    "mediapipe-33": "halp-base",
    "coco-17": "halp-view",
    "openpose-25": "halp-view",
}
COUNT = int(os.environ.get("HALP_ONNX_CLIPS", "40"))  # clips per layout


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with onnxruntime-node and onnxruntime-web; `HALP_NODE_MODULES` names one that is there
    already.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed")
    given = os.environ.get("HALP_NODE_MODULES")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("node")
    command = [
        "npm",
        "install",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "onnxruntime-node",
        "onnxruntime-web",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm cannot install onnxruntime: {done.stderr.strip()[-200:]}")
    return folder


def exported(layout: str, folder: Path) -> tuple[Path, Model]:
    """A folder with a model file and clips, and the model."""
    topology = get_topology(layout)
    source = halp.open_source(moving_clips(topology, 24), topology=layout)
    source = source.with_labels(np.arange(24) % 3, list(CLASSES), np.arange(24) // 3)
    model = halp.classify_fit(LAYOUTS[layout], source, kind="linear", rejection_rate=0.2, progress=False)
    folder = halp.export(model, folder / "model", onnx=True, topology=layout)
    clips = [clip[None] for clip in moving_clips(topology, COUNT, seed=1, damaged=True)]
    (folder / "points.bin").write_bytes(b"".join(clip.tobytes() for clip in clips))
    (folder / "cases.json").write_text(json.dumps([clip.shape for clip in clips]))
    return folder, model


def clips_of(folder: Path) -> list[np.ndarray]:
    points, clips = np.frombuffer((folder / "points.bin").read_bytes(), dtype=np.float32), []
    for shape in json.loads((folder / "cases.json").read_text()):
        size = int(np.prod(shape))
        clips.append(points[:size].reshape(shape))
        points = points[size:]
    return clips


def answers_of(runtime: str, folder: Path, modules: Path) -> list[dict[str, list]]:
    """Probabilities and rejections of every clip of a folder."""
    if runtime == "python":
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        found = [session.run(None, {"points": clip}) for clip in clips_of(folder)]
        return [{"probabilities": one[0].ravel().tolist(), "rejected": one[1].tolist()} for one in found]
    script = Path(__file__).with_name("run_onnx.mjs")
    subprocess.run(["node", str(script), runtime, str(modules), str(folder)], check=True, timeout=300)
    return json.loads((folder / "answers.json").read_text())


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_runtime_gives_the_answers_of_the_library(layout: str, modules: Path, tmp_path: Path) -> None:
    """All runtimes in one test: a model is fitted and exported once."""
    folder, model = exported(layout, tmp_path)
    clips = [clip[0] for clip in clips_of(folder)]
    vectors = halp.embed(model.encoder, clips, topology=layout, progress=False)
    wanted, somebody = model.classifier.predict(vectors), vectors.any(1)
    assert 0 < somebody.sum() < len(somebody)
    for runtime in ("python", "node", "web"):
        answers = answers_of(runtime, folder, modules)
        probabilities = np.array([answer["probabilities"] for answer in answers])
        np.testing.assert_allclose(probabilities, wanted.probabilities, atol=1e-4, err_msg=runtime)
        assert (probabilities.argmax(1) == wanted.best)[somebody].all(), runtime
        rejected = [answer["rejected"][0] for answer in answers]
        assert rejected == (wanted.rejected | ~somebody).tolist(), runtime
