"""`python -m benchmarks.exact_linear`: the exact linear classifier of halp beside scikit-learn's, on real features.

Both minimise the same regularised cross entropy on standardised features, of raw coordinates and of an untrained GRU, on
one core. What it showed is in the docstring of `halp.evaluation.protocols.linear`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression

from benchmarks.baselines import DATA
from halp.core.sampling import generator
from halp.data.ingest.prepare import prepare
from halp.data.store import Store, open_store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import RawCoordinates
from halp.evaluation.protocols.linear import LinearSettings, fit_linear, linear_scores
from halp.features.embed import embed

SETS = {"utd-mhad": "xsub", "nw-ucla": "xview"}
PENALTIES = (1.0, 0.01)


def untrained_gru(store: Store) -> PretrainedEncoder:
    """A GRU with the weights of seed 0."""
    torch.manual_seed(0)
    network = build_encoder(EncoderSettings(hidden=128, layers=2), store.topology, store.persons)
    options = {"persons": store.persons, "frames": 32, "normalisation": store.normalisation}
    return PretrainedEncoder(network, store.topology, **options).eval()  # type: ignore[arg-type]


def compare(name: str, encoder: PretrainedEncoder, store: Store, split: str, penalty: float) -> str:
    """One row of the table: accuracy, seconds, and on how many test clips the two agree."""
    features, (train, test), labels = embed(encoder, store, progress=False), store.split(split), store.labels
    began = time.perf_counter()
    settings = LinearSettings(solver="exact", penalty=penalty)
    ours = fit_linear([features[train]], labels[train], settings, generator(0, "linear"), progress=False)
    between = time.perf_counter()
    mean, scale = features[train].mean(0), features[train].std(0, ddof=1).clip(1e-6)
    theirs = LogisticRegression(C=1 / (penalty * len(train)), max_iter=2000)
    theirs.fit((features[train] - mean) / scale, labels[train])
    seconds = (between - began, time.perf_counter() - between)
    predicted = linear_scores(ours, features[test]).argmax(1), theirs.predict((features[test] - mean) / scale)
    accuracy = [100 * float((one == labels[test]).mean()) for one in predicted]
    same = int((predicted[0] == predicted[1]).sum())
    return (
        f"| {name} | {len(train)} × {features.shape[1]} | {penalty:g} | {accuracy[0]:.2f} | {accuracy[1]:.2f} "
        f"| {same} of {len(test)} | {seconds[1] / seconds[0]:.2f} |"
    )


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(
        "| features | clips × width | penalty | halp, % | scikit-learn, % | same answer | time, scikit-learn ÷ halp |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, split in SETS.items():
            path = Path(folder) / name
            steps = ("drop-empty", "centre", "rotate-mean")
            prepare("interchange", DATA / f"{name}.npz", path, normalisation=steps, progress=False)
            store = open_store(path)
            encoders = {"raw": RawCoordinates(store.topology, persons=store.persons), "GRU": untrained_gru(store)}
            for kind, encoder in encoders.items():
                for penalty in PENALTIES:
                    print(compare(f"{name}, {kind}", encoder, store, split, penalty), flush=True)


if __name__ == "__main__":
    main()
