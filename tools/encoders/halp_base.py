"""`python -m tools.encoders.halp_base RUN STORE OUT`: package `halp-base` from a run on CMU windows, with its
card.

    python -m tools.encoders.corpus RAW stores/cmu
    halp pretrain cmu-moco --data stores/cmu --run runs/cmu-moco
    python -m tools.encoders.halp_base runs/cmu-moco stores/cmu src/halp/encoders/shipped/halp-base
    python -m tools.encoders.compact stores/cmu --fit src/halp/encoders/shipped/halp-base
    python -m experiments.transfer

The trained GRU becomes part of a `kernel-fusion` encoder, whose kernels and scales are fitted to 2,000
training windows. Then three views of every training window, as a Kinect might have seen it
(`tools.encoders.kinect_views`), say which directions of the features views move most; along these they are
shrunk (`Invariance`). Where RUN is a package, as the shipped one, its GRU, kernels and scales are kept and
only that is fitted. It reads up to two persons (each alone, the larger value counts) although CMU recordings
have one, and drops empty frames, which CMU does not have. Metrics on the card are those of
`results/transfer.json`, if it is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from experiments.files import RESULTS
from halp.augment import ClipPool, ViewMaker, centre_views
from halp.core.errors import InputError
from halp.core.packages import CARD, find_encoder, is_package
from halp.data.store import Store, open_store
from halp.encoders.pretrained import PretrainedEncoder, build_architecture, load_package
from halp.features.loading import load_encoder
from halp.tasks.export import export
from halp.training.recipe import load_recipe
from tools.encoders.corpus import NORMALISATION
from tools.encoders.kinect_views import policies

PERSONS = 2
STEP = 2  # the GRU was trained on 32 frames; the kernels read 64
FITTED = 2000  # windows
INVARIANT, FLOOR, VIEWS = (
    128,
    3.0,
    3,
)  # directions that views move most, and how softly they are shrunk (chosen on folds)
CARD_TEXT = """# {name}

A frozen encoder of human movement: joints of a clip in, {features} numbers out. It was trained by MoCo, not by HaLP. Most of
its gain over the same encoder untrained comes from a closed form (`docs/appendix/training-pays.md`).
`halp.load_encoder("{name}")` needs no network.

- **Architecture**: `kernel-fusion`, two parts that read 16 joints. (1) A bidirectional GRU ({layers} layers of 2 × {hidden}
  units) reads joints, bones and motion; its features are the maxima over the thirds of a clip, of every layer. (2) Fixed dilated
  kernels (those of MiniRocket); their features are how often and by how much each exceeds a bias: 504 on joints, bones and
  motion, 504 on distances between joints, 504 on angles between bones. The GRU has {parameters:,} parameters; a third of
  them are for distances and angles, which have gain 0 there. Features are shrunk along the {invariant} directions that a
  Kinect's noise, other bodies, lost frames and crops change most (fitted in closed form, without labels).
- **Input**: any body skeleton whose joints can be mapped by name onto `body-16` (13, 15, 17, 20, 25, 33 joints, BVH); joints
  that are always zero count as missing and get the mean of the training data; up to two persons; any unit, up-axis
  and frame rate. A clip is centred on the hips, turned by its mean axes, divided by the size of the body and resized to
  {frames} frames, of which the GRU reads every second one.
- **Compact output**: search, groups and the explorer use 256 numbers, a projection that was fitted to the training windows
  without labels (`compact.safetensors`; `halp.embed(…, compact=True)`); classifiers read all {features}.
- **Training data**: windows of 64 frames at 30 per second of the CMU motion capture database (mocap.cs.cmu.edu; free for
  research and products, the data itself may not be resold), four fifths of the subjects; no labels.
- **Recipe**: `{recipe}`, {epochs} epochs, seed {seed}, halp {version}; the invariance was fitted later, with these weights
  (RUN below may be a package). The recipe was chosen by the mean ridge accuracy on validation splits of the four sets
  below, among about two hundred trials (`experiments/results/corpus_trials.json`).
- **Made by**:

```
python -m tools.encoders.corpus RAW stores/cmu
halp pretrain {recipe} --data stores/cmu --run runs/{recipe}
python -m tools.encoders.halp_base runs/{recipe} stores/cmu src/halp/encoders/shipped/{name}
python -m tools.encoders.compact stores/cmu --fit src/halp/encoders/shipped/{name}
python -m experiments.transfer --seeds 2
```

## Metrics

Top-1 in per cent on sets that it never saw, frozen, ridge probe (`docs/results.md` says how, and has kNN and few labels):

