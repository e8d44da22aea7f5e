"""`python -m tools.encoders.halp_view RUN STORE OUT`: the package of the shipped encoder of 2D poses from a
run on CMU windows.

    python -m tools.encoders.corpus RAW stores/cmu-view --unturned
    halp pretrain cmu-view --data stores/cmu-view --run runs/cmu-view
    python -m tools.encoders.halp_view runs/cmu-view stores/cmu-view src/halp/encoders/shipped/halp-view
    python -m experiments.view --corpus stores/cmu-view

The trained lifting network is followed by the GRU and the kernels of `halp-base`; a second bank of kernels
reads the picture itself. Biases and scales are fitted to 1,000 training windows as virtual cameras see them;
then four cameras see every window, and the directions of the features that cameras move most are shrunk
(`Invariance`). Beside all these numbers stands a projection to 256 (`compact.safetensors`) that predicts from
any camera what `halp-base` says of the window in space (`fit_compact`). Weights are stored in half precision.
Metrics on the card are those of `results/view.json`, if it is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import torch
from rich.console import Console
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from experiments.files import RESULTS
from experiments.view import FLAT, STEPS, camera_windows
from halp.core.errors import InputError
from halp.core.packages import find_package
from halp.data.store import Store, open_store
from halp.encoders.lifted import own_frame
from halp.encoders.pretrained import CARD, PretrainedEncoder, build_architecture, load_package
from halp.features.loading import load_encoder
from halp.tasks.export import export
from halp.training.recipe import load_recipe

PERSONS = 2
FRAMES = 64
FITTED = 1000  # windows for kernels and scales
SEEN, VIEWS = 9093, 4  # windows (all training windows), and cameras that see each of them
PICTURE_GAINS = (1.0, 1.0, 1.0)  # joints, bones and motion of the picture
INVARIANT = 256  # directions that cameras move most
OUTPUTS = 256
RIDGE = 0.3  # of the mean eigenvalue
POWER = 0.5  # of the spread that a direction of the features in space keeps
# what several cameras and estimators make of one window
FAULTS = (
    {"name": "bone-lengths", "min": 0.85, "max": 1.18},
    {"name": "camera"},
    {"name": "jitter", "sigma": 0.06},
    {"name": "picture"},
)
CARD_TEXT = """# {name}

A frozen encoder of human movement in videos: 2D key points of a clip in, {features} numbers out, from any camera position.
Its network was trained by lifting, not by HaLP; most of its gain over random weights is a closed form (`docs/appendix/views.md`).
`halp.load_encoder("{name}")` needs no network.

- **Architecture**: `lifted`. A network of dilated convolutions over time ({parameters:,} parameters) estimates the depth of the
  joints from one camera's view. The body is then rotated into its own frame, where the GRU and the kernels of `halp-base` read
  it. A second bank of kernels reads the 2D key points directly. Features are shrunk along the {invariant} directions that
  cameras change most (fitted in closed form, without labels).
- **Compact output**: search, groups and the explorer use {compact} numbers (`compact.safetensors`;
  `halp.embed(…, compact=True)`). The projection was fitted by ridge regression without labels: from any camera it predicts
  the features that `halp-base` has of the same movement in 3D. It tolerates a rotated camera better; classifiers with many
  labels read all {features}.
- **Input**: 2D key points in any unit, y down as in images or up, of any layout whose joints map by name onto `body-16-2d`:
  COCO-17 (MMPose, YOLO, AlphaPose), Halpe-26, OpenPose 18 and 25, MediaPipe-33, Human3.6M-17. A key point at (0, 0) is missing;
  gaps are filled on straight lines, joints that are never seen are missing, and without hips the shoulders are the centre. Up to
  two persons, each read alone; the larger value counts. A clip is resized to {frames} frames.
- **Training data**: windows of 64 frames at 30 per second of the CMU motion capture database (mocap.cs.cmu.edu; free for
  research and products, the data itself may not be resold), four fifths of the subjects; no labels.
- **Training**: virtual cameras in perspective (full circle of yaw, pitch −20° to 50°, roll, distances, focal lengths) with the
  faults of estimators: jitter, spikes, swapped sides, joints outside the image, lost frames. Recipe `{recipe}`, {epochs}
  epochs, seed {seed}, halp {version}. Trials: `experiments/results/view_trials.json`.
- **Made by**:

```
python -m tools.encoders.corpus RAW stores/cmu-view --unturned
halp pretrain {recipe} --data stores/cmu-view --run runs/cmu-view
python -m tools.encoders.halp_view runs/cmu-view stores/cmu-view src/halp/encoders/shipped/{name}
python -m experiments.view --corpus stores/cmu-view
```

## Metrics

Top-1 in per cent on sets that it never saw (nw-ucla / utd-mhad / msr-action3d / utkinect / mean), x and y alone; training
clips at 0°, test clips turned by an angle:

{metrics}

## Limits

