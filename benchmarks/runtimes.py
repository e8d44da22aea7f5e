"""One ONNX file in every runtime against the library: `python -m benchmarks.runtimes --json results/runtimes.json`.

For both shipped encoders, a plain and an adapted classifier and five layouts each, a model file answers 1,000
clips in onnxruntime for Python, for Node and as WebAssembly in Chromium. The clips have 5 to 240 frames of 15, 30
or 60 a second, one to three persons, missing coordinates, joints, frames and persons. Needs `playwright`, Chromium,
Node, and a folder into which `npm install onnxruntime-node onnxruntime-web` was run (`--modules`). What `--json`
holds already is not run again. `--cost` instead writes the size of each encoder's file, alone and with classifiers
of as many labels as they keep, and the CPU time of one clip of 60 frames with one person and with two: of 300, the least,
as other programs only add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import halp
from halp._version import __version__, revision
from halp.skeleton import Topology, get_topology
from halp.tasks.classifier import Classifier, most_kept
from halp.tasks.heads import Candidate, fit_head, round_to_eight_bit
from halp.tasks.model_folder import Model

LAYOUTS = {
    "halp-base": ("body-16", "kinect-v2", "mediapipe-33", "h36m-17", "smpl-24"),
    "halp-view": ("body-16-2d", "coco-17", "openpose-25", "mediapipe-33-2d", "halpe-26"),
}
KINDS = {"plain": "linear", "adapted": "adapted"}
CLASSES = ["a", "b", "c"]
FULL = ("prototypes", "knn")  # classifiers of as many labelled vectors as they keep
ANSWER = """
export async function answersOf(ort, model, bytes, shapes) {
  const session = await ort.InferenceSession.create(model);
  const answers = [];
  let offset = 0;
  for (const shape of shapes) {
    const size = shape.reduce((a, b) => a * b, 1);
    const points = new Float32Array(bytes.slice(4 * offset, 4 * (offset + size)));
    offset += size;
    const found = await session.run({ points: new ort.Tensor("float32", points, shape) });
    answers.push([Array.from(found.probabilities.data), Array.from(found.rejected.data, Boolean)]);
  }
  return answers;
}
"""
NODE = """
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { answersOf } from "./answer.mjs";
const [modules, folder] = process.argv.slice(2);
const ort = createRequire(`${modules}/`)("onnxruntime-node");
const read = (name) => readFileSync(`${folder}/${name}`);
const bytes = new Uint8Array(read("points.bin")).buffer;
const answers = await answersOf(ort, `${folder}/model.onnx`, bytes, JSON.parse(read("shapes.json")));
writeFileSync(`${folder}/answers.json`, JSON.stringify(answers));
"""
PAGE = """<!doctype html><script type="module">
import * as ort from "/modules/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";
import { answersOf } from "/answer.mjs";
ort.env.wasm.numThreads = 1;
window.ask = async (folder) => {
  const read = async (name) => (await fetch(`/${folder}/${name}`)).arrayBuffer();
  const shapes = await (await fetch(`/${folder}/shapes.json`)).json();
  return answersOf(ort, await read("model.onnx"), await read("points.bin"), shapes);
};
</script>"""
Answers = list[tuple[list[float], list[bool]]]


def clips(topology: Topology, count: int, seed: int, damaged: bool = True) -> list[np.ndarray]:
    """Recordings `(T, P, V, C)` of three movements, at three frame rates; damaged ones with NaN."""
    draw, made = np.random.default_rng(seed), []
    body = np.random.default_rng(0).normal(size=(len(topology), topology.dimensions))
    for number in range(count):
        rate, persons = (15, 30, 60)[number // 3 % 3], int(draw.integers(1, 4))
        frames = int(draw.integers(5, 4 * rate))
        seconds = np.arange(frames)[:, None, None, None] / rate
        swing = np.sin((2 + 2 * (number % 3)) * seconds) * np.sin(np.arange(len(topology)))[:, None]
        shape = (frames, persons, len(topology), topology.dimensions)
        clip = (
            body + 0.4 * swing + 0.03 * draw.normal(size=shape) + draw.normal(size=(1, persons, 1, shape[3]))
        )
        if damaged:
            clip[draw.random(shape[:3]) < draw.choice([0, 0.1, 0.3])] = np.nan
            clip[draw.random(shape) < 0.02] = np.nan
            clip[draw.random(frames) < draw.choice([0, 0.1])] = np.nan
            gone = int(draw.integers(frames))
            clip[gone:, int(draw.integers(persons))] = np.nan
            clip[:, : persons * (number % 10 == 0)] = np.nan  # nobody
        made.append(clip.astype(np.float32))
    return made


def fitted(encoder: str, kind: str) -> Model:
    """A model that rejects."""
    layout = get_topology(LAYOUTS[encoder][0])
    labelled = halp.open_source(clips(layout, 12, 1, damaged=False), topology=layout)
    labelled = labelled.with_labels(np.arange(12) % 3, CLASSES, np.arange(12) // 3)
    further = clips(layout, 60, 2, damaged=False) if kind == "adapted" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unlabelled = None if further is None else halp.open_source(further, topology=layout)
        return halp.classify_fit(
            encoder, labelled, unlabelled=unlabelled, kind=kind, rejection_rate=0.2, progress=False
        )


def write_case(model: Model, layout: str, count: int, folder: Path) -> list[np.ndarray]:
    """A folder with a model file and the clips that it is asked; the clips."""
    halp.export(model, folder, onnx=True, topology=layout)
    asked = clips(get_topology(layout), count, 3)
    (folder / "points.bin").write_bytes(b"".join(clip.tobytes() for clip in asked))
    (folder / "shapes.json").write_text(json.dumps([[1, *clip.shape] for clip in asked]))
    return asked


def in_python(folder: Path, asked: list[np.ndarray]) -> Answers:
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    found = (session.run(None, {"points": clip[None]}) for clip in asked)
    return [(probabilities[0].tolist(), rejected.tolist()) for probabilities, rejected in found]


def in_node(folder: Path, modules: Path) -> Answers:
    script = folder.parent / "node.mjs"
    script.write_text(NODE)
    subprocess.run(["node", str(script), str(modules), str(folder)], check=True)
    return [tuple(one) for one in json.loads((folder / "answers.json").read_text())]


@contextmanager
def browser_page(folder: Path, modules: Path) -> Iterator[Any]:
    """A page of Chromium that can read a folder."""
    from playwright.sync_api import sync_playwright

    (folder / "modules").symlink_to(modules)
    (folder / "index.html").write_text(PAGE)
    handler = partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(600_000)
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_function("() => window.ask")
        yield page
        browser.close()
    server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


def compared(
    model: Model, layout: str, asked: list[np.ndarray], answers: dict[str, Answers]
) -> dict[str, dict[str, Any]]:
    """How far the answers of each runtime are from the library's: probabilities, classes, rejections."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vectors = halp.embed(model.encoder, asked, topology=layout, progress=False)
    wanted, somebody = model.classifier.predict(vectors), vectors.any(1)
    facts = {}
    for runtime, found in answers.items():
        probabilities = np.array([one for one, _ in found])
        rejected = np.array([one[0] for _, one in found])
        facts[runtime] = {
            "clips": len(asked),
            "with nobody": int((~somebody).sum()),
            "rejected": int(rejected.sum()),
            "largest difference": float(np.abs(probabilities - wanted.probabilities).max()),
            "classes that differ": int((probabilities.argmax(1) != wanted.best)[somebody].sum()),
            "rejections that differ": int((rejected != (wanted.rejected | ~somebody)).sum()),
        }
    return facts