{metrics}

Most of that is the architecture: **the same encoder without training** is nearly level with it once all labels are used. With one
label per class the closed form adds 3.5 points in their mean, nothing certain on UTD-MHAD (`docs/appendix/few-labels.md`).

## Limits

Clips of one movement, some 1 to 5 seconds; longer recordings have to be cut into windows. Movements that differ in where a
person goes, not in how the body moves, look alike: every frame is centred on the hips. Lying and standing look alike, too, since
the trunk is turned upright. Two-dimensional poses are for `halp-view`. Small: seven and a half hours of one person at a time.
"""


def packaged(source: Path, corpus: Path) -> PretrainedEncoder:
    """The encoder of a run or package, fitted to windows of the corpus, ready to be handed on."""
    trained, store = load_encoder(source), open_store(corpus)
    recipe = load_recipe(str(trained.origin["recipe"]))
    from_run = not is_package(find_encoder(source))  # then kernels and scales are fitted, too
    architecture = {
        "name": "kernel-fusion",
        **{name: trained.architecture[name] for name in ("hidden", "layers", "gains")},
        "step": STEP,
        "invariant": INVARIANT,
    }
    torch.manual_seed(recipe.seed)
    inner = build_architecture(architecture, trained.topology, PERSONS)
    kept = {
        name: value
        for name, value in trained.encoder.state_dict().items()
        if not name.startswith("invariance.")
    }
    inner.load_state_dict({**inner.state_dict(), **kept})
    frames = STEP * trained.frames if from_run else trained.frames
    if from_run:
        windows = np.random.default_rng(recipe.seed).permutation(store.split(recipe.split)[0])[:FITTED]
        inner.fit(centre_views(ClipPool.from_store(store), torch.from_numpy(np.sort(windows)), frames))
    fit_views(inner, store, frames)
    return PretrainedEncoder(
        inner,
        trained.topology,
        stream="joint",
        persons=PERSONS,
        frames=frames,
        normalisation=NORMALISATION,
        origin=trained.origin,
        architecture=architecture,
    ).eval()


@torch.no_grad()
def fit_views(inner: Any, store: Store, frames: int) -> None:
    """Fit the invariance of a `kernel-fusion` encoder to training windows as a Kinect might have seen
    them.
    """
    inner.eval()
    inner.invariance.left.fill_(1)
    maker = ViewMaker(
        policies(frames)["Kinect"], {"view": None}, store.topology, ClipPool.from_store(store), 0
    )
    rows = torch.from_numpy(np.sort(store.split("xsub")[0]))
    features = [
        torch.cat(
            [inner(maker.make(part, view, batch)["view"]) for batch, part in enumerate(rows.split(128))]
        )
        for view in range(VIEWS)
    ]
    inner.invariance.fit(torch.stack(features), FLOOR)


def metrics_table() -> str:
    """The ridge part of the transfer table, as Markdown."""
    path = RESULTS / "transfer.md"
    if not path.exists():
        return "Not measured yet: `python -m experiments.transfer`."
    text = path.read_text(encoding="utf-8")
    return text.partition("## ridge\n")[2].partition("\n## ")[0].strip()


def write_card(package: Path) -> None:
    """The card of a package, with the metrics of today."""
    encoder = load_package(package)
    recipe = load_recipe(str(encoder.origin["recipe"]))
    facts = {
        **{name: encoder.architecture[name] for name in ("hidden", "layers", "invariant")},
        "name": package.name,
        "recipe": recipe.name,
        "epochs": recipe.epochs,
        "seed": recipe.seed,
        "parameters": sum(parameter.numel() for parameter in encoder.parameters()),
        "features": encoder.output_size,
        "frames": encoder.frames,
        "version": encoder.origin.get("halp", ""),
        "metrics": metrics_table(),
    }
    (package / CARD).write_text(CARD_TEXT.format(**facts), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Write the package, or with `--card` only its card again."""
    parser = argparse.ArgumentParser(
        description="The package of the shipped encoder from a run on CMU windows."
    )
    parser.add_argument("run", type=Path, help="the run, or a package whose weights are kept")
    parser.add_argument("store", type=Path, help="the store that the run was trained on")
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--card", action="store_true", help="only write the card again, with the metrics of today"
    )
    options = parser.parse_args(arguments)
    try:
        if not options.card:
            export(packaged(options.run, options.store), options.out)
        write_card(options.out)
    except InputError as error:
        Console(stderr=True).print(str(error))
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
