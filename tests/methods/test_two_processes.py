"""Two processes as one: losses across streams and aligned queues are those of a single process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from predictive_recipes import COMMON, RECIPES
from safetensors.torch import load_file

# arguments: folder, rank, number of processes; every method takes four steps with half the batch on each process
PROGRAM = """
import sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from halp.distributed import rank_rows, synchronise_batch_norm
from halp.encoders import EncoderSettings
from halp.methods import MocoMethod, ContrastSettings, HalpSettings, MiningSettings, MochiSettings
from halp.methods import StepContext
from halp.skeleton import KINECT_V1

torch.set_num_threads(1)
folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if world > 1:
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
three, found = ("joint", "motion", "bone"), {}
for name, streams, terms in (
    ("cmd", three, ("infonce", "cmd", "halp")),
    ("mining", three, ("mining",)),
    ("isc", ("joint", "joint@stgcn"), ("cross",)),
    ("mochi", ("joint", "bone"), ("mochi", "halp")),
):
    torch.manual_seed(0)
    model = MocoMethod(
        KINECT_V1,
        1,
        streams=streams,
        terms=terms,
        encoder=EncoderSettings(hidden=4, layers=1),
        encoders={"stgcn": EncoderSettings("stgcn", output=8, stages=1)},
        contrast=ContrastSettings(dimension=8, queue=19, momentum=0.9),
        halp=HalpSettings(start_epoch=0, prototypes=3, count=5, recent=16, guide="cross"),
        mining=MiningSettings(start_epoch=0),
        mochi=MochiSettings(hardest=5, pairs=6, with_query=3, start_epoch=0),
        generator=torch.Generator().manual_seed(1),
    )
    model = synchronise_batch_norm(model, torch.device("cpu"))
    for step in range(4):
        g = torch.Generator().manual_seed(step)
        first, second = torch.randn(2, 8, 6, 1, 20, 3, generator=g)
        loss, *_ = model({"query": first[rank_rows(8)], "key": second[rank_rows(8)]}, StepContext(0, g, False, 8))
        found[f"{name}/loss/{step}"] = loss.detach()
    loss.backward()
    for stream in streams:
        found[f"{name}/{stream}/queue"] = model.queue.keys(stream).clone()
        gradient = torch.cat([p.grad.flatten() for p in model.pairs[stream].query.parameters()])
        if world > 1:
            torch.distributed.all_reduce(gradient)
        found[f"{name}/{stream}/gradient"] = gradient / world
save_file(found, folder / f"{world}-{rank}.safetensors")
"""


# the same for predictive methods, which have neither queue nor momentum twin, each by its recipe in small
PREDICTIVE = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from halp.distributed import rank_rows, synchronise_batch_norm
from halp.dropout import begin_step, dropouts, replace_dropout
from halp.methods import StepContext
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.training.run import build_method

torch.set_num_threads(1)
folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if world > 1:
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
found = {}
for name, settings in json.loads(sys.argv[4]).items():
    method = build_method(load_recipe(name, settings), KINECT_V1, 2)
    replace_dropout(method)
    method = synchronise_batch_norm(method, torch.device("cpu"))
    for step in range(2):
        g = torch.Generator().manual_seed(step)
        clips, rows = torch.randn(7, 12, 2, 20, 3, generator=g), rank_rows(7)
        clips[3, :, 1] = 0
        begin_step(list(dropouts(method)), 0, 0, step, rows, 7)
        output = method({"clip": clips[rows]}, StepContext(0, g, True, 7))
        found |= {f"{name}/{entry}/{step}": value for entry, value in output.metrics.items()}
    output.loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in method.parameters() if p.grad is not None])
    if world > 1:
        torch.distributed.all_reduce(gradient)
    found[f"{name}/gradient"] = gradient / world
save_file(found, folder / f"{world}-{rank}.safetensors")
"""


def test_two_processes_have_the_losses_gradients_and_queues_of_one(tmp_path: Path) -> None:
    compare_one_and_two_processes(tmp_path, PROGRAM)


def test_two_processes_have_the_losses_and_gradients_of_one_in_predictive_methods(tmp_path: Path) -> None:
    settings = {name: [*COMMON, *small] for name, (small, _) in RECIPES.items()}
    found = compare_one_and_two_processes(tmp_path, PREDICTIVE, json.dumps(settings))
    assert {name.split("/")[0] for name in found} == set(RECIPES)
    assert all(value.isfinite().all() for value in found.values())


def compare_one_and_two_processes(tmp_path: Path, program: str, *more: str) -> dict[str, torch.Tensor]:
    """Run a program on one process and on two, compare all tensors that it saves, and return those of one process."""
    script = tmp_path / "steps.py"
    script.write_text(program)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    jobs = [
        subprocess.Popen([sys.executable, str(script), str(tmp_path), str(rank), str(world), *more], env=environment)
        for rank, world in ((0, 1), (0, 2), (1, 2))
    ]
    assert [job.wait(timeout=120) for job in jobs] == [0, 0, 0]
    alone, *both = (load_file(tmp_path / f"{name}.safetensors") for name in ("1-0", "2-0", "2-1"))
    for name, expected in alone.items():
        for found in both:
            torch.testing.assert_close(
                found[name], expected, atol=2e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
            )
    return alone