def run(count: int, modules: Path, out: Path) -> None:
    """Every encoder, classifier, layout and runtime; `count` clips of each layout."""
    kept = json.loads(out.read_text()) if out.exists() else {"rows": []}
    rows = kept["rows"]
    done = {(row["encoder"], row["classifier"], row["layout"]) for row in rows}
    models: dict[tuple[str, str], Model] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "answer.mjs").write_text(ANSWER)
        with browser_page(folder, modules) as page:
            for kind, encoder, number in product(KINDS, LAYOUTS, range(5)):
                layout = LAYOUTS[encoder][number]
                if (encoder, kind, layout) in done:
                    continue
                if (encoder, kind) not in models:
                    models[encoder, kind] = fitted(encoder, KINDS[kind])
                model, case = models[encoder, kind], f"{encoder}-{kind}-{layout}"
                asked = write_case(model, layout, count, folder / case)
                answers = {
                    "python": in_python(folder / case, asked),
                    "node": in_node(folder / case, modules),
                    "chromium": page.evaluate(f"() => ask('{case}')"),
                }
                shutil.rmtree(folder / case)
                names = {"encoder": encoder, "classifier": kind, "layout": layout}
                for runtime, facts in compared(model, layout, asked, answers).items():
                    rows.append({**names, "runtime": runtime, **facts})
                out.write_text(json.dumps({**kept, **summary(rows, modules)}, indent=1) + "\n")


