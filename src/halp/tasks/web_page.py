"""A static folder that recognises movements in the browser: page, model file, pose estimator and libraries.

The page's own files lie in `halp.reports` under `web/`. Its libraries come from npm in the versions of
`package-lock.json`, which states their hashes; the folder is complete without them but for that one command.
"""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

from halp.core.errors import InputError
from halp.core.files import write_json, write_text
from halp.core.packages import CARD
from halp.core.progress import log
from halp.data.topology_file import find_topology
from halp.skeleton import Topology, get_topology
from halp.tasks.model_folder import Model, card_of
from halp.tasks.segment import STRIDE, WINDOW
from halp.tasks.segments import SEEN

LAYOUTS = {3: "mediapipe-33", 2: "mediapipe-33-2d"}  # of the estimator in the browser
OWN = ("index.html", "page.css", "page.mjs", "package.json", "package-lock.json", "vendor.mjs")
STEPS = (("ci", "--ignore-scripts", "--no-audit", "--no-fund"), ("run", "--silent", "vendor"))
PATIENCE = 600  # seconds of a step
COMMAND = "npm ci --ignore-scripts && npm run vendor"


def page_model(what: object, topology: str | Topology | None) -> tuple[Model, str]:
    """A model and the joint layout of the page; refused without classes or with another layout."""
    if not isinstance(what, Model):
        raise InputError("--web needs classes; make a model with `halp classify fit ENCODER LABELLED MODEL`")
    layout = LAYOUTS[what.encoder.topology.dimensions]
    if topology is not None and find_topology(topology).name != layout:
        raise InputError(f"the page reads the joints of MediaPipe ({layout}); leave out --topology")
    return what, layout


def write_page(model: Model, folder: Path, name: str, pose_model: Path, onnx: dict[str, Any]) -> None:
    """Write the page beside its `model.onnx` into an existing folder; `onnx` holds the facts of that file."""
    if pose_model.suffix != ".task":
        raise InputError(f"the page needs a .task file of mediapipe's PoseLandmarker, not '{pose_model}'")
    source = files("halp.reports") / "web"
    for file in OWN:
        (folder / file).write_bytes((source / file).read_bytes())
    shutil.copyfile(pose_model, folder / "pose.task")
    write_json(folder / "page.json", {"name": name, **page_facts(model)})
    write_text(folder / CARD, card_of(model, name, onnx))


def page_facts(model: Model) -> dict[str, Any]:
    """Facts about a model for the page."""
    encoder, cutting = model.encoder, model.cutting
    layout = get_topology(LAYOUTS[encoder.topology.dimensions])
    return {
        "classes": list(model.classifier.classes),
        "rejects": model.can_reject,
        "window": cutting.window or WINDOW,
        "stride": cutting.stride or STRIDE,
        "persons": encoder.persons,
        "joints": len(layout),
        "coordinates": layout.dimensions,
        "bones": [list(bone) for bone in layout.bones],
        "seen": SEEN,
    }


def add_libraries(folder: Path) -> None:
    """Fetch the page's libraries with npm; if that fails, a warning gives the command."""
    npm = shutil.which("npm")
    why = "npm is not installed" if npm is None else _failure(npm, folder)
    if why:
        shutil.rmtree(folder / "node_modules", ignore_errors=True)
        log.warning(f"the page still needs its libraries ({why}); run in its folder: {COMMAND}")


def _failure(npm: str, folder: Path) -> str:
    """Run the steps; the reason if one failed, else an empty string."""
    for step in STEPS:
        try:
            done = subprocess.run(  # noqa: S603  (fixed arguments)
                [npm, *step], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"npm {step[0]}: {error}"
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            return f"npm {step[0]}: {(lines or ['failed'])[0][:200]}"
    return ""
