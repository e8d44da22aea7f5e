"""`python -m benchmarks.label_ceiling CMU --ntu RAW`: what could training give at most, on the data that is at hand?

Leave one set out: the GRU of `halp-base` is trained *with the labels* of all other Kinect sets (a head per set, cross-entropy,
crops, turns, shear, noise and hidden joints), 6 epochs of about 18,000 clips, one seed; then it is frozen and judged on the
set that was left out as in `benchmarks.training_pays`, alone and beside the kernels of `halp-base`. No training without labels
on motion capture should be expected to beat it. Trained weights are kept in `--out`. Writes `results/label_ceiling.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.baselines import save_results
from benchmarks.bets import GRU
from benchmarks.training_pays import MEASURES, OURS, PLAIN, Array, encode, encoders, measure, open_stores, open_tasks
from halp.core.errors import InputError
from halp.core.initialisation import initialise
from halp.data.store import Store, open_store
from halp.encoders import EncoderSettings, build_encoder
from halp.evaluation import RawCoordinates, embed
from halp.evaluation.results import versions
from halp.skeleton import get_topology

BODY = get_topology("body-16")
READ, FRAMES = 64, 32
EPOCHS, BATCH, RATE = 6, 128, 2e-3
EVENLY, MOST = 4000, 6  # small sets are repeated up to so many clips, so many times at most


def fresh() -> Any:
    """The GRU of `halp-base` with random weights."""
    settings = EncoderSettings("fusion", hidden=96, layers=2, gains=[0.3, 0.3, 1.5, 0.0, 0.0])
    return initialise(build_encoder(settings, BODY, 1))


def turns(count: int, amplitude: float) -> Tensor:
    """Rotations `(B, 3, 3)` by up to `amplitude` about each axis."""
    angles = (torch.rand(count, 3) * 2 - 1) * amplitude
    cos, sin, zero, one = angles.cos(), angles.sin(), torch.zeros(count), torch.ones(count)

    def matrix(*rows: Tensor) -> Tensor:
        return torch.stack(rows, 1).view(count, 3, 3)

    about_x = matrix(one, zero, zero, zero, cos[:, 0], -sin[:, 0], zero, sin[:, 0], cos[:, 0])
    about_y = matrix(cos[:, 1], zero, sin[:, 1], zero, one, zero, -sin[:, 1], zero, cos[:, 1])
    about_z = matrix(cos[:, 2], -sin[:, 2], zero, sin[:, 2], cos[:, 2], zero, zero, zero, one)
    return about_x @ about_y @ about_z


def augment(clips: Tensor) -> Tensor:
    """A crop of 60 to 100 % at `FRAMES` frames, turned, sheared, with noise and hidden joints."""
    count = len(clips)
    span = torch.rand(count) * 0.4 + 0.6
    start = torch.rand(count) * (1 - span)
    place = (start[:, None] + span[:, None] * torch.linspace(0, 1, FRAMES)) * (READ - 1)
    below, rows = place.long(), torch.arange(count)[:, None]
    share = (place - below)[..., None, None]
    view = torch.lerp(clips[rows, below], clips[rows, (below + 1).clamp_max(READ - 1)], share)
    seen = (view != 0).any(1, keepdim=True).any(3, keepdim=True)
    change = turns(count, 0.3) + (torch.rand(count, 3, 3) - 0.5) * 0.3
    view = (view.flatten(1, 2) @ change).view_as(view)
    view = view + torch.randn_like(view) * 0.05
    hidden = (torch.rand(count, 1, len(BODY), 1) < 0.1) & (torch.rand(count, 1, 1, 1) < 0.5)
    return view * seen * ~hidden


def train(clips: Mapping[str, Tensor], labels: Mapping[str, Tensor], console: Console) -> Any:
    """A GRU that classifies the clips of all these sets, each among the classes of its own set."""
    torch.manual_seed(0)
    encoder = fresh()
    sizes = [int(labels[name].max()) + 1 for name in clips]
    ends = np.cumsum([0, *sizes])
    own = torch.full((len(sizes), int(ends[-1])), -1e4)
    x, y, which = [], [], []
    for number, name in enumerate(clips):
        own[number, ends[number] : ends[number + 1]] = 0
        times = max(1, min(MOST, round(EVENLY / len(clips[name]))))
        x.append(clips[name].repeat(times, 1, 1, 1))
        y.append((labels[name] + ends[number]).repeat(times))
        which.append(torch.full((len(x[-1]),), number))
    data, wanted, sets = torch.cat(x), torch.cat(y), torch.cat(which)
    head = nn.Linear(encoder.output_size, int(ends[-1]))
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], 1e-3)
    steps = EPOCHS * (len(data) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, steps + 1)
    encoder.train()
    for epoch in range(EPOCHS):
        right = 0
        batches = [rows for rows in torch.randperm(len(data)).split(BATCH) if len(rows) == BATCH]
        for rows in batches:
            features = F.dropout(encoder(augment(data[rows])[:, :, None]), 0.3)
            scores = head(features) + own[sets[rows]]
            optimiser.zero_grad()
            F.cross_entropy(scores, wanted[rows]).backward()
            nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            right += int((scores.argmax(1) == wanted[rows]).sum())
        console.print(f"epoch {epoch + 1}/{EPOCHS}: {100 * right / (BATCH * len(batches)):.1f} % of the training clips")
    return encoder


@torch.no_grad()
def features_of(encoder: Any, clips: Tensor) -> Array:
    """Standardised features of clips."""
    vectors = torch.cat([encoder(part[:, :: READ // FRAMES, None]) for part in clips.split(256)]).numpy()
    return np.asarray((vectors - vectors.mean(0)) / (vectors.std(0) + 1e-3))


def judge(
    left: str, stores: Mapping[str, Store], plain: Mapping[str, Array], folder: Path, console: Console
) -> dict[str, Array]:
    """Features of the clips of the set that was left out, by method."""
    raw = RawCoordinates(BODY, persons=1, frames=READ)
    clips = {
        name: torch.from_numpy(embed(raw, store, progress=False)).view(len(store), READ, len(BODY), 3)
        for name, store in stores.items()
    }
    others = {name: part for name, part in clips.items() if name != left}
    path = folder / f"labels-{left}.safetensors"
    if not path.exists():
        labels = {name: torch.from_numpy(np.asarray(stores[name].labels)).long() for name in others}
        save_file(train(others, labels, console).state_dict(), path)
    trained = fresh()
    trained.load_state_dict(load_file(path))
    torch.manual_seed(0)
    untrained = fresh().train()
    untrained.input_norm.momentum = None
    with torch.no_grad():  # means and spreads of its inputs
        untrained(torch.cat([part[:400, :: READ // FRAMES, None] for part in others.values()]))
    found, kernels = {}, plain[left][:, GRU:]
    for name, encoder in (("untrained GRU", untrained.eval()), ("GRU trained with labels", trained.eval())):
        found[name] = features_of(encoder, clips[left])
        found[f"{name}, beside the kernels"] = np.concatenate([found[name], kernels], 1)
    return found


def main(arguments: Sequence[str]) -> int:
    """Train, judge, write."""
    parser = argparse.ArgumentParser(description="A GRU trained with the labels of all other sets.")
    parser.add_argument("store", type=Path, help="made by benchmarks/corpus.py")
    parser.add_argument("--ntu", type=Path, help="folder of NTU-60 files")
    parser.add_argument("--out", type=Path, default=Path("runs/training_pays"), help="as of `benchmarks.training_pays`")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        cmu, stores = open_store(options.store), open_stores(options.out, options.ntu)
    except InputError as error:
        console.print(f"{error}; data is looked for in HALP_SHARED/data")
        return 2
    makers = {name: maker for name, maker in encoders(cmu).items() if name in (PLAIN, OURS)}
    kept = encode(stores, makers, options.out)
    table: dict[str, Any] = {}
    for left in stores:
        found = {**judge(left, stores, kept[PLAIN], options.out, console), OURS: kept[OURS][left]}
        for task in open_tasks(stores, validate=False):
            for method, features in found.items() if task.store == left else ():
                cells = measure(task, features)
                table.setdefault(method, {})[task.name] = {m: round(100 * float(cells[m].mean()), 2) for m in MEASURES}
                console.print(method, task.name, table[method][task.name])
    for row in table.values():
        row["mean"] = {name: round(float(np.mean([cells[name] for cells in row.values()])), 2) for name in MEASURES}
    command = f"python -m benchmarks.label_ceiling CMU{' --ntu RAW' if options.ntu else ''}"
    save_results("label_ceiling", {"command": command, "epochs": EPOCHS, "versions": versions(), "accuracy": table})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