def costs(out: Path) -> None:
    """Size of files, and CPU milliseconds of a clip of 60 frames on one thread: encoders and many labels."""
    stored = json.loads(out.read_text()) if out.exists() else {}
    rows: list[dict[str, Any]] = []
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for kind, encoder in product((None, *FULL), LAYOUTS):
        network = halp.load_encoder(encoder)
        made = clips(get_topology(LAYOUTS[encoder][0]), 50, 1, damaged=False)
        clip = next(clip for clip in made if len(clip) >= 60 and clip.shape[1] > 1)
        what = network if kind is None else Model(network, many_labels(network, kind))
        with tempfile.TemporaryDirectory() as place:
            file = Path(halp.export(what, Path(place) / "out", onnx=True)) / "model.onnx"
            session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
            size = round(file.stat().st_size / 1e6, 1)
        times = {}
        for persons in (1, 2):
            points, spent = clip[None, :60, :persons], []
            for _ in range(300):
                began = time.process_time_ns()
                session.run(None, {"points": points})
                spent.append((time.process_time_ns() - began) / 1e6)
            facts = {"least_cpu_ms": min(spent), "median_cpu_ms": float(np.median(spent))}
            times[f"persons: {persons}"] = {key: round(value, 2) for key, value in facts.items()}
        kept = 0 if kind is None else most_kept(kind, network.output_size)
        name = f"{kind}, {kept:,} vectors" if kept else "compact"
        load = {"load_average": round(os.getloadavg()[0], 1), "commit": revision()}
        rows.append({"encoder": encoder, "file": name, "megabytes": size, **times, **load})
        print(rows[-1], flush=True)
        out.write_text(json.dumps({**stored, "cost": rows}, indent=1) + "\n")


def many_labels(encoder: Any, kind: str) -> Classifier:
    """A classifier of the most labels it keeps, random vectors around ten means."""
    draw, shape = np.random.default_rng(0), (most_kept(kind, encoder.output_size), encoder.output_size)
    labels = np.arange(shape[0]) % 10
    vectors = draw.normal(size=(10, shape[1]))[labels] + draw.normal(size=shape)
    head = fit_head(Candidate(kind), vectors.astype(np.float32), labels, 10)
    head = replace(head, bank=round_to_eight_bit(head.bank))
    return Classifier(head, tuple("abcdefghij"), 1.0, np.linspace(0, 1, 100))


def summary(rows: list[dict[str, Any]], modules: Path) -> dict[str, Any]:
    """What the file says."""
    return {
        "command": "python -m benchmarks.runtimes",
        "halp": __version__,
        "commit": revision(),
        "date": time.strftime("%Y-%m-%d"),
        "onnxruntime": versions(modules),
        "largest difference": max(row["largest difference"] for row in rows),
        "classes that differ": sum(row["classes that differ"] for row in rows),
        "rejections that differ": sum(row["rejections that differ"] for row in rows),
        "rows": rows,
    }


def versions(modules: Path) -> dict[str, str]:
    """Of the runtimes."""
    names = ("onnxruntime-node", "onnxruntime-web")
    read = {
        name: json.loads((modules / "node_modules" / name / "package.json").read_text())["version"]
        for name in names
    }
    return {"python": onnxruntime.__version__, **read}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--modules", type=Path, default=Path(), help="with node_modules")
    parser.add_argument("--cost", action="store_true", help="measure size and time only")
    parser.add_argument("--clips", type=int, default=200, help="of each layout")
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    if given.cost:
        costs(given.json)
        return
    run(given.clips, given.modules.resolve(), given.json)


if __name__ == "__main__":
    main()