Clips of one movement, some 1 to 5 seconds; longer recordings have to be cut into windows. The position in the image is
ignored: every frame is centred. Standing and lying look alike to some degree, since the body's own frame is upright. Trained on
7.5 hours of one person at a time; depth that one camera cannot see is guessed.
"""


def packaged(source: Path, corpus: Path) -> PretrainedEncoder:
    """The lifting network of a run or package with kernels, invariance and projection fitted to windows of
    the corpus.
    """
    trained, store = load_encoder(source), open_store(corpus)
    base = load_package(find_package("halp-base") or "halp-base")
    architecture = {
        **trained.architecture,
        **{name: base.architecture[name] for name in ("hidden", "layers", "gains", "step")},
        "picture_gains": list(PICTURE_GAINS),
        "invariant": INVARIANT,
        "outputs": 0,
    }
    inner = build_architecture(architecture, FLAT, PERSONS)
    inner.lifter.load_state_dict(trained.encoder.lifter.state_dict())
    kept = {
        name: value for name, value in base.encoder.state_dict().items() if not name.startswith("invariance.")
    }
    inner.reader.load_state_dict(kept)
    inner.half().float()  # what is stored
    inner.fit(camera_windows(store, FITTED, FRAMES)[0][..., :2])
    projection = fit_cameras(inner, store)
    return PretrainedEncoder(
        inner.half(),
        FLAT,
        stream="joint",
        persons=PERSONS,
        frames=FRAMES,
        normalisation=STEPS,
        origin=trained.origin,
        architecture=architecture,
        projection=projection,
    ).eval()


def fit_cameras(inner: Any, store: Store) -> dict[str, Tensor]:
    """Fit what shrinks in a `lifted` encoder because cameras move it, then its projection to few numbers."""
    features = camera_features(inner.read, store)
    inner.invariance.fit(features)
    return fit_compact(inner.invariance(features), store)


@torch.no_grad()
def camera_features(read: Callable[[Tensor], Tensor], store: Store) -> Tensor:
    """What is read of training windows as several faulty cameras see them: `(VIEWS, SEEN, F)`."""
    views = camera_windows(store, SEEN, FRAMES, seed=1, views=VIEWS, augmentations=FAULTS)[..., :2]
    return torch.stack([torch.cat([read(part) for part in view.split(128)]) for view in views])


@torch.no_grad()
def fit_compact(features: Tensor, store: Store) -> dict[str, Tensor]:
    """A projection: ridge regression from what is read of pictures of a window to `halp-base`'s features of
    it in space.
    """
    base = load_package(find_package("halp-base") or "halp-base").encoder
    bodies = camera_windows(store, SEEN, FRAMES, seed=1, augmentations=())
    space = [base(own_frame(part[:, :, 0], store.topology)[:, :, None]) for part in bodies[0].split(128)]
    target = torch.cat(space).numpy()
    target = (target - target.mean(0)) / (target.std(0) + 1e-3)
    left, scale, _ = randomized_svd(target, min(OUTPUTS, len(target) - 1), n_iter=2, random_state=0)
    rows = features.flatten(0, 1).numpy()
    shift, spread = rows.mean(0), rows.std(0) + 1e-4
    rows = (rows - shift) / spread
    wanted = np.tile(left * scale**POWER, (len(features), 1)).astype(np.float32)
    gram = rows.T @ rows
    gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
    weights = scipy.linalg.solve(gram, rows.T @ wanted, assume_a="pos")
    # probes standardise features: turned at random they keep their distances
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(wanted.shape[1], OUTPUTS)))[0]
    matrix = (weights @ turn).astype(np.float32)
    matrix = matrix / (rows @ matrix).std()
    return {
        "shift": torch.from_numpy(shift),
        "spread": torch.from_numpy(spread),
        "matrix": torch.from_numpy(matrix).half(),
    }


def metrics_table() -> str:
    """The first part of the view table, as Markdown."""
    path = RESULTS / "view.md"
    if not path.exists():
        return "Not measured yet: `python -m experiments.view`."
    text = path.read_text(encoding="utf-8")
    return (
        "### "
        + text.partition("\n## ")[2].partition("\n## halp-view less")[0].replace("\n## ", "\n### ").strip()
    )


def main(arguments: Sequence[str]) -> int:
    """Write the package, or with `--card` only its card again, with new metrics."""
    parser = argparse.ArgumentParser(
        description="The package of the shipped encoder of 2D poses from a run on CMU windows."
    )
    parser.add_argument("run", type=Path, help="the run, or a package whose lifting network is kept")
    parser.add_argument("store", type=Path, help="the store that the run was trained on")
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--card", action="store_true", help="only write the card again, with the metrics of today"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        if not options.card:
            export(packaged(options.run, options.store), options.out)
        encoder = load_package(options.out)
        recipe = load_recipe(str(encoder.origin["recipe"]))
    except InputError as error:
        Console(stderr=True).print(str(error))
        return 2
    facts = {
        "name": options.out.name,
        "recipe": recipe.name,
        "epochs": recipe.epochs,
        "seed": recipe.seed,
        "parameters": sum(parameter.numel() for parameter in encoder.encoder.lifter.parameters()),
        "features": encoder.output_size,
        "compact": OUTPUTS,
        "invariant": INVARIANT,
        "frames": encoder.frames,
        "version": encoder.origin.get("halp", ""),
        "metrics": metrics_table(),
    }
    (options.out / CARD).write_text(CARD_TEXT.format(**facts), encoding="utf-8")
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
