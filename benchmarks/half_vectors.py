"""Compact vectors with products in bfloat16 against float32: kNN on the sets of `experiments.transfer`, and time.

`python -m benchmarks.half_vectors FOLDER [SET …]` measures all sets, or those that are named, and adds them to
`results/half-vectors.json`; it needs a processor with bfloat16 products. `autocast` converts products only, `whole` the
whole network. The ways take turns, block by block, on one thread; the store of a set is kept in the folder.
"""

from __future__ import annotations

import json
import sys
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import RESULTS, machine
from experiments.files import DATA
from experiments.transfer import LAYOUTS, SETS, parts_of
from halp.data.ingest.prepare import prepare
from halp.data.store import Store, open_store
from halp.encoders.pretrained import compacted
from halp.evaluation.protocols.knn import knn_predict
from halp.features.encode import centre_crops, source_pool
from halp.features.loading import load_encoder
from halp.features.opening import open_source

KEPT, BLOCK = RESULTS / "half-vectors.json", 32


def opened(folder: Path, name: str) -> Store:
    """A set in the layout of the encoder, prepared once."""
    topology, steps = LAYOUTS["body-16"]
    if not (folder / name).exists():
        prepare(
            "interchange",
            DATA / f"{name}.npz",
            folder / name,
            topology=topology,
            normalisation=steps,
            progress=False,
        )
    return open_store(folder / name)


def measure(name: str, store: Store) -> dict[str, Any]:
    """kNN (k = 1) with the vectors of every way, their lowest cosine to float32, and how much faster it is."""
    whole = compacted(load_encoder("halp-base")).eval()
    networks = {"float32": whole, "autocast": whole, "whole": deepcopy(whole).bfloat16()}
    pool = source_pool(whole, open_source(store))
    parts: dict[str, list[Any]] = {way: [] for way in networks}
    taken: dict[str, list[float]] = {way: [] for way in networks}
    for clips in torch.arange(len(pool.lengths)).split(BLOCK):
        cut = pool.cut(clips, *centre_crops(pool.lengths[clips]), whole.frames)
        for way, network in networks.items():
            began = time.process_time()
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
                parts[way].append(network(cut.bfloat16() if way == "whole" else cut).float().numpy())
            taken[way].append(time.process_time() - began)
    vectors = {
        way: torch.nn.functional.normalize(torch.from_numpy(np.concatenate(blocks)))
        for way, blocks in parts.items()
    }
    found: dict[str, Any] = {"blocks": len(taken["float32"]) - 1}
    for way, rows in vectors.items():
        right = [
            100
            * float(
                np.mean(
                    knn_predict(rows.numpy()[train], store.labels[train], rows.numpy()[test], k=1)
                    == store.labels[test]
                )
            )
            for train, test in parts_of(name, store)
        ]
        faster = np.array(taken["float32"][1:]) / np.array(taken[way][1:])
        found[way] = {
            "knn": round(float(np.mean(right)), 2),
            "lowest cosine": round(float((rows * vectors["float32"]).sum(1).min()), 5),
            "float32 ÷ this, time": round(float(np.median(faster)), 3),
        }
    return found


def main(folder: str, *names: str) -> None:
    torch.set_num_threads(1)
    found = json.loads(KEPT.read_text()) if KEPT.exists() else {"sets": {}}
    found["machine"] = machine()
    for name in names or SETS:
        found["sets"][name] = measure(name, opened(Path(folder), name))
        KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(name, found["sets"][name], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
