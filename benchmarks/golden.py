"""Golden runs: one tiny training per recipe family, compared tensor by tensor and bit by bit between two
versions.

    python -m benchmarks.golden --against REVISION     # trains with both versions on this machine and
    compares python -m benchmarks.golden --out DIGESTS.json     # the digests of the present version alone

Both versions are driven through the `halp` command, so that nothing but the recipe and its settings is
assumed of them. Bits depend on the processor and on torch: two versions can be compared only on one machine,
which is what this does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
TINY = ["epochs=3", "batch_size=16", "seed=3", "split=xsub", "saving.checkpoint_epochs=1", "views.frames=16"]
EARLIER = ["dropout_draws=batch"]  # what makes the present version draw as those before it did
QUEUE = "contrast.queue=32"
READ_OUT = "encoder.pooling=mean"  # the read-out of the CPU recipes is not what is compared
# family → recipe, and what makes its special part begin within three epochs of three steps
FAMILIES: dict[str, tuple[str, list[str]]] = {
    "moco": ("cpu-moco", [QUEUE, READ_OUT, "encoder.hidden=12"]),
    "halp": (
        "small",
        [QUEUE, READ_OUT, "encoder.hidden=12", "halp.start_epoch=1", "halp.recent=24", "halp.prototypes=5"],
    ),
    "halp-queue-free": (
        "small",
        [
            READ_OUT,
            "encoder.hidden=12",
            "contrast.queue=0",
            "halp.start_epoch=1",
            "halp.source=batch",
            "halp.prototypes=4",
        ],
    ),
    "cmd": ("small-cmd", [QUEUE, READ_OUT, "encoder.hidden=12"]),
    "halp-cmd": (
        "small-halp-cmd",
        [
            QUEUE,
            READ_OUT,
            "encoder.hidden=12",
            "halp.start_epoch=1",
            "halp.recent=24",
            "halp.prototypes=5",
            "halp.prototype_source=cross_stream",
        ],
    ),
    "crossclr-b": ("small-crossclr-b", [QUEUE, READ_OUT, "encoder.hidden=12", "crossclr.start_epoch=1"]),
    "isc": ("small-isc", [QUEUE, READ_OUT, "encoder.hidden=12"]),
    "aimclr": (
        "small-aimclr-halp",
        [
            QUEUE,
            "halp.prototypes=5",
            "encoder.output=16",
            "encoder.dropout=0.5",
            "aimclr.mining_epoch=1",
            "halp.start_epoch=1",
            "halp.recent=24",
        ],
    ),
    "paper": (
        "ntu60-halp",
        [QUEUE, "encoder.hidden=12", "halp.start_epoch=1", "halp.recent=24", "halp.prototypes=5"],
    ),
    "mochi-halp": (
        "small-mochi-halp",
        [
            QUEUE,
            READ_OUT,
            "encoder.hidden=12",
            "mochi.hardest=8",
            "mochi.start_epoch=1",
            "halp.start_epoch=1",
            "halp.recent=24",
        ],
    ),
    "pcm3-halp": (
        "small-pcm3-halp",
        [
            *(QUEUE, "encoder.hidden=12", "halp.start_epoch=1", "halp.recent=24", "halp.prototypes=5"),
            "mix.interpolation=linear",  # recipes squeeze by the nearest frame since 0.3, as the public code does
        ],
    ),
    "skeletonbt-halp": (
        "small-skeletonbt-halp",
        ["encoder.hidden=12", "barlow.width=16", "halp.start_epoch=1"],
    ),
    "vicreg-halp": ("small-vicreg-halp", ["encoder.hidden=12", "vicreg.width=16", "halp.start_epoch=1"]),
    "ascal": ("small-ascal", [QUEUE, "encoder.hidden=16", "contrast.dimension=16"]),
    "hiclr": ("small-hiclr", [QUEUE, "encoder.output=16", "encoder.stages=1", "hiclr.mining_epoch=1"]),
    "branches": (
        "small-branches",
        [
            QUEUE,
            "encoder.width=16",
            "encoder.frames=16",
            "halp.start_epoch=1",
            "halp.recent=24",
            "halp.prototypes=5",
        ],
    ),
    "tune": (
        "small-tune",
        [
            "encoder.hidden=12",
            "tune.width=16",
            "tune.memory=32",
            "tune.recent=24",
            "tune.prototypes=5",
            "tune.positives=both",
        ],
    ),
    "masked": ("small-masked", ["encoder.width=16", "encoder.frames=16"]),
    "predict-cluster": ("small-predict-cluster", ["encoder.hidden=12"]),
    "ms2l": ("small-ms2l", ["encoder.hidden=12", "ms2l.head=16"]),
    "longt-gan": ("small-longt-gan", ["encoder.hidden=12", "longt-gan.width=16"]),
    "gl-transformer": ("small-gl-transformer", ["encoder.width=4", "encoder.frames=16"]),
    "h-transformer": ("small-h-transformer", ["encoder.width=16", "encoder.frames=16"]),
    "sebirenet": ("small-sebirenet", ["encoder.units=4", "disentanglement.frames=2"]),
}


def train(source: Path, store: Path, folder: Path, family: str, more: Sequence[str] = ()) -> Path:
    """One tiny training of a family by the version whose code lies in `source`; returns its newest
    checkpoint.
    """
    recipe, settings = FAMILIES[family]
    run = folder / family
    arguments = [
        "pretrain",
        str(source.parent / "recipes" / f"{recipe}.toml"),
        "--data",
        str(store),
        "--run",
        str(run),
    ]
    _halp(source, [*arguments, "--set", *TINY, *settings, *more])
    return sorted((run / "checkpoints").glob("step-*"))[-1]


def digests(checkpoint: Path) -> dict[str, str]:
    """A fingerprint of every tensor of a checkpoint, by name."""
    found = {}
    for part in ("model", "optimiser"):
        for name, value in sorted(load_file(checkpoint / f"{part}.safetensors").items()):
            found[f"{part}/{name}"] = hashlib.sha256(
                f"{value.dtype}{value.shape}".encode() + value.tobytes()
            ).hexdigest()
    return found


def compare(revision: str, folder: Path) -> bool:
    """Train every family with the present version and with `revision`; print how many tensors are equal to
    the bit.
    """
    old = folder / "old"
    subprocess.run(
        ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(old), revision],
        check=True,
        capture_output=True,
    )
    try:
        store = folder / "store"
        _halp(old / "src", ["prepare", "synthetic", "96", str(store)])
        equal = True
        drew_rows = "dropout_draws" in (old / "src/halp/training/recipe.py").read_text(encoding="utf-8")
        more = [] if drew_rows else EARLIER
        for family in FAMILIES:
            try:
                before = digests(train(old / "src", store, folder / "before", family))
            except SystemExit as failure:
                if "unknown recipe" not in str(failure):
                    raise
                print(f"{family:16} not in {revision}", flush=True)
                continue
            after = digests(train(ROOT / "src", store, folder / "after", family, more))
            differ = sorted(
                name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
            )
            verdict = "equal" if not differ else f"{len(differ)} DIFFER: {', '.join(differ[:4])}"
            print(f"{family:16} {len(before)} tensors: {verdict}", flush=True)
            equal = equal and not differ
        return equal
    finally:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(old)], check=False)


def _halp(source: Path, arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from halp.cli import main; main()", *arguments]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"halp {' '.join(arguments)} failed with {source}:\n{answer.stderr}")


def main() -> None:
    """Command line of the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--against", help="the revision to compare with")
    parser.add_argument("--out", type=Path, help="write the digests of the present version here")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if chosen.against and not compare(chosen.against, folder):
            sys.exit(1)
        if chosen.out:
            _halp(ROOT / "src", ["prepare", "synthetic", "96", str(folder / "store")])
            made = {
                family: digests(train(ROOT / "src", folder / "store", folder, family)) for family in FAMILIES
            }
            chosen.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
