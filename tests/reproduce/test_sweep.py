"""Sweeps: every combination over the same seeds, resumed after a kill, compared in pairs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from halp.core.errors import InputError
from halp.data.store import Store
from halp.reproduce.sweep import Setting, Sweep, combinations, sweep
from halp.training import open_run


def test_combinations_name_what_varies_and_lists_stay_whole() -> None:
    names = [name for name, _ in combinations(["a=1,2", "b=[1, 2]", "c=x,y"])]
    assert names == ["a=1 c=x", "a=1 c=y", "a=2 c=x", "a=2 c=y"]
    assert dict(combinations(["b=[1, 2],[3, 4]"])) == {"b=[1, 2]": ["b=[1, 2]"], "b=[3, 4]": ["b=[3, 4]"]}
    for wrong in ("a", "a=", "=1", "a=1,,2"):
        with pytest.raises(InputError, match="--set takes key=a,b,c"):
            list(combinations([wrong]))


def test_differences_are_paired_by_seed_and_a_failed_run_leaves_its_pair_out() -> None:
    first = Setting("x=1", [0, 1, 2], {"knn xsub": [50.0, 60.0, 70.0]}, {})
    other = Setting("x=2", [0, 2], {"knn xsub": [52.0, 71.0]}, {1: "died"})
    found = Sweep("small", [first, other])
    difference = found.difference(other, "knn xsub")
    assert difference is not None
    assert (difference.mean, difference.pairs) == (1.5, 2)
    assert found.difference(first, "knn xsub") is None
    assert [row["knn xsub"] for row in found.rows()] == ["60.00 ± 10.00", "61.50 ± 13.44"]
    assert found.to_json()["settings"][1]["failures"] == {"1": "died"}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills a process the POSIX way")
def test_a_killed_sweep_resumes_and_ends_with_the_figures_of_one_that_was_not(
    store: Store, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    grid = [*tiny, "contrast.temperature=0.07,0.2"]
    command = [
        sys.executable,
        "-m",
        "halp",
        "sweep",
        "small",
        "--data",
        str(store.path),
        "--seeds",
        "2",
        "--protocol",
        "knn",
    ]
    command += ["--out", str(tmp_path / "sweep"), "--json", "--set", *grid]
    killed = subprocess.Popen(
        [*command, "--workers", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not list((tmp_path / "sweep").glob("*/results/*.json")) and killed.poll() is None:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(list((tmp_path / "sweep").glob("*/results"))) < 4, "it was killed on its way"
    done = subprocess.run([*command, "--workers", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [row["setting"] for row in answer["settings"]] == [
        "contrast.temperature=0.07",
        "contrast.temperature=0.2",
    ]
    folder = tmp_path / "whole"
    whole = sweep(
        "small", store.path, grid, seeds=2, out=folder, protocols=["knn"], workers=1, progress=False
    )
    assert json.loads(json.dumps(whole.to_json())) == answer
    assert open_run(tmp_path / "sweep" / "contrast.temperature=0.2-seed1").recipe.seed == 1
    with pytest.raises(InputError, match=r"epochs was 3, now 4; choose another folder with --out"):
        sweep("small", store.path, [*grid, "epochs=4"], out=folder, progress=False)
