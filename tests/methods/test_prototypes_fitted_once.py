"""Prototypes in several processes: rank 0 clusters for all, and nothing that follows differs between them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked as subprocess
import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow  # real processes

# arguments: folder, rank, number of processes; every setting takes six steps of training with half the batch
# on each
TRAIN = """
import atexit
import sys
from pathlib import Path
import torch
from benchmarks.compose import compose_moco
import halp.hallucinate
from safetensors.torch import save_file
from halp.core.distributed import rank_rows, synchronise_batch_norm
from halp.encoders import EncoderSettings
from halp.methods import MocoMethod, ContrastSettings, HalpSettings
from halp.methods import StepContext
from halp.skeleton import KINECT_V1

torch.set_num_threads(1)
folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if world > 1:
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
    atexit.register(torch.distributed.destroy_process_group)
fits, kmeans, found = [], halp.hallucinate.kmeans, {}
def counted(*given, **more):
    fits.append(1)
    return kmeans(*given, **more)
halp.hallucinate.kmeans = counted
small = dict(start_epoch=0, prototypes=3, count=5, recent=16, refresh=2)
for name, queue, settings in (
    ("queue", 19, HalpSettings(**small)),
    ("warm", 19, HalpSettings(**small, warm_start=True)),
    ("batch", 0, HalpSettings(**small, source="batch")),
):
    torch.manual_seed(0)
    model = compose_moco(
        KINECT_V1,
        1,
        streams=("joint", "motion"),
        terms=("infonce", "halp"),
        encoder=EncoderSettings(hidden=4, layers=1),
        contrast=ContrastSettings(dimension=8, queue=queue, momentum=0.9),
        halp=settings,
        generator=torch.Generator().manual_seed(1),
    )
    model = synchronise_batch_norm(model, torch.device("cpu"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for step in range(6):
        g = torch.Generator().manual_seed(step)
        first, second = torch.randn(2, 8, 6, 1, 20, 3, generator=g)
        loss, *_ = model({"query": first[rank_rows(8)], "key": second[rank_rows(8)]}, StepContext(0, g, False, 8))
        found[f"{name}/{step}/loss"] = loss.detach()
        for parameter, gradient in zip(trained, torch.autograd.grad(loss, trained)):
            if world > 1:
                torch.distributed.all_reduce(gradient)
            parameter.data -= 0.01 * gradient / world
        found[f"{name}/{step}/draws"] = g.get_state()
        for stream in ("joint", "motion"):
            term = model.terms["halp"].streams[stream]
            found[f"{name}/{step}/{stream}/queue"] = model.queue.keys(stream).clone()
            found[f"{name}/{step}/{stream}/centres"] = term.centres.clone()
            found[f"{name}/{step}/{stream}/calls"] = torch.tensor(term.calls)
            if term.last is not None:
                found[f"{name}/{step}/{stream}/theta"] = term.last.theta.clone()
torch.manual_seed(5)
keys = torch.nn.functional.normalize(torch.randn(16, 8), dim=1)
HalpSettings(**small).term(0.07)(keys[:4], keys[4:8], keys)
found["global/draws"] = torch.get_rng_state()
found["fits"] = torch.tensor(len(fits))
save_file(found, folder / f"{world}-{rank}.safetensors")
"""

# clusters keys that are not numbers; what becomes of it is the only output
FAIL = """
import atexit
import sys, torch
from halp.methods import HalpSettings
folder, rank = sys.argv[1:3]
torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=int(rank), world_size=2)
atexit.register(torch.distributed.destroy_process_group)
term = HalpSettings(prototypes=3, recent=16).term(0.07)
try:
    term.fit(torch.full((16, 8), torch.nan), torch.Generator())
except Exception as error:
    print(type(error).__name__, error)
torch.distributed.barrier()
"""


def start(folder: Path, program: str, ranks: tuple[tuple[int, int], ...]) -> list[subprocess.Popen[str]]:
    (folder / "program.py").write_text(program)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # benchmarks.compose
    return [
        subprocess.Popen(
            [sys.executable, str(folder / "program.py"), str(folder), str(rank), str(world)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, world in ranks
    ]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    """What one process found, and each of two."""
    folder = tmp_path_factory.mktemp("steps")
    jobs = start(folder, TRAIN, ((0, 1), (0, 2), (1, 2)))
    assert [job.wait(timeout=300) for job in jobs] == [0, 0, 0]
    return [load_file(folder / f"{name}.safetensors") for name in ("1-0", "2-0", "2-1")]


def test_only_rank_0_clusters(steps: list[dict[str, torch.Tensor]]) -> None:
    alone, first, second = (int(found["fits"]) for found in steps)
    assert alone == first > 12
    assert second == 0


def test_prototypes_positives_queues_and_draws_of_both_ranks_are_equal_to_the_bit(
    steps: list[dict[str, torch.Tensor]],
) -> None:
    _, first, second = steps
    assert first.keys() == second.keys()
    assert sum(name.endswith("/theta") for name in first) == 24
    for name, value in first.items():
        assert name == "fits" or torch.equal(value, second[name]), name


def test_two_ranks_draw_and_find_what_one_does(steps: list[dict[str, torch.Tensor]]) -> None:
    alone, *both = steps
    for found in both:
        for name, value in alone.items():
            if name.endswith(("/draws", "/calls")):
                assert torch.equal(value, found[name]), name
            elif name.endswith(("/loss", "/queue", "/centres")):
                torch.testing.assert_close(
                    found[name], value, atol=2e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
                )


def test_clustering_that_fails_leaves_no_rank_waiting(tmp_path: Path) -> None:
    jobs = start(tmp_path, FAIL, ((0, 2), (1, 2)))
    first, second = (job.communicate(timeout=300)[0] for job in jobs)
    assert first.startswith("InputError k-means got a point that is not finite")
    assert second.startswith("LostProcess process 1 of 2 stops because process 0 failed")
    assert [job.returncode for job in jobs] == [0, 0]
