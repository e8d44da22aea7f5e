"""Two processes as one: losses across streams, mixes, correlations and aligned queues are those of a single
process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forked as subprocess
import pytest
import torch
from predictive_recipes import COMMON, RECIPES
from safetensors.torch import load_file

pytestmark = pytest.mark.slow  # real processes

# arguments: folder, rank, number of processes; every method takes four steps with half the batch on each
# process
PROGRAM = """
import atexit
import sys
from pathlib import Path
import pytest
import torch
from safetensors.torch import save_file
from benchmarks.compose import compose_moco
from halp.core.distributed import rank_rows, synchronise_batch_norm
import halp.methods as registry
from halp.encoders import EncoderSettings
from halp.zoo.aimclr import AimClrSettings
from halp.methods import ContrastSettings, HalpSettings
from halp.zoo.barlow import BarlowSettings
from halp.zoo.hiclr import HiClrSettings
from halp.methods import CrossClrSettings, MocoMethod
from halp.zoo.mochi import MochiSettings
from halp.methods import BuildContext, StepContext
from halp.zoo.stars import TuneMethod, TuneSettings
from halp.zoo.vicreg import VicregSettings
from halp.skeleton import KINECT_V1

torch.set_num_threads(1)
folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if world > 1:
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
    atexit.register(torch.distributed.destroy_process_group)
three, found = ("joint", "motion", "bone"), {}
gru, stgcn = EncoderSettings(hidden=4, layers=1), EncoderSettings("stgcn", output=8, stages=1)

def moco(*terms, streams=("joint", "bone"), queue=19):
    return compose_moco(
        KINECT_V1,
        1,
        streams=streams,
        terms=terms,
        encoder=gru,
        encoders={"stgcn": stgcn},
        contrast=ContrastSettings(dimension=8, queue=queue, momentum=0.9 if queue else 0.0),
        halp=HalpSettings(0.5, 0, 3, 5, recent=16, **(dict(prototype_source="cross_stream") if queue else dict(source="batch"))),
        crossclr=CrossClrSettings(start_epoch=0),
        mochi=MochiSettings(hardest=5, pairs=6, with_query=3, start_epoch=0),
        aimclr=AimClrSettings(mining_epoch=0),
        hiclr=HiClrSettings(mining_epoch=0),
        generator=torch.Generator().manual_seed(1),
    )

def two_views(settings):
    halp = HalpSettings(0.5, 0, 3, 5, source="batch")
    context = BuildContext(KINECT_V1, 1, 6, {"joint": gru, "bone": stgcn}, {"halp": halp})
    return registry.METHODS[settings.section].build(settings, context)

def tune():
    chosen = TuneSettings("both", width=6, memory=19, prototypes=3, count=5, recent=16)
    draws = torch.Generator().manual_seed(1)
    return TuneMethod(chosen, BuildContext(KINECT_V1, 1, 6, {"joint": gru, "bone": stgcn}, {}, draws))

def ascal():
    contrast = ContrastSettings(dimension=4, queue=19, temperature=0.06, head="none")
    return compose_moco(KINECT_V1, 1, terms=("infonce",), encoder=EncoderSettings("lstm", hidden=4), contrast=contrast)

def branches():
    encoder = EncoderSettings("branches", width=8, feed=8, frames=6)
    return compose_moco(KINECT_V1, 1, terms=("infonce",), encoder=encoder, contrast=ContrastSettings(dimension=4, queue=19))

METHODS = {
    "ascal": ascal,
    "branches": branches,
    "cmd": lambda: moco("infonce", "cmd", "halp", streams=three),
    "crossclr": lambda: moco("crossclr", streams=three),
    "isc": lambda: moco("isc", streams=("joint", "joint@stgcn")),
    "mochi": lambda: moco("mochi", "halp"),
    "aimclr": lambda: moco("aimclr", "halp", streams=("joint", "joint@stgcn")),
    "hiclr": lambda: moco("hiclr", streams=("joint@stgcn",)),
    "pcm3": lambda: moco("infonce", "mix", "self-distillation", "halp", streams=("joint", "motion", "joint@stgcn")),
    "queue-free": lambda: moco("infonce", "halp", queue=0),
    "barlow": lambda: two_views(BarlowSettings(width=6, off_diagonal=0.1)),
    "tune": tune,
    "vicreg": lambda: two_views(VicregSettings(width=6)),
}
for name, build in METHODS.items():
    torch.manual_seed(0)
    model = synchronise_batch_norm(build(), torch.device("cpu"))
    for step in range(4):
        g = torch.Generator().manual_seed(step)
        clips = torch.randn(len(model.views), 8, 6, 1, 20, 3, generator=g)
        views = {view: part[rank_rows(8)] for view, part in zip(model.views, clips)}
        loss, *_ = model(views, StepContext(0, g, False, 8, torch.arange(8) + 3 * step))
        found[f"{name}/loss/{step}"] = loss.detach()
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    if world > 1:
        torch.distributed.all_reduce(gradient)
    found[f"{name}/gradient"] = gradient / world
    found |= {f"{name}/{key}": value.clone() for key, value in model.state_dict().items() if "keys_" in key or "running" in key}
save_file(found, folder / f"{world}-{rank}.safetensors")
"""


# the same for predictive methods, which have neither queue nor momentum twin, each by its recipe in small
PREDICTIVE = """
import atexit
import json, sys
from pathlib import Path
import pytest
import torch
from safetensors.torch import save_file
from halp.core.distributed import rank_rows, synchronise_batch_norm
from halp.core.dropout import begin_step, dropouts, replace_dropout
from halp.methods import StepContext
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.training.run import build_method

torch.set_num_threads(1)
folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if world > 1:
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
    atexit.register(torch.distributed.destroy_process_group)
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


def test_two_processes_have_the_losses_gradients_queues_and_statistics_of_one(tmp_path: Path) -> None:
    compare_one_and_two_processes(tmp_path, PROGRAM)


def test_two_processes_have_the_losses_and_gradients_of_one_in_predictive_methods(tmp_path: Path) -> None:
    settings = {name: [*COMMON, *small] for name, (small, _) in RECIPES.items()}
    found = compare_one_and_two_processes(tmp_path, PREDICTIVE, json.dumps(settings))
    assert {name.split("/")[0] for name in found} == set(RECIPES)
    assert all(value.isfinite().all() for value in found.values())


def compare_one_and_two_processes(tmp_path: Path, program: str, *more: str) -> dict[str, torch.Tensor]:
    """Run a program on one process and on two, compare all tensors that it saves, and return those of one
    process.
    """
    script = tmp_path / "steps.py"
    script.write_text(program)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # benchmarks.compose
    jobs = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), str(rank), str(world), *more], env=environment
        )
        for rank, world in ((0, 1), (0, 2), (1, 2))
    ]
    assert [job.wait(timeout=300) for job in jobs] == [0, 0, 0]
    alone, *both = (load_file(tmp_path / f"{name}.safetensors") for name in ("1-0", "2-0", "2-1"))
    for name, expected in alone.items():
        for found in both:
            torch.testing.assert_close(
                found[name], expected, atol=2e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
            )
    return alone
